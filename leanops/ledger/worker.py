"""What a worker makes of the files of one topic for its ledgers: all rows, and whatever may explain those missing.

Of a small topic it decides nothing: which rows stand nowhere, and why, is asked of Spark. It only finds the rows of the
past that such a question can be about, so that the others need not be read. Of a large topic it has a share of the
rows, and counts those of them that add up. This runs inside Spark's Python workers.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from leanops.batch.blame import topic_blamed
from leanops.batch.scan import KnownIndexes, LookUp, Task, fitted, repeated
from leanops.ledger.planned import CAME_IN, COPIES, HELD, KEPT, MESSAGES, REFUSED, in_place
from leanops.ledger.rows import LANDED, PLACED, PLACES, STOOD
from leanops.names import SOURCE, Layer
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.transform import MESSAGE, RECORD_KEY, read_messages
from leanops.table_files import NO_DAY

_ROW = ["landing_seq", "message_id", "publish_time"]
"""What a row is told apart by."""

_PLACED, _MESSAGE, _STOOD = (to_arrow_schema(each) for each in (PLACED, MESSAGE, STOOD))


def rows_of_ledgers(task: Task, plan: FlattenPlan, seconds: float) -> Iterator[pa.RecordBatch]:
    """All rows of a topic that its ledgers look at, in all places in which they stand."""
    batches = []
    for batch in task.batches(_PLACED, None, seconds):
        batches.append(batch)
        yield batch
    if batches and task.look_ups:
        with topic_blamed(task.topic, seconds):
            yield from _Past(task, pa.Table.from_batches(batches), plan).batches()


def rows_of_share(task: Task, refused: pa.Table, plan: FlattenPlan, seconds: float) -> pa.Table:
    """How many rows of a share stand where, those that do not add up one by one, and messages to be explained."""
    read = pa.Table.from_batches(task.batches(_PLACED, None, seconds), _PLACED)
    layer = Layer(task.reads[0].role.split()[0])
    with topic_blamed(task.topic, seconds):
        refused = refused.filter(pc.is_valid(refused["role"])).select(_PLACED.names).cast(_PLACED)
        stand = _standing(pa.concat_tables([read, refused]), layer)
        found = [stand]
        for messages in task.look_ups:
            is_unwritten = pc.and_(pc.equal(stand[CAME_IN], 1), pc.equal(pc.add(stand[KEPT], stand[REFUSED]), 0))
            unwritten = stand.filter(is_unwritten)
            named = _messages(messages, unwritten["landing_seq"], plan, KnownIndexes())
            found.append(_landed(named.filter(pc.is_in(named["message_id"], unwritten["message_id"]))))
        told = {"topic": task.topic, "layer": layer.value}
        return pa.concat_tables([fitted(_with_texts(each, told), _STOOD) for each in found])


def _with_texts(rows: pa.Table, texts: Mapping[str, str]) -> pa.Table:
    for name, text in texts.items():
        if name not in rows.column_names:
            rows = rows.append_column(name, repeated(text, rows.num_rows))
    return rows


def _standing(rows: pa.Table, layer: Layer) -> pa.Table:
    """How many rows of a day stand where. Those that do not add up are told apart: by number, message and day."""
    days = pc.fill_null(pc.cast(rows["publish_time"], pa.date32()), NO_DAY)
    places = {place: pc.cast(pc.equal(rows["role"], in_place(layer, place)), pa.int64()) for place in PLACES}
    is_one = ["landing_seq", "message_id", "day"]
    one = pa.table({"landing_seq": rows["landing_seq"], "message_id": rows["message_id"], "day": days, **places})
    one = _grouped(one, is_one, [([place], "sum") for place in PLACES]).rename_columns([*is_one, *PLACES])
    adds_up = pc.and_(pc.equal(one[CAME_IN], 1), pc.equal(pc.add(one[KEPT], one[REFUSED]), 1))
    by_place = ["day", *PLACES]
    counted = _grouped(one.filter(adds_up), by_place, [([], "count_all")]).rename_columns([*by_place, "rows"])
    others = one.filter(pc.invert(adds_up))
    others = others.append_column("rows", pa.repeat(pa.scalar(1, pa.int64()), others.num_rows))
    return pa.concat_tables([counted, others], promote_options="default")


def _grouped(rows: pa.Table, names: list[str], counts: list[tuple[list[str], str]]) -> pa.Table:
    found = rows.group_by(names, use_threads=False).aggregate(counts)
    return found.select([*names, *(name for name in found.column_names if name not in names)])


class _Past:
    """What rows of a topic are looked for beside those that its ledgers look at."""

    def __init__(self, task: Task, rows: pa.Table, plan: FlattenPlan) -> None:
        self._task, self._rows, self._plan, self._known = task, rows, plan, KnownIndexes()

    def batches(self) -> Iterator[pa.RecordBatch]:
        look_ups = {each.role: each for each in self._task.look_ups}
        keys = {layer: self._of(layer, KEPT)["idempotency_key"] for layer in SOURCE}
        if messages := look_ups.get(in_place(Layer.STANDARDIZED, MESSAGES)):
            unwritten = self._unwritten(messages)
            yield from _landed(unwritten).to_batches()
            copies = look_ups[in_place(Layer.STANDARDIZED, COPIES)]
            for batch in copies.rows(unwritten["message_id"], self._known, _MESSAGE):
                yield from _landed(pa.Table.from_batches([batch])).to_batches()
            own = keys[Layer.STANDARDIZED]
            keys[Layer.STANDARDIZED] = pa.chunked_array([*own.chunks, *unwritten[RECORD_KEY].chunks], pa.string())
        for layer, values in keys.items():
            if held := look_ups.get(in_place(layer, HELD)):
                yield from held.rows(values, self._known, _PLACED)

    def _of(self, layer: Layer, place: str) -> pa.Table:
        return self._rows.filter(pc.equal(self._rows["role"], in_place(layer, place)))

    def _unwritten(self, messages: LookUp) -> pa.Table:
        """The messages that are not in Standardized, with the keys of their records; parse errors are among them."""
        came_in, kept = (self._of(Layer.STANDARDIZED, place).select(_ROW) for place in (CAME_IN, KEPT))
        seqs = came_in.join(kept, _ROW, join_type="left anti", use_threads=False)["landing_seq"]
        return _messages(messages, seqs, self._plan, self._known)


def _messages(messages: LookUp, seqs: pa.ChunkedArray, plan: FlattenPlan, known: KnownIndexes) -> pa.Table:
    """The messages of these numbers, with the keys of their records."""
    found = [*messages.rows(seqs.drop_null(), known, _MESSAGE)]
    return read_messages(pa.Table.from_batches(found, _MESSAGE), plan)


def _landed(messages: pa.Table) -> pa.Table:
    """Messages of RAW, for who asks why others stand nowhere."""
    role = repeated(in_place(Layer.STANDARDIZED, LANDED), messages.num_rows)
    return fitted(messages.append_column("role", role), _PLACED)
