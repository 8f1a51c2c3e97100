import re
from datetime import date
from pathlib import Path

import pytest

from leanops.errors import Problem, SettingsInvalid
from leanops.settings import Settings

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"

VARIABLES = [
    # variable, field, default, a text, what it means
    ("LEANOPS_HOME", "home", Path(".leanops").absolute(), "/srv/leanops", Path("/srv/leanops")),
    ("LEANOPS_SCHEMAS", "schemas", Path("schemas").absolute(), "/srv/contracts", Path("/srv/contracts")),
    ("LEANOPS_FIRST_DAY", "first_day", date(2025, 1, 1), "2024-02-29", date(2024, 2, 29)),
    ("LEANOPS_STATE", "state", "sqlite", "dynamodb:leanops-state", "dynamodb:leanops-state"),
    ("LEANOPS_QUEUE_PREFIX", "queue_prefix", None, "leanops-", "leanops-"),
    ("LEANOPS_DLQ_ARCHIVE", "dlq_archive", None, "s3://letters/dead", "s3://letters/dead"),
    ("LEANOPS_FIREHOSE", "firehose", None, "leanops-raw", "leanops-raw"),
    ("LEANOPS_DRAIN_SECONDS", "drain_seconds", 60, "5", 5),
    ("LEANOPS_LANDING_STILL_SECONDS", "landing_still_seconds", 5.0, "0.5", 0.5),
    ("LEANOPS_PORT", "port", 3000, "65535", 65535),
    ("LEANOPS_CODE_SERVER_PORT", "code_server_port", 0, "4000", 4000),
    ("LEANOPS_TICK_MINUTES", "tick_minutes", 15, "5", 5),
    ("LEANOPS_TOPICS_PER_RUN", "topics_per_run", 350, "7", 7),
    ("LEANOPS_STEP_MINUTES", "step_minutes", 30, "0.5", 0.5),
    ("LEANOPS_RETENTION_DAYS", "retention_days", 2, "30", 30),
    ("LEANOPS_SPARK_MASTER", "spark_master", "local[*]", "spark://host:7077", "spark://host:7077"),
    ("LEANOPS_SPARK_DRIVER_MEMORY", "spark_driver_memory", "2g", "1500m", "1500m"),
    ("LEANOPS_SPARK_START_SECONDS", "spark_start_seconds", 180, "20", 20),
    ("SPARK_REMOTE", "spark_remote", None, "sc://host:15002/;token=x", "sc://host:15002/;token=x"),
]

UNUSABLE = [
    ("LEANOPS_FIRST_DAY", "yesterday"),
    ("LEANOPS_FIRST_DAY", "2026-02-30"),
    ("LEANOPS_LANDING_STILL_SECONDS", "-1"),
    ("LEANOPS_PORT", "http"),
    ("LEANOPS_PORT", "0"),
    ("LEANOPS_PORT", "65536"),
    ("LEANOPS_PORT", "-1"),
    ("LEANOPS_CODE_SERVER_PORT", "-1"),
    ("LEANOPS_CODE_SERVER_PORT", "65536"),
    ("LEANOPS_SPARK_DRIVER_MEMORY", "2"),
    ("LEANOPS_SPARK_DRIVER_MEMORY", "0g"),
    ("LEANOPS_SPARK_DRIVER_MEMORY", "2 GB"),
    ("LEANOPS_SPARK_DRIVER_MEMORY", "2g -XX:+Evil"),
    ("LEANOPS_TICK_MINUTES", "0"),
    ("LEANOPS_TOPICS_PER_RUN", "0"),
    ("LEANOPS_STEP_MINUTES", "0"),
    ("LEANOPS_RETENTION_DAYS", "0"),
    ("LEANOPS_DRAIN_SECONDS", "0"),
    ("LEANOPS_STATE", "postgres"),
    ("LEANOPS_STATE", "dynamodb:"),
    ("LEANOPS_QUEUE_PREFIX", "a queue of"),
    ("LEANOPS_DLQ_ARCHIVE", "s3:/letters"),
    ("LEANOPS_FIREHOSE", "arn:aws:firehose"),
    ("LEANOPS_SPARK_START_SECONDS", "0"),
    ("LEANOPS_SPARK_START_SECONDS", "1.5"),
    ("SPARK_REMOTE", "http://host"),
    ("SPARK_REMOTE", "sc://"),
    ("LEANOPS_HOME", "~nobody_has_this_name/leanops"),
]

