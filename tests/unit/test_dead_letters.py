"""Dead letters: their table, and what people do with them on the command line."""

import json
import stat
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from leanops.errors import DeadLetterUnknown
from leanops.home import Home
from leanops.ledger.letter_story import letter_story, letters_called
from leanops.raw.dead_letter_names import named_letters, open_letters
from leanops.raw.dead_letters import find_dead_letters, save_dead_letters, update_dead_letters
from tests.cases.archives import letter
from tests.conftest import Said
from tests.draining import envelope
from tests.replaying import EARLIER, Letters, early

LeanOps = Callable[..., Said]
MENDED = envelope("mended", amount="1.50")


@pytest.fixture
def letters(home: Home, monkeypatch: pytest.MonkeyPatch) -> Letters:
    monkeypatch.setenv("LEANOPS_HOME", str(home.path))
    monkeypatch.setenv("LOGNAME", "alice")
    return Letters(home)


# The table


def test_letters_are_found_by_topic_by_id_and_by_being_open_the_oldest_first(letters: Letters) -> None:
    first, second = letters.bury(b"1"), letters.bury(b"2")
    other = letters.bury(b"3", topic="payments")
    letters.discard(first)

    def found(**by: Any) -> list[str]:
        return [row["dead_letter_id"] for row in find_dead_letters(letters.catalog, **by)]

    assert found() == [*first, *second, *other]
    assert found(topic="orders") == [*first, *second]
    assert found(only_open=True) == [*second, *other]
    assert found(ids=[*first, *other, "unheard of"], only_open=True) == other
    assert found(ids=[]) == []


def test_before_the_first_dead_letter_there_is_none_to_find_or_to_change(home: Home) -> None:
    letters = Letters(home)
    assert find_dead_letters(letters.catalog) == []
    assert update_dead_letters(letters.catalog, "orders", {"x": {"note": "y"}}) == 0


def test_a_change_of_one_letter_changes_nothing_else(letters: Letters) -> None:
    ids = letters.bury(b"1", b"2", b"3")
    before = {each: letters.letter(each) for each in ids}
    assert update_dead_letters(letters.catalog, "orders", {ids[1]: {"note": "é \n"}}) == 1
    assert {each: letters.letter(each) for each in ids} == {**before, ids[1]: {**before[ids[1]], "note": "é \n"}}
    assert update_dead_letters(letters.catalog, "payments", {ids[1]: {"note": "of another topic"}}) == 0


def test_a_letter_keeps_what_is_known_of_it(letters: Letters) -> None:
    body = json.dumps({"message_id": "m1", "idempotency_key": "k", "publish_time": "2025-02-03T00:00:00Z"}).encode()
    dead = letter(body, handle="h")
    save_dead_letters(letters.catalog, [dead], {dead.dead_letter_id: "there"}, "queue", "delivery")
    row = letters.letter(dead.dead_letter_id)
    assert datetime.now(UTC) - row.pop("received") < timedelta(minutes=1)
    assert row == {
        "dead_letter_id": dead.dead_letter_id,
        "topic_name": "orders",
        "day": date(2025, 2, 3),
        "message_id": "m1",
        "idempotency_key": "k",
        "fault": "malformed",
        "reason": "there is no payload.",
        "receives": 1,
        "source": "queue",
        "handle": "h",
        "body_archive": "there",
        "body_bytes": len(body),
        "body_sha256": sha256(body).hexdigest(),
        "delivery_id": "delivery",
        "replays": 0,
        "closed": None,
        "outcome": None,
        "note": None,
    }


# Their names


