"""Where windows of days, weeks and months begin and end: by the local clock, also on days on which it is set."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.language.times.calendar import Calendar, parse_calendar
from milepost.language.times.time_zones import zone_data
from milepost.operators.window.window_bounds import (
    CalendarSlides,
    CalendarWindows,
    FixedSlides,
    FixedWindows,
)
from milepost_testkit import profiles, wording

HOUR_US = 3_600_000_000
UNITS = {"d": "day", "w": "week", "mo": "month"}
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Auckland")
CHANGES = (
    datetime(2024, 3, 31, 1, tzinfo=UTC), datetime(2024, 10, 27, 1, tzinfo=UTC), datetime(2024, 3, 10, 7, tzinfo=UTC),
    datetime(2024, 11, 3, 6, tzinfo=UTC), datetime(2023, 4, 1, 15, tzinfo=UTC), datetime(1969, 12, 31, 23, tzinfo=UTC),
)  # fmt: skip


def windows(length: str, zone: str = "UTC", offset: timedelta = timedelta(0)) -> CalendarWindows:
    days = length.removesuffix("d")
    calendar = Calendar(int(days), "d") if days.isdecimal() else parse_calendar(length)
    assert calendar is not None
    return CalendarWindows(calendar, offset, zone_data(zone))


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def at(*moment: int) -> int:
    return microseconds(datetime(*moment, tzinfo=UTC))  # type: ignore[misc,arg-type]


def bounds(found: CalendarWindows, time_us: int) -> tuple[datetime, datetime]:
    starts = found.starts(np.array([time_us]))
    return tuple(  # type: ignore[return-value]
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(one[0])) for one in (starts, found.ends(starts))
    )


@profiles.examples(share=0.12)
@given(
    st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(-90 * HOUR_US, 90 * HOUR_US)), min_size=1, max_size=20),
    st.sampled_from(("1d", "1w", "1mo")),
    st.sampled_from(ZONES),
    st.sampled_from((0, 6, 24)),
)
def test_bounds_are_those_of_duckdb_around_changes_of_the_clock(
    times: list[tuple[datetime, int]], length: str, zone: str, hours: int
) -> None:
    """23, 24 and 25 hours, half an hour on Lord Howe; before 1970; weeks from Monday, and from another day."""
    offset = timedelta(hours=0 if length == "1d" and hours == 24 else hours)
    given_us = np.array([microseconds(change) + by for change, by in times])
    unit, after = UNITS[length.lstrip("1")], f"INTERVAL {offset // timedelta(hours=1)} HOUR"
    connection = duckdb.cursor()
    connection.execute("SET TimeZone='UTC'")
    connection.register("rows", pa.table({"t": given_us}))
    first = f"date_trunc('{unit}', (make_timestamptz(t) AT TIME ZONE '{zone}') - {after})"
    begins = (first, f"{first} + INTERVAL 1 {unit}")
    start, end = (f"epoch_us(({one} + {after}) AT TIME ZONE '{zone}')" for one in begins)
    expected = connection.sql(f"SELECT {start} AS s, {end} AS e FROM rows").fetchnumpy()
    found = windows(length, zone, offset)
    starts = found.starts(given_us)
    assert starts.tolist() == expected["s"].tolist() and found.ends(starts).tolist() == expected["e"].tolist()


def test_days_on_which_a_clock_is_set_have_an_hour_less_or_more() -> None:
    berlin = windows("1d", "Europe/Berlin")
    for day, hours in ((date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (date(2026, 6, 1), 24)):
        start, end = bounds(berlin, at(day.year, day.month, day.day, 12))
        assert end - start == timedelta(hours=hours), day


def test_a_midnight_that_the_clock_skips_is_the_moment_of_the_change() -> None:
    """São Paulo went from 00:00 to 01:00; Samoa had no 30 December 2011, and no time is in a window of it."""
    start, end = bounds(windows("1d", "America/Sao_Paulo"), at(2018, 11, 4, 12))
    assert (start, end - start) == (datetime(2018, 11, 4, 3, tzinfo=UTC), timedelta(hours=23))
    apia = windows("1d", "Pacific/Apia")
    before, after = bounds(apia, at(2011, 12, 30, 9, 59)), bounds(apia, at(2011, 12, 30, 10))
    assert before[1] == after[0] == datetime(2011, 12, 30, 10, tzinfo=UTC)
    assert before[1] - before[0] == after[1] - after[0] == timedelta(days=1)


def test_several_units_on_end_are_counted_from_1970() -> None:
    assert bounds(windows("3mo"), at(1969, 12, 31)) == (
        datetime(1969, 10, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    assert bounds(windows("2w"), at(1970, 1, 11))[0] == datetime(1969, 12, 29, tzinfo=UTC)
    assert bounds(windows("7d"), at(1970, 1, 7))[0] == datetime(1970, 1, 1, tzinfo=UTC)
    named = [str(parse_calendar(text)) for text in ("1w", "12mo", "2d", "1h", "1")]
    assert named == ["1w", "12mo", "None", "None", "None"]
    with wording.raises(ValueError):
        parse_calendar("53w")


@pytest.mark.parametrize(("length", "zone", "hours"), [
    ("1d", "Europe/Berlin", 0), ("2d", "Australia/Lord_Howe", 6), ("1w", "America/New_York", 24),
    ("3mo", "Asia/Kolkata", 6), ("1d", "Pacific/Apia", 0),
])  # fmt: skip
def test_panes_are_the_windows_that_touch_and_their_numbers_go_on(length: str, zone: str, hours: int) -> None:
    """Also where the clock is set, and where a day is left out: then two panes begin at one moment."""
    touching = windows(length, zone, timedelta(hours=hours))
    slides = CalendarSlides(touching.calendar, 2, touching.offset, touching.zone)
    times = np.array([
        microseconds(change) + by * HOUR_US
        for change in (*CHANGES, datetime(2011, 12, 30, 10, tzinfo=UTC)) for by in range(-60, 60, 7)
    ])  # fmt: skip
    numbers, starts = slides.of(times), touching.starts(times)
    assert slides.begins(numbers).tolist() == starts.tolist()
    assert slides.begins(numbers + 1).tolist() == touching.ends(starts).tolist()
    assert slides.of(starts).tolist() == numbers.tolist()
    assert [slides.reached(int(time)) for time in times[:9]] == numbers[:9].tolist()
    assert np.all(np.diff(slides.begins(np.arange(-40, 40))) > 0)
    ends = (2**63 - 1, -(2**63))
    assert slides.within(np.array(ends), 0).tolist() != list(ends) and slides.reached(ends[0]) > slides.reached(ends[1])


def test_panes_of_a_fixed_length_begin_an_offset_after_its_multiples() -> None:
    slides = FixedSlides(HOUR_US, 3, HOUR_US // 4)
    quarter = HOUR_US // 4
    assert slides.of(np.array([quarter, quarter - 1, -1])).tolist() == [0, -1, -1]
    assert slides.begins(np.array([0, -1])).tolist() == [quarter, quarter - HOUR_US]
    assert (slides.reached(quarter - 1), slides.reached(quarter)) == (-1, 0)


def test_windows_of_a_fixed_length_begin_an_offset_after_its_multiples() -> None:
    found = FixedWindows(HOUR_US, HOUR_US // 4)
    times = np.array([0, -1, HOUR_US // 4, HOUR_US // 4 - 1, -(2**63), 2**63 - 1])
    starts = found.starts(times)
    quarter = HOUR_US // 4
    assert starts[:4].tolist() == [quarter - HOUR_US, quarter - HOUR_US, quarter, quarter - HOUR_US]
    assert found.unbounded(times, starts, 0).tolist() == [False] * 4 + [True] * 2


def test_times_that_no_calendar_has_are_unbounded_and_the_rules_travel_with_the_operator() -> None:
    found = pickle.loads(pickle.dumps(windows("1d", "Europe/Berlin")))
    times = np.array([-(2**63), 0, 2**63 - 1])
    assert found.unbounded(times, found.starts(times), 0).tolist() == [True, False, True]
    assert Calendar(1, "d").shortest == timedelta(days=1)


def test_a_time_zone_is_one_that_the_package_has() -> None:
    assert zone_data("Europe/Berlin").startswith(b"TZif")
    for name in ("Europe/Nowhere", "../zoneinfo/UTC", "Europe", "", "tzdata.zi", "Mars/Phobos"):
        with wording.raises(ValueError):
            zone_data(name)
