"""Formats of DATE and TIMESTAMP: the rules as a table. tests/spark/test_datetime_format.py asks Spark the same."""

from datetime import datetime

import pytest

from leanops.contracts.datetime_format import EPOCH_FORMATS, check_format, is_format, read_moment
from leanops.errors import NotAllowed

OF_BOTH = (
    "dd.MM.yyyy",
    "yyyyMMdd",
    "yyyyDDD",
    "d/M/y",
    "d MMM yyyy",
    "MMMM d, yyyy",
    "G y-MM-dd",
    "yyyy年MM月dd日",
    "'day' dd 'of' MM yyyy",
    "yyyy-MM-dd'T'00:00:00",
    "yyyy-MM-dd[ '(confirmed)']",
)
OF_TIMESTAMPS = (
    *EPOCH_FORMATS,
    "yyyy-MM-dd HH",
    "yyyyMMddHHmmss",
    "yyyyMMddHHmmssS",
    "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "yyyy-MM-dd'T'HH:mm:ss'Z'",
    "yyyy-MM-dd HH:mm[:ss[.SSS]][XXX]",
    "MM/dd/yyyy hh:mm:ss a",
    "dd MMM yyyy HH:mm:ss Z",
    "yyyy-MM-dd HHmmssSSS",
)

REFUSED: tuple[tuple[str, str, str, str | None], ...] = (
    # type, format, what is said of it, and what is proposed
    ("DATE", "garbage", "no date", None),
    ("DATE", "", "no year", None),
    ("DATE", "QQQ", "no weeks, quarters", None),
    ("TIMESTAMP", "VVV", "name of a zone", None),
    ("TIMESTAMP", "OOO", "O stands 1 or 4 times", None),
    ("DATE", "yyyy-MM-ddd", "d stands 1 or 2 times", None),
    ("DATE", "MMMMM yyyy dd", "M stands 1, 2, 3 or 4 times", None),
    ("DATE", "yyyyyyy-MM-dd", "y stands", None),
    ("DATE", "YYYY-MM-DD", "year of a week", "yyyy-MM-dd"),
    ("DATE", "YYYY-MM-dd", "year of a week", "yyyy-MM-dd"),
    ("DATE", "yyyy-MM-DD", "D is the day of the year", "yyyy-MM-dd"),
    ("DATE", "dd.MM.yy", "do not say the century", "dd.MM.yyyy"),
    ("DATE", "dd.MM", "no year", None),
    ("DATE", "yyyy-MM", "no day", None),
    ("DATE", "yyyy-dd", "no month", None),
    ("DATE", "yyyy-mm-dd", "no month", "yyyy-MM-dd"),
    ("DATE", "uuuu-MM-dd", "the year is y", "yyyy-MM-dd"),
    ("DATE", "%Y-%m-%d", "", "yyyy-MM-dd"),
    ("TIMESTAMP", "%Y-%m-%dT%H:%M:%S", "", "yyyy-MM-dd'T'HH:mm:ss"),
    ("DATE", "EEE, d MMM yyyy", "days of the week", None),
    ("DATE", "yyyy-MM-dd HH:mm", "a DATE would lose the hour; make the column a TIMESTAMP", None),
    ("DATE", "yyyy-MM-ddXXX", "a DATE would lose the zone", None),
    ("DATE", "epoch_millis", "not counted from 1970", None),
    ("TIMESTAMP", "epoch_milli", "", "epoch_millis"),
    ("TIMESTAMP", "yyyy-MM-ddTHH:mm:ss", "text stands in quotes, 'T'", "yyyy-MM-dd'T'HH:mm:ss"),
    ("TIMESTAMP", "yyyy-MM-dd HH:MM", "the month stands twice; minutes are mm", "yyyy-MM-dd HH:mm"),
    ("TIMESTAMP", "YYYY-MM-DD HH:MM:SS", "", "yyyy-MM-dd HH:mm:ss"),
    ("TIMESTAMP", "yyyy-MM-dd hh:mm", "without AM or PM (a) means two", "yyyy-MM-dd HH:mm"),
    ("TIMESTAMP", "yyyy-MM-dd a", "the half of the day and not the hour", None),
    ("TIMESTAMP", "yyyy-MM-dd mm", "the minute and not the hour", None),
    ("TIMESTAMP", "yyyy-MM-dd HH:mm.SSS", "the fraction and not the second", None),
    ("TIMESTAMP", "yyyy-MM-dd HH:mm:ss.ffffff", "no such letter", "yyyy-MM-dd HH:mm:ss.SSSSSS"),
    ("TIMESTAMP", "yyyy-MM-dd HH:mm:ss z", "name of a zone", "yyyy-MM-dd HH:mm:ss XXX"),
    ("TIMESTAMP", "yyyy-MM-dd HH:mm XXX Z", "the zone stands twice", None),
    ("TIMESTAMP", "yyyyMMddHHmmssSSS", "where yyyy ends and SSS begins", None),
    ("DATE", "yyyyMd", "where yyyy ends and M begins", None),
    ("DATE", "dd.MM.yyyy7", "where yyyy ends and 7 begins", None),
    ("TIMESTAMP", "yyyyMMdd[HHmm]", "where yyyy ends and HH begins", None),
    ("TIMESTAMP", "yyyy-MM-dd[ HH:mm][ HH:mm:ss]", "from its first sign", None),
    ("DATE", "MM-dd[-yyyy]", "no year", None),
    ("DATE", "yyyy-MM-dd[ G]", "an era (G) is not optional", None),
    ("DATE", "yyyy-MM-dd[]", "optional section", None),
    ("DATE", "[yyyy-MM-dd", "a [ has no ]", None),
    ("DATE", "yyyy-MM-dd]", "a ] has no [", None),
    ("DATE", "yyyy-MM-dd'", "a ' has no second one", None),
    ("DATE", "yyyy''MM''dd", "apostrophe", None),
    ("DATE", "yyyy-MM-dd{}", "{ stands in quotes", None),
    ("DATE", "yyyy-MM-dd\n", "line breaks", None),
    ("DATE", "yyyy-MM-dd" + "-" * 100, "110 characters", None),
    ("DATE", "yyyy[-[MM[-[dd[.]]]]]", "5 optional sections", None),
)


