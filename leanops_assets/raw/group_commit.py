"""Commit what was received of a group of topics: judge, note, commit, count, and only then let the sources forget it.

What the topics share is told once for the whole group: the state store, and the table of dead letters. What each has
for itself, its RAW table and its source, is worked on by several threads. A shared step that fails is done again for
each topic by itself: one topic's failure stays its own.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from leanops.errors import DiskFull
from leanops.ingestion.bisection import bisect
from leanops.ingestion.breaker import Circuit
from leanops.ingestion.faults import Fault, classify
from leanops.ingestion.messages import QueueMessage
from leanops.ingestion.processor import DeadLetter, Processed, Record, process
from leanops.names import Layer, table
from leanops.raw.table import DELIVERY
from leanops_assets.raw.deliveries import deliver, new_delivery
from leanops_resources.state.store import Delivery, Table

if TYPE_CHECKING:
    from leanops_assets.raw.drain import Intake, TopicDrain

Result = TypeVar("Result")


@dataclass
class Batch:
    """What was received of one topic, on its way to RAW."""

    intake: "Intake"
    topic: "TopicDrain"
    messages: Sequence[QueueMessage]
    now: datetime
    judged: Processed = field(default_factory=Processed)
    delivery: Delivery | None = None
    """That of all its records, which is noted with those of the group."""
    uncounted: list[Delivery] = field(default_factory=list)
    """What was committed and is counted with the group's next."""
    landed: list[QueueMessage] = field(default_factory=list)
    poison: Processed = field(default_factory=Processed)
    has_failed: bool = False

    @property
    def dead_letters(self) -> list[DeadLetter]:
        return [*self.judged.dead_letters, *self.poison.dead_letters]

    def letters_but(self, known: Collection[str]) -> dict[str, DeadLetter]:
        """Its dead letters by their ids, but for some."""
        return {each: letter for letter in self.dead_letters if (each := letter.dead_letter_id) not in known}

    def fail(self, error: Exception) -> None:
        """Go no further. What was received and is not in RAW comes again."""
        self.has_failed = True
        self.topic.fail(error)

    def judge(self) -> None:
        """Decide what may land."""
        self.judged = process(self.messages, self.intake.first_day, self.now)

    def land(self) -> None:
        """Bring its records to RAW; those that make a commit fail are found by halving."""
        found = bisect(self.judged.records, self._land)
        self.landed = [record.message for records in found.results for record in records]
        failed = ((record.message, error) for record, error in found.poison)
        self.poison.fail(failed, (record.message for record in found.untried), self.intake.first_day, self.now)

    def _land(self, records: Sequence[Record]) -> Sequence[Record]:
        self.topic.require_lock()
        if self.delivery and len(records) == len(self.judged.records):
            self._commit(records, self.delivery)
            self.uncounted.append(self.delivery)
        else:
            part = self.new_delivery(records)
            deliver(self.intake.store, part, lambda: self._commit(records, part))
            self.topic.drained.count(part)
        return records

    def new_delivery(self, records: Sequence[Record]) -> Delivery:
        """The delivery of some of its records to RAW."""
        days = (record.envelope.publish_time.date() for record in records)
        return new_delivery(self.topic.name, self.topic.drained.source, Table.RAW, days)

    def _commit(self, records: Sequence[Record], delivery: Delivery) -> None:
        from leanops.raw.landing import land_in
        from leanops.raw.table import ensure_raw_table, has_delivery
        from leanops.tables import find_table

        catalog, topic = self.intake.catalog, self.topic
        envelopes = [record.envelope for record in records]
        said = {DELIVERY: delivery.delivery_id, "leanops.landed-from": delivery.source}
        attempts = count()

        def commit() -> None:
            # What failed may have been the fault of a table that is no longer as it was: the next attempt loads it.
            raw, topic.raw = topic.raw, None
            if next(attempts):
                raw = find_table(catalog, table(Layer.RAW, topic.name))
                # A commit whose answer was lost may have succeeded.
                if has_delivery(raw, delivery.delivery_id):
                    return
            raw = raw or ensure_raw_table(catalog, topic.name)
            land_in(raw, topic.name, lambda: [envelopes], self.now, said)
            topic.raw = raw

        _retried(commit)

    def forget(self) -> None:
        """Let the source forget what has come to RAW or the dead letters, and have the rest again."""
        drained, source = self.topic.drained, self.topic.source
        if failures := [failure.message for failure in (*self.judged.failures, *self.poison.failures)]:
            source.give_back(failures)
            drained.given_back += len(failures)
        drained.not_deleted += source.delete([*self.landed, *(letter.message for letter in self.dead_letters)])
        drained.commits += 1


