"""Which topics are held back by their gate."""

from leanops_resources.state.store import Gate


def closed_gate(topic: str, gate: Gate | None) -> str | None:
    """Why a topic is not processed now, or None if it is."""
    if gate is None or gate.processing_enabled:
        return None
    reason = f": {gate.reason}" if gate.reason else ""
    return f"{topic} is {gate.status.lower()}{reason}. What lands is kept in RAW until it is resumed."