def test_a_letter_is_named_by_as_much_of_its_id_as_tells_it_from_others(letters: Letters) -> None:
    ids = [*letters.bury(b"1", b"2"), *letters.bury(b"3", topic="payments")]
    assert named_letters(letters.catalog, [ids[0][:6], ids[0], ids[2][:10]]) == {
        "orders": [ids[0]],
        "payments": [ids[2]],
    }
    assert named_letters(letters.catalog, ids[:2], ["orders"]) == {"orders": ids[:2]}
    assert open_letters(letters.catalog, ["payments"]) == {"payments": [ids[2]]}
    letters.discard(ids[:1])
    assert open_letters(letters.catalog) == {"orders": [ids[1]], "payments": [ids[2]]}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("abcde", "'abcde' is too short"),
        ("", "'' is too short"),
        ("ffffff", "There is no dead letter 'ffffff'"),
        ("abcdef", "'abcdef' may be abcdef0 or abcdef1"),
        ("abcdef00", "There is no dead letter 'abcdef00'"),
    ],
)
def test_a_name_that_is_none_or_that_of_several_is_told(name: str, problem: str, letters: Letters) -> None:
    [each] = letters.bury(b"1")
    for other in ("abcdef0", "abcdef1"):
        letters.copy(each, other)
    with pytest.raises(DeadLetterUnknown) as caught:
        named_letters(letters.catalog, [name])
    assert problem in caught.value.problem
    assert named_letters(letters.catalog, ["abcdef1"]) == {"orders": ["abcdef1"]}


def test_a_letter_of_another_topic_than_was_given_is_not_meant(letters: Letters) -> None:
    ids = letters.bury(b"1")
    with pytest.raises(DeadLetterUnknown):
        named_letters(letters.catalog, ids, ["payments"])


# The command line


def test_before_anything_has_come_there_is_nothing_to_list_or_to_replay(letters: Letters, leanops: LeanOps) -> None:
    assert leanops("dlq", "list").out == "No open dead letters.\n"
    assert leanops("dlq", "list", "--all").out == "No dead letters.\n"
    said = leanops("dlq", "replay", "--all")
    assert (said.exit_code, said.out) == (0, "No open dead letters.\n")


def test_open_letters_are_listed_with_their_whole_ids_and_the_others_on_demand(
    letters: Letters, leanops: LeanOps
) -> None:
    ids = letters.bury(b"no envelope \x1b[31m", early("m2"))
    [other] = letters.bury(b"x", topic="payments")
    letters.discard(ids[:1])
    said = leanops("dlq", "list")
    head, _, *rows = said.out.splitlines()
    assert head.split() == ["id", "topic", "day", "fault", "reason", "receives", "message_id", "bytes", "age"]
    assert [row.split()[0] for row in rows] == [ids[1], other]
    assert "lies before the platform's first day, 2025-01-01." in rows[0]
    assert rows[0].rstrip().endswith(" s")
    assert [row.split()[0] for row in leanops("dlq", "list", "--topic", "payments").out.splitlines()[2:]] == [other]
    everything = leanops("dlq", "list", "--all").out.splitlines()
    assert [row.split()[-1] for row in everything[2:]] == ["discarded", "open", "open"]
    told = [json.loads(line) for line in leanops("dlq", "list", "--all", "--json").out.splitlines()]
    assert [row["dead_letter_id"] for row in told] == [*ids, other]
    assert told[0]["note"].endswith("a test of the producer's")


def test_a_topic_that_nothing_is_known_of_is_told(letters: Letters, leanops: LeanOps) -> None:
    letters.bury(b"x")
    for command in (["list"], ["replay"], ["discard", "--reason", "x"]):
        said = leanops("dlq", *command, "--topic", "ordres")
        assert said.exit_code == 1
        assert "There is no topic 'ordres'. Did you mean orders?" in said.err


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"message_id": "m1"}', '{"message_id": "m1"}'),
        (b"a\nb\x1b[31m", "a\nb\\x1b[31m"),
        ("é".encode() * 5000, "é" * 4000 + "\n… and 1,000 more; --body has all."),
        (b"abc\xff", "00000000  61 62 63 ff                                      abc."),
        (b"\xff" * 300, "… and 44 more; --body has all."),
    ],
)
def test_a_letter_is_shown_with_all_that_is_known_of_it_and_its_body(
    body: bytes, shown: str, letters: Letters, leanops: LeanOps
) -> None:
    dead = letter(body)
    place = letters.intake().archive.put(dead)
    save_dead_letters(letters.catalog, [dead], {dead.dead_letter_id: place}, "queue", "delivery")
    said = leanops("dlq", "show", dead.dead_letter_id[:8])
    assert f"dead_letter_id   {dead.dead_letter_id}\n" in said.out
    assert f"body_archive     {place}\n" in said.out
    assert "outcome" not in said.out
    assert said.out.endswith(f"{shown}\n")


