"""Replay dead letters into RAW, or discard them. Both leave a trail in the letter's row.

    note the attempt ──► open a delivery ──► commit to RAW, which names it ──► close the letters ──► count the delivery

A letter is replayed once, whenever the process ends and however often it is begun again: whoever comes next to the
topic finds the open delivery, asks RAW whether it is there, and closes its letters or drops it (`deliveries.py`).
Nothing is received by a replay: its messages were counted when they came. One that has another publish day in RAW than
the day it was counted on is counted there from then on.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any

from leanops.errors import DeadLetterMissing, DeadLetterUnknown, ReplayUnsettled, TopicBusy
from leanops.ingestion.bisection import bisect
from leanops.ingestion.messages import QueueMessage
from leanops.ingestion.processor import Record, process
from leanops.names import Layer, table
from leanops.raw.envelope import Envelope
from leanops.raw.table import DELIVERY
from leanops_assets.raw.deliveries import close_replayed, deliver, intake_of, new_delivery, settle_open
from leanops_assets.raw.drain import BUFFER_BYTES, Intake
from leanops_resources.dlq_archive import AT_ONCE
from leanops_resources.state.store import Delivery, Table

SOURCE = "a replay of dead letters"
MOST_LETTERS = 1_000
"""So many letters are replayed in one commit."""
PATIENCE = timedelta(minutes=1)
"""How long to wait for a drain of the same topic."""

Row = dict[str, Any]


@dataclass
class Replayed:
    """What became of a topic's dead letters that were to be replayed, each by its id."""

    topic: str
    replayed: list[str] = field(default_factory=list)
    still_bad: dict[str, str] = field(default_factory=dict)
    """Those that stay open, and why."""
    closed_already: dict[str, str] = field(default_factory=dict)
    """Those that nothing was done with, and how they had ended."""
    landed: Counter[date] = field(default_factory=Counter)
    """Rows that came to RAW, by publish day."""
    counted_on: set[date] = field(default_factory=set)
    """The days that these had counted on as dead letters."""

    @property
    def is_complete(self) -> bool:
        """Whether all that was asked for is in RAW."""
        return not self.still_bad and all(outcome == "replayed" for outcome in self.closed_already.values())

    @property
    def letters(self) -> Iterator[tuple[str, str]]:
        """Each letter, and what became of it."""
        yield from ((each, "replayed") for each in self.replayed)
        yield from ((each, f"stays open: {why}") for each, why in self.still_bad.items())
        yield from ((each, f"had been {outcome} before") for each, outcome in self.closed_already.items())


@dataclass
class Discarded:
    """What became of a topic's dead letters that were to be discarded, each by its id."""

    topic: str
    discarded: list[str] = field(default_factory=list)
    closed_already: dict[str, str] = field(default_factory=dict)
    """Those that nothing was done with, and how they had ended."""

    @property
    def letters(self) -> Iterator[tuple[str, str]]:
        """Each letter, and what became of it."""
        yield from ((each, "discarded") for each in self.discarded)
        yield from ((each, f"had been {outcome} before") for each, outcome in self.closed_already.items())


def replay(
    intake: Intake,
    topic: str,
    ids: Collection[str],
    bodies: Mapping[str, bytes] | None = None,
    by: str = "somebody",
) -> Replayed:
    """Judge dead letters by today's rules and bring the good ones to RAW, with the mended `bodies` of some."""
    done = Replayed(topic)
    with _alone(intake, topic, f"a replay by {by}"):
        for rows in _parts(intake, topic, ids, done.closed_already):
            _Replay(intake, topic, bodies or {}, by, rows, done).run()
    return done


