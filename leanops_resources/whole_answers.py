"""An answer of AWS that breaks off on its way is an error. botocore would take it for one with nothing in it."""

from typing import Any

from botocore.exceptions import ConnectionClosedError  # type: ignore[import-untyped]


def only_whole_answers(client: Any) -> Any:
    """The same client, of a service that speaks JSON."""
    client.meta.events.register("before-parse", _require_whole)
    return client


def _require_whole(response_dict: dict[str, Any], operation_model: Any, **_: Any) -> None:
    promised = response_dict["headers"].get("content-length")
    if promised and len(response_dict["body"]) < int(promised):
        raise ConnectionClosedError(endpoint_url=operation_model.name)
