"""`leanops pause` and `leanops resume`: a topic's gate, by hand."""

from typing import Annotated

import typer

from leanops.settings import Settings
from leanops_cli.known_topics import require_known
from leanops_resources.state.store import Gate, GateStatus
from leanops_resources.state.stores import state_store


def pause(
    topic: Annotated[str, typer.Argument(help="The topic to hold back.")],
    reason: Annotated[str | None, typer.Option(help="Why, for whoever wonders: the UI shows it.")] = None,
) -> None:
    """Hold a topic back: what lands is kept in RAW, and nothing is built from it until the topic is resumed."""
    _set_gate(topic, Gate(processing_enabled=False, status=GateStatus.PAUSED, reason=reason))
    print(f"{topic} is paused.")


def resume(topic: Annotated[str, typer.Argument(help="The topic to go on with.")]) -> None:
    """Go on with a topic that was paused: the next tick builds all that has landed meanwhile."""
    _set_gate(topic, Gate(processing_enabled=True, status=GateStatus.READY))
    print(f"{topic} is resumed.")


def _set_gate(topic: str, gate: Gate) -> None:
    settings = Settings.load()
    require_known([topic], settings)
    state_store(settings).set_gate(topic, gate)
