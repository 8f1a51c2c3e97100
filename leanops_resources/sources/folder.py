"""The embedded source: `landing/{topic}/`, where files of newline-delimited envelopes are dropped.

A file is taken when it was renamed into place, or when nobody has written to it for some seconds (`file_state.py`).
Names that begin with a dot are nobody's business. Files are taken in the order of their names, and each is read to its
end before the next is begun. A file goes when all of it has been committed and nobody has it open for writing; how far
it has come is noted beside it until then. So what is added to a file is received, whenever that is, and what is
delivered again after a crash is what one commit holds, at most. What is given back stands in a file of its own,
`….again`, until the next drain.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4
from zlib import crc32

import msgspec

from leanops.errors import HomeNotWritable, LandingFileUnreadable, disk_faults_named
from leanops.ingestion.messages import QueueMessage
from leanops.names import is_topic, topic_name
from leanops_resources.sources.file_state import (
    is_complete,
    is_open_for_writing,
    may_be_removed,
)
from leanops_resources.sources.source import Source, Sources

SUFFIXES = (".ndjson", ".jsonl", ".json")
LONGEST_LINE = 64 * 1024 * 1024
"""A longer line is handed out in pieces of this size, so that it need not be in memory at once."""

_AGAIN = ".again"
_GIVEN_BACK = re.compile(rb"([1-9][0-9]{0,8})\t([^\t]+)\t(.+)", re.DOTALL)
"""A line of such a file: how often the message has been delivered, its handle, its body."""
_DRAFT, _NOTE, _ASIDE = ".leanops.draft", ".leanops.committed", ".leanops.aside."


class _Place(msgspec.Struct, frozen=True):
    """How far a file has been read: where its last line begins and ends, its number, and its sum."""

    name: bytes
    begins: int = 0
    ends: int = 0
    line: int = 0
    sum: int = 0


_Places = dict[bytes, _Place]
"""How far files have come, by their names."""


class _File:
    """A file that messages are received from."""

    def __init__(self, path: Path, noted: _Place | None, still_seconds: float) -> None:
        self.path = path
        self.in_hand = 0
        self.is_read = False
        self._still_seconds = still_seconds
        self.place = _Place(os.fsencode(path.name))
        self._is_given_back = path.suffix == _AGAIN
        with path.open("rb") as stream:
            self._as_found = os.fstat(stream.fileno())
            if noted and _holds(stream, noted):
                self.place = noted
        # A file may be dropped with the time of another: only the time of the drop itself cannot be chosen.
        self._drop = f"{_printable(path.name)}@{self._as_found.st_ctime_ns}"

    def receive(self, topic: str, most: int, most_bytes: int) -> list[QueueMessage]:
        """The next lines that have anything on them, numbered as an editor numbers them.

        A fault is raised only if there are none before it: else the next call will meet it.
        """
        messages: list[QueueMessage] = []
        number, ends, line = self.place.line, self.place.ends, b""
        longest = LONGEST_LINE if not self._is_given_back else 2 * LONGEST_LINE
        try:
            with self.path.open("rb") as stream:
                state = os.fstat(stream.fileno())
                if not self._is_in(stream) or not self._is_complete(state):
                    self.is_read = True
                    return []
                stream.seek(ends)
                while len(messages) < most and most_bytes > 0:
                    read = stream.readline(longest)
                    if not read or not self._is_whole(stream, read, ends + len(read), state):
                        self.is_read = True
                        break
                    line, number, ends = read, number + 1, ends + len(read)
                    if body := line.strip():
                        messages.append(self._message(topic, number, body))
                        most_bytes -= len(body)
        except OSError:
            if not messages:
                raise
        if line:
            self.place = _Place(self.place.name, ends - len(line), ends, number, crc32(line))
        return messages

    def remove(self) -> bool:
        """Remove the file if all of it was read and nobody can add to it any more; False if it is to stay.

        If its name is another file's by now, that one is left alone.
        """
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            return True
        with stream:
            state = os.fstat(stream.fileno())
            if not self._is_in(stream):
                return True
            if state.st_size > self.place.ends:
                return False
            if self._is_given_back:
                self.path.unlink(missing_ok=True)
                return True
            return may_be_removed(stream.fileno(), state) and self._remove(stream)

    def _remove(self, stream: BinaryIO) -> bool:
        """Take the name away first. Whoever has opened the file by it until then to write to it is seen after that."""
        aside = self.path.with_name(f"{_ASIDE}{uuid4().hex}")
        self.path.rename(aside)
        state = os.fstat(stream.fileno())
        is_over = state.st_size == self.place.ends and not is_open_for_writing(stream.fileno())
        is_over = is_over and os.path.samestat(state, aside.stat())
        if is_over:
            aside.unlink()
        else:
            _give_name(aside, self.path)
        return is_over

    def _is_complete(self, state: os.stat_result) -> bool:
        return self._is_given_back or is_complete(state, self._still_seconds)

    def _is_whole(self, stream: BinaryIO, line: bytes, ends: int, state: os.stat_result) -> bool:
        """Whether a line was there when the file was complete, and whoever wrote its beginning has written its end."""
        if ends > state.st_size > 0:
            return False
        return line.endswith(b"\n") or ends < state.st_size or not is_open_for_writing(stream.fileno())

    def _message(self, topic: str, number: int, body: bytes) -> QueueMessage:
        if self._is_given_back and (found := _GIVEN_BACK.fullmatch(body)):
            times, handle, body = found.groups()
            return QueueMessage(topic, handle.decode("utf-8", "replace"), body, int(times) + 1)
        return QueueMessage(topic, f"{self._drop}:{number}", body)

    def _is_in(self, stream: BinaryIO) -> bool:
        """Whether this is the file that was found, though it may have grown since."""
        now, found = os.fstat(stream.fileno()), self._as_found
        is_untouched = os.path.samestat(now, found) and now.st_ctime_ns == found.st_ctime_ns
        return is_untouched or _holds(stream, self.place)


def _holds(stream: BinaryIO, place: _Place) -> bool:
    """Whether the last line that was read stands in its place."""
    stream.seek(place.begins)
    line = stream.read(place.ends - place.begins)
    return len(line) == place.ends - place.begins and crc32(line) == place.sum


def _give_name(aside: Path, path: Path) -> None:
    """Give a file a name under which it is taken: its own, unless that is another file's by now."""
    try:
        os.link(aside, path)
    except FileExistsError:
        aside.rename(path.with_name(f"{uuid4().hex}{SUFFIXES[0]}"))
    else:
        aside.unlink()