def test_a_body_alone_is_written_byte_for_byte(letters: Letters, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    from leanops_cli.dlq import show

    body = b'{"message_id": "\xff\x00\r.'
    [each] = letters.bury(body)
    capsysbinary.readouterr()
    show(each, only_body=True)
    assert capsysbinary.readouterr().out == body


def test_a_body_that_is_gone_is_told_and_the_rest_is_shown(letters: Letters, leanops: LeanOps) -> None:
    [each] = letters.bury(b"x")
    Path(letters.letter(each)["body_archive"]).unlink()
    said = leanops("dlq", "show", each)
    assert (said.exit_code, "is gone." in said.out) == (0, True)
    said = leanops("dlq", "show", each, "--body")
    assert (said.exit_code, said.out, "is gone." in said.err) == (1, "", True)


def test_a_letter_is_saved_mended_and_replayed(letters: Letters, leanops: LeanOps, tmp_path: Path) -> None:
    [each] = letters.bury(b'{"message_id": "mended", "publish_time": "yesterday", "payload": {}}')
    said = leanops("dlq", "replay", each[:6])
    assert said.exit_code == 1
    assert said.out.startswith("0 dead letters of orders are in RAW now.\n")
    assert f"  {each} stays open: publish_time 'yesterday' is no ISO 8601 time" in said.out
    file = tmp_path / "mended.json"
    file.write_text(leanops("dlq", "show", each, "--body").out.replace("yesterday", "2025-03-01T08:00:00Z") + "\n")
    said = leanops("dlq", "replay", each[:6], "--with", file)
    assert (said.exit_code, said.out, said.err) == (0, "1 dead letter of orders is in RAW now.\n", "")
    assert letters.raw("orders")["mended"] == 1
    row = letters.letter(each)
    assert (row["outcome"], row["replays"]) == ("replayed", 2)
    assert f"Replay by alice at {datetime.now(UTC):%Y-%m-%d} " in row["note"]
    assert sha256(file.read_bytes()).hexdigest() in row["note"]
    letters.require_closed("orders")
    said = leanops("dlq", "replay", each)
    assert said.exit_code == 0
    assert said.out == f"0 dead letters of orders are in RAW now.\n  {each} had been replayed before\n"
    assert letters.raw("orders")["mended"] == 1


def test_what_came_to_raw_is_told_to_dagster_day_by_day(letters: Letters, leanops: LeanOps, tmp_path: Path) -> None:
    import dagster as dg

    from leanops_assets.instance import dagster_instance

    [each] = letters.bury(b"x")
    file = tmp_path / "mended.json"
    file.write_bytes(MENDED)
    assert leanops("dlq", "replay", each, "--with", file).exit_code == 0
    with dagster_instance(letters.home) as instance:
        found = instance.get_latest_materialization_event(dg.AssetKey(["raw", "orders"]))
    assert found
    assert found.asset_materialization
    assert found.asset_materialization.partition == "2025-03-01"
    assert found.asset_materialization.metadata["rows_landed"].value == 1


def test_a_second_replay_of_a_day_is_told_to_dagster_like_the_first(
    letters: Letters, leanops: LeanOps, tmp_path: Path
) -> None:
    mended = tmp_path / "mended.json"
    mended.write_bytes(MENDED)
    for each in letters.bury(b"1", b"2"):
        said = leanops("dlq", "replay", each, "--with", mended)
        assert (said.exit_code, said.err) == (0, "")


def test_letters_of_all_topics_are_replayed_and_what_fails_for_one_leaves_the_others_alone(
    letters: Letters, leanops: LeanOps, monkeypatch: pytest.MonkeyPatch
) -> None:
    from leanops_assets.raw import replay as replay_module
    from leanops_resources.state.lease import lease

    monkeypatch.setenv("LEANOPS_FIRST_DAY", "2024-01-01")
    monkeypatch.setattr(replay_module, "PATIENCE", timedelta(0))
    letters.bury(early("m1"), early("m2"))
    letters.bury(early("p1"), topic="payments")
    with lease(letters.store, "drain/orders", "a drain", timedelta(0)):
        said = leanops("dlq", "replay", "--all")
    assert said.exit_code == 1
    assert said.err.startswith("error: orders: a drain is at work on drain/orders")
    assert said.out == "1 dead letter of payments is in RAW now.\n"
    said = leanops("dlq", "replay", "--topic", "orders")
    assert (said.exit_code, said.out) == (0, "2 dead letters of orders are in RAW now.\n")
    for topic in ("orders", "payments"):
        letters.require_closed(topic)


def test_letters_are_discarded_with_a_reason_and_stay_in_the_list(letters: Letters, leanops: LeanOps) -> None:
    ids = letters.bury(b"1", b"2", b"3")
    said = leanops("dlq", "discard", ids[0], "--reason", "a test")
    assert (said.exit_code, said.out) == (0, "1 dead letter of orders is discarded.\n")
    said = leanops("dlq", "discard", "--topic", "orders", "--reason", "all of them")
    assert said.out == "2 dead letters of orders are discarded.\n"
    assert leanops("dlq", "list").out == "No open dead letters.\n"
    assert [letters.letter(each)["note"].rpartition(" UTC: ")[2] for each in ids] == ["a test", *["all of them"] * 2]
    said = leanops("dlq", "replay", ids[0])
    assert (said.exit_code, said.out.splitlines()[1]) == (1, f"  {ids[0]} had been discarded before")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["replay"], "name dead letters, or give --topic or --all."),
        (["discard", "--reason", "x"], "name dead letters, or give --topic."),
        (["discard", "--topic", "orders", "--reason", " "], "say why."),
        (["discard", "--topic", "orders"], "--reason"),
        (["replay", "--all", "--with", __file__], "name exactly one."),
        (["replay", "aaaaaa", "bbbbbb", "--with", __file__], "name exactly one."),
        (["replay", "aaaaaa", "--with", "nowhere"], "nowhere"),
    ],
)
def test_a_command_that_says_too_little_does_nothing(
    arguments: list[str], problem: str, letters: Letters, leanops: LeanOps
) -> None:
    [each] = letters.bury(b"x")
    said = leanops("dlq", *arguments)
    assert said.exit_code == 2
    assert problem in " ".join(said.err.replace("│", " ").split())
    assert letters.letter(each)["replays"] == 0
    assert letters.letter(each)["closed"] is None


