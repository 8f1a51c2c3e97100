"""The whole story of one message or record: when it landed, what became of it, where it stands, what would heal it."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.commits import checkpoint_of
from leanops.contracts.manifest import Topic
from leanops.contracts.model import Contract
from leanops.key_index.entries import hashes_of
from leanops.key_index.file import KeyIndex, KeyIndexUnreadable, Kind
from leanops.key_index.table import index_of_topic
from leanops.ledger.letter_story import letter_story, letters_called
from leanops.names import SOURCE, Layer, spark_table, table
from leanops.raw.table import LAST_SEQ
from leanops.slices import sized
from leanops.standardized.payload_reader import reader_for, record_keys
from leanops.standardized.table import key_plan
from leanops.standardized.transform import VERSION
from leanops.tables import find_table

Row = dict[str, Any]
_TOPICS_AT_ONCE = 40
"""So many topics are asked in one query."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a message or its record, in words, with the facts it is told from."""

    topic: str
    what: str
    facts: Row


def trace(
    spark: SparkSession, catalog: Catalog, topics: Sequence[Topic], wanted: str, only: Collection[str] = ()
) -> Iterator[Event]:
    """The story of a `message_id`, an `idempotency_key` or a dead letter in each topic that knows it, or `only` there.

    A dead letter may be all that is known of a topic.
    """
    dead: dict[str, list[Event]] = {}
    for letter in letters_called(catalog, wanted, only):
        told = dead.setdefault(letter["topic_name"], [])
        told += [Event(letter["topic_name"], what, facts) for what, facts in letter_story(letter)]
    topics = [topic for topic in topics if not only or topic.name in only]
    sized(spark, 1)
    for at in range(0, len(topics), _TOPICS_AT_ONCE):
        chunk = {topic.name: topic for topic in topics[at : at + _TOPICS_AT_ONCE]}
        found = list(_look(spark, catalog, chunk.values(), wanted))
        for name in dict.fromkeys(row["topic"] for row in found):
            own = [row for row in found if row["topic"] == name]
            yield from dead.pop(name, ())
            yield from _Story(spark, catalog, chunk[name], own).events()
    for told in dead.values():
        yield from told


def _look(spark: SparkSession, catalog: Catalog, topics: Any, wanted: str) -> Iterator[Row]:
    """What is called so: messages of RAW by their id, records of Standardized by their key."""
    asked = []
    for topic in topics:
        tables = _Tables(catalog, topic.name)
        for layer, kind in ((Layer.RAW, Kind.ID), (Layer.STANDARDIZED, Kind.KEY)):
            if layer in tables.there:
                rows = spark.read.table(spark_table(layer, topic.name)).where(tables.having(kind, wanted))
                asked.append(_told(rows, topic.name, layer))
    yield from _rows(asked)


class _Tables:
    """The tables of a topic, and its key index: where it says that a row stands, Spark opens a file or two."""

    def __init__(self, catalog: Catalog, topic: str) -> None:
        found = {layer: find_table(catalog, table(layer, topic)) for layer in (Layer.RAW, *SOURCE)}
        self.there = {layer: each for layer, each in found.items() if each is not None}

    @cached_property
    def _index(self) -> KeyIndex | None:
        file = index_of_topic(*(self.there.get(layer) for layer in (Layer.RAW, *SOURCE)))
        io = self.there[Layer.STANDARDIZED].io if file else None
        try:
            return KeyIndex.read(io, file.statistics_path).whole(io) if file and io else None
        except KeyIndexUnreadable:
            return None

    def having(self, kind: Kind, value: str) -> Column:
        """The rows that have an id or a key."""
        is_wanted = F.col(kind) == value
        if self._index is None:
            return is_wanted
        seqs = self._index.having(kind, hashes_of(pa.chunked_array([[value]]))).seqs.tolist()
        is_later = F.col("landing_seq").isNull() | (F.col("landing_seq") > self._index.upto)
        return is_wanted & (is_later | F.col("landing_seq").isin(seqs) if seqs else is_later)


def _told(rows: DataFrame, topic: str, layer: Layer) -> DataFrame:
    """Rows of any table, as the text of JSON objects."""
    return rows.select(
        F.lit(topic).alias("topic"), F.lit(layer.value).alias("layer"), F.to_json(F.struct("*")).alias("row")
    )


