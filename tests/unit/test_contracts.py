import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from leanops.contracts.column_types import ColumnType
from leanops.contracts.error_document import error_document
from leanops.contracts.model import MAX_COLUMNS, MAX_OWNERS, Contract, EnvelopeColumn, PayloadColumn, Thresholds
from leanops.contracts.reading import ALLOWED, MAX_BYTES, own_topic, read_contract
from leanops.errors import ContractBreaking, ContractInvalid, Problem
from leanops.names import RESERVED_COLUMNS, SAFE_NAME
from leanops_resources.schema_store import LocalSchemaStore, Stage

SHIPPED = LocalSchemaStore(Path(__file__).parents[2] / "schemas")
ACTIVE = [topic for topic in SHIPPED.topics() if SHIPPED.read(topic, Stage.ACTIVE) is not None]

ENVELOPE = {"name": "idempotency_key", "source": "_metadata.idempotencyKeyResource"}
SOUND = {"name": "sound", "type": "STRING"}
MISSING = object()
SURROGATE = "\ud800"  # half a character: JSON can say it, UTF-8 cannot


def contract(**changes: Any) -> dict[str, Any]:
    """A contract that is right but for `changes`."""
    document = {"table_name": "orders", "envelope_columns": [ENVELOPE], "payload_columns": [SOUND], **changes}
    return {key: value for key, value in document.items() if value is not MISSING}


def with_column(**column: Any) -> dict[str, Any]:
    """A contract with a second payload column, `$.payload_columns[1]`."""
    return contract(payload_columns=[SOUND, {"name": "amount", "type": "STRING", **column}])


def with_envelope(**column: Any) -> dict[str, Any]:
    """A contract with a second envelope column, `$.envelope_columns[1]`."""
    return contract(envelope_columns=[ENVELOPE, {"name": "producer", "source": "_metadata.producer", **column}])


def read(document: object, topic: str | None = "orders") -> Contract:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_contract(content, topic, "schemas/orders/pending/schema.json")


def refused(document: object, topic: str | None = "orders") -> ContractInvalid:
    with pytest.raises(ContractInvalid) as caught:
        read(document, topic)
    return caught.value


def problems(document: object, topic: str | None = "orders") -> Sequence[Problem]:
    return refused(document, topic).problems