@pytest.mark.parametrize("layout", OF_BOTH)
@pytest.mark.parametrize("type_name", ["DATE", "TIMESTAMP"])
def test_a_format_of_a_day_is_one_of_both_types(type_name: str, layout: str) -> None:
    assert is_format(layout, type_name)


@pytest.mark.parametrize("layout", OF_TIMESTAMPS)
def test_a_format_with_a_time_is_one_of_a_timestamp_alone(layout: str) -> None:
    assert is_format(layout, "TIMESTAMP")
    assert not is_format(layout, "DATE")


@pytest.mark.parametrize(("type_name", "layout", "says", "nearest"), REFUSED)
def test_what_is_refused_is_said_with_the_nearest_format(
    type_name: str, layout: str, says: str, nearest: str | None
) -> None:
    with pytest.raises(NotAllowed) as refusal:
        check_format(layout, type_name)
    assert says in refusal.value.message
    assert refusal.value.fix == (nearest and f"write {nearest!r}")
    assert nearest is None or is_format(nearest, type_name)


@pytest.mark.parametrize(
    ("layout", "taken", "refused"),
    [
        ("dd.MM.yyyy", ["31.01.2026"], ["1.1.2026", "31.01.02026", "31.01.2026 ", "31-01-2026", "31.01.+2026"]),
        ("d MMM y", ["1 Jan 2026", "31 Dec 9"], ["01 Jan 2026", "1 jan 2026", "1 Jan 02026", "1 January 2026"]),
        ("yyyy-MM-dd[ HH:mm]", ["2026-01-31", "2026-01-31 08:15"], ["2026-01-31 ", "2026-01-31 8:15"]),
        ("yyyyDDD HH.SSSSSSSX", ["2026031 08.1234560Z"], ["2026031 08.1234567Z", "2026031 08.123456Z"]),
    ],
)
def test_the_form_of_a_text_is_exactly_that_of_its_format(layout: str, taken: list[str], refused: list[str]) -> None:
    assert [text for text in (*taken, *refused) if read_moment(text, layout)] == taken


@pytest.mark.parametrize(
    ("layout", "text", "expected"),
    [
        ("yyyyDDD HH", "2024366 23", "2024-12-31T23:00:00+00:00"),
        ("d MMM y K:mm a", "1 Mar 9 0:05 PM", "0009-03-01T12:05:00+00:00"),
        ("yyyy-MM-dd k a", "2024-02-29 24 AM", "2024-02-29T00:00:00+00:00"),
        ("G yyyy-LLLL-dd HH:mm:ss.S", "AD 2024-August-31 10:20:30.5", "2024-08-31T10:20:30.500000+00:00"),
        ("yyyy-MM-dd HH:mm O", "2024-01-01 00:10 GMT+9:30", "2023-12-31T14:40:00+00:00"),
        ("yyyy-MM-dd[ HH:mm][xxxxx]", "2024-01-01-18:00:00", "2024-01-01T18:00:00+00:00"),
        ("yyyy-MM-dd[ HH:mm][X]", "2024-01-01 10:00+0130", "2024-01-01T08:30:00+00:00"),
        ("yyyy-MM-dd XXXX", "2024-01-01 +000001", "2023-12-31T23:59:59+00:00"),
        ("yyyy-MM-dd ZZZZ", "2024-01-01 GMT", "2024-01-01T00:00:00+00:00"),
    ],
)
def test_a_text_is_read_as_the_moment_that_it_says(layout: str, text: str, expected: str) -> None:
    assert is_format(layout, "TIMESTAMP")
    assert read_moment(text, layout) == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("yyyyDDD", "2023366"),
        ("yyyyDDD", "2024000"),
        ("yyyy-MM-dd", "2024-02-30"),
        ("yyyy-MM-dd", "2024-13-01"),
        ("yyyy-MM-dd HH", "2024-01-01 24"),
        ("yyyy-MM-dd kk", "2024-01-01 00"),
        ("yyyy-MM-dd hh a", "2024-01-01 00 AM"),
        ("yyyy-MM-dd KK a", "2024-01-01 12 AM"),
        ("yyyy-MM-dd HH a", "2024-01-01 12 AM"),
        ("yyyy-MM-dd HH:mm", "2024-01-01 10:60"),
        ("yyyy-MM-dd HH:mm:ss", "2024-01-01 10:59:60"),
        ("yyyy-MM-dd XXX", "2024-01-01 +18:01"),
        ("yyyy-MM-dd XXX", "2024-01-01 +10:60"),
        ("yyyy-MM-dd XXX", "0001-01-01 +00:01"),
        ("yyyy-MM-dd HH X", "9999-12-31 23 -01"),
    ],
)
def test_a_text_that_says_an_impossible_moment_is_not_read(layout: str, text: str) -> None:
    assert is_format(layout, "TIMESTAMP")
    assert read_moment(text, layout) is None