def _rows(asked: Sequence[DataFrame]) -> Iterator[Row]:
    for row in reduce(DataFrame.unionAll, asked).collect() if asked else ():
        yield {**json.loads(row.row), "topic": row.topic, "layer": Layer(row.layer)}


@dataclass(frozen=True)
class _Story:
    """What is known of one name in one topic."""

    spark: SparkSession
    catalog: Catalog
    topic: Topic
    found: Sequence[Row]

    def events(self) -> Iterator[Event]:
        landed = [row for row in self.found if row["layer"] is Layer.RAW]
        standing = [row for row in self.found if row["layer"] is Layer.STANDARDIZED]
        stands: list[Row] | None = None
        if not landed and standing:
            # It is a record's key: the story of the message that counts.
            counts = standing[0]
            yield self._event(f"is the key of a record, of which {counts['message_id']} is the version that counts", {})
            stands = self._places(counts["message_id"], counts["idempotency_key"], Layer.RAW)
            landed = [row for row in stands if row["layer"] is Layer.RAW]
        landed.sort(key=lambda row: row["landing_seq"])
        for row in landed:
            yield self._landing(row)
        if not landed:
            return
        counting = [landed[0]]
        for place, copy in enumerate(landed[1:], 1):
            first, seq = counting[-1]["landing_seq"], copy["landing_seq"]
            if self._is_in_time(landed[:place], copy):
                yield self._event(f"number {seq} is a duplicate of number {first}, and goes no further", {})
            else:
                days = self.topic.contract.thresholds.duplicates_within_days if self.topic.contract else None
                what = (
                    f"number {seq} landed more than {days} days after the copy before it, and is a message of its own"
                )
                yield self._event(what, {})
                counting.append(copy)
        for row in counting:
            yield from self._fate(row, stands)

    def _is_in_time(self, before: Sequence[Row], copy: Row) -> bool:
        """Whether a message is a copy of those that landed before it, by the horizon of the contract."""
        horizon = self.topic.contract.horizon if self.topic.contract else None
        return horizon is None or copy["ingestion_ts"] - max(each["ingestion_ts"] for each in before) <= horizon

    def _landing(self, row: Row) -> Event:
        raw = self.catalog.load_table(table(Layer.RAW, self.topic.name))
        snapshot_id, moment = _landed_by(raw, row["landing_seq"])
        by = f" by snapshot {snapshot_id} at {moment}" if snapshot_id else ""
        facts = {
            "message_id": row["message_id"],
            "landing_seq": row["landing_seq"],
            "publish_time": row["publish_time"],
            "ingestion_ts": row["ingestion_ts"],
            "raw_snapshot": snapshot_id,
            "landed": moment,
        }
        what = f"{row['message_id']}, published {row['publish_time']}, landed in RAW as number {row['landing_seq']}{by}"
        return self._event(what, facts)

    def _fate(self, first: Row, stands: Sequence[Row] | None) -> Iterator[Event]:
        """What became of a copy that counts, which `stands` where it is known already."""
        contract, name = self.topic.contract, self.topic.name
        upto = int(checkpoint_of(find_table(self.catalog, table(Layer.STANDARDIZED, name))).get("upto", 0))
        if contract is None:
            yield self._event("waits in RAW until the topic has an active contract", {})
            return
        if first["landing_seq"] > upto:
            yield self._event("waits in RAW for the next tick", {})
            return
        error, key = _read(first, contract)
        if stands is None:
            stands = self._places(first["message_id"], key)
        if error:
            yield from self._refused(stands, error)
            return
        rows = {layer: [row for row in stands if row["layer"] is layer] for layer in Layer}
        standing = rows[Layer.STANDARDIZED]
        own = [row for row in standing if row["landing_seq"] == first["landing_seq"]]
        yield self._event(f"is a version of the record {key}", {"idempotency_key": key})
        if own:
            yield self._event("stands in Standardized: it is the latest version", _short(own[0]))
        elif standing and _version(standing[0]) > _version(first):
            later = standing[0]
            what = f"is superseded by {later['message_id']}, published {later['publish_time']}"
            yield self._event(f"{what}, which stands in Standardized", _short(later))
        else:
            yield self._event("HAS NO FATE: it stands nowhere, and no later version of its record does", {})
        yield from self._judged(rows, contract)

    def _refused(self, stands: Sequence[Row], error: str) -> Iterator[Event]:
        for row in stands:
            if row["layer"] is Layer.PARSE_ERRORS:
                yield self._event(
                    f"stands among the parse errors: {row['error_reason']}", {"error_kind": row["error_kind"]}
                )
                break
        else:
            yield self._event(f"HAS NO FATE: its payload cannot be read ({error}), and it is no parse error", {})
        yield self._event(
            "would be healed by a new message, with an id of its own, whose payload is one JSON object", {}
        )

    def _judged(self, rows: dict[Layer, list[Row]], contract: Contract) -> Iterator[Event]:
        """How the contract has judged the record, and what would heal it."""
        for row in rows[Layer.CURATED]:
            yield self._event(f"the record stands in Curated, by {row['message_id']}", _short(row))
        types = {column.name: str(column.type) for column in contract.payload_columns}
        for row in sorted(rows[Layer.ERRORS], key=lambda row: row["landing_seq"]):
            rules = ", ".join(map(_rule, row["broken_rules"]))
            until = f", closed {row['closed']}" if row.get("closed") else ""
            what = f"{row['message_id']} broke contract version {row['contract_version']}: {rules}"
            yield self._event(
                f"{what}; seen {row['first_seen']}{until}",
                {"broken_rules": row["broken_rules"], "is_open": not row.get("closed")},
            )
            if not row.get("closed"):
                needs = [f"{each['column']} is {_needed(each, types)}" for each in row["broken_rules"]]
                yield self._event(
                    f"would be healed by a later version of {row['idempotency_key']}, in which {' and '.join(needs)}",
                    {},
                )

    def _places(self, message_id: str, key: str | None, *also: Layer) -> list[Row]:
        """Where the message, or its record, stands now; and in which layers it is `also` looked for by its id."""
        name = self.topic.name
        is_own = F.col("topic_name") == name
        asked = {Layer.PARSE_ERRORS: is_own & (F.col("message_id") == message_id)}
        if key is not None:
            tables = _Tables(self.catalog, name)
            of_record = tables.having(Kind.KEY, key)
            is_error = is_own & (F.col("idempotency_key") == key)
            asked = {Layer.STANDARDIZED: of_record, Layer.CURATED: of_record, Layer.ERRORS: is_error}
            asked |= {layer: tables.having(Kind.ID, message_id) for layer in also}
        there = [layer for layer in asked if find_table(self.catalog, table(layer, name)) is not None]
        return list(
            _rows(
                [_told(self.spark.read.table(spark_table(each, name)).where(asked[each]), name, each) for each in there]
            )
        )

    def _event(self, what: str, facts: Row) -> Event:
        return Event(self.topic.name, what, facts)