NOT_DOCUMENTS = [
    # content, what the one problem says
    (b"", "not JSON: the file is empty."),
    (b" ", "not JSON: the file is empty."),
    (b"{", "not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
    (b'{"a": 1,\n "b" 2}', "at line 2, column 6"),
    (b"{'a': 1}", "not JSON"),
    (b"{} {}", "not JSON"),
    (b'{"a": "b\nc"}', "not JSON: Invalid control character at line 1, column 9."),
    (b'{"a": NaN}', "not JSON: NaN is no value that JSON knows."),
    (b"\xef\xbb\xbf{}", "the file begins with a byte order mark, which is no part of JSON."),
    (b"\xff\xfe{\0}\0", "the file is UTF-16, not UTF-8."),
    (b"\0{\0}", "the file is UTF-16, not UTF-8."),
    ("{}".encode("utf-32"), "the file is UTF-32, not UTF-8."),
    (b'{"table_name":\n "\xe9"}', "not UTF-8 at byte 17, in line 2: there is 0xE9, which is 'é' in Latin-1."),
    (b"\x89PNG\r\n\x1a\n", "not UTF-8 at byte 0, in line 1: there is 0x89."),
    (b"[]", "a contract is a JSON object"),
    (b"null", "a contract is a JSON object"),
    (b'"orders"', "a contract is a JSON object"),
    (b'{"table_name": "a", "table_name": "b"}', "'table_name' stands twice"),
    (b'{"payload_columns": [{"name": "a", "type": "INT", "name": "b"}]}', "'name' stands twice"),
    (b"[" * 100_000 + b"]" * 100_000, "nested deeper than any contract"),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested deeper than any contract"),
    (b" " * (MAX_BYTES + 1), f"at most {MAX_BYTES:,}"),
    (b" " * 10_000_000, "the file is too large: a contract has at most 2,097,152 bytes."),
    (b'{"version": ' + b"9" * 5000 + b"}", "the file has a number of 5,000 digits"),
]

ONE_PROBLEM = [
    # contract, path, what the problem says
    (contract(table_name=MISSING), "$.table_name", "required, but missing"),
    (contract(envelope_columns=MISSING), "$.envelope_columns", "required, but missing"),
    (contract(payload_columns=MISSING), "$.payload_columns", "required, but missing"),
    (contract(payload_columns=[]), "$.payload_columns", "it must be a list of 1 to 2,000 columns, found []."),
    (contract(payload_columns={}), "$.payload_columns", "found {}"),
    (contract(payload_columns="x"), "$.payload_columns", 'found "x"'),
    (contract(payload_columns=[SOUND, 5]), "$.payload_columns[1]", "found 5"),
    (contract(envelope_columns=[[]]), "$.envelope_columns[0]", "found []"),
    (contract(table_name="payments"), "$.table_name", "'payments' is not the topic of this folder. Write 'orders'."),
    (contract(table_name="../x"), "$.table_name", "'../x' is no topic's name, which is part of tables and paths"),
    (contract(version=0), "$.version", "found 0"),
    (contract(version=2**31), "$.version", "it must be a whole number from 1 to 2147483647, found 2147483648."),
    (contract(version=-1), "$.version", "found -1"),
    (contract(version="3"), "$.version", 'found "3"'),
    (contract(version=1.5), "$.version", "found 1.5"),
    (contract(version=True), "$.version", "found true"),
    (contract(description=5), "$.description", "found 5"),
    (contract(owners=["team:"]), "$.owners[0]", "is no owner, which is team:NAME or an e-mail address."),
    (contract(owners=["team:ok", ""]), "$.owners[1]", "is no owner"),
    (contract(owners=["commerce"]), "$.owners[0]", "'commerce' is no owner"),
    (contract(owners=["a@b"]), "$.owners[0]", "is no owner"),
    (contract(owners=["team:a b"]), "$.owners[0]", "is no owner"),
    (contract(owners=["a@b.c\n"]), "$.owners[0]", "is no owner"),
    (contract(owners="team:commerce"), "$.owners", 'found "team:commerce"'),
    (with_column(name=""), "$.payload_columns[1].name", "is no column name"),
    (with_column(name="Amount"), "$.payload_columns[1].name", "'Amount' is no column name"),
    (with_column(name="1st"), "$.payload_columns[1].name", "is no column name"),
    (with_column(name="a.b"), "$.payload_columns[1].name", "is no column name"),
    (with_column(name="a b"), "$.payload_columns[1].name", "is no column name"),
    (with_column(name="a" * 65), "$.payload_columns[1].name", "is no column name"),
    (with_column(name="a`; drop table x"), "$.payload_columns[1].name", "is no column name"),
    (with_column(name="sound"), "$.payload_columns[1].name", "already, at $.payload_columns[0].name"),
    (with_column(type="INTEGER"), "$.payload_columns[1].type", "there is no type 'INTEGER'. Did you mean INT?"),
    (with_column(type="varchar(20)"), "$.payload_columns[1].type", "Did you mean STRING?"),
    (with_column(type="xyzzy"), "$.payload_columns[1].type", "TIMESTAMP or DECIMAL(p,s)."),
    (with_column(type=""), "$.payload_columns[1].type", "there is no type ''"),
    (with_column(type="DECIMAL"), "$.payload_columns[1].type", "Did you mean DECIMAL(p,s)?"),
    (with_column(type="DECIMAL(39,2)"), "$.payload_columns[1].type", "1 ≤ p ≤ 38"),
    (with_column(type="DECIMAL(0,0)"), "$.payload_columns[1].type", "1 ≤ p ≤ 38"),
    (with_column(type="DECIMAL(2,3)"), "$.payload_columns[1].type", "0 ≤ s ≤ p"),
    (with_column(type=5), "$.payload_columns[1].type", "a type is a string"),
    (with_column(type=None), "$.payload_columns[1].type", "a type is a string"),
    (with_column(cde="yes"), "$.payload_columns[1].cde", 'found "yes"'),
    (with_column(cde=1), "$.payload_columns[1].cde", "found 1"),
    (with_column(type="DATE", format="garbage"), "$.payload_columns[1].format", "'garbage' is no format of a DATE"),
    (with_column(type="DATE", format="dd.MM.yyyy", default="31.01.2026"), "$.payload_columns[1].default", "no DATE"),
    (with_column(format=5), "$.payload_columns[1].format", "found 5"),
    (with_column(type="DATE", format="epoch_millis"), "$.payload_columns[1].format", "is no format of a DATE"),
    (with_column(default=0), "$.payload_columns[1].default", "found 0"),
    (with_column(cde=True, default=""), "$.payload_columns[1].default", "hide the violation"),
    (with_column(cde=True, default="x"), "$.payload_columns[1].default", "hide the violation"),
    (with_column(type="INT", default="12abc"), "$.payload_columns[1].default", "'12abc' is no INT"),
    (with_column(type="INT", default="2147483648"), "$.payload_columns[1].default", "is no INT"),
    (with_column(type="DECIMAL(5,2)", default="1.101"), "$.payload_columns[1].default", "is no DECIMAL(5,2)"),
    (with_column(type="DATE", default="2026-02-30"), "$.payload_columns[1].default", "is no DATE"),
    (with_column(type="BOOLEAN", default="no"), "$.payload_columns[1].default", "is no BOOLEAN"),
    (with_envelope(name="sound"), "$.payload_columns[0].name", "already, at $.envelope_columns[1].name"),
    (with_envelope(name="idempotency_key"), "$.envelope_columns[1].name", "already, at $.envelope_columns[0].name"),
    (with_envelope(source=""), "$.envelope_columns[1].source", "is no dotted path"),
    (with_envelope(source="a..b"), "$.envelope_columns[1].source", "is no dotted path"),
    (with_envelope(source=".a"), "$.envelope_columns[1].source", "is no dotted path"),
    (with_envelope(source="a b"), "$.envelope_columns[1].source", "is no dotted path"),
    (with_envelope(source=None), "$.envelope_columns[1].source", "found null"),
    (contract(envelope_columns=[{"name": "a"}]), "$.envelope_columns[0].source", "required, but missing"),
    (contract(thresholds=None), "$.thresholds", "found null"),
    (contract(thresholds={"cde_percent": 0}), "$.thresholds.cde_percent", "a number above 0 and up to 100, found 0."),
    (contract(thresholds={"cde_percent": "5"}), "$.thresholds.cde_percent", 'found "5"'),
    (contract(thresholds={"silent_hours": 0}), "$.thresholds.silent_hours", "a number above 0, found 0."),
    *(
        (
            contract(thresholds={"duplicates_within_days": days}),
            "$.thresholds.duplicates_within_days",
            f"a whole number from 1 to 3,650, found {days}.",
        )
        for days in (0, 1.5, 3651)
    ),
    (contract(**{"$schema": 5}), "$.$schema", "it must be a text, found 5."),
]

MISSPELT = [
    # contract, path of the unknown key, what is said to it
    (contract(tablename="x"), "$.tablename", "Did you mean 'table_name'?"),
    (contract(payload_colums=[]), "$.payload_colums", "Did you mean 'payload_columns'?"),
    (contract(owner=[]), "$.owner", "Did you mean 'owners'?"),
    (contract(xyzzy=1), "$.xyzzy", "Known here: table_name, version, description, owners,"),
    (with_column(deflaut="x"), "$.payload_columns[1].deflaut", "Did you mean 'default'?"),
    (with_column(CDE=True), "$.payload_columns[1].CDE", "Did you mean 'cde'?"),
    (with_column(path="a"), "$.payload_columns[1].path", "Known here: name, source, type, format, cde,"),
    (with_envelope(sorce="x"), "$.envelope_columns[1].sorce", "Did you mean 'source'?"),
    (with_envelope(type="INT"), "$.envelope_columns[1].type", "Known here: name, source."),
    (
        contract(thresholds={"cde": 5}),
        "$.thresholds.cde",
        "Known here: cde_percent, silent_hours, duplicates_within_days.",
    ),
    (contract(**{"table name": "x"}), '$["table name"]', "Did you mean 'table_name'?"),
]

FIXES = [
    # content or contract, the fix
    (b"\xef\xbb\xbf{}", "Save it as UTF-8 without BOM."),
    (b"\xff\xfe{\0}\0", "Save it as UTF-8 without BOM."),
    (b'{"table_name": "\xe9"}', "Save it as UTF-8 without BOM."),
    (b"{'a': 1}", "Write names and texts in double quotes."),
    (b'{"a": 1,}', "Take the comma before it away."),
    (b'{"a": [1,\n]}', "Take the comma before it away."),
    (b'{"a": 1 // one\n}', "Take the comment away: JSON has none."),
    (b'{"a": 1, "a": 2}', "Take one of the two away."),
    (contract(table_name=MISSING), 'Add it: "table_name": "orders".'),
    (contract(payload_columns=[SOUND, {"name": "a"}]), 'Add it, such as "type": "STRING".'),
    (contract(table_name=5), "Write 'orders'."),
    (contract(table_name="../x"), "Write 'orders'."),
    (contract(table_name="payments"), "Write 'orders'."),
    (contract(version="3"), "Write 3."),
    (contract(version="three"), None),
    (contract(owners="team:commerce"), 'Put it into a list: ["team:commerce"].'),
    (contract(payload_columns=SOUND), 'Put it into a list: [{"name": "sound", "type": "STRING"}].'),
    (contract(payload_columns="x"), None),
    (contract(owners=["commerce"]), "Write 'team:commerce'."),
    (contract(owners=["the team"]), None),
    (with_column(name="Amount"), "Write 'amount'."),
    (with_column(name="event.userId"), "Write 'event_userid'."),
    (with_column(name="order-amount €"), "Write 'order_amount__'."),
    (with_column(name="1st"), None),
    (with_column(name=" "), None),
    (with_column(type="Decimal(18, 2)"), "Write DECIMAL(18,2)."),
    (with_column(type="DECIMAL(39,2)"), None),
    (with_column(cde="True"), "Write true."),
    (with_column(cde=True, default="x"), "Take the default away, or set cde to false."),
    (with_column(type="INT", default=0), 'Write "0".'),
    (with_column(type="BOOLEAN", default=True), 'Write "true".'),
    (with_column(type="BOOLEAN", default="TRUE "), "Write 'true'."),
    (with_column(type="BOOLEAN", default="yes"), None),
    (with_column(type="DATE", format="YYYY-MM-DD"), "Write 'yyyy-MM-dd'."),
    (with_column(type="TIMESTAMP", format="epoch_milli"), "Write 'epoch_millis'."),
    (with_column(type="DATE", format="epoch_milli"), None),
    (with_column(name="sound"), "Take one of the two away, or give it another name."),
    (with_envelope(source="a..b"), "Write 'a.b'."),
    (with_envelope(source="a b"), None),
    (with_envelope(name="message_id"), "Choose another name."),
    (contract(thresholds={"cde_percent": "5"}), "Write 5."),
]

NOT_TEXT = [None, 5, 1.5, True, [], {}, ["orders"]]


def test_a_contract_reads_as_it_is_written() -> None:
    written = {
        "table_name": "orders",
        "version": 3,
        "description": "Bestellungen, geprüft",
        "owners": ["team:commerce", "ops@example.com"],
        "envelope_columns": [ENVELOPE],
        "payload_columns": [
            {"name": "event_timestamp", "type": "TIMESTAMP", "cde": True},
            {"name": "amount", "type": "DECIMAL(18,2)", "default": "0.00"},
            {"name": "placed_on", "type": "DATE", "format": "dd.MM.yyyy", "default": "2026-01-31"},
            {"name": "note", "type": "STRING", "default": "", "description": "What they said"},
        ],
    }
    contract = read(written)
    assert contract.model_dump(mode="json", exclude_defaults=True) == written
    assert contract.payload_columns[1].type == ColumnType("DECIMAL", 18, 2)


def test_what_a_contract_leaves_out_has_a_default() -> None:
    contract = read({"table_name": "orders", "envelope_columns": [], "payload_columns": [SOUND]})
    assert (contract.version, contract.description, contract.owners) == (1, None, ())
    column = contract.payload_columns[0]
    assert (column.cde, column.default, column.format, column.description) == (False, None, None, None)


@pytest.mark.parametrize(("content", "says"), NOT_DOCUMENTS, ids=[says for _, says in NOT_DOCUMENTS])
def test_a_file_that_is_no_document_is_one_problem_of_the_whole_file(content: bytes, says: str) -> None:
    (problem,) = problems(content)
    assert problem.path == "$"
    assert says in problem.message


@pytest.mark.parametrize(("document", "path", "says"), ONE_PROBLEM)
def test_what_is_wrong_is_said_once_with_its_json_path(document: dict[str, Any], path: str, says: str) -> None:
    error = refused(document)
    assert [problem.path for problem in error.problems] == [path]
    assert says in str(error.problems[0])
    assert "schemas/orders/pending/schema.json has one problem" in str(error)
    assert "docs/contracts.md" in error.hint


@pytest.mark.parametrize(
    "document",
    [content for content, _ in NOT_DOCUMENTS] + [document for document, _, _ in ONE_PROBLEM + MISSPELT],
    ids=lambda each: str(each)[:60],
)
def test_every_problem_says_what_was_found_and_what_is_allowed(document: object) -> None:
    (problem,) = problems(document)
    assert problem.found
    assert problem.allowed


@pytest.mark.parametrize(("document", "fix"), FIXES, ids=lambda each: str(each)[-60:])
def test_the_fix_is_told_where_it_is_known(document: object, fix: str | None) -> None:
    (problem,) = problems(document)
    assert problem.fix == fix


def test_what_is_allowed_is_known_of_every_place_of_a_contract() -> None:
    parts = {"": Contract, "envelope_columns[].": EnvelopeColumn, "payload_columns[].": PayloadColumn}
    places = {f"{part}{key}" for part, model in parts.items() for key in model.model_fields}
    places |= {f"thresholds.{key}" for key in Thresholds.model_fields}
    assert set(ALLOWED) == places | {"owners[]", "envelope_columns[]", "payload_columns[]"}


def test_a_problem_is_a_document_of_what_is_known_of_it() -> None:
    (problem,) = problems(with_column(type="INTEGER"))
    assert problem.document() == {
        "path": "$.payload_columns[1].type",
        "message": "there is no type 'INTEGER'.",
        "found": '"INTEGER"',
        "allowed": "STRING, BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, DATE, TIMESTAMP or DECIMAL(p,s)",
        "fix": "Did you mean INT?",
    }
    assert Problem("$", "wrong.").document() == {"path": "$", "message": "wrong."}


def test_the_error_document_holds_every_problem_as_json_that_people_can_read() -> None:
    error = refused(contract(version="3", description=5))
    written = error_document(error).decode()
    assert json.loads(written) == {
        "file": "schemas/orders/pending/schema.json",
        "problems": [problem.document() for problem in error.problems],
        "hint": "docs/contracts.md says what a contract may hold.",
    }
    assert len(error.problems) == 2
    assert written.startswith('{\n  "file": ')
    assert written.endswith("}\n")


def test_an_error_document_can_name_a_file_whose_name_is_no_text() -> None:
    with pytest.raises(ContractInvalid) as caught:
        read_contract(b"", "orders", "schemas/orders/pending/\udcff.json")
    assert json.loads(error_document(caught.value))["file"] == "schemas/orders/pending/\udcff.json"


def test_what_is_wrong_outside_the_file_is_a_problem_of_the_whole() -> None:
    written = json.loads(error_document(ContractBreaking("The table cannot follow.", "Rebuild it.")))
    assert written == {"problems": [{"path": "$", "message": "The table cannot follow."}], "hint": "Rebuild it."}


def test_what_editors_need_is_accepted_and_says_nothing_of_the_topic() -> None:
    linked = read(contract(**{"$schema": "../../contract.schema.json"}))
    assert linked == read(contract())
    assert linked.fingerprint == read(contract()).fingerprint


def test_a_file_in_no_topics_folder_is_of_the_topic_that_it_names() -> None:
    assert read(contract(table_name="payments"), topic=None).table_name == "payments"
    assert own_topic(json.dumps(contract(version="x")).encode()) == "orders"
    (missing,) = problems(contract(table_name=MISSING), topic=None)
    assert missing.fix == 'Add it, such as "table_name": "orders".'
    (unsafe,) = problems(contract(table_name="../x"), topic=None)
    assert unsafe.message == "'../x' cannot be a topic's name."


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"table_name": 5}', b"\xff\xfe{\0}\0"])
def test_a_file_that_names_no_topic_is_of_none(content: bytes) -> None:
    assert own_topic(content) is None


