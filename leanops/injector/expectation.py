"""What the tables must hold, by a small model of the spec's own definition. Nothing here is the platform's.

Messages are added in the order of their landing; each costs a few hundred bytes of memory.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import date
from hashlib import sha256

import msgspec

from leanops.injector.generator import Message, Version
from leanops.injector.plan import DAY

_FIRST_ORDINAL = date(1970, 1, 1).toordinal()


class DayCounts(msgspec.Struct):
    """The ledger of a publish day."""

    raw: int = 0
    standardized: int = 0
    parse_errors: int = 0
    duplicates: int = 0
    superseded: int = 0
    curated: int = 0
    open_errors: int = 0


class Expectation(msgspec.Struct):
    """What the tables must hold of one topic. Without a contract that is RAW and the dead letters alone."""

    topic: str
    has_contract: bool
    received: int
    dead_letters: dict[str, str]
    """By the SHA-256 of each body: why it never reached RAW."""
    days: dict[date, DayCounts]
    standardized: dict[str, str]
    """The message that counts for each record, by the record's key."""
    open_errors: dict[str, str]
    """Those of them that break the contract. All others are in Curated."""
    parse_errors: list[str]
    duplicates: list[str]
    """The message of each copy that does not count."""
    superseded: list[str]
    new_columns: list[str]
    """Columns of Standardized that the contract does not know."""

    @property
    def raw(self) -> Iterator[str]:
        """The message of every row of RAW."""
        yield from self.standardized.values()
        yield from self.parse_errors
        yield from self.duplicates
        yield from self.superseded

    @property
    def curated(self) -> dict[str, str]:
        """The message of every row of Curated, by the record's key."""
        return {key: name for key, name in self.standardized.items() if key not in self.open_errors}


class Truth:
    """What becomes of a topic's messages."""

    def __init__(self, topic: str, has_contract: bool) -> None:
        self._topic = topic
        self._has_contract = has_contract
        self._received = 0
        self._dead: dict[str, str] = {}
        self._seen: set[str] = set()
        self._latest: dict[str, Version] = {}
        self._parse_errors: list[str] = []
        self._duplicates: list[str] = []
        self._superseded: list[str] = []
        self._new_columns: set[str] = set()
        self._counts: Counter[tuple[int, str]] = Counter()

    def add(self, message: Message) -> None:
        """The next message lands, or is a dead letter."""
        self._received += 1
        version = message.version
        if version is None:
            self._dead[sha256(message.body).hexdigest()] = f"malformed: {message.kind.name.lower()}"
            return
        self._count(version, "raw")
        # FIFO on message_id: the first copy to land counts.
        if version.message_id in self._seen:
            self._count(version, "duplicates")
            self._duplicates.append(version.message_id)
            return
        self._seen.add(version.message_id)
        if not version.is_readable:
            self._count(version, "parse_errors")
            self._parse_errors.append(version.message_id)
            return
        if version.new_column:
            self._new_columns.add(version.new_column)
        # LIFO on idempotency_key: the latest version counts.
        older = self._latest.setdefault(version.key, version)
        if older is version:
            return
        if _order(older) > _order(version):
            older, version = version, older
        self._latest[version.key] = version
        self._count(older, "superseded")
        self._superseded.append(older.message_id)

    def expectation(self) -> Expectation:
        """What the tables must hold of all that was added."""
        for version in self._latest.values():
            self._count(version, "standardized")
            self._count(version, "open_errors" if version.is_broken else "curated")
        days: dict[int, DayCounts] = {}
        for (day, name), count in sorted(self._counts.items()):
            setattr(days.setdefault(day, DayCounts()), name, count)
        return Expectation(
            topic=self._topic,
            has_contract=self._has_contract,
            received=self._received,
            dead_letters=self._dead,
            days={date.fromordinal(_FIRST_ORDINAL + day): counts for day, counts in days.items()},
            standardized={key: version.message_id for key, version in self._latest.items()},
            open_errors={key: version.message_id for key, version in self._latest.items() if version.is_broken},
            parse_errors=self._parse_errors,
            duplicates=self._duplicates,
            superseded=self._superseded,
            new_columns=sorted(self._new_columns),
        )

    def _count(self, version: Version, name: str) -> None:
        self._counts[version.published // DAY, name] += 1


def _order(version: Version) -> tuple[int, int, str]:
    return version.published, version.ingested, version.message_id