def _landed_by(raw: Table, landing_seq: int) -> tuple[str | None, str | None]:
    """The snapshot in which a message landed, and when; unknown once it has expired."""
    for snapshot in sorted(raw.metadata.snapshots, key=lambda each: each.sequence_number or 0):
        last = snapshot.summary.additional_properties.get(LAST_SEQ) if snapshot.summary else None
        if last and int(last) >= landing_seq:
            moment = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
            return str(snapshot.snapshot_id), moment.isoformat(timespec="seconds")
    return None, None


def _read(message: Row, contract: Contract) -> tuple[str | None, str | None]:
    """What is wrong with a payload, or the key of its record."""
    plan = key_plan(contract)
    payload = (message.get("json_payload") or "").encode("utf-8", "surrogatepass")
    [said] = reader_for(plan).read(pa.array([payload], pa.binary())).to_pylist()
    if said["error_kind"]:
        return said["error_reason"], None
    keys = (said["key"], message.get("idempotency_key"), message["message_id"])
    return None, record_keys(*(pa.array([key], pa.string()) for key in keys))[0].as_py()


def _rule(broken: Row) -> str:
    match broken["rule"]:
        case "cde":
            return f"{broken['column']} is missing"
        case "ambiguous":
            return f"{broken['column']} is said more than once, as {broken.get('value')}"
        case _:
            return f"{broken['column']} is {broken.get('value')!r}"


def _needed(broken: Row, types: dict[str, str]) -> str:
    match broken["rule"]:
        case "cde":
            return "there"
        case "ambiguous":
            return "said once"
        case _:
            return f"a {types.get(broken['column'], 'value of its type')}"


def _version(row: Row) -> tuple[Any, ...]:
    """Versions of a record in their order."""
    return tuple(row[each] for each in VERSION)


def _short(row: Row) -> Row:
    """The columns that say which row it is."""
    return {name: row.get(name) for name in ("message_id", "idempotency_key", "publish_time", "landing_seq")}