def test_columns_are_told_of_in_the_order_of_the_file() -> None:
    columns = [{"name": f"c{number}", "type": "integer"} for number in range(12)]
    paths = [problem.path for problem in problems(contract(payload_columns=columns))]
    assert paths == [f"$.payload_columns[{number}].type" for number in range(12)]


@pytest.mark.parametrize(("document", "path", "says"), MISSPELT)
def test_a_misspelt_key_is_answered_with_the_nearest_right_one(document: dict[str, Any], path: str, says: str) -> None:
    (problem,) = problems(document)
    assert (problem.path, problem.message) == (path, "unknown key.")
    assert problem.fix is not None
    assert says in problem.fix


def test_a_wrong_only_column_is_one_problem_and_not_also_a_missing_column() -> None:
    (problem,) = problems(contract(payload_columns=[{"name": "amount", "type": "INTEGER"}]))
    assert problem.path == "$.payload_columns[0].type"


def test_all_problems_of_a_contract_are_told_at_once() -> None:
    document = {
        "tablename": "orders",
        "version": "3",
        "owners": ["me"],
        "envelope_columns": [{"name": "message_id", "source": "a..b"}],
        "payload_columns": [
            SOUND,
            {"name": "Sound", "type": "INTEGER", "cde": "yes"},
            {"name": "sound", "type": "INT", "default": "x", "colour": "red"},
            {"type": "DECIMAL(99,2)"},
        ],
    }
    error = refused(document)
    paths = [problem.path for problem in error.problems]
    assert sorted(paths) == sorted(
        [
            "$.envelope_columns[0].name",
            "$.envelope_columns[0].source",
            "$.owners[0]",
            "$.payload_columns[1].cde",
            "$.payload_columns[1].name",  # not lower case
            "$.payload_columns[1].name",  # taken
            "$.payload_columns[1].type",
            "$.payload_columns[2].colour",
            "$.payload_columns[2].default",
            "$.payload_columns[2].name",
            "$.payload_columns[3].name",
            "$.payload_columns[3].type",
            "$.table_name",
            "$.tablename",
            "$.version",
        ]
    )
    assert "15 problems" in str(error)
    assert all(path in str(error) for path in paths)


