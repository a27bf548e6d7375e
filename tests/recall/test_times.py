"""Times in a question, and the calendar they are computed with."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.recall.times import DAY_MS, find_times, to_date, to_days

NOW = to_days(2023, 11, 16) * DAY_MS + 12345  # a Thursday


@given(st.dates(date(1600, 1, 1), date(2400, 1, 1)))
def test_days_are_those_of_the_calendar(day: date) -> None:
    days = (day - date(1970, 1, 1)) // timedelta(days=1)
    assert to_days(day.year, day.month, day.day) == days
    assert to_date(days) == (day.year, day.month, day.day)


def spans(question: str, now: int | None = NOW) -> list[str]:
    return [
        "{}-{:02}-{:02}".format(*to_date(time.start // DAY_MS))
        + " {}-{:02}-{:02}".format(*to_date(time.stop // DAY_MS))
        for time in find_times(question, now)
    ]


@pytest.mark.parametrize(
    ("question", "span"),
    [
        ("Who came on May 3, 2023?", "2023-05-03 2023-05-04"),
        ("Who came on 8th December, 2022?", "2022-12-08 2022-12-09"),
        ("the 7th of May", "2023-05-07 2023-05-08"),
        ("since 2023-05-07", "2023-05-07 2023-05-08"),
        ("what happened in December 2022", "2022-12-01 2023-01-01"),
        ("in mid-August 2023", "2023-08-01 2023-09-01"),
        ("in Jan 2024", "2024-01-01 2024-02-01"),
        ("last May", "2023-05-01 2023-06-01"),
        ("in December", "2022-12-01 2023-01-01"),
        ("all of it in 2022", "2022-01-01 2023-01-01"),
        ("summer 2022", "2022-06-01 2022-09-01"),
        ("last winter", "2022-12-01 2023-03-01"),
        ("today", "2023-11-16 2023-11-17"),
        ("Yesterday, all my troubles", "2023-11-15 2023-11-16"),
        ("last week", "2023-11-06 2023-11-13"),
        ("this week", "2023-11-13 2023-11-20"),
        ("last weekend", "2023-11-11 2023-11-13"),
        ("last month", "2023-10-01 2023-11-01"),
        ("last year", "2022-01-01 2023-01-01"),
        ("last Friday", "2023-11-10 2023-11-11"),
        ("last Thursday", "2023-11-09 2023-11-10"),
        ("three days ago", "2023-11-13 2023-11-14"),
        ("2 weeks ago", "2023-10-30 2023-11-06"),
    ],
)
def test_a_time_is_read(question: str, span: str) -> None:
    assert spans(question) == [span]


def test_several_times_are_read_in_order() -> None:
    assert spans("between August 11 and August 15 2023") == [
        "2023-08-11 2023-08-12",
        "2023-08-15 2023-08-16",
    ]


@pytest.mark.parametrize(
    "question", ["What may I do?", "We march on", "version 2023", "a second ago"]
)
def test_other_words_are_no_time(question: str) -> None:
    assert spans(question) == []


def test_what_is_relative_needs_a_now() -> None:
    assert spans("yesterday, last May, in July and two weeks ago", None) == []
    assert spans("on 7 May 2023", None) == ["2023-05-07 2023-05-08"]