def test_bodies_are_for_their_owner_alone(letters: Letters) -> None:
    [each] = letters.bury(b"x")
    assert stat.S_IMODE(Path(letters.letter(each)["body_archive"]).stat().st_mode) == 0o600


# Their story


def told(letters: Letters, name: str, **only: Any) -> list[str]:
    return [what for each in letters_called(letters.catalog, name, **only) for what, _ in letter_story(each)]


def test_the_story_of_a_letter_says_why_it_is_one_and_what_would_heal_it(letters: Letters) -> None:
    assert told(letters, "m1") == []
    [each] = letters.bury(early("m1"))
    row = letters.letter(each)
    came, where, state, healed = told(letters, "m1")
    assert came.startswith(f"came from landing/orders and became dead letter {each} at 20")
    assert came.endswith(f", malformed: {row['reason']}")
    assert where == f"its body, {row['body_bytes']} bytes as they came, was put to {row['body_archive']}"
    assert state == "is open: nobody has replayed or discarded it"
    assert healed.startswith(f"would be healed by `leanops dlq replay {each}` --with a file")
    letters.replay([each])
    assert told(letters, each)[2].startswith("is open, after one attempt to replay it: Replay by alice at ")
    letters.replay([each], **EARLIER)
    replayed = told(letters, "m1")
    assert len(replayed) == 3
    assert replayed[2].startswith("was brought to RAW as m1 at 20")
    assert replayed[2].endswith(" UTC, with its body as it came.")


def test_the_story_of_a_discarded_letter_says_who_did_it_and_why(letters: Letters) -> None:
    [each] = letters.bury(b'{"idempotency_key": "order/1"}')
    letters.discard([each])
    assert told(letters, "order/1")[2].startswith("was discarded at 20")
    assert told(letters, "order/1")[2].endswith(": a test of the producer's")
    assert told(letters, "order/1", only=["payments"]) == []
    assert told(letters, "order/1", only=["orders", "payments"]) == told(letters, "order/1")


def test_a_letter_that_failed_for_an_unknown_reason_is_healed_by_another_hand(letters: Letters) -> None:
    [each] = letters.bury(early("m1"))
    update_dead_letters(letters.catalog, "orders", {each: {"fault": "unknown"}})
    assert told(letters, each)[3] == f"would be healed by `leanops dlq replay {each}`, once what made it fail is mended"