@pytest.mark.parametrize("value", NOT_TEXT, ids=json.dumps)
@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("table_name", "$.table_name"),
        ("owner", "$.owners[0]"),
        ("envelope name", "$.envelope_columns[1].name"),
        ("envelope source", "$.envelope_columns[1].source"),
        ("payload name", "$.payload_columns[1].name"),
    ],
)
def test_a_name_that_is_no_text_is_a_problem_like_any_other(key: str, path: str, value: object) -> None:
    document = {
        "table_name": lambda: contract(table_name=value),
        "owner": lambda: contract(owners=[value]),
        "envelope name": lambda: with_envelope(name=value),
        "envelope source": lambda: with_envelope(source=value),
        "payload name": lambda: with_column(name=value),
    }[key]()
    assert [problem.path for problem in problems(document)] == [path]


@pytest.mark.parametrize("owner", ["team:commerce", "team:a-b_C9", "ops@example.com", "a.b+c@d.example.com"])
def test_an_owner_is_a_team_or_an_address(owner: str) -> None:
    from dagster._core.definitions.utils import is_valid_owner

    assert read(contract(owners=[owner])).owners == (owner,)
    assert is_valid_owner(owner)


@pytest.mark.parametrize(("first", "second"), [("amount", "AMOUNT"), ("Amount", "amount"), ("AMOUNT", "Amount")])
def test_names_that_differ_in_case_alone_are_the_same_name(first: str, second: str) -> None:
    columns = [{"name": first, "type": "INT"}, {"name": second, "type": "INT"}, SOUND]
    taken = [problem for problem in problems(contract(payload_columns=columns)) if "already" in problem.message]
    assert [problem.path for problem in taken] == ["$.payload_columns[1].name"]
    assert taken[0].message == (
        f"'{second}' is the name of another column already, at $.payload_columns[0].name: "
        "names that differ in case alone are the same."
    )