class FolderSource(Source):
    """The files of one topic, each taken when it is complete: renamed into place, or still for so many seconds."""

    def __init__(self, folder: Path, topic: str, still_seconds: float = 0) -> None:
        self.topic = topic
        self.name = f"landing/{topic}"
        self._folder = folder
        self._still_seconds = still_seconds
        self._files: dict[str, _File] = {}
        self._in_hand: dict[str, _File] = {}
        self._given_back: set[str] = set()

    def receive(self, most: int, most_bytes: int) -> Sequence[QueueMessage]:
        """A file that cannot be read is told of only when nothing else is left to receive."""
        messages: list[QueueMessage] = []
        fault: tuple[Path, OSError] | None = None
        noted = _noted(self._folder)
        for path in self._unread(noted):
            if len(messages) >= most or most_bytes <= 0:
                break
            try:
                file = self._files.get(path.name) or self._found(path, noted)
                while len(messages) < most and most_bytes > 0 and not file.is_read:
                    for message in file.receive(self.topic, most - len(messages), most_bytes):
                        most_bytes -= len(message.body)
                        # Whoever died while giving it back has left it in two files.
                        if message.handle not in self._in_hand:
                            self._in_hand[message.handle] = file
                            file.in_hand += 1
                            messages.append(message)
            except FileNotFoundError:
                continue
            except OSError as error:
                fault = path, error
                continue
            if file.is_read and not file.in_hand:
                self._settle(file)
        if fault and not messages:
            raise _unreadable(*fault) from fault[1]
        return messages

    def _found(self, path: Path, noted: _Places) -> _File:
        file = _File(path, noted.get(os.fsencode(path.name)), self._still_seconds)
        return self._files.setdefault(path.name, file)

    def delete(self, messages: Sequence[QueueMessage]) -> int:
        touched = {}
        for message in messages:
            if file := self._in_hand.pop(message.handle, None):
                file.in_hand -= 1
                touched[file.path.name] = file
        for file in touched.values():
            if not file.in_hand:
                self._settle(file)
        return 0

    def give_back(self, messages: Sequence[QueueMessage]) -> None:
        """They come again with the next drain, from a file that knows their handles."""
        in_hand = [message for message in messages if message.handle in self._in_hand]
        if in_hand:
            # Behind the files that are dropped: what fails does not hold up what may not.
            name = f"~{uuid4().hex}{_AGAIN}"
            self._given_back.add(name)
            self._write(name, (b"%d\t%b\t%b\n" % (each.receives, each.handle.encode(), each.body) for each in in_hand))
            self.delete(in_hand)

    def waiting(self) -> int:
        """At least one for each file: their lines are not counted."""
        return len(files(self._folder, self._still_seconds))

    def _unread(self, noted: _Places) -> list[Path]:
        """The files that may have more to read. One that was begun is read to its end before the others."""
        for aside in self._folder.glob(f"{_ASIDE}*"):
            # Whoever was to remove it has died over it.
            _give_name(aside, aside.with_name(f"{uuid4().hex}{SUFFIXES[0]}"))
        found = files(self._folder, self._still_seconds)
        if found and not os.access(self._folder, os.W_OK | os.X_OK):
            raise HomeNotWritable(
                f"{self._folder} cannot be written, so what is received from it could never be removed.",
                "Give yourself write access to it.",
            )
        done = {name for name, file in self._files.items() if file.is_read} | self._given_back
        begun = {os.fsencode(name) for name in self._files} | noted.keys()
        unread = [path for path in found if path.name not in done]
        return sorted(unread, key=lambda path: os.fsencode(path.name) not in begun)

    def _settle(self, file: _File) -> None:
        """Nothing of a file is in hand: it goes if all of it has been read and is over, else its place is noted."""
        with disk_faults_named(self._folder):
            noted = _noted(self._folder)
            name = file.place.name
            if file.remove():
                wanted = {each: place for each, place in noted.items() if each != name}
            else:
                wanted = {**noted, name: file.place}
            wanted = {each: place for each, place in wanted.items() if (self._folder / os.fsdecode(each)).exists()}
            if not wanted:
                (self._folder / _NOTE).unlink(missing_ok=True)
            elif wanted != noted:
                self._write(_NOTE, [msgspec.json.encode(list(wanted.values()))])
        del self._files[file.path.name]

    def _write(self, name: str, lines: Iterable[bytes]) -> None:
        """Write a file that is whole when it has its name."""
        draft = self._folder / _DRAFT
        with disk_faults_named(self._folder):
            try:
                with draft.open("wb") as stream:
                    stream.writelines(lines)
                    stream.flush()
                    os.fsync(stream.fileno())
                draft.replace(self._folder / name)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise


class LandingFolder(Sources):
    """The folder with a folder for each topic."""

    def __init__(self, folder: Path, still_seconds: float = 0) -> None:
        self._folder = folder
        self._still_seconds = still_seconds
        self.name = str(folder)

    def topics(self) -> Sequence[str]:
        """One whose folder cannot be read is among them: whoever drains it is told why."""
        found = (each.name for each in _entries(self._folder) if is_topic(each.name))
        return sorted(topic for topic in found if _has_files(self._folder / topic, self._still_seconds))

    def of(self, topic: str) -> Source:
        return FolderSource(self._folder / topic_name(topic), topic, self._still_seconds)

    def being_written(self) -> Sequence[Path]:
        """The files that were not renamed into place, and have not been still for long enough."""
        folders = (Path(each) for each in _entries(self._folder) if each.is_dir() and is_topic(each.name))
        found = (each for folder in folders for each in _entries_if_readable(folder) if _is_taken(each))
        return sorted(Path(each) for each in found if _is_being_written(each, self._still_seconds))

    def stray_folders(self) -> Sequence[str]:
        """Folders with files that nobody will take in, for no topic can have their names."""
        found = (each for each in _entries(self._folder) if each.is_dir() and not is_topic(each.name))
        return sorted(each.name for each in found if _has_files(Path(each), 0))

    def strays(self) -> Sequence[str]:
        """What nobody will take in: files of another kind, and folders that no topic can have or nobody can read."""
        strays = []
        for each in _entries(self._folder):
            if not (each.is_dir() and is_topic(each.name)):
                strays.append(each.name)
                continue
            try:
                strays += [f"{each.name}/{inner.name}" for inner in _entries(Path(each)) if not _is_taken(inner)]
            except LandingFileUnreadable:
                strays.append(each.name)
        return sorted(strays)


def files(folder: Path, still_seconds: float = 0) -> list[Path]:
    """The files that are complete, in the order of their names, but for those that have no more to read for now."""
    found = [each for each in _entries(folder) if _is_taken(each)]
    noted = _noted(folder) if found else {}
    return [
        folder / each.name for each in sorted(found, key=lambda each: each.name) if _waits(each, noted, still_seconds)
    ]


def _waits(entry: os.DirEntry[str], noted: _Places, still_seconds: float) -> bool:
    """Whether a file can be read, or can go."""
    if _is_being_written(entry, still_seconds):
        return False
    place = noted.get(os.fsencode(entry.name))
    try:
        if place is None or entry.stat().st_size > place.ends:
            return True
        with Path(entry).open("rb") as stream:
            return may_be_removed(stream.fileno(), os.fstat(stream.fileno()))
    except OSError:
        return True


def _is_being_written(entry: os.DirEntry[str], still_seconds: float) -> bool:
    try:
        return not entry.name.endswith(_AGAIN) and not is_complete(entry.stat(), still_seconds)
    except FileNotFoundError:
        return False


def _noted(folder: Path) -> _Places:
    """How far the files of a folder have come that have more to read."""
    try:
        note = (folder / _NOTE).read_bytes()
        places = msgspec.json.decode(note, type=list[_Place] | _Place)
    except (OSError, msgspec.DecodeError):
        return {}
    return {place.name: place for place in ([places] if isinstance(places, _Place) else places)}


def _has_files(folder: Path, still_seconds: float) -> bool:
    try:
        return bool(files(folder, still_seconds))
    except LandingFileUnreadable:
        return True


def _entries_if_readable(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return _entries(folder)
    except LandingFileUnreadable:
        return []


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder under a name that does not begin with a dot; nothing if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return [each for each in entries if each.name[0] != "."]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(folder, error) from error


def _is_taken(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith((*SUFFIXES, _AGAIN)) and entry.is_file()


def _unreadable(path: Path, error: OSError) -> LandingFileUnreadable:
    return LandingFileUnreadable(
        f"{path} cannot be read: {error.strerror}.", "Give yourself access to it, or move it away."
    )


def _printable(name: str) -> str:
    """A file's name as text that can be stored in a line: bytes that are no UTF-8, tabs and the like are escaped."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode() for sign in name
    )