def discard(intake: Intake, topic: str, ids: Collection[str], reason: str, by: str) -> Discarded:
    """Close dead letters that nobody wants in RAW. They keep their row, and count as dead letters."""
    from leanops.raw.dead_letters import Outcome, update_dead_letters

    done = Discarded(topic)
    with _alone(intake, topic, f"a discard by {by}"):
        for rows in _parts(intake, topic, ids, done.closed_already):
            said = {
                "closed": intake.now(),
                "outcome": Outcome.DISCARDED.value,
                "note": f"{_signed('Discarded', by, intake.now())}: {reason}",
            }
            update_dead_letters(intake.catalog, topic, dict.fromkeys(rows, said))
            done.discarded += rows
    # Of those, too, that were closed by somebody who did not come so far.
    intake.store.resolve_errors([*done.discarded, *done.closed_already])
    return done


@dataclass(frozen=True)
class _Replay:
    """The replay of some open letters in one commit."""

    intake: Intake
    topic: str
    bodies: Mapping[str, bytes]
    by: str
    rows: Mapping[str, Row]
    done: Replayed

    def run(self) -> None:
        now = self.intake.now()
        messages, bad = self._messages()
        judged = process(messages, self.intake.first_day, now)
        bad |= {letter.message.handle: letter.reason for letter in judged.dead_letters}
        bad |= {failure.message.handle: failure.reason for failure in judged.failures}
        good = {record.message.handle: record.envelope for record in judged.records}
        for each in good.keys() & self.bodies.keys():
            self.intake.archive.put_mended(self.topic, self.rows[each]["day"], each, self.bodies[each])
        self._note(
            {
                **{each: self._attempt(each, now, why) for each, why in bad.items()},
                **{each: {**self._attempt(each, now), **self._readable(each, good[each])} for each in good},
            }
        )
        landing = bisect(judged.records, lambda records: self._land(records, now))
        poison = {record.message.handle: f"{type(error).__name__}: {error}" for record, error in landing.poison}
        poison |= {record.message.handle: "Too many of its part failed before it." for record in landing.untried}
        self._note({each: self._attempt(each, now, why) for each, why in poison.items()})
        self.done.still_bad |= bad | poison

    def _messages(self) -> tuple[list[QueueMessage], dict[str, str]]:
        """The letters as messages, each known by its letter's id; and why some have no body."""
        messages, missing = [], {}
        with ThreadPoolExecutor(AT_ONCE, "body") as pool:
            for each, body in zip(self.rows, pool.map(self._body, self.rows), strict=True):
                if isinstance(body, bytes):
                    messages.append(QueueMessage(self.topic, each, body))
                else:
                    missing[each] = str(body)
        return messages, missing

    def _body(self, dead_letter_id: str) -> bytes | DeadLetterMissing:
        """The mended body of a letter, or its own as it came."""
        if dead_letter_id in self.bodies:
            return self.bodies[dead_letter_id]
        row = self.rows[dead_letter_id]
        try:
            body = self.intake.archive.get(row["body_archive"])
        except DeadLetterMissing as error:
            return error
        if sha256(body).hexdigest() == row["body_sha256"]:
            return body
        return DeadLetterMissing(
            f"What is at {row['body_archive']} is not the body that came: its SHA-256 is another.",
            "Replay it with a body that you know to be right, or discard it.",
        )

    def _attempt(self, dead_letter_id: str, now: datetime, why_not: str | None = None) -> Row:
        """What a letter's row says of this attempt: whose it is, with which body, and why it failed."""
        body = "its body as it came"
        if dead_letter_id in self.bodies:
            body = f"a mended body, SHA-256 {sha256(self.bodies[dead_letter_id]).hexdigest()}"
        failed = f" It stays open: {why_not}" if why_not else ""
        note = f"{_signed('Replay', self.by, now)}, with {body}.{failed}"
        return {"replays": (self.rows[dead_letter_id]["replays"] or 0) + 1, "note": note}

    def _readable(self, dead_letter_id: str, envelope: Envelope) -> Row:
        """What could not be read of a letter when it came, so that it is found by the id that it has in RAW."""
        row = self.rows[dead_letter_id]
        return {name: row[name] or getattr(envelope, name) for name in ("message_id", "idempotency_key")}

    def _note(self, changes: Mapping[str, Row]) -> None:
        from leanops.raw.dead_letters import update_dead_letters

        if changes:
            update_dead_letters(self.intake.catalog, self.topic, changes)

    def _land(self, records: Sequence[Record], now: datetime) -> None:
        """Bring messages to RAW and close their letters; all of them, or none."""
        from leanops.raw.landing import land

        intake, topic = self.intake, self.topic
        envelopes = [record.envelope for record in records]
        ids = tuple(record.message.handle for record in records)
        days = Counter(envelope.publish_time.date() for envelope in envelopes)
        counted_on = Counter(self.rows[each]["day"] for each in ids)
        moves = {day: days[day] - counted_on[day] for day in sorted({*days, *counted_on})}
        delivery = replace(
            new_delivery(topic, f"a replay by {self.by}", Table.RAW, days, ids),
            moves={day: change for day, change in moves.items() if change},
        )
        said = {DELIVERY: delivery.delivery_id, "leanops.landed-from": delivery.source}

        def commit() -> None:
            land(intake.catalog, topic, lambda: [envelopes], now, said)
            close_replayed(intake.catalog, intake.store, topic, ids)

        try:
            deliver(intake.store, delivery, commit)
        except Exception:
            if not self._has_landed(delivery):
                raise
        self.done.replayed += ids
        self.done.landed += days
        self.done.counted_on |= {*counted_on}

    def _has_landed(self, delivery: Delivery) -> bool:
        """Whether a delivery was committed before it failed: its letters are closed then."""
        from leanops.raw.table import has_delivery
        from leanops.tables import find_table

        try:
            settle_open(self.intake.catalog, self.intake.store, self.topic)
            return has_delivery(find_table(self.intake.catalog, table(Layer.RAW, self.topic)), delivery.delivery_id)
        except Exception as error:
            raise ReplayUnsettled(
                f"A replay of {self.topic} failed, and so did the question whether RAW has it: {error}",
                "Run the same again: that is found out first, and what is in RAW is not replayed again.",
            ) from error


