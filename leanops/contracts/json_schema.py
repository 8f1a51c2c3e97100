"""The JSON Schema of the contract file, so that editors complete and check one while it is written.

It says what JSON Schema can say. That a default fits its type, that no name stands twice, and that the table is the
topic of its folder, is for `leanops schema lint` to see.
"""

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from leanops.contracts.datetime_format import EPOCH_FORMATS
from leanops.contracts.model import ENVELOPE_TARGETS, Contract
from leanops.contracts.reading import EDITORS_KEY
from leanops.names import RESERVED_COLUMNS, SAFE_NAME


def json_schema() -> str:
    """The JSON Schema as the text of its file."""
    generated = Contract.model_json_schema(schema_generator=_WithoutFieldTitles)
    reserved = sorted(name for name in RESERVED_COLUMNS if SAFE_NAME.fullmatch(name))
    envelope, payload = generated["$defs"]["EnvelopeColumn"], generated["$defs"]["PayloadColumn"]
    envelope["properties"]["name"]["not"] = {"enum": [n for n in reserved if n not in ENVELOPE_TARGETS]}
    payload["properties"]["name"]["not"] = {"enum": reserved}
    payload["allOf"] = _COLUMN_RULES
    link = {"type": "string", "description": "Where this JSON Schema is. Editors read it, and nothing else does."}
    document = {
        "$schema": GenerateJsonSchema.schema_dialect,
        **generated,
        "title": "The contract of a topic",
        "properties": {EDITORS_KEY: link, **generated["properties"]},
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


class _WithoutFieldTitles(GenerateJsonSchema):
    """A title that only repeats the key hides the description in some editors."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's interface
        return False


def _if(key: str, value: dict[str, Any], **then: Any) -> dict[str, Any]:
    return {"if": {"properties": {key: value}, "required": [key]}, **then}


def _absent(key: str) -> dict[str, Any]:
    return {"properties": {key: {"type": "null"}}}


_COLUMN_RULES = [
    _if("cde", {"const": True}, then=_absent("default")),
    _if("type", {"const": "DATE"}, then={"properties": {"format": {"not": {"enum": list(EPOCH_FORMATS)}}}}),
]
