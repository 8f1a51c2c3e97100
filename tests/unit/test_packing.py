import random
from datetime import date

import pytest

from leanops.pending import Pending
from leanops_assets import packing
from leanops_assets.packing import HUGE_BYTES, TOPIC_BYTES, RunKind, packed, planned_runs

DAY = date(2026, 1, 15)
FIRST_DAY = date(2025, 1, 1)
MB = 2**20


def waits(topic: str, size: int = 1, *days: date) -> Pending:
    return Pending(topic, frozenset(days or [DAY]), 1, size)


def work(run: list[Pending]) -> int:
    return sum(each.bytes + TOPIC_BYTES for each in run)


@pytest.mark.parametrize(
    ("topics", "sizes"), [(0, []), (1, [1]), (40, [40]), (41, [20, 21]), (80, [40, 40]), (700, [38, 39])]
)
def test_topics_of_one_size_fill_as_few_runs_as_hold_them_evenly(topics: int, sizes: list[int]) -> None:
    runs = packed([waits(f"t{number}") for number in range(topics)], 40)
    assert sorted({len(run) for run in runs}) == sorted(set(sizes))
    assert sum(map(len, runs)) == topics
    assert len(runs) == -(-topics // 40)


@pytest.mark.parametrize(("cores", "topics", "runs"), [(2, 119, 1), (2, 120, 2), (2, 700, 2), (4, 700, 4), (1, 700, 2)])
def test_many_topics_keep_all_cores_busy_and_few_share_a_run(
    cores: int, topics: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "CORES", cores)
    assert len(packed([waits(f"t{number}") for number in range(topics)], 350)) == runs


def test_every_topic_is_in_exactly_one_run_and_no_run_is_too_full() -> None:
    dice = random.Random(8)
    found = [waits(f"t{number}", int(dice.paretovariate(0.5) * 1000)) for number in range(700)]
    runs = packed(found, 40)
    assert sorted(each.topic for run in runs for each in run) == sorted(each.topic for each in found)
    assert max(map(len, runs)) <= 40


def test_a_huge_topic_is_alone_and_first() -> None:
    found = [waits("a"), waits("huge", HUGE_BYTES + 1), waits("large", HUGE_BYTES), waits("b")]
    huge, others = planned_runs(found, FIRST_DAY, 40)
    assert [each.topic for each in huge.topics] == ["huge"]
    assert {each.topic for each in others.topics} == {"a", "b", "large"}
    assert [run.kind for run in (huge, others)] == [RunKind.HUGE, RunKind.SHARED]


def test_topics_that_failed_share_runs_among_themselves() -> None:
    found = [waits(name) for name in "abcde"] + [waits("huge", HUGE_BYTES + 1)]
    runs = planned_runs(found, FIRST_DAY, 2, failed={"b", "d", "e", "huge"})
    assert [(run.kind, sorted(each.topic for each in run.topics)) for run in runs] == [
        (RunKind.HUGE, ["huge"]),
        (RunKind.SHARED, ["a", "c"]),
        (RunKind.FAILED, ["b", "e"]),
        (RunKind.FAILED, ["d"]),
    ]


def test_the_work_is_balanced_by_bytes_and_not_by_topics() -> None:
    found = [waits(f"large{number}", 60 * MB) for number in range(2)] + [waits(f"t{n}") for n in range(38)]
    runs = packed(found, 20)
    assert len(runs) == 2
    assert [sum(each.bytes > MB for each in run) for run in runs] == [1, 1]
    lopsided = packed([waits("large", 60 * MB)] + [waits(f"t{n}") for n in range(39)], 30)
    with_large = next(run for run in lopsided if any(each.topic == "large" for each in run))
    assert len(with_large) < 20
    assert abs(work(lopsided[0]) - work(lopsided[1])) <= 60 * MB


def test_a_topic_is_in_a_run_of_the_newest_of_its_days() -> None:
    found = [waits("late", 1, date(2026, 1, 3), date(2026, 1, 9)), waits("now"), waits("old", 1, date(2024, 12, 31))]
    runs = planned_runs(found, FIRST_DAY, 40)
    assert [(run.day, [each.topic for each in run.topics]) for run in runs] == [
        (FIRST_DAY, ["old"]),
        (date(2026, 1, 9), ["late"]),
        (DAY, ["now"]),
    ]


def test_the_same_work_is_packed_in_the_same_way_in_whatever_order_it_is_found() -> None:
    found = [waits(f"t{number}", number % 5) for number in range(100)]
    assert planned_runs(found, FIRST_DAY, 30) == planned_runs(found[::-1], FIRST_DAY, 30)