MISSPELT = [
    ("LEANOPS_HOM", "LEANOPS_HOME"),
    ("LEANOPS_SCHEMA", "LEANOPS_SCHEMAS"),
    ("LEANOPS_FIRSTDAY", "LEANOPS_FIRST_DAY"),
    ("LEANOPS_SPARK_MEMORY", "LEANOPS_SPARK_DRIVER_MEMORY"),
    ("LEANOPS_home", "LEANOPS_HOME"),
    ("LEANOPS_SPARK_REMOTE", "SPARK_REMOTE"),
]


def problems() -> dict[str, Problem]:
    with pytest.raises(SettingsInvalid) as caught:
        Settings.load()
    return {problem.path: problem for problem in caught.value.problems}


def test_every_setting_stands_in_the_table_of_these_tests() -> None:
    assert [(row[0], row[1]) for row in VARIABLES] == [
        (Settings.variable(name), name) for name in Settings.model_fields
    ]


@pytest.mark.parametrize(("variable", "field", "default", "text", "value"), VARIABLES)
def test_a_setting_has_its_default_until_its_variable_is_set(
    variable: str, field: str, default: object, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert getattr(Settings.load(), field) == default
    monkeypatch.setenv(variable, text)
    assert getattr(Settings.load(), field) == value


@pytest.mark.parametrize("variable", [row[0] for row in VARIABLES])
def test_an_empty_variable_counts_as_not_set(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unset = Settings.load()
    monkeypatch.setenv(variable, "")
    assert Settings.load() == unset


@pytest.mark.parametrize(("variable", "text"), UNUSABLE)
def test_a_value_that_cannot_be_used_is_named_with_its_variable(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    found = problems()
    assert list(found) == [variable]
    assert text in found[variable].message


@pytest.mark.parametrize(("name", "meant"), MISSPELT)
def test_a_setting_that_does_not_exist_is_answered_with_the_nearest_that_does(
    name: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "x")
    assert problems()[name].fix == f"Did you mean {meant}?"


def test_a_setting_like_no_other_is_still_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_XYZZY_QUUX_PLUGH", "x")
    assert problems()["LEANOPS_XYZZY_QUUX_PLUGH"].fix is None


def test_variables_of_others_are_none_of_our_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPSHOME", "x")
    monkeypatch.setenv("SPARK_REMOTES", "x")
    assert Settings.load() == Settings()


def test_all_problems_of_the_environment_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"LEANOPS_HOM": "x", "LEANOPS_PORT": "x", "LEANOPS_FIRST_DAY": "x", "SPARK_REMOTE": "x"}
    for variable, text in broken.items():
        monkeypatch.setenv(variable, text)
    with pytest.raises(SettingsInvalid) as caught:
        Settings.load()
    assert {problem.path for problem in caught.value.problems} == set(broken)
    assert "4 problems" in str(caught.value)
    assert all(variable in str(caught.value) for variable in broken)
    assert "docs/settings.md" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("here", "{cwd}/here"),
        ("./a/b", "{cwd}/a/b"),
        ("~", "{user}"),
        ("~/leanops", "{user}/leanops"),
        ("/abs/o lute", "/abs/o lute"),
    ],
)
@pytest.mark.parametrize(("variable", "field"), [("LEANOPS_HOME", "home"), ("LEANOPS_SCHEMAS", "schemas")])
def test_folders_mean_the_same_from_every_working_directory(
    variable: str, field: str, text: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cwd, user = tmp_path / "cwd", tmp_path / "user"
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv(variable, text)
    assert getattr(Settings.load(), field) == Path(path.format(cwd=cwd, user=user))


def test_the_page_of_settings_lists_exactly_the_settings_there_are() -> None:
    rows = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:4]]
        for line in DOCS.read_text("utf-8").splitlines()
        if re.match(r"\|\s*`", line)
    ]
    listed = [(variable.strip("`"), default.strip("`"), description) for variable, default, description in rows]
    assert listed == [
        (Settings.variable(name), "" if field.default is None else str(field.default), field.description)
        for name, field in Settings.model_fields.items()
    ]
