"""Dead letters are replayed once, whatever happens in between; and the books close before and after."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Transaction

from leanops.errors import DeadLetterUnknown, DiskFull, LandingConflict, ReplayUnsettled, TopicBusy
from leanops.home import Home
from leanops.raw import landing as landing_module
from leanops_assets.raw import replay as replay_module
from leanops_assets.raw.replay import Replayed
from leanops_resources.dlq_archive import FolderArchive
from leanops_resources.state.lease import lease
from leanops_resources.state.sqlite import SqliteStateStore
from tests.draining import envelope
from tests.replaying import EARLIER, TOO_EARLY, Letters, early

from .conftest import PROCESSES, InProcesses, NoRoomBeyond, Together

DAY, TODAY = date(2025, 3, 1), datetime.now(UTC).date()


@pytest.fixture
def letters(home: Home) -> Letters:
    return Letters(home)


def test_letters_that_are_good_by_todays_rules_land_with_their_own_ids_and_times(letters: Letters) -> None:
    ids = letters.bury(early("m1"), early("m2"))
    done = letters.replay(ids, **EARLIER)
    assert (sorted(done.replayed), done.still_bad, done.closed_already) == (sorted(ids), {}, {})
    assert done.landed == {TOO_EARLY: 2}
    assert done.is_complete
    assert letters.raw("orders") == Counter(["m1", "m2", "good0", "good1"])
    rows = letters.catalog.load_table(("iceberg_raw_db", "orders_staging")).scan().to_arrow().to_pylist()
    assert {row["publish_time"].isoformat() for row in rows if row["message_id"][0] == "m"} == {
        f"{TOO_EARLY}T12:00:00+00:00"
    }
    assert letters.tracked() == set()
    for each in ids:
        row = letters.letter(each)
        assert (row["outcome"], row["replays"]) == ("replayed", 1)
        assert row["closed"] is not None
        assert row["note"].startswith("Replay by alice at ")
        assert row["note"].endswith(" UTC, with its body as it came.")
    letters.require_closed("orders")


def test_a_message_that_is_replayed_counts_on_the_day_that_it_has_in_raw(letters: Letters) -> None:
    ids = letters.bury(early("m1"), b"no envelope")
    assert letters.store.received("orders") == {DAY: 2, TODAY: 2}
    letters.replay(ids[:1], **EARLIER)
    assert letters.store.received("orders") == {TOO_EARLY: 1, DAY: 2, TODAY: 1}
    letters.replay(ids[1:], {ids[1]: envelope("m2")})
    assert letters.store.received("orders") == {TOO_EARLY: 1, DAY: 3, TODAY: 0}
    letters.require_closed("orders")


def test_a_letter_that_is_still_bad_stays_open_and_says_why(letters: Letters) -> None:
    bad, good = letters.bury(b"no envelope", early("m1"))
    for attempt in (1, 2):
        done = letters.replay([bad, good], **EARLIER)
        assert list(done.still_bad) == [bad]
        assert not done.is_complete
        row = letters.letter(bad)
        assert (row["closed"], row["outcome"], row["replays"]) == (None, None, attempt)
        assert row["note"].endswith(f"with its body as it came. It stays open: {row['reason']}")
    assert letters.raw("orders") == Counter(["m1", "good0", "good1"])
    assert letters.tracked() == {bad}
    letters.require_closed("orders")


def test_a_mended_body_lands_in_the_place_of_the_one_that_came_and_both_are_kept(letters: Letters) -> None:
    [each] = letters.bury(b'{"message_id": 7, "publish_time": "2025-03-01T12:00:00Z", "payload": {}}')
    assert letters.letter(each)["message_id"] is None
    mended = envelope("m7", key="value")
    assert letters.replay([each], {each: mended}).replayed == [each]
    row = letters.letter(each)
    assert row["message_id"] == "m7"
    assert f"with a mended body, SHA-256 {sha256(mended).hexdigest()}." in row["note"]
    folder = Path(row["body_archive"]).parent
    assert {path.name.split(".", 1)[1]: path.read_bytes() for path in folder.glob(f"{each}.*")} == {
        "body": b'{"message_id": 7, "publish_time": "2025-03-01T12:00:00Z", "payload": {}}',
        f"{sha256(mended).hexdigest()[:16]}.mended": mended,
    }
    assert letters.raw("orders") == Counter(["m7", "good0"])
    letters.require_closed("orders")


def test_a_mended_body_that_is_still_bad_leaves_the_letter_open(letters: Letters) -> None:
    [each] = letters.bury(b"no envelope")
    done = letters.replay([each], {each: b""})
    assert "a mended body, SHA-256 e3b0c442" in letters.letter(each)["note"]
    assert (list(done.still_bad), letters.letter(each)["outcome"]) == ([each], None)
    assert list(Path(letters.letter(each)["body_archive"]).parent.glob("*.mended")) == []


def test_a_letter_that_is_closed_already_is_left_alone(letters: Letters) -> None:
    replayed, discarded = letters.bury(early("m1"), early("m2"))
    letters.replay([replayed], **EARLIER)
    letters.discard([discarded])
    before = [letters.letter(each) for each in (replayed, discarded)]
    again = letters.replay([replayed], **EARLIER)
    assert (again.replayed, again.closed_already, again.is_complete) == ([], {replayed: "replayed"}, True)
    again = letters.replay([discarded], **EARLIER)
    assert (again.replayed, again.closed_already, again.is_complete) == ([], {discarded: "discarded"}, False)
    assert letters.discard([replayed, discarded]).discarded == []
    assert [letters.letter(each) for each in (replayed, discarded)] == before
    assert letters.raw("orders")["m1"] == 1
    assert letters.raw("orders")["m2"] == 0
    letters.require_closed("orders")


def test_a_letter_that_is_discarded_says_by_whom_and_why_and_still_counts(letters: Letters) -> None:
    ids = letters.bury(b"1", b"2", b"3")
    done = letters.discard(ids[:2])
    assert (sorted(done.discarded), done.closed_already) == (sorted(ids[:2]), {})
    row = letters.letter(ids[0])
    assert (row["outcome"], row["closed"] is not None, row["replays"]) == ("discarded", True, 0)
    assert row["note"].startswith("Discarded by bob at ")
    assert row["note"].endswith(" UTC: a test of the producer's")
    assert letters.tracked() == {ids[2]}
    letters.require_closed("orders")


def test_an_error_that_a_killed_discard_left_open_is_closed_by_the_next(letters: Letters) -> None:
    ids = letters.bury(b"1")
    letters.discard(ids)
    letters.store.track_error(ids[0], "orders", "malformed", "left open")
    assert letters.discard(ids).closed_already == {ids[0]: "discarded"}
    assert letters.tracked() == set()


def test_a_letter_whose_body_is_gone_stays_open_and_the_others_land(letters: Letters) -> None:
    gone, changed, whole = letters.bury(early("m1"), early("m2"), early("m3"))
    Path(letters.letter(gone)["body_archive"]).unlink()
    Path(letters.letter(changed)["body_archive"]).write_bytes(early("other"))
    done = letters.replay([gone, changed, whole], **EARLIER)
    assert done.replayed == [whole]
    assert "is gone." in done.still_bad[gone]
    assert "its SHA-256 is another" in done.still_bad[changed]
    assert letters.raw("orders") == Counter(["m3", "good0", "good1", "good2"])
    assert letters.replay([gone], {gone: envelope("m1")}).replayed == [gone]
    letters.require_closed("orders")


def test_an_id_that_no_letter_of_the_topic_has_changes_nothing(letters: Letters) -> None:
    mine, theirs = letters.bury(early("m1")), letters.bury(early("p1"), topic="payments")
    for work in (letters.replay, letters.discard):
        with pytest.raises(DeadLetterUnknown, match="leanops dlq list"):
            work([*mine, *theirs])
    assert letters.letter(mine[0])["replays"] == 0
    assert letters.letter(mine[0])["outcome"] is None


def test_a_message_that_makes_the_landing_fail_stays_open_and_the_others_land(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = letters.bury(*(early(f"m{number}") for number in range(20)))
    rows = landing_module._rows

    def refuse_poison(envelopes: Any, *others: Any) -> Any:
        if any(each.message_id == "m13" for each in envelopes):
            raise KeyError("a bug that one message meets")
        return rows(envelopes, *others)

    monkeypatch.setattr(landing_module, "_rows", refuse_poison)
    done = letters.replay(ids, **EARLIER)
    assert done.still_bad == {ids[13]: "KeyError: 'a bug that one message meets'"}
    assert letters.letter(ids[13])["replays"] == 1
    assert letters.letter(ids[13])["note"].endswith("It stays open: KeyError: 'a bug that one message meets'")
    assert letters.raw("orders") == Counter(
        [f"good{number}" for number in range(20)] + [f"m{number}" for number in range(20) if number != 13]
    )
    letters.require_closed("orders")


def test_many_letters_are_replayed_in_parts_of_bounded_size(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = letters.bury(*(early(f"m{number}") for number in range(25)))
    commits, commit = [], landing_module.append_raw

    def counted(*arguments: Any) -> Any:
        commits.append(1)
        return commit(*arguments)

    monkeypatch.setattr(landing_module, "append_raw", counted)
    monkeypatch.setattr(replay_module, "MOST_LETTERS", 10)
    assert len(letters.replay(ids[:20], **EARLIER).replayed) == 20
    assert len(commits) == 2
    size = len(early("m20"))
    monkeypatch.setattr(replay_module, "BUFFER_BYTES", 2 * size)
    assert len(letters.replay(ids, **EARLIER).replayed) == 5
    assert len(commits) == 2 + 3
    assert letters.raw("orders") == Counter([f"{kind}{number}" for kind in ("m", "good") for number in range(25)])
    letters.require_closed("orders")


def test_a_letter_that_others_have_written_down_twice_lands_once(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "BUFFER_BYTES", 1)
    [each] = letters.bury(early("m1"))
    letters.copy(each)
    assert letters.replay([each], **EARLIER).replayed == [each]
    assert letters.raw("orders")["m1"] == 1
    assert {found["outcome"] for found in letters.dead("orders")} == {"replayed"}


def test_while_a_topic_is_drained_its_letters_wait(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "PATIENCE", timedelta(seconds=0.1))
    ids = letters.bury(early("m1"))
    with lease(letters.store, "drain/orders", "a drain", timedelta(0)):
        for work in (letters.replay, letters.discard):
            with pytest.raises(TopicBusy, match=r"a drain is at work on drain/orders.* Run the same again"):
                work(ids)
    assert letters.letter(ids[0])["replays"] == 0


def test_a_full_disk_while_letters_are_replayed_loses_and_doubles_nothing(
    letters: Letters, no_room_beyond: NoRoomBeyond
) -> None:
    bodies = [
        envelope(f"m{number}", TOO_EARLY, text=random.Random(number).randbytes(20_000).hex()) for number in range(9)
    ]
    ids = letters.bury(*bodies)
    with no_room_beyond(150_000), pytest.raises(DiskFull):
        letters.replay(ids, **EARLIER)
    assert not any(letters.raw("orders")[f"m{number}"] for number in range(9))
    assert len(letters.replay(ids, **EARLIER).replayed) == 9
    assert all(letters.raw("orders")[f"m{number}"] == 1 for number in range(9))
    letters.require_closed("orders")


# Once, whatever happens


class Killed(BaseException):
    """The end of a process, as far as what it calls can tell."""


STEPS: list[tuple[Any, str]] = [
    (Transaction, "commit_transaction"),
    (SqliteStateStore, "open_delivery"),
    (SqliteStateStore, "count_delivery"),
    (SqliteStateStore, "resolve_errors"),
    (FolderArchive, "put_mended"),
]
"""All that a replay changes anything by."""


@contextmanager
def fault_at(step: int, fault: BaseException) -> Iterator[list[str]]:
    """Raise `fault` at one of the steps that are taken: even ones before it is taken, odd ones after."""
    taken: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, _faulty(getattr(owner, name), step, fault, taken))
        yield taken


def _faulty(call: Callable[..., Any], step: int, fault: BaseException, taken: list[str]) -> Any:
    def reached(when: str) -> None:
        taken.append(f"{when} {call.__name__}")
        if len(taken) - 1 == step:
            raise fault

    def faulty(*arguments: Any, **named: Any) -> Any:
        reached("before")
        result = call(*arguments, **named)
        reached("after")
        return result

    return faulty


@dataclass(frozen=True)
class Case:
    """Letters of which two can land, one of them with a mended body, and one cannot. It can be had anew."""

    home: Home
    saved: Path
    ids: list[str]

    @classmethod
    def prepared(cls, home: Home) -> "Case":
        ids = Letters(home).bury(early("m1"), b"to be mended", b"never")
        shutil.copytree(home.path, home.path.with_name("saved"))
        return cls(home, home.path.with_name("saved"), ids)

    def anew(self) -> Letters:
        shutil.rmtree(self.home.path)
        shutil.copytree(self.saved, self.home.path)
        return Letters(self.home)

    def replay(self, letters: Letters) -> Replayed:
        return letters.replay(self.ids, {self.ids[1]: envelope("m2")}, **EARLIER)

    def require_replayed_once(self, letters: Letters, when: object) -> None:
        assert letters.raw("orders") == Counter(["m1", "m2", "good0", "good1", "good2"]), when
        rows = {row["dead_letter_id"]: row for row in letters.dead("orders")}
        assert [rows[each]["outcome"] for each in self.ids] == ["replayed", "replayed", None], when
        assert all("Replay by alice" in row["note"] for row in rows.values()), when
        assert "a mended body" in rows[self.ids[1]]["note"], when
        assert letters.tracked() == {self.ids[2]}, when
        letters.require_closed("orders")


@pytest.fixture
def case(home: Home) -> Case:
    return Case.prepared(home)


FAULTS = {
    "killed": Killed(),
    "unknown": RuntimeError("nobody foresaw this"),
    "transient": LandingConflict("Others were faster.", "Again."),
}


@pytest.mark.parametrize(
    "kind", ["killed", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("unknown", "transient"))]
)
def test_a_replay_that_fails_at_any_step_and_is_repeated_replays_once(kind: str, case: Case) -> None:
    for step in count():
        letters = case.anew()
        with fault_at(step, FAULTS[kind]) as taken, suppress(Killed, RuntimeError, LandingConflict):
            case.replay(letters)
        case.replay(letters)
        case.require_replayed_once(letters, taken[-1])
        if len(taken) <= step:
            break
    assert step == 14, "before and after three commits, a body, an opening, the errors and a count"


def test_after_a_replay_was_killed_at_any_step_a_drain_puts_the_books_in_order(case: Case) -> None:
    for step in count():
        letters = case.anew()
        with fault_at(step, Killed()) as taken, suppress(Killed):
            case.replay(letters)
        letters.drop("orders", [envelope("later")], "later.ndjson")
        letters.drain()
        letters.require_closed("orders")
        landed = letters.raw("orders")
        outcomes = [letters.letter(each)["outcome"] for each in case.ids]
        assert outcomes == (["replayed", "replayed", None] if landed["m1"] else [None] * 3), taken[-1]
        assert landed["m1"] == landed["m2"] <= 1, taken[-1]
        if len(taken) <= step:
            break


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 12))])
def test_a_replay_that_is_killed_time_and_again_replays_once(seed: int, case: Case) -> None:
    dice, letters = random.Random(seed), case.anew()
    for _ in range(8):
        with fault_at(dice.randrange(14), Killed()), suppress(Killed):
            case.replay(letters)
    case.replay(letters)
    case.require_replayed_once(letters, seed)


def test_when_nobody_can_say_whether_raw_has_it_nothing_is_tried_again(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = letters.bury(early("m1"), early("m2"))
    commit = landing_module.append_raw

    def commit_and_fail(*arguments: Any) -> None:
        commit(*arguments)
        monkeypatch.setattr(letters.catalog, "load_table", fail)
        fail()

    def fail(*_: Any) -> None:
        raise RuntimeError("the catalog is gone")

    monkeypatch.setattr(landing_module, "append_raw", commit_and_fail)
    with pytest.raises(ReplayUnsettled, match="the catalog is gone"):
        letters.replay(ids, **EARLIER)
    monkeypatch.undo()
    assert letters.raw("orders") == Counter(["m1", "m2", "good0", "good1"])
    assert sorted(letters.replay(ids, **EARLIER).closed_already) == sorted(ids)
    assert letters.raw("orders") == Counter(["m1", "m2", "good0", "good1"])
    letters.require_closed("orders")


# At once


def replay_elsewhere(home: Home, ids: list[str]) -> list[int]:
    """A replay as another process does it, from the very start."""
    done = Letters(home).replay(ids, **EARLIER)
    return [len(done.replayed), len(done.closed_already)]


def test_of_replays_at_once_one_replays_and_the_others_find_it_done(
    letters: Letters, in_processes: InProcesses
) -> None:
    ids = letters.bury(*(early(f"m{number}") for number in range(5)))
    done = in_processes(replay_elsewhere, [(letters.home, ids)] * PROCESSES)
    assert sorted(done) == [[0, 5]] * (PROCESSES - 1) + [[5, 0]]
    assert letters.raw("orders") == Counter(f"{kind}{number}" for kind in ("m", "good") for number in range(5))
    letters.require_closed("orders")


def test_replays_discards_and_drains_of_other_topics_at_once_lose_nothing_of_each_other(
    letters: Letters, together: Together
) -> None:
    topics = [f"topic_{number}" for number in range(3)]
    ids = {topic: letters.bury(*(early(f"{topic}_{each}") for each in range(4)), topic=topic) for topic in topics}

    def work(topic: str) -> Callable[[], None]:
        own = Letters(letters.home)

        def in_turn() -> None:
            for each in ids[topic][:2]:
                own.replay([each], topic=topic, **EARLIER)
            own.discard(ids[topic][2:3], topic)

        return in_turn

    def bury_more() -> None:
        own = Letters(letters.home)
        for number in range(3):
            own.drop("other", [b"bad %d" % number, envelope(f"o{number}")])
            assert own.drain()["other"].problem is None

    together([bury_more, *map(work, topics)])
    for topic in topics:
        outcomes = [letters.letter(each)["outcome"] for each in ids[topic]]
        assert outcomes == ["replayed", "replayed", "discarded", None]
        letters.require_closed(topic)
    assert len(letters.dead("other")) == 3
    letters.require_closed("other")
