"""From envelopes to RAW, in one append: all of them land, or none does."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from leanops.errors import EnvelopesInvalid, LandingConflict, LandingFileUnreadable, Problem, disk_faults_named
from leanops.progress import Advance, unseen
from leanops.raw.envelope import Envelope, EnvelopeMalformed, parse_envelope
from leanops.raw.files import ARROW_SCHEMA, RawFiles
from leanops.raw.table import LAST_SEQ, ensure_raw_table, last_landing_seq

CHUNK_BYTES = 64 * 1024 * 1024
"""How much of a file is held in memory at once."""

ATTEMPTS = 20
_LANDING_SEQ = ARROW_SCHEMA.field("landing_seq")
_UNNUMBERED = ARROW_SCHEMA.remove(ARROW_SCHEMA.get_field_index("landing_seq"))


@dataclass(frozen=True)
class Landed:
    """What an append brought to RAW."""

    topic: str
    rows: int
    rows_by_day: Mapping[date, int]
    snapshot_id: int | None
    skipped: Sequence[Problem] = ()


@dataclass(frozen=True)
class CheckedFile:
    """A file of envelopes that has been read once: how many messages of each day may land, and what is wrong."""

    path: Path
    first_day: date
    now: datetime
    days: Mapping[date, int]
    problems: Sequence[Problem]

    def envelopes(self) -> Iterator[list[Envelope]]:
        """The good lines, as many at a time as may be held in memory."""
        return _chunks(_good_envelopes(self.path, self.first_day, self.now))


def check_file(file: Path, first_day: date, skip_bad: bool = False, advance: Advance = unseen) -> CheckedFile:
    """Read a file without landing it. Every bad line is reported with its number, unless these may be skipped."""
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise LandingFileUnreadable(
            f"{file} is a pipe or a device, and a landing reads its file twice.", "Save it to a file and land that."
        )
    now = datetime.now(UTC)
    days, problems = _check(file, first_day, now, advance)
    if problems and not skip_bad:
        raise EnvelopesInvalid(
            f"{file} did not land: it", problems, "Mend these lines, or land the others with --skip-bad."
        )
    return CheckedFile(file, first_day, now, days, problems)


def land_file(
    catalog: Catalog,
    topic: str,
    file: Path,
    first_day: date,
    skip_bad: bool = False,
    advance: Advance = unseen,
) -> Landed:
    """Append the envelopes of `file` to the topic's RAW table in one commit: all of them, or none."""
    return land_checked(catalog, topic, check_file(file, first_day, skip_bad, advance))


def land_checked(
    catalog: Catalog, topic: str, checked: CheckedFile, properties: Mapping[str, str] = MappingProxyType({})
) -> Landed:
    """Append the good lines of a file to RAW in one commit."""
    if not checked.days:
        return Landed(topic, 0, {}, None, checked.problems)
    said = {"leanops.landed-from": _as_text(checked.path.name), **properties}
    return replace(land(catalog, topic, checked.envelopes, checked.now, said), skipped=checked.problems)


def land(
    catalog: Catalog,
    topic: str,
    envelopes: Callable[[], Iterable[Sequence[Envelope]]],
    now: datetime,
    properties: Mapping[str, str],
) -> Landed:
    """Append envelopes to RAW in one commit. They are asked for again when somebody else has committed first."""
    return land_in(ensure_raw_table(catalog, topic), topic, envelopes, now, properties)


def land_in(
    table: Table,
    topic: str,
    envelopes: Callable[[], Iterable[Sequence[Envelope]]],
    now: datetime,
    properties: Mapping[str, str],
) -> Landed:
    """The same for who has the topic's RAW table in hand, however old: it is loaded again only after a conflict."""
    with disk_faults_named(Path(table.location().removeprefix("file://"))):
        for _ in range(ATTEMPTS):
            days: Counter[date] = Counter()
            rows = (_rows(chunk, topic, int(now.timestamp()), days) for chunk in envelopes())
            if snapshot_id := append_raw(table, rows, properties):
                return Landed(topic, days.total(), dict(sorted(days.items())), snapshot_id)
            table.refresh()
    raise LandingConflict(
        f"{'.'.join(table.name())} was committed to by others time and again.",
        "Nothing landed. Run the same command again.",
    )


def append_raw(table: Table, chunks: Iterable[pa.Table], properties: Mapping[str, str]) -> int | None:
    """One snapshot of all `chunks`, of which one at a time is in memory; its id, or None if others were faster.

    Rows are numbered on from the last one in the table. The commit succeeds only if that is still the last one: the
    order of landing_seq is the order of commits, and whoever has read up to a number will never find a lower one.
    """
    seq = last_landing_seq(table)
    with suppress(CommitFailedException), RawFiles(table) as files:
        written: list[DataFile] = []
        for chunk in chunks:
            numbers = pa.array(range(seq + 1, seq + 1 + chunk.num_rows), pa.int64())
            written += files.write(chunk.append_column(_LANDING_SEQ, numbers).cast(ARROW_SCHEMA))
            seq += chunk.num_rows
        return files.commit(written, {**properties, LAST_SEQ: str(seq)})
    return None


def _as_text(name: str) -> str:
    """A file's name as text that can be stored: bytes of it that are no UTF-8 become question marks."""
    return name.encode("utf-8", "replace").decode()


def _check(file: Path, first_day: date, now: datetime, advance: Advance) -> tuple[Counter[date], list[Problem]]:
    """How many lines of each day are good, and what is wrong with each of the others. Nothing is written yet."""
    days: Counter[date] = Counter()
    problems = []
    for number, line in _lines(file):
        advance(len(line) + 1)
        try:
            days[parse_envelope(line, first_day, now).publish_time.date()] += 1
        except EnvelopeMalformed as error:
            problems.append(Problem(f"line {number}", str(error)))
    return days, problems


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


def _rows(envelopes: Sequence[Envelope], topic: str, now: int, days: Counter[date]) -> pa.Table:
    """The rows of RAW that `envelopes` become, before they are numbered; `days` counts them."""
    days.update(envelope.publish_time.date() for envelope in envelopes)
    columns = {
        "message_id": [envelope.message_id for envelope in envelopes],
        "topic_name": [topic] * len(envelopes),
        "json_payload": [envelope.payload for envelope in envelopes],
        "ingestion_ts": [now if each.ingestion_ts is None else each.ingestion_ts for each in envelopes],
        "publish_time": [envelope.publish_time for envelope in envelopes],
        "idempotency_key": [envelope.idempotency_key for envelope in envelopes],
    }
    return pa.table(columns, schema=_UNNUMBERED)
