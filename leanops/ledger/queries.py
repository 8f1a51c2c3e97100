"""SQL for people: all rows of a day that do not add up, to be run by `leanops sql` or any other reader."""

from leanops.contracts.model import Contract
from leanops.ledger.account import Account
from leanops.names import ERRORS, SOURCE, Layer, spark_table

# Payloads are read here by Spark's own lax function. For payloads that are plain JSON that is the same key.
_NOT_EXPLAINED = """
  AND NOT EXISTS (SELECT 1 FROM {source} copy
                  WHERE copy.message_id = came.message_id AND copy.landing_seq < came.landing_seq{in_time})
  AND NOT EXISTS (SELECT 1 FROM {kept} later
                  WHERE later.idempotency_key = {key} AND later.landing_seq <> came.landing_seq
                    AND later.publish_time >= came.publish_time)"""

_QUERY = """WITH placed AS (
  SELECT landing_seq, message_id, publish_time FROM {kept}
  UNION ALL SELECT landing_seq, message_id, publish_time FROM {refused} WHERE topic_name = '{topic}'{are_open}
)
SELECT 'no fate' AS problem, came.message_id, came.landing_seq
FROM {source} came LEFT ANTI JOIN placed
  ON placed.landing_seq = came.landing_seq AND to_date(placed.publish_time) = to_date(came.publish_time)
WHERE to_date(came.publish_time) = DATE '{day}' AND came.landing_seq <= {upto}{not_explained}
UNION ALL
SELECT 'more than one fate', message_id, landing_seq
FROM placed WHERE to_date(publish_time) = DATE '{day}' GROUP BY message_id, landing_seq HAVING count(*) > 1
UNION ALL
SELECT 'came from nowhere', placed.message_id, placed.landing_seq
FROM placed LEFT ANTI JOIN {source} came
  ON placed.landing_seq = came.landing_seq AND placed.message_id = came.message_id
  AND to_date(placed.publish_time) = to_date(came.publish_time)
WHERE to_date(placed.publish_time) = DATE '{day}'"""


def findings_query(account: Account, contract: Contract) -> str:
    """All rows of an account's day without exactly one fate."""
    topic, layer = account.topic, account.layer
    is_curated = layer is Layer.CURATED
    places = {"source": SOURCE[layer], "kept": layer, "refused": ERRORS[layer]}
    tables = {place: _name(each, topic) for place, each in places.items()}
    in_time = f" AND copy.ingestion_ts >= came.ingestion_ts - {contract.horizon}" if contract.horizon else ""
    explained = "" if is_curated else _NOT_EXPLAINED.format(key=_key(contract), in_time=in_time, **tables)
    return _QUERY.format(
        topic=topic,
        are_open=" AND closed IS NULL" if is_curated else "",
        day=account.day,
        upto=account.upto,
        not_explained=explained,
        **tables,
    )


def shared_keys_query(account: Account) -> str:
    """All records that have more than one row."""
    return (
        "SELECT idempotency_key, count(*) AS rows, array_sort(collect_list(message_id)) AS message_ids\n"
        f"FROM {_name(account.layer, account.topic)} GROUP BY idempotency_key HAVING count(*) > 1"
    )


def _key(contract: Contract) -> str:
    paths = [column.source for column in contract.envelope_columns if column.name == "idempotency_key"]
    keys = [*(f"get_json_object(came.json_payload, '$.{_quoted(path)}')" for path in paths), "came.idempotency_key"]
    not_blank = (f"if({key} rlike '^\\\\p{{IsWhite_Space}}*$', NULL, {key})" for key in keys)
    return f"coalesce({', '.join([*not_blank, 'came.message_id'])})"


def _quoted(path: str) -> str:
    return path.replace("\\", "\\\\").replace("'", "\\'")


def _name(layer: Layer, topic: str) -> str:
    return spark_table(layer, topic).replace("`", "")