OURS = sorted(name for name in RESERVED_COLUMNS if SAFE_NAME.fullmatch(name))


@pytest.mark.parametrize("name", OURS)
def test_a_payload_column_does_not_take_a_name_of_ours(name: str) -> None:
    document = contract(envelope_columns=[], payload_columns=[SOUND, {"name": name, "type": "STRING"}])
    (problem,) = problems(document)
    assert problem.path == "$.payload_columns[1].name"
    assert "that the platform has for itself" in problem.message


@pytest.mark.parametrize("name", [name for name in OURS if name != "idempotency_key"])
def test_the_envelope_fills_no_column_of_ours_but_the_idempotency_key(name: str) -> None:
    (problem,) = problems(with_envelope(name=name))
    assert problem.path == "$.envelope_columns[1].name"
    assert "that the platform has for itself" in problem.message


@pytest.mark.parametrize("topic", ["../x", "Orders", "", "errors"])
@pytest.mark.parametrize("names_itself", [True, False])
def test_a_contract_of_an_unsafe_topic_is_refused_once(topic: str, names_itself: bool) -> None:
    (problem,) = problems(contract(table_name=topic if names_itself else "orders"), topic)
    assert problem.path == "$.table_name"
    assert problem.message.startswith(f"{topic!r} ")
    assert problem.fix != f"Write {topic!r}."


