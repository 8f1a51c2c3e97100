"""Deliveries and breakers as text, the same in every store."""

import msgspec

from leanops.ingestion.breaker import Breaker
from leanops_resources.state.store import Delivery

_encode = msgspec.json.Encoder().encode
_decode_delivery = msgspec.json.Decoder(Delivery).decode
_decode_breaker = msgspec.json.Decoder(Breaker).decode


def delivery_text(delivery: Delivery) -> str:
    """A delivery as text."""
    return _encode(delivery).decode()


def delivery_of(text: str) -> Delivery:
    """The delivery that a text stands for."""
    return _decode_delivery(text)


def breaker_text(breaker: Breaker) -> str:
    """A breaker as text."""
    return _encode(breaker).decode()


def breaker_of(text: str) -> Breaker:
    """The breaker that a text stands for."""
    return _decode_breaker(text)
