"""A home with dead letters, and what is done with them."""

from collections.abc import Mapping
from datetime import date
from hashlib import sha256
from typing import Any

import pyarrow as pa

from leanops.raw.dead_letters import DEAD_LETTERS, find_dead_letters
from leanops_assets.raw.drain import Intake
from leanops_assets.raw.replay import Discarded, Replayed, discard, replay
from leanops_resources.dlq_archive import dlq_archive
from tests.draining import FIRST_DAY, Landing, envelope

TOO_EARLY = date(2024, 12, 31)
EARLIER: dict[str, Any] = {"first_day": date(2024, 1, 1)}


def early(message_id: str) -> bytes:
    """A message that is malformed until the platform's first day is an earlier one."""
    return envelope(message_id, TOO_EARLY)


class Letters(Landing):
    """A home with dead letters, and what is done with them."""

    def intake(self, first_day: date = FIRST_DAY) -> Intake:
        return Intake(self.catalog, self.store, dlq_archive(self.home.dlq_archive), first_day, self.now)

    def bury(self, *bodies: bytes, topic: str = "orders") -> list[str]:
        """Messages that become dead letters, among others that land; their ids, in the order of the bodies."""
        name = f"{len(self.dead(topic))}.ndjson"
        self.drop(topic, [*bodies, *(envelope(f"good{number}") for number in range(len(bodies)))], name)
        assert self.drain()[topic].dead.total() == len(bodies)
        ids = {row["body_sha256"]: row["dead_letter_id"] for row in self.dead(topic)}
        return [ids[sha256(body).hexdigest()] for body in bodies]

    def replay(
        self, ids: list[str], bodies: Mapping[str, bytes] | None = None, topic: str = "orders", **how: Any
    ) -> Replayed:
        return replay(self.intake(**how), topic, ids, bodies, by="alice")

    def discard(self, ids: list[str], topic: str = "orders") -> Discarded:
        return discard(self.intake(), topic, ids, "a test of the producer's", "bob")

    def letter(self, dead_letter_id: str) -> dict[str, Any]:
        [found] = find_dead_letters(self.catalog, ids=[dead_letter_id])
        return found

    def tracked(self, topic: str = "orders") -> set[str]:
        return {error.error_id for error in self.store.open_errors(topic)}

    def copy(self, dead_letter_id: str, new_id: str | None = None) -> None:
        """Write a letter down once more."""
        row = {**self.letter(dead_letter_id), "dead_letter_id": new_id or dead_letter_id}
        held = self.catalog.load_table(DEAD_LETTERS)
        held.append(pa.Table.from_pylist([row], held.scan().to_arrow().schema))