@pytest.mark.parametrize("key", ["payload_columns", "envelope_columns"])
def test_more_columns_than_a_table_can_have_are_a_mistake(key: str) -> None:
    more = {"source": "a"} if key == "envelope_columns" else {"type": "INT"}
    columns = [{"name": f"c{number}", **more} for number in range(MAX_COLUMNS + 1)]
    assert read(contract(**{key: columns[:-1]}))
    assert [problem.path for problem in problems(contract(**{key: columns}))] == [f"$.{key}"]


@pytest.mark.parametrize("column", [{"name": "A"}, {"name": "same", "type": "INT"}, 5])
def test_too_many_columns_are_one_problem_whatever_else_is_wrong_with_them(column: object) -> None:
    (problem,) = problems(contract(payload_columns=[column] * 5000))
    assert str(problem) == (
        "$.payload_columns: 5,000 columns are more than the 2,000 that a contract may have. "
        "Keep those that people ask for: Standardized holds every field all the same."
    )
    assert (problem.found, problem.allowed) == ("5,000 columns", "a list of 1 to 2,000 columns")


def test_too_many_owners_are_one_problem() -> None:
    assert read(contract(owners=["team:a"] * MAX_OWNERS))
    (problem,) = problems(contract(owners=["me"] * (MAX_OWNERS + 1)))
    assert str(problem) == "$.owners: 101 owners are more than the 100 that a contract may have."


