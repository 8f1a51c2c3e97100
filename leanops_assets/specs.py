"""How an asset of the platform presents itself in the UI: key, group, kinds, owners, tags, table, code."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import dagster as dg

from leanops.contracts.manifest import Topic
from leanops.names import CATALOG, Layer, asset_group, asset_path, table
from leanops.settings import Settings
from leanops_resources.schema_store import Stage, schema_store

_Reference = dg.LocalFileCodeReference | dg.UrlCodeReference
_KINDS = {
    Layer.RAW: {"iceberg", "parquet"},
    Layer.STANDARDIZED: {"iceberg", "spark"},
    Layer.PARSE_ERRORS: {"iceberg", "spark"},
    Layer.CURATED: {"iceberg", "spark"},
    Layer.ERRORS: {"iceberg", "spark"},
}
_DESCRIPTIONS = {
    Layer.RAW: "Messages as they landed: append-only, the audit trail of everything after it.",
    Layer.STANDARDIZED: "One row per business record: every payload field as STRING, the latest version wins.",
    Layer.PARSE_ERRORS: "RAW rows whose payload is not a JSON object, with the reason.",
    Layer.CURATED: "Typed rows that keep the contract.",
    Layer.ERRORS: "Rows that broke the contract, with every broken rule.",
}


def asset_key(layer: Layer, topic: str) -> dg.AssetKey:
    """The key of a topic's layer: `curated/orders`."""
    return dg.AssetKey(asset_path(layer, topic))


def asset_spec(layer: Layer, topic: Topic, deps: Sequence[Layer], code: Path, settings: Settings) -> dg.AssetSpec:
    """The asset of a topic's layer. `code` is the module that fills it."""
    contract = topic.contract
    references: list[_Reference] = [dg.LocalFileCodeReference(file_path=str(code), label=f"{layer} layer")]
    if contract:
        references.insert(0, _contract_reference(schema_store(settings.schemas).where(topic.name, Stage.ACTIVE)))
    metadata: dict[str, object] = {
        "dagster/table_name": ".".join((CATALOG, *table(layer, topic.name))),
        "dagster/code_references": dg.CodeReferencesMetadataValue(code_references=references),
    }
    shown, others = _owners(contract.owners if contract else ())
    if others:
        metadata["other_owners"] = ", ".join(others)
    if topic.contract_problem:
        metadata["contract_problem"] = topic.contract_problem
    return dg.AssetSpec(
        key=asset_key(layer, topic.name),
        deps=[asset_key(dep, topic.name) for dep in deps],
        description=_description(layer, topic),
        metadata=metadata,
        group_name=asset_group(layer),
        owners=shown or None,
        tags={"layer": layer.value, "topic": topic.name, "contract": _contract_tag(topic)},
        kinds=_KINDS[layer],
        skippable=layer is not Layer.RAW,
    )


def _owners(owners: Sequence[str]) -> tuple[list[str], list[str]]:
    """The owners that Dagster takes, and those that it does not: it knows no addresses under long or foreign names."""
    shown = [owner for owner in owners if _is_shown(owner)]
    return shown, [owner for owner in owners if owner not in shown]


@lru_cache(4096)
def _is_shown(owner: str) -> bool:
    try:
        dg.AssetSpec("any", owners=[owner])
    except dg.DagsterInvalidDefinitionError:
        return False
    return True


def _contract_reference(where: str) -> _Reference:
    """The contract of an asset: a file for the editor, or an object in a bucket."""
    if where.startswith("s3://"):
        return dg.UrlCodeReference(url=where, label="contract")
    return dg.LocalFileCodeReference(file_path=where, label="contract")


def _description(layer: Layer, topic: Topic) -> str:
    if topic.contract is None:
        return f"{_DESCRIPTIONS[layer]}\n\nNo active contract: what lands is kept here until there is one."
    return f"{_DESCRIPTIONS[layer]}\n\n{topic.contract.description or ''}".strip()


def _contract_tag(topic: Topic) -> str:
    if topic.contract_problem:
        return "broken"
    return f"v{topic.contract.version}" if topic.contract else "none"
