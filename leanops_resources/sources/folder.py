"""The embedded source: `landing/{topic}/`, where files of newline-delimited envelopes are dropped.

A file is complete when it has its name: whoever writes one gives it a name that begins with a dot until it is. Files
are taken in the order of their names, and each is read to its end before the next is begun. A file goes when all of it
has been committed; how far a large one has come is noted beside it, so what is delivered again after a crash is what
one commit holds, at most. What is given back stands in a file of its own, `….again`, until the next drain.
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
from leanops_resources.sources.source import Source, Sources

SUFFIXES = (".ndjson", ".jsonl", ".json")
LONGEST_LINE = 64 * 1024 * 1024
"""A longer line is handed out in pieces of this size, so that it need not be in memory at once."""

_AGAIN = ".again"
_GIVEN_BACK = re.compile(rb"([1-9][0-9]{0,8})\t([^\t]+)\t(.+)", re.DOTALL)
"""A line of such a file: how often the message has been delivered, its handle, its body."""
_DRAFT, _NOTE = ".leanops.draft", ".leanops.committed"


class _Place(msgspec.Struct, frozen=True):
    """How far a file has been read: where its last line begins and ends, its number, and its sum."""

    name: bytes
    begins: int = 0
    ends: int = 0
    line: int = 0
    sum: int = 0


class _File:
    """A file that messages are received from."""

    def __init__(self, path: Path, noted: _Place | None) -> None:
        self.path = path
        self.in_hand = 0
        self.is_read = False
        self.is_noted = noted is not None and noted.name == os.fsencode(path.name)
        self.place = _Place(os.fsencode(path.name))
        self._is_given_back = path.suffix == _AGAIN
        with path.open("rb") as stream:
            self._as_found = os.fstat(stream.fileno())
            if noted and self.is_noted and _holds(stream, noted):
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
                if not self._is_in(stream):
                    self.is_read = True
                    return []
                stream.seek(ends)
                while len(messages) < most and most_bytes > 0:
                    if not (read := stream.readline(longest)):
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

    def size(self) -> int | None:
        """How large the file is now; None if it is gone, or if its name is another file's by now."""
        try:
            with self.path.open("rb") as stream:
                return os.fstat(stream.fileno()).st_size if self._is_in(stream) else None
        except FileNotFoundError:
            return None

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


class FolderSource(Source):
    """The files of one topic."""

    def __init__(self, folder: Path, topic: str) -> None:
        self.topic = topic
        self.name = f"landing/{topic}"
        self._folder = folder
        self._files: dict[str, _File] = {}
        self._in_hand: dict[str, _File] = {}
        self._given_back: set[str] = set()

    def receive(self, most: int, most_bytes: int) -> Sequence[QueueMessage]:
        """A file that cannot be read is told of only when nothing else is left to receive."""
        messages: list[QueueMessage] = []
        fault: tuple[Path, OSError] | None = None
        noted = self._noted()
        for path in self._unread(noted):
            if len(messages) >= most or most_bytes <= 0:
                break
            try:
                file = self._files.get(path.name) or self._files.setdefault(path.name, _File(path, noted))
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
        return len(files(self._folder))

    def _unread(self, noted: _Place | None) -> list[Path]:
        """The files that may have more to read. One that was begun is read to its end before the others."""
        found = files(self._folder)
        if found and not os.access(self._folder, os.W_OK | os.X_OK):
            raise HomeNotWritable(
                f"{self._folder} cannot be written, so what is received from it could never be removed.",
                "Give yourself write access to it.",
            )
        done = {name for name, file in self._files.items() if file.is_read} | self._given_back
        begun = {os.fsencode(name) for name in self._files} | ({noted.name} if noted else set())
        unread = [path for path in found if path.name not in done]
        return sorted(unread, key=lambda path: os.fsencode(path.name) not in begun)

    def _settle(self, file: _File) -> None:
        """Nothing of a file is in hand: it goes if all of it has been read, else its place is noted.

        If its name is another file's by now, that one is left alone, and read from its beginning.
        """
        with disk_faults_named(self._folder):
            size = file.size()
            if size is not None and file.place.ends < size:
                self._write(_NOTE, [msgspec.json.encode(file.place)])
            else:
                if size is not None:
                    file.path.unlink(missing_ok=True)
                if file.is_noted:
                    (self._folder / _NOTE).unlink(missing_ok=True)
        del self._files[file.path.name]

    def _noted(self) -> _Place | None:
        try:
            return msgspec.json.decode((self._folder / _NOTE).read_bytes(), type=_Place)
        except (OSError, msgspec.DecodeError):
            return None

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

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = str(folder)

    def topics(self) -> Sequence[str]:
        """One whose folder cannot be read is among them: whoever drains it is told why."""
        return sorted(each.name for each in _entries(self._folder) if is_topic(each.name) and _has_files(Path(each)))

    def of(self, topic: str) -> Source:
        return FolderSource(self._folder / topic_name(topic), topic)

    def stray_folders(self) -> Sequence[str]:
        """Folders with files that nobody will take in, for no topic can have their names."""
        found = (each for each in _entries(self._folder) if each.is_dir() and not is_topic(each.name))
        return sorted(each.name for each in found if _has_files(Path(each)))

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


def files(folder: Path) -> list[Path]:
    """The files that are complete, in the order of their names."""
    return [folder / name for name in sorted(each.name for each in _entries(folder) if _is_taken(each))]


def _has_files(folder: Path) -> bool:
    try:
        return any(_is_taken(each) for each in _entries(folder))
    except LandingFileUnreadable:
        return True


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
