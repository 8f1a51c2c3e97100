"""From topics to assets: RAW for every topic that is known, the layers after it for those with an active contract.

Whatever Dagster does not take of one topic leaves the others in the graph: that topic keeps its RAW asset, which says
why, and buffers; and should RAW itself be refused, the reason stands on the asset of the registry.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import dagster as dg

from leanops.contracts.manifest import Manifest, Topic
from leanops.errors import quoted
from leanops.names import Layer
from leanops.settings import Settings
from leanops_assets.curated.assets import build_curated_assets, curate
from leanops_assets.raw.assets import build_raw_assets
from leanops_assets.standardized.assets import build_standardized_assets, standardize

# Code references and partitioned checks are worth having before Dagster calls them finished; one line per topic saying
# so is not.
for unfinished in (dg.BetaWarning, dg.PreviewWarning):
    warnings.filterwarnings("ignore", category=unfinished)


LAYER_BUILDS = {Layer.STANDARDIZED: standardize, Layer.CURATED: curate}


@dataclass(frozen=True)
class DefinedTopics:
    """The topics' assets, the topics as the graph has them, and why any of them is not in it as it should be."""

    assets: list[dg.AssetsDefinition] = field(default_factory=list)
    manifest: Manifest = field(default_factory=lambda: Manifest(topics=()))
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def left_out(self) -> dict[str, str]:
        """The topics of which nothing is in the graph."""
        return {topic: why for topic, why in self.problems.items() if topic not in self.manifest.by_name}


def define_topics(manifest: Manifest, settings: Settings) -> DefinedTopics:
    """Every topic's steps: one per layer, so that one topic's failure stays one topic's failure."""
    assets: list[dg.AssetsDefinition] = []
    defined: list[Topic] = []
    problems: dict[str, str] = {}
    for topic in manifest.topics:
        try:
            assets += _topic_assets(topic, manifest, settings)
            defined.append(topic)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others are in the graph
            problems[topic.name] = _describe(topic, error)
            buffering = Topic(name=topic.name, contract_problem=problems[topic.name])
            try:
                assets += _topic_assets(buffering, manifest, settings)
                defined.append(buffering)
            except Exception:  # noqa: BLE001, S112 - the reason is known already
                continue
    return DefinedTopics(assets, Manifest(topics=tuple(defined)), problems)


def _topic_assets(topic: Topic, manifest: Manifest, settings: Settings) -> list[dg.AssetsDefinition]:
    """All steps of a topic, or none."""
    return list(_steps(topic, manifest, settings))


def _steps(topic: Topic, manifest: Manifest, settings: Settings) -> Iterator[dg.AssetsDefinition]:
    yield build_raw_assets(topic, settings)
    if topic.contract:
        yield build_standardized_assets(topic, manifest, settings, LAYER_BUILDS)
        yield build_curated_assets(topic, manifest, settings, LAYER_BUILDS)


def _describe(topic: Topic, error: Exception) -> str:
    why = " ".join(str(error).split())
    return (
        f"{quoted(topic.name)} cannot be built: Dagster does not take its definition ({type(error).__name__}: {why})."
    )
