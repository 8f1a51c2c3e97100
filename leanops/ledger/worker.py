"""What a worker makes of the files of one topic for its ledgers: all rows, and whatever may explain those missing.

It decides nothing: which rows stand nowhere, and why, is asked of Spark. It only finds the rows of the past that such a
question can be about, so that the others need not be read. This runs inside Spark's Python workers.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from leanops.batch.blame import topic_blamed
from leanops.batch.scan import KnownIndexes, LookUp, Task, fitted, repeated
from leanops.ledger.planned import CAME_IN, COPIES, HELD, KEPT, MESSAGES, in_place
from leanops.ledger.rows import LANDED, PLACED
from leanops.names import SOURCE, Layer
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.transform import MESSAGE, RECORD_KEY, read_messages

_ROW = ["landing_seq", "message_id", "publish_time"]
"""What a row is told apart by."""

_PLACED, _MESSAGE = to_arrow_schema(PLACED), to_arrow_schema(MESSAGE)


def rows_of_ledgers(task: Task, plan: FlattenPlan, seconds: float) -> Iterator[pa.RecordBatch]:
    """All rows of a topic that its ledgers look at, in all places in which they stand."""
    batches = []
    for batch in task.batches(_PLACED, None, seconds):
        batches.append(batch)
        yield batch
    if batches and task.look_ups:
        with topic_blamed(task.topic, seconds):
            yield from _Past(task, pa.Table.from_batches(batches), plan).batches()


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
        seqs = came_in.join(kept, _ROW, join_type="left anti", use_threads=False)["landing_seq"].drop_null()
        found = [*messages.rows(seqs, self._known, _MESSAGE)]
        return read_messages(pa.Table.from_batches(found, _MESSAGE), self._plan)


def _landed(messages: pa.Table) -> pa.Table:
    """Messages of RAW, for who asks why others stand nowhere."""
    role = repeated(in_place(Layer.STANDARDIZED, LANDED), messages.num_rows)
    return fitted(messages.append_column("role", role), _PLACED)
