"""The times that a question names: *on 7 May 2023*, *last May*, *two weeks ago*.

Times are milliseconds since 1970 in UTC. What is relative is relative to `now`, and is left out if
nobody says what that is.
"""

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

DAY_MS = 86_400_000
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # their first months
_UNIT_DAYS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "couple of": 2, "three": 3, "few": 3, "four": 4,
    "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip


class TimeSpan(Struct, frozen=True):
    """From a time until before another, and where in the question it is named."""

    start: int
    stop: int
    place: tuple[int, int]


def to_days(year: int, month: int, day: int) -> int:
    """The days from 1970 to a date of the Gregorian calendar."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def to_date(days: int) -> tuple[int, int, int]:
    """Year, month and day, so many days after 1970 began."""
    days += 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def find_times(question: str, now: int | None) -> list[TimeSpan]:
    """The times that a question names, in order. What is part of a longer one is left out."""
    found: list[TimeSpan] = []
    for pattern, read in _FORMS:
        for match in pattern.finditer(question):
            if any(a < match.end() and match.start() < b for a, b in (t.place for t in found)):
                continue
            if days := read(match, None if now is None else now // DAY_MS):
                start, stop = days
                found.append(TimeSpan(start * DAY_MS, stop * DAY_MS, match.span()))
    return sorted(found, key=lambda time: time.place)


Days = tuple[int, int]  # the first day, and the day after the last
Reader = Callable[["re.Match[str]", int | None], Days | None]


def _read_date(match: "re.Match[str]", today: int | None) -> Days | None:
    month = _month_of(match["month"])
    day = int(match["day"])
    year = match["year"]
    if not 1 <= day <= 31:
        return None
    if year:
        start = to_days(int(year), month, day)
    elif today is None:
        return None
    else:
        start = _latest(today, lambda year: to_days(year, month, day))
    return start, start + 1


def _read_iso_date(match: "re.Match[str]", today: int | None) -> Days | None:
    month, day = int(match["month"]), int(match["day"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    start = to_days(int(match["year"]), month, day)
    return start, start + 1


def _read_month(match: "re.Match[str]", today: int | None) -> Days | None:
    month = _month_of(match["month"])
    year = _find_year(match, month, today)
    if year is None:
        return None
    return to_days(year, month, 1), _next_month(year, month)


def _find_year(match: "re.Match[str]", month: int, today: int | None) -> int | None:
    """The year that is named, or the last one in which this month has begun."""
    if match["year"]:
        return int(match["year"])
    if today is None:
        return None
    return to_date(_latest(today, lambda year: to_days(year, month, 1)))[0]


def _read_season(match: "re.Match[str]", today: int | None) -> Days | None:
    month = _SEASONS[match["season"].lower()]
    year = _find_year(match, month, today)
    if year is None:
        return None
    return to_days(year, month, 1), to_days(year + (month > 9), (month + 2) % 12 + 1, 1)


def _read_year(match: "re.Match[str]", today: int | None) -> Days | None:
    year = int(match["year"])
    return to_days(year, 1, 1), to_days(year + 1, 1, 1)


def _read_near_day(match: "re.Match[str]", today: int | None) -> Days | None:
    if today is None:
        return None
    start = today - ("today", "yesterday").index(match[0].lower())
    return start, start + 1


def _read_past_unit(match: "re.Match[str]", today: int | None) -> Days | None:
    """*Last week*, *this month*: the calendar's week, month or year."""
    if today is None:
        return None
    back = match["which"].lower() != "this"
    unit = match["unit"].lower()
    year, month, _ = to_date(today)
    if unit == "year":
        return to_days(year - back, 1, 1), to_days(year - back + 1, 1, 1)
    if unit == "month":
        months = year * 12 + month - 1 - back
        year, month = months // 12, months % 12 + 1
        return to_days(year, month, 1), _next_month(year, month)
    start = today - (today + 3) % 7 - 7 * back  # the Monday
    return start + 5 * (unit == "weekend"), start + 7


def _read_past_weekday(match: "re.Match[str]", today: int | None) -> Days | None:
    if today is None:
        return None
    weekday = _WEEKDAYS.index(match["weekday"].lower())
    start = today - ((today + 3 - weekday - 1) % 7 + 1)
    return start, start + 1


def _read_ago(match: "re.Match[str]", today: int | None) -> Days | None:
    """*Three weeks ago*: that day, and half a unit before and after it."""
    if today is None:
        return None
    written = match["number"].lower()
    number = int(written) if written.isdigit() else _NUMBERS[written]
    days = _UNIT_DAYS[match["unit"].lower()]
    start = today - number * days
    return start - days // 2, start + days // 2 + 1


def _month_of(name: str) -> int:
    return next(n for n, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))


def _next_month(year: int, month: int) -> int:
    return to_days(year + month // 12, month % 12 + 1, 1)


def _latest(today: int, day_in: Callable[[int], int]) -> int:
    """The newest of the days that a function names for each year, not after today."""
    year = to_date(today)[0]
    day = day_in(year)
    if day > today:
        return day_in(year - 1)
    return day


def _forms() -> Iterator[tuple[str, Reader]]:
    """How times are written, longer forms first."""
    short = [rf"{name[:3]}\b" for name in _MONTHS]
    month = f"(?P<month>{'|'.join((*_MONTHS, *short))})"
    # *May* may be a verb: without a day or a year, a month is a name after one of these words.
    lead = "(?-i:(?<=[Ii]n )|(?<=[Ll]ast )|(?<=[Ss]ince )|(?<=[Dd]uring ))"
    cased = f"(?P<month>(?-i:{'|'.join(name.capitalize() for name in _MONTHS)}))"
    season = f"(?P<season>{'|'.join(_SEASONS)})"
    day = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
    year = r"(?P<year>(?:19|20)\d\d)"
    units = "|".join(sorted(_UNIT_DAYS, key=len, reverse=True))
    yield rf"\b{year}-(?P<month>\d\d)-(?P<day>\d\d)\b", _read_iso_date
    yield rf"\b{day}(?: of)? {month}\.?(?:,? ?{year})?\b", _read_date
    yield rf"\b{month}\.? {day}(?:,? ?{year})?\b", _read_date
    yield rf"\b{month}\.?,? (?:of )?{year}\b", _read_month
    yield rf"{lead}{cased}\b(?P<year>)", _read_month
    yield rf"\b{season}(?: of)? {year}\b", _read_season
    yield rf"\blast {season}\b(?P<year>)", _read_season
    yield rf"{lead}{year}\b", _read_year
    yield r"\b(?:today|yesterday)\b", _read_near_day
    yield r"\b(?P<which>last|this) (?P<unit>weekend|week|month|year)\b", _read_past_unit
    yield rf"\blast (?P<weekday>{'|'.join(_WEEKDAYS)})\b", _read_past_weekday
    yield rf"\b(?P<number>\d{{1,3}}|{'|'.join(_NUMBERS)}) (?P<unit>{units})s? ago\b", _read_ago


_FORMS = tuple((re.compile(pattern, re.IGNORECASE), reader) for pattern, reader in _forms())