def commit_group(intake: "Intake", topics: "Sequence[TopicDrain]", receivers: Executor) -> None:
    """Bring the buffers of `topics` to RAW and the dead letters. What goes wrong is told of its topic.

    The threads of `receivers` wait for the sources.
    """
    batches = [Batch(intake, topic, messages, intake.now()) for topic in topics if (messages := topic.take_buffer())]

    def going_on(which: Callable[[Batch], object]) -> list[Batch]:
        return [batch for batch in batches if which(batch) and not batch.has_failed]

    for batch in batches:
        _guarded(Batch.judge, batch)
    _together(partial(_save_dead_letters, intake), going_on(lambda batch: batch.judged.dead_letters))
    _together(partial(_count, intake), going_on(lambda batch: batch.uncounted))
    to_land = going_on(lambda batch: batch.judged.records)
    _together(partial(_note, intake), to_land)
    intake.concurrency.map(partial(_guarded, Batch.land), (batch for batch in to_land if batch.delivery))
    _together(partial(_count, intake), going_on(lambda batch: batch.uncounted))
    _together(partial(_save_dead_letters, intake), going_on(lambda batch: batch.poison.dead_letters))
    _together(partial(_count, intake), going_on(lambda batch: batch.uncounted))
    list(receivers.map(partial(_guarded, Batch.forget), going_on(lambda batch: batch.messages)))
    _together(partial(_save_breakers, intake), going_on(lambda batch: batch.messages))


def _guarded(step: Callable[[Batch], None], batch: Batch) -> None:
    """Whatever is wrong with one topic, the others go on."""
    try:
        step(batch)
    except Exception as error:  # noqa: BLE001 - it is told of its topic
        batch.fail(error)


def _together(step: Callable[[Sequence[Batch]], None], batches: Sequence[Batch]) -> None:
    """Do a step for all batches at once; where that fails, for each by itself."""
    try:
        if batches:
            step(batches)
    except Exception as error:  # noqa: BLE001 - it is told of its topic
        if len(batches) == 1:
            batches[0].fail(error)
            return
        for batch in batches:
            _together(step, [batch])


def _save_dead_letters(intake: "Intake", batches: Sequence[Batch]) -> None:
    """Archive, note and commit dead letters; those that were delivered again, or saved before, are known already."""
    from leanops.raw.dead_letters import DeadLetterDelivery, already_dead, save_dead_letter_deliveries

    for batch in batches:
        batch.topic.require_lock()
    ids = [letter.dead_letter_id for batch in batches for letter in batch.dead_letters]
    known = already_dead(intake.catalog, {batch.topic.name for batch in batches}, ids)
    new = [(batch, letters) for batch in batches if (letters := batch.letters_but(known))]
    if not new:
        return
    every = {each: letter for _, letters in new for each, letter in letters.items()}
    archived = _retried(lambda: intake.archive.put_many(every.values()))
    intake.store.track_errors(
        (each, letter.message.topic, letter.fault.value, letter.reason) for each, letter in every.items()
    )
    deliveries = [
        new_delivery(
            batch.topic.name, batch.topic.drained.source, Table.DEAD_LETTERS, (each.day for each in letters.values())
        )
        for batch, letters in new
    ]
    intake.store.note_deliveries(deliveries)
    noted = [(batch, letters, delivery) for (batch, letters), delivery in zip(new, deliveries, strict=True)]
    saved = [DeadLetterDelivery(each.delivery_id, each.source, list(letters.values())) for _, letters, each in noted]
    save_dead_letter_deliveries(intake.catalog, saved, archived)
    for batch, _, delivery in noted:
        batch.uncounted.append(delivery)


def _note(intake: "Intake", batches: Sequence[Batch]) -> None:
    """Note the deliveries of all records to RAW."""
    deliveries = [batch.new_delivery(batch.judged.records) for batch in batches]
    intake.store.note_deliveries(deliveries)
    for batch, delivery in zip(batches, deliveries, strict=True):
        batch.delivery = delivery


def _count(intake: "Intake", batches: Sequence[Batch]) -> None:
    """Count what was committed."""
    intake.store.count_deliveries([delivery.delivery_id for batch in batches for delivery in batch.uncounted])
    for batch in batches:
        for delivery in batch.uncounted:
            batch.topic.drained.count(delivery)
        batch.uncounted.clear()


def _save_breakers(intake: "Intake", batches: Sequence[Batch]) -> None:
    """Tell the topics' breakers how it went."""
    after = [
        batch.topic.breaker.after(len(batch.landed), len(batch.messages) - len(batch.landed), batch.now)
        for batch in batches
    ]
    intake.store.save_breakers({batch.topic.name: breaker for batch, breaker in zip(batches, after, strict=True)})
    for batch, breaker in zip(batches, after, strict=True):
        before, batch.topic.breaker = batch.topic.breaker, breaker
        if breaker.circuit is Circuit.OPEN and before.circuit is not Circuit.OPEN:
            batch.topic.drained.skipped = f"Its circuit opened: {breaker.reason}"


def _retried(work: Callable[[], Result]) -> Result:
    """Work that the outside may refuse for a moment. A full disk stays full."""
    again = retry_if_exception(lambda error: classify(error) is Fault.TRANSIENT and not isinstance(error, DiskFull))
    policy = Retrying(retry=again, stop=stop_after_attempt(4), wait=wait_random_exponential(0.1, max=5), reraise=True)
    return policy(work)