def test_a_crowd_of_unknown_keys_is_one_problem_of_their_object() -> None:
    crowd = {f"key{number}": 1 for number in range(21)}
    (in_contract,) = problems(contract(**crowd))
    assert (in_contract.path, in_contract.found) == ("$", "21 keys")
    assert in_contract.message.startswith("21 unknown keys. Known here: table_name, version,")
    (in_column,) = problems(with_column(**crowd))
    assert in_column.path == "$.payload_columns[1]"
    assert in_column.allowed == "name, source, type, format, cde, default, description"


def test_the_largest_file_that_may_be_is_read() -> None:
    document = json.dumps(contract()).encode()
    assert read(document.ljust(MAX_BYTES)).table_name == "orders"


def test_no_depth_of_nesting_gets_past_the_reader() -> None:
    head, tail = json.dumps(contract(description="here")).encode().split(b'"here"')
    for depth in range(1, 1200):
        paths = [problem.path for problem in problems(head + b"[" * depth + b"]" * depth + tail)]
        assert paths in (["$.description"], ["$"]), depth


def test_a_file_of_a_great_many_keys_is_answered_at_once() -> None:
    many = {f"key{number}": 1 for number in range(20_000)}
    start = time.perf_counter()
    assert [problem.path for problem in problems(contract(description=many))] == ["$.description"]
    assert [problem.path for problem in problems(contract(**many))] == ["$"]
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(contract(description=SURROGATE), id="description"),
        pytest.param(contract(table_name=SURROGATE), id="table name"),
        pytest.param(contract(owners=[f"{SURROGATE}@b.c"]), id="owner"),
        pytest.param(contract(**{SURROGATE: 1}), id="key"),
        pytest.param(with_column(default=SURROGATE), id="default"),
        pytest.param(with_column(type=SURROGATE), id="type"),
        pytest.param(with_column(description=SURROGATE), id="column's description"),
        pytest.param(with_envelope(source=SURROGATE), id="source"),
        pytest.param(with_envelope(**{SURROGATE: 1}), id="column's key"),
    ],
)
def test_text_that_utf_8_cannot_hold_is_refused_in_text_that_it_can(document: dict[str, Any]) -> None:
    assert str(refused(document)).encode("utf-8")


