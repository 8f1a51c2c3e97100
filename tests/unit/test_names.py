import pytest
from pydantic import ValidationError

from leanops import names
from leanops.errors import TopicNameInvalid
from leanops.names import Layer
from leanops.settings import Settings

SAFE = ["orders", "a", "a1", "device_telemetry", "a_", "a__b", "raw", "x_staging", "a" * 63, "error", "select"]
UNSAFE = [
    "",
    " ",
    "a" * 64,
    "../x",
    "..",
    ".",
    "a/b",
    "/etc",
    "a\\b",
    "a.b",
    "a-b",
    "a b",
    " a",
    "a ",
    "a\n",
    "a\0",
    "Orders",
    "ORDERS",
    "1a",
    "_a",
    "é",
    "straße",
    "а",  # Cyrillic
    "a１",  # a full-width digit
    "a;drop table x",
    "a'b",
    "a`b",
    "$HOME",
    "~",
    "*",
]
TABLES = [
    (Layer.RAW, "orders", ("iceberg_raw_db", "orders_staging"), "raw"),
    (Layer.STANDARDIZED, "orders", ("iceberg_standardized_db", "orders"), "standardized"),
    (Layer.PARSE_ERRORS, "orders", ("iceberg_standardized_db", "parse_errors"), "standardized"),
    (Layer.CURATED, "orders", ("iceberg_curated_db", "orders"), "curated"),
    (Layer.ERRORS, "orders", ("iceberg_curated_db", "errors"), "curated"),
]
NOT_OF_A_TOPIC = ["dlq_errors", "orders", "staging", "orders_staging_old", "_staging", "Orders_staging", "a-b_staging"]


@pytest.mark.parametrize("name", SAFE)
def test_a_safe_name_may_be_a_topic(name: str) -> None:
    assert names.topic_name(name) == name


@pytest.mark.parametrize("name", UNSAFE)
def test_a_name_that_is_unsafe_in_tables_and_paths_is_no_topic(name: str) -> None:
    with pytest.raises(TopicNameInvalid) as caught:
        names.topic_name(name)
    assert repr(name) in caught.value.problem
    assert caught.value.hint


@pytest.mark.parametrize("name", ["parse_errors", "errors", "dlq_errors"])
def test_the_platforms_own_tables_are_no_topics(name: str) -> None:
    with pytest.raises(TopicNameInvalid, match="platform itself"):
        names.topic_name(name)


def test_the_longest_name_fits_wherever_a_topics_name_stands() -> None:
    longest = "a" * names.LONGEST_TOPIC
    prefix = "p" * names.LONGEST_QUEUE_PREFIX
    assert Settings(queue_prefix=prefix).queue_prefix == prefix
    with pytest.raises(ValidationError):
        Settings(queue_prefix=f"{prefix}p")
    assert names.is_topic(longest)
    assert not names.is_topic(f"{longest}a")
    assert len(f"{prefix}{longest}") <= 80, "the name of an SQS queue"
    assert len(longest) <= 63, "the value of a Dagster tag"
    assert all(len(names.table(layer, longest)[1]) <= 255 for layer in Layer), "the name of a Glue table"


def test_a_name_that_is_too_long_is_told_how_long_it_may_be() -> None:
    with pytest.raises(TopicNameInvalid, match=r"of 64 letters cannot be a topic's name\. Use at most 63 "):
        names.topic_name("a" * 64)


def test_every_layer_stands_in_the_table_of_these_tests() -> None:
    assert [row[0] for row in TABLES] == list(Layer)


@pytest.mark.parametrize(("layer", "topic", "table", "group"), TABLES)
def test_table_asset_and_group_follow_from_layer_and_topic(
    layer: Layer, topic: str, table: tuple[str, str], group: str
) -> None:
    assert names.table(layer, topic) == table
    assert table[0] in names.NAMESPACES
    assert names.asset_path(layer, topic) == [group, topic] + ([] if group == layer else [layer.value])
    assert names.asset_group(layer) == group


@pytest.mark.parametrize("topic", SAFE)
def test_the_topic_of_a_raw_table_is_the_one_it_was_named_for(topic: str) -> None:
    assert names.topic_of_raw_table(names.table(Layer.RAW, topic)[1]) == topic


@pytest.mark.parametrize("name", NOT_OF_A_TOPIC)
def test_a_table_beside_the_raw_tables_has_no_topic(name: str) -> None:
    assert names.topic_of_raw_table(name) is None


@pytest.mark.parametrize(("table", "stray"), [("a" * 64 + "_staging", "a" * 64), ("A_staging", "A")])
def test_what_a_raw_table_was_named_for_is_known_though_it_can_be_no_topic(table: str, stray: str) -> None:
    assert names.stray_of_raw_table(table) == stray


@pytest.mark.parametrize("table", ["dlq_errors", "orders_staging", "orders"])
def test_a_topics_table_and_those_of_the_platform_are_no_strays(table: str) -> None:
    assert names.stray_of_raw_table(table) is None


def test_two_topics_never_share_a_table_of_their_own() -> None:
    own = [layer for layer in Layer if layer not in {Layer.PARSE_ERRORS, Layer.ERRORS}]
    tables = [names.table(layer, topic) for layer in own for topic in SAFE]
    assert len(set(tables)) == len(tables)
    assert not set(tables) & {names.table(layer, "any") for layer in (Layer.PARSE_ERRORS, Layer.ERRORS)}
