"""The job `dead_letters` in the UI, and the asset of the table."""

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from leanops.home import Home
from leanops.settings import Settings
from leanops_assets.raw.dead_letters_job import (
    build_dead_letters_asset,
    build_dead_letters_job,
    build_dlq_retention_job,
)
from leanops_resources.dagster_resources import embedded_resources
from tests.replaying import Letters, early


@pytest.fixture
def letters(home: Home) -> Letters:
    return Letters(home)


def run(action: str, **config: Any) -> dg.ExecuteInProcessResult:
    settings = Settings.load()
    with dg.DagsterInstance.ephemeral() as instance:
        return build_dead_letters_job(settings).execute_in_process(
            run_config={"ops": {"letters": {"config": {"action": action, **config}}}},
            resources=embedded_resources(settings),
            instance=instance,
            raise_on_error=False,
        )


def shown(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """What the step shows, whether it succeeded or failed."""
    for event in result.all_events:
        if event.is_successful_output:
            return {key: value.value for key, value in event.step_output_data.metadata.items()}
        if event.is_step_failure and event.step_failure_data.user_failure_data:
            failure = event.step_failure_data.user_failure_data
            return {"said": failure.description, **{key: each.value for key, each in failure.metadata.items()}}
    raise AssertionError(result.all_events)


def test_open_letters_are_listed(letters: Letters) -> None:
    ids = letters.bury(b"1", b"2")
    [other] = letters.bury(b"3", topic="payments")
    letters.discard(ids[:1])
    told = shown(run("list"))
    assert told["letters"] == 2
    assert [ids[1] in told["table"], other in told["table"], ids[0] in told["table"]] == [True, True, False]
    assert shown(run("list", topics=["payments"]))["letters"] == 1
    assert ids[0] in shown(run("list", ids=[ids[0][:6]]))["table"]


def test_letters_are_replayed_and_the_days_of_raw_that_have_grown_are_told(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_FIRST_DAY", "2024-01-01")
    ids = letters.bury(early("m1"), early("m2"))
    letters.bury(early("p1"), topic="payments")
    result = run("replay", topics=["orders"])
    assert result.success
    told = shown(result)
    assert told["letters"] == 2
    assert all(f"| orders | {each} | replayed |" in told["table"] for each in ids)
    assert letters.raw("orders") == Counter(["m1", "m2", "good0", "good1"])
    assert letters.raw("payments")["p1"] == 0
    grown = {
        (event.materialization.asset_key.to_user_string(), event.partition)
        for event in result.all_events
        if event.is_step_materialization
    }
    assert grown == {("raw/orders", "2024-12-31"), ("raw/dlq_errors", None)}
    checks = {event.partition: event for event in result.get_asset_check_evaluations()}
    assert [(check.check_name, check.passed) for check in checks.values()] == [("queue_closed", True)] * len(checks)
    assert len(checks) == 2, "the day that they had counted on, and the one that they have in RAW"
    assert letters.letter(ids[0])["note"].startswith(f"Replay by run {result.run_id} at ")
    letters.require_closed("orders")


def test_a_letter_that_cannot_be_replayed_fails_the_run_after_the_others_are_done(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_FIRST_DAY", "2024-01-01")
    bad, good = letters.bury(b"no envelope", early("m1"))
    letters.bury(early("p1"), topic="payments")
    result = run("replay")
    assert not result.success
    told = shown(result)
    assert told["said"] == "orders: some could not be replayed."
    assert f"| orders | {good} | replayed |" in told["table"]
    assert f"| orders | {bad} | stays open: " in told["table"]
    assert letters.raw("payments")["p1"] == 1


def test_letters_are_discarded_with_a_reason_only(letters: Letters) -> None:
    [each] = letters.bury(b"x")
    result = run("discard", ids=[each])
    assert not result.success
    assert shown(result)["said"] == "Nothing was discarded: `reason` does not say why."
    assert letters.letter(each)["outcome"] is None
    assert run("discard", ids=[each], reason="a test").success
    assert letters.letter(each)["note"].endswith(" UTC: a test")


def test_an_action_that_is_none_is_refused_at_once(home: Home) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="nonsense"):
        run("nonsense")


def test_an_id_that_is_none_fails_the_run(letters: Letters) -> None:
    letters.bury(b"x")
    assert not run("replay", ids=["ffffff"]).success


def test_bodies_go_after_the_retention_unless_their_letter_is_open(letters: Letters) -> None:
    ids = letters.bury(b"open", b"closed", b"young")
    letters.discard(ids[1:])
    bodies = [Path(letters.letter(each)["body_archive"]) for each in ids]
    long_ago = time.time() - 15 * 86_400
    for body in bodies[:2]:
        os.utime(body, (long_ago, long_ago))
    settings = Settings.load()
    with dg.DagsterInstance.ephemeral() as instance:
        result = build_dlq_retention_job().execute_in_process(resources=embedded_resources(settings), instance=instance)
    assert shown(result) == {"removed": 1, "open_letters": 1}
    assert [body.exists() for body in bodies] == [True, False, True]


def test_the_table_is_in_the_graph_beside_raw() -> None:
    spec = build_dead_letters_asset()
    assert spec.key == dg.AssetKey(["raw", "dlq_errors"])
    assert (spec.group_name, spec.kinds) == ("raw", {"iceberg"})
    assert spec.metadata["dagster/table_name"] == "leanops.iceberg_raw_db.dlq_errors"
