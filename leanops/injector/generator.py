"""The messages of an injection, one after another, in the order of their delivery; each with what must become of it."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from leanops.injector.injection import Carrier, Injection
from leanops.injector.payload import WITHOUT_CONTRACT, PayloadWriter
from leanops.injector.plan import SECOND, Kind, Plan

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - its text gets a Z, which is shorter than +00:00
_BAD_PAYLOADS = ("", "{", "[1,2]", "null", "not JSON", '{"a":1}{"b":2}', '{"a":1,"a":2}', '{"a":NaN}')
_BAD_TIMES = ("yesterday", "2026-02-30T08:00:00Z", "1970-01-01T00:00:00Z", "2999-12-31T23:59:59Z", "")


class Version(NamedTuple):
    """What the tables must know of a message that lands."""

    message_id: str
    key: str
    published: int
    """In microseconds since 1970."""
    ingested: int
    """In seconds since 1970."""
    is_readable: bool = True
    """Whether its payload is one JSON object."""
    is_broken: bool = False
    """Whether it breaks the contract."""
    new_column: str | None = None
    """The column that it brings to Standardized, where the contract does not know it."""


class Message(NamedTuple):
    """A message on its way in. One without a version is a dead letter."""

    body: bytes
    kind: Kind
    version: Version | None


def messages(injection: Injection, topic: str) -> Iterator[Message]:
    """All messages of a topic that an injection feeds."""
    generator = _Generator(injection, topic)
    return map(generator.message, generator.plan.numbers())


class _Generator:
    def __init__(self, injection: Injection, topic: str) -> None:
        contract = injection.contracts[topic]
        self.plan = Plan(injection, topic)
        self._stem = f"{topic}-{injection.mark(topic)}"
        self._payloads = PayloadWriter(contract or WITHOUT_CONTRACT)
        self._is_queue = injection.carrier is Carrier.QUEUE

    def message(self, number: int) -> Message:
        """The message of that number, made up from nothing but the number."""
        kind = self.plan.kind(number)
        match kind:
            case Kind.DUPLICATES:
                return self._copy(number)
            case Kind.POISON:
                return Message(self._poison(number), kind, None)
            case Kind.MALFORMED_TIMESTAMPS:
                mixed = self.plan.mixed(number)
                return Message(self._envelope(number, _BAD_TIMES[mixed % len(_BAD_TIMES)]), kind, None)
            case _:
                return self._landing(number, kind)

    def _copy(self, number: int) -> Message:
        """An earlier message again. Where the order of delivery is certain, every other one is published anew.

        In a queue any copy may come first, so there they are all the same.
        """
        original = self.plan.copied(number)
        anew = self.plan.published(number) if number % 2 == 0 and not self._is_queue else None
        return self._landing(original, self.plan.kind(original), anew)._replace(kind=Kind.DUPLICATES)

    def _landing(self, number: int, kind: Kind, published_anew: int | None = None) -> Message:
        plan, payloads = self.plan, self._payloads
        record, published, mixed = plan.record(number), plan.published(number), plan.mixed(number)
        key, moment = f"{self._stem}/{record}", _text(published)
        ingested = published // SECOND + plan.seconds_on_the_way(number)
        asked = key, mixed, mixed if record == number else plan.mixed(record), moment
        if published_anew is not None:
            published, moment = published_anew, _text(published_anew)
        version = Version(f"{self._stem}-{number:09}", key, published, ingested)
        match kind:
            case Kind.RECORDS | Kind.LATE | Kind.CORRECTIONS | Kind.OUT_OF_ORDER:
                payload = payloads.write(*asked)
                if mixed % 8 == 0:
                    # A payload may be sent as an object or as its text.
                    payload = json.dumps(payload, ensure_ascii=False)
            case Kind.DRIFT:
                payload, column = payloads.with_drift(payloads.write(*asked), mixed)
                version = version._replace(new_column=column)
            case Kind.MALFORMED_PAYLOADS:
                payload = json.dumps(_BAD_PAYLOADS[mixed % len(_BAD_PAYLOADS)])
                version = version._replace(is_readable=False)
            case _:
                payload = payloads.write_blank(*asked) if kind is Kind.CDE_VIOLATIONS else payloads.write_misfit(*asked)
                version = version._replace(is_broken=True)
        outside = "" if payloads.has_key else f'"idempotency_key":"{key}",'
        body = (
            f'{{"message_id":"{version.message_id}","publish_time":"{moment}",'
            f'"ingestion_ts":{ingested},{outside}"payload":{payload}}}'
        )
        return Message(body.encode(), kind, version)

    def _envelope(self, number: int, publish_time: str) -> bytes:
        """An envelope around a payload of no interest."""
        return (
            f'{{"message_id":"{self._stem}-{number:09}","publish_time":"{publish_time}",'
            f'"payload":{{"n":"{self._stem}/{number}"}}}}'
        ).encode()

    def _poison(self, number: int) -> bytes:
        """A body that is no envelope at all. An empty line is no message, and a queue carries nothing but UTF-8."""
        good = self._envelope(number, _text(self.plan.published(number)))
        kinds = (
            good[:-2],
            good.replace(b'"message_id"', b'"messageId"'),
            good.replace(f'"{self._stem}-{number:09}"'.encode(), b'" "'),
            f"poison {self._stem}/{number}".encode() if self._is_queue else good.replace(b'"n"', b'"gr\xf6\xdfe"'),
        )
        return kinds[self.plan.mixed(number) % len(kinds)]


def _text(moment: int) -> str:
    """A moment in ISO 8601."""
    return (_EPOCH + timedelta(microseconds=moment)).isoformat() + "Z"