@contextmanager
def _alone(intake: Intake, topic: str, holder: str) -> Iterator[None]:
    try:
        with intake_of(intake.catalog, intake.store, topic, holder, PATIENCE):
            yield
    except TopicBusy as error:
        raise TopicBusy(
            error.problem, "Nothing was done with its dead letters. Run the same again in a while."
        ) from None


def _parts(intake: Intake, topic: str, ids: Collection[str], closed: dict[str, str]) -> Iterator[dict[str, Row]]:
    """The open letters among these, as many at a time as may be held with their bodies; those `closed` are noted."""
    from leanops.raw.dead_letters import already_dead, find_dead_letters

    wanted = list(dict.fromkeys(ids))
    if unknown := set(wanted) - already_dead(intake.catalog, topic, wanted):
        raise DeadLetterUnknown(
            f"There is no dead letter {min(unknown)} of {topic}.", "`leanops dlq list --all` shows every one there is."
        )
    for at in range(0, len(wanted), MOST_LETTERS):
        found = find_dead_letters(intake.catalog, topic, wanted[at : at + MOST_LETTERS])
        part: dict[str, Row] = {}
        size = 0
        # By their ids: others may have written down a letter twice.
        for each, row in {row["dead_letter_id"]: row for row in found}.items():
            if row["closed"] is not None:
                closed[each] = row["outcome"]
                continue
            if part and size + row["body_bytes"] > BUFFER_BYTES:
                yield part
                part, size = {}, 0
            part[each] = row
            size += row["body_bytes"]
        if part:
            yield part


def _signed(what: str, by: str, now: datetime) -> str:
    return f"{what} by {by} at {now:%Y-%m-%d %H:%M:%S} UTC"
