"""`leanops schema json-schema`: the contract file's rules, for editors."""


def json_schema() -> None:
    """Print the JSON Schema of contract files. `schemas/contract.schema.json` is what this prints."""
    from leanops.contracts.json_schema import json_schema as generated

    print(generated(), end="")
