"""From a file of envelopes to RAW, in one append: all of it lands, or nothing does."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import _dataframe_to_data_files, schema_to_pyarrow
from pyiceberg.table import Table

from leanops.errors import EnvelopesInvalid, LandingConflict, LandingFileUnreadable, Problem, disk_faults_named
from leanops.progress import Advance, unseen
from leanops.raw.envelope import Envelope, EnvelopeMalformed, parse_envelope
from leanops.raw.table import RAW_SCHEMA, ensure_raw_table

CHUNK_BYTES = 64 * 1024 * 1024
"""How much of a file is held in memory at once."""

_ARROW_SCHEMA = schema_to_pyarrow(RAW_SCHEMA, include_field_ids=False)

Reserve = Callable[[str, int], int]
"""Hands out the first of so many consecutive numbers of a sequence, as the state store does."""


@dataclass(frozen=True)
class Landed:
    """What an append brought to RAW."""

    topic: str
    rows: int
    rows_by_day: Mapping[date, int]
    snapshot_id: int | None
    skipped: Sequence[Problem] = ()


def land_file(
    catalog: Catalog,
    reserve: Reserve,
    topic: str,
    file: Path,
    first_day: date,
    skip_bad: bool = False,
    advance: Advance = unseen,
) -> Landed:
    """Append the envelopes of `file` to the topic's RAW table in one commit.

    Every bad line is reported with its number. Then nothing lands, or only the good lines if that was asked for.
    """
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise LandingFileUnreadable(
            f"{file} is a pipe or a device, and a landing reads its file twice.", "Save it to a file and land that."
        )
    now = datetime.now(UTC)
    good, problems = _check(file, first_day, now, advance)
    if problems and not skip_bad:
        raise EnvelopesInvalid(
            f"{file} did not land: it", problems, "Mend these lines, or land the others with --skip-bad."
        )
    if not good:
        return Landed(topic, 0, {}, None, problems)

    table = ensure_raw_table(catalog, topic)
    days: Counter[date] = Counter()
    chunks = (
        _rows(envelopes, topic, reserve(f"landing/{topic}", len(envelopes)), int(now.timestamp()), days)
        for envelopes in _chunks(_good_envelopes(file, first_day, now))
    )
    with disk_faults_named(Path(table.location().removeprefix("file://"))):
        snapshot_id = _append(table, chunks, {"leanops.landed-from": _as_text(file.name)})
    return Landed(topic, sum(days.values()), dict(sorted(days.items())), snapshot_id, problems)


def _append(table: Table, chunks: Iterator[pa.Table], properties: dict[str, str]) -> int:
    """One snapshot of all `chunks`, of which one at a time is in memory. Returns its id."""
    written = _Written(table.io)
    try:
        files = [file for chunk in chunks for file in _dataframe_to_data_files(table.metadata, chunk, written)]
    except BaseException:
        written.remove()
        raise
    try:
        with (
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=properties).fast_append() as append,
        ):
            for file in files:
                append.append_data_file(file)
    except CommitFailedException as error:
        # Only this fault is known not to have committed; after any other the files may be part of the table.
        written.remove()
        raise LandingConflict(
            f"{'.'.join(table.name())} was committed to by others time and again.",
            "Nothing landed. Run the same command again.",
        ) from error
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


class _Written(FileIO):
    """A table's files as they are begun, so that writing that comes to nothing leaves none of them."""

    def __init__(self, io: FileIO) -> None:
        super().__init__(io.properties)
        self._io = io
        self._begun: list[str] = []

    def new_input(self, location: str) -> InputFile:
        return self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        self._begun.append(location)
        return self._io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._io.delete(location)

    def remove(self) -> None:
        for location in self._begun:
            with suppress(OSError):
                self._io.delete(location)


def _as_text(name: str) -> str:
    """A file's name as text that can be stored: bytes of it that are no UTF-8 become question marks."""
    return name.encode("utf-8", "replace").decode()


def _check(file: Path, first_day: date, now: datetime, advance: Advance) -> tuple[int, list[Problem]]:
    """How many lines are good, and what is wrong with each of the others. Nothing is written yet."""
    good, problems = 0, []
    for number, line in _lines(file):
        advance(len(line) + 1)
        try:
            parse_envelope(line, first_day, now)
            good += 1
        except EnvelopeMalformed as error:
            problems.append(Problem(f"line {number}", str(error)))
    return good, problems


def _good_envelopes(file: Path, first_day: date, now: datetime) -> Iterator[Envelope]:
    for _, line in _lines(file):
        try:
            yield parse_envelope(line, first_day, now)
        except EnvelopeMalformed:
            continue


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that have anything on them, numbered as an editor numbers them."""
    try:
        with file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line := line.strip():
                    yield number, line
    except OSError as error:
        raise LandingFileUnreadable(
            f"{file} cannot be read: {error.strerror}.", "Name a file of envelopes, one JSON object per line."
        ) from error


def _chunks(envelopes: Iterator[Envelope]) -> Iterator[list[Envelope]]:
    chunk: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        chunk.append(envelope)
        size += len(envelope.payload)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _rows(envelopes: list[Envelope], topic: str, first_seq: int, now: int, days: Counter[date]) -> pa.Table:
    """The rows of RAW that `envelopes` become; `days` counts them."""
    days.update(envelope.publish_time.date() for envelope in envelopes)
    columns = {
        "message_id": [envelope.message_id for envelope in envelopes],
        "topic_name": [topic] * len(envelopes),
        "json_payload": [envelope.payload for envelope in envelopes],
        "ingestion_ts": [now if each.ingestion_ts is None else each.ingestion_ts for each in envelopes],
        "publish_time": [envelope.publish_time for envelope in envelopes],
        "idempotency_key": [envelope.idempotency_key for envelope in envelopes],
        "landing_seq": range(first_seq, first_seq + len(envelopes)),
    }
    return pa.table(columns, schema=_ARROW_SCHEMA)