@pytest.mark.parametrize(
    "document",
    [
        contract(description=["x" * 10_000]),
        contract(**{"x" * 10_000: 1}),
        contract(owners=["x y" * 10_000]),
        contract(table_name="X" * 10_000),
        with_column(name="X" * 10_000),
        with_column(type="X" * 10_000),
        with_column(type="DATE", format="X-" * 10_000 + "f"),
        with_column(type="INT", default="X" * 10_000),
        with_envelope(source="X " * 10_000),
    ],
    ids=lambda each: str(each)[:60],
)
def test_a_value_is_shown_in_short(document: dict[str, Any]) -> None:
    (problem,) = problems(document)
    assert max(map(len, problem.document().values())) < 250


@pytest.mark.parametrize("topic", ACTIVE)
def test_a_contract_that_is_shipped_is_valid_and_has_an_owner(topic: str) -> None:
    content = SHIPPED.read(topic, Stage.ACTIVE)
    assert content is not None
    assert read_contract(content, topic, SHIPPED.where(topic, Stage.ACTIVE)).owners


def test_five_topics_are_shipped_with_a_contract_and_one_without() -> None:
    assert ACTIVE == ["device_telemetry", "events", "orders", "payments", "user_profiles"]
    assert len(set(SHIPPED.topics()) - set(ACTIVE)) == 1
    assert SHIPPED.strays() == []


def test_events_have_the_columns_of_the_specs_flatten_example() -> None:
    content = SHIPPED.read("events", Stage.ACTIVE)
    assert content is not None
    assert [column.name for column in read_contract(content, "events", "events").payload_columns] == [
        "event_timestamp",
        "event_userid",
        "event_eventtype",
        "event_verb",
        "sessionid",
        "event_metadata_ipaddress",
        "event_metadata_deviceid",
        "event_metadata_useragent",
    ]
