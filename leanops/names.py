"""The one place that names things: topics, tables and assets.

A table's name follows from its layer and topic, and so does its asset's key, which reads like a path: `curated/orders`.
"""

import re
from enum import StrEnum

from leanops.errors import TopicNameInvalid

CATALOG = "leanops"
RAW_DB = "iceberg_raw_db"
STANDARDIZED_DB = "iceberg_standardized_db"
CURATED_DB = "iceberg_curated_db"
OPS_DB = "ops_db"
NAMESPACES = (RAW_DB, STANDARDIZED_DB, CURATED_DB, OPS_DB)

SYSTEM_COLUMNS = ("message_id", "idempotency_key", "topic_name", "publish_time", "ingestion_ts", "landing_seq")
"""Columns that the platform fills. A payload field of such a name does not take its place."""

OVERFLOW_COLUMN = "overflow_json"
OBJECTS_COLUMN = "objects_json"
DAY_FIELD = "publish_time_day"
"""The partition field of every table by publish day. Iceberg allows no column of that name beside it."""

METADATA_COLUMNS = (
    *("_file", "_pos", "_spec_id", "_partition", "_deleted", "_metadata", "_row_id", "_last_updated_sequence_number"),
    *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
)
"""Iceberg's and Spark's own: they hide a table's column of the same name."""

RESERVED_COLUMNS = frozenset({*SYSTEM_COLUMNS, OVERFLOW_COLUMN, OBJECTS_COLUMN, DAY_FIELD, *METADATA_COLUMNS})
"""Names that neither a payload field nor a column of a contract takes in a table."""

SAFE_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
"""A column's name."""

LONGEST_QUEUE_PREFIX = 16
_TAKEN_TOPICS = {"parse_errors", "errors", "dlq_errors"}
_RAW_SUFFIX = "_staging"

TOPIC_LIMITS = {
    "the value of a Dagster tag": 63,
    "the longest prefix of queues and a topic as the name of an SQS queue": 80 - LONGEST_QUEUE_PREFIX,
    "a topic and `_staging` as the name of a Glue table": 255 - len(_RAW_SUFFIX),
    "the name of a folder, and of a step's log": 255 - len("standardized__.err"),
}
"""How many letters of a topic's name fit, in each place that it stands in. What bounds none of these is not listed:
asset keys, DynamoDB's keys (2,048 bytes) and S3's (1,024)."""

LONGEST_TOPIC = min(TOPIC_LIMITS.values())
TOPIC_RULE = f"at most {LONGEST_TOPIC} lower-case letters, digits and underscores, beginning with a letter"
TOPIC_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{LONGEST_TOPIC - 1}}}", re.ASCII)


class Layer(StrEnum):
    """The layers of a topic, and the tables of what did not make it into them."""

    RAW = "raw"
    STANDARDIZED = "standardized"
    PARSE_ERRORS = "parse_errors"
    CURATED = "curated"
    ERRORS = "errors"


SOURCE = {Layer.STANDARDIZED: Layer.RAW, Layer.CURATED: Layer.STANDARDIZED}
"""What each layer is built from."""

NEXT = {source: layer for layer, source in SOURCE.items()}
"""What is built from each layer."""

ERRORS = {Layer.STANDARDIZED: Layer.PARSE_ERRORS, Layer.CURATED: Layer.ERRORS}
"""Where the rows stand that did not make it into a layer."""


def topic_name(text: str) -> str:
    """A topic's name is part of table names and paths: lower case, digits and `_`, beginning with a letter."""
    if is_topic(text):
        return text
    if text not in _TAKEN_TOPICS:
        length = f" of {len(text)} letters" if len(text) > LONGEST_TOPIC else ""
        raise TopicNameInvalid(f"{text!r}{length} cannot be a topic's name.", f"Use {TOPIC_RULE}.")
    raise TopicNameInvalid(f"{text!r} is the name of a table of the platform itself.", "Give the topic another.")


def is_topic(text: str) -> bool:
    """Whether a topic may have this name."""
    return bool(TOPIC_NAME.fullmatch(text)) and text not in _TAKEN_TOPICS


def table(layer: Layer, topic: str) -> tuple[str, str]:
    """Namespace and name of the Iceberg table that holds a topic's rows of a layer."""
    match layer:
        case Layer.RAW:
            return RAW_DB, topic + _RAW_SUFFIX
        case Layer.STANDARDIZED:
            return STANDARDIZED_DB, topic
        case Layer.PARSE_ERRORS:
            return STANDARDIZED_DB, "parse_errors"
        case Layer.CURATED:
            return CURATED_DB, topic
        case Layer.ERRORS:
            return CURATED_DB, "errors"


def spark_table(layer: Layer, topic: str) -> str:
    """That table's full name, as Spark reads it."""
    return ".".join(f"`{part}`" for part in (CATALOG, *table(layer, topic)))


def topic_of_raw_table(name: str) -> str | None:
    """The topic whose RAW table this is, or None for the other tables beside it."""
    topic = _named_in_raw_table(name)
    return topic if topic and is_topic(topic) else None


def stray_of_raw_table(name: str) -> str | None:
    """What a RAW table was named for that can be no topic, such as a name that was allowed once."""
    topic = _named_in_raw_table(name)
    return None if topic is None or is_topic(topic) else topic


def _named_in_raw_table(name: str) -> str | None:
    topic = name.removesuffix(_RAW_SUFFIX)
    return None if topic == name else topic


def asset_path(layer: Layer, topic: str) -> list[str]:
    """The asset key of a topic's layer; what did not make it into a layer stands below it."""
    match layer:
        case Layer.PARSE_ERRORS | Layer.ERRORS:
            return [asset_group(layer), topic, layer.value]
        case _:
            return [layer.value, topic]


def step_name(layer: Layer, topic: str) -> str:
    """The step that fills a topic's layer, and with it the errors of that layer."""
    return f"{asset_group(layer)}__{topic}"


def asset_group(layer: Layer) -> str:
    """The group an asset is shown in: the errors of a layer stand beside it."""
    match layer:
        case Layer.PARSE_ERRORS:
            return Layer.STANDARDIZED.value
        case Layer.ERRORS:
            return Layer.CURATED.value
        case _:
            return layer.value
