"""dlt and Hudi beside Lean-Ops: the same messages, merged by key, and what each loses, lets in or changes."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engine import say
from benchmarks.peers.checking import Found, check
from benchmarks.peers.environments import Environment, Result
from benchmarks.peers.messages import MESSAGES, NUMBER_FIELDS, WARM_MESSAGES, Expected, what_must_stand, write_files
from benchmarks.peers.ours import Load, measure_ours
from benchmarks.report import Section

ROUNDS = 2
TARGETS = {"dlt": 8.0, "Hudi": 1.5}
_COLUMNS = (
    *("system", "first half, s", "second half, s", "messages a second", "ours against it", "of the second half"),
    *("rows", "missing", "doubled", "outdated", "broken JSON", "numbers changed", "numbers rewritten"),
)


def measure(folder: Path) -> Section:
    """Load both halves of the messages into a new table of each system, twice, and look at what it then holds."""
    say("making the environments of the peers")
    dlt, hudi = Environment.of("dlt"), Environment.of("hudi")
    messages = folder / "files"
    files = write_files(messages)
    expected = what_must_stand(files.halves)

    say(f"Lean-Ops, {MESSAGES:,} messages")
    ours = measure_ours(folder / "ours", files, ROUNDS)
    from_files = _best([[load.landing + load.standardized for load in loads] for loads in ours.rounds])
    layer = _best([[load.standardized for load in loads] for loads in ours.rounds])
    to_curated = _best([[_whole(load) for load in loads] for loads in ours.rounds])
    found = check(expected, _rows(ours.rows))
    kept = _kept(expected, found, ours.parse_errors)
    rows = [
        _row("Lean-Ops, from files to Standardized", from_files, from_files, found, kept),
        _speed_alone("of it Standardized, from RAW", layer),
        _speed_alone("Lean-Ops, from files to Curated", to_curated),
    ]
    for what, environment, job, arguments in (
        ("dlt", dlt, "dlt_job", ()),
        ("Hudi, copy-on-write", hudi, "hudi_job", (hudi.folder / "ivy", "COPY_ON_WRITE")),
        ("Hudi, merge-on-read", hudi, "hudi_job", (hudi.folder / "ivy", "MERGE_ON_READ")),
    ):
        say(f"{what}, {MESSAGES:,} messages")
        work = folder / what.replace(", ", "-")
        work.mkdir()
        result = environment.run(job, messages, work, ROUNDS, *arguments)
        found = check(expected, _rows(pq.read_table(result.rows)))
        seconds, kept = _best(result.seconds), _kept(expected, found)
        rows.append(_row(f"{what} ({_listed(result)})", seconds, from_files, found, kept))
    return Section("Peers, beside Lean-Ops", _COLUMNS, rows, _note())


def _whole(load: Load) -> float:
    return load.landing + load.standardized + load.curated


def _best(rounds: Iterable[Sequence[float]]) -> Sequence[float]:
    return min(rounds, key=sum)


def _ratio(theirs: Sequence[float], ours: Sequence[float]) -> str:
    return f"{sum(theirs) / sum(ours):.2f} x"


def _rows(table: pa.Table) -> Iterable[dict[str, object]]:
    """The columns that are compared, row by row; a table that never saw a field has no column of it."""
    names = [name for name in ("idempotency_key", "message_id", *NUMBER_FIELDS) if name in table.column_names]
    for batch in table.select(names).to_batches():
        yield from batch.to_pylist()


def _row(
    what: str, seconds: Sequence[float], ours: Sequence[float], found: Found, broken_json: str
) -> tuple[object, ...]:
    changed = ", ".join(f"{field} {count:,}" for field, count in sorted(found.changed_by_field.items()))
    return (
        *_speed(what, seconds),
        _ratio(seconds, ours),
        _ratio(seconds[1:], ours[1:]),
        f"{found.rows:,}",
        f"{found.missing:,}",
        f"{found.doubled:,}",
        f"{found.outdated:,}",
        broken_json,
        f"{found.changed:,}" + (f" ({changed})" if changed else ""),
        f"{found.rewritten:,}",
    )


def _speed_alone(what: str, seconds: Sequence[float]) -> tuple[object, ...]:
    speed = _speed(what, seconds)
    return (*speed, *["–"] * (len(_COLUMNS) - len(speed)))


def _speed(what: str, seconds: Sequence[float]) -> tuple[str, ...]:
    first, second = seconds
    return what, f"{first:.2f}", f"{second:.2f}", f"{MESSAGES / sum(seconds):,.0f}"


def _kept(expected: Expected, found: Found, with_reason: int = 0) -> str:
    """What happened to the messages whose JSON is broken."""
    fates = {"kept with the reason": with_reason, "let in as rows": found.unknown}
    fates["lost"] = expected.broken - sum(fates.values())
    return ", ".join(f"{count:,} {fate}" for fate, count in fates.items() if count)


def _listed(result: Result) -> str:
    return ", ".join(f"{name} {version}" for name, version in result.versions.items())


def _note() -> str:
    against_dlt, against_hudi = (f"{factor:g} x" for factor in TARGETS.values())
    return (
        f"{MESSAGES:,} messages of three publish days, the same files for all: 2 % copies, 4 % corrections, half "
        "of them of another day, 1 % broken JSON, and 4 % with a number of 30 digits, one of 25, one that ends in a "
        "zero, or 1e400 and its like. In each round the first half goes into a new table, the second half into that. "
        f"Seconds and ratios are of one run, of the faster of {ROUNDS} rounds, one system after the other, each in "
        f"a process that has loaded {WARM_MESSAGES:,} other messages for warmth. From files means read, parsed, "
        "flattened, merged by key and committed. What the tables hold was compared with the messages, row by row: "
        "records missing or doubled, outdated versions, numbers of another value (changed), and numbers of the same "
        "value in other letters, as 1.1 for 1.10 (rewritten). "
        'dlt: `filesystem` with `table_format="iceberg"` and the merge strategy `upsert`, which has PyIceberg merge '
        "and commit 1,000 rows at a time; not partitioned; pages of 10,000 rows; JSON read by dlt's own module. That "
        "refuses 1e400, so these messages are missing, skipped as the broken ones are; Python's own module reads it, "
        "and then the whole load fails at the number of 30 digits. `upsert` needs unique keys, so the resource picks "
        "the latest version of each. "
        "Hudi: `upsert` by the global record-level index, `publish_time` as the ordering field, by publish day, "
        "payloads read by `from_json` with a schema of texts; two cores, a heap of 2 GB, 4 shuffle partitions as "
        "Lean-Ops has, and 2 where Hudi would make 10 files of the index and 60 tasks, to fit the cores. A record key "
        "must not be NULL, or the whole write fails, so broken JSON is filtered out. "
        "Lean-Ops: a Spark server with a heap of 2 GB and the platform's own settings; Standardized keeps every field "
        "as text, as Hudi's table does here. "
        f"The targets are {against_dlt} against dlt and {against_hudi} against Hudi."
    )
