"""Event times as dates, numbers and texts: rows have timestamps, whatever the format, and a bad one is a bad record."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.jobspec.job.event_time_spec import EventTimeSpec
from milepost.language.times.time_zones import zone_data, zone_of
from milepost.language.times.timestamps import EPOCH
from milepost.language.types import parse_type, to_arrow
from milepost.sources.contract import BadRecord, whole_object
from milepost.sources.formats import build_reader
from milepost.sources.kernel.time_column import TimeColumn
from milepost_testkit import wording
from milepost_testkit.jobs.landing import Landing, source

UTC_US = pa.timestamp("us", "UTC")
FORMS: dict[str, tuple[str, Any, list[Any], str, str]] = {
    "date": ("date", "at", ["2026-01-03", "1969-12-31"], "2026-01-03T00:00", "tomorrow"),
    "s": ("int64", {"column": "at", "unit": "s"}, [1767434700, 0], "2026-01-03T10:05", str(2**60)),
    "ms": ("int64", {"column": "at", "unit": "ms"}, [1767434700000, -1], "2026-01-03T10:05", str(2**62)),
    "us": ("int64", {"column": "at", "unit": "us"}, [1767434700000000, 1], "2026-01-03T10:05", "2^3"),
    "text": (
        "string", {"column": "at", "format": "dd.MM.yyyy HH:mm"}, ["03.01.2026 10:05", "29.02.2024 00:00"],
        "2026-01-03T10:05", "31.02.2026 10:05",
    ),
    "local text": (
        "string", {"column": "at", "format": "dd.MM.yyyy HH:mm", "timezone": "Europe/Berlin"},
        ["03.01.2026 11:05", "03.07.2026 11:05"], "2026-01-03T10:05", "3.1.2026 10:05",
    ),
    "local date": ("date", {"column": "at", "timezone": "Asia/Tokyo"}, ["2026-01-03"], "2026-01-02T15:00", "2026-1"),
    "local timestamp": (
        "timestamp[us]", {"column": "at", "timezone": "Asia/Tokyo"}, ["2026-01-03 19:05:00"], "2026-01-03T10:05", "x",
    ),
}  # fmt: skip
"""Declared type, `event_time`, values, the moment of the first of them, and a value that is none."""


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path)


def encoded(format_: str, type_: str, values: list[Any]) -> bytes:
    if format_ == "csv":
        return ("n,at\n" + "".join(f"{n},{value}\n" for n, value in enumerate(values))).encode()
    if format_ == "json":
        return "".join(json.dumps({"n": n, "at": value}) + "\n" for n, value in enumerate(values)).encode()
    at = pa.array(values, pa.string() if isinstance(values[0], str) else None).cast(to_arrow(type_))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": list(range(len(values))), "at": at}), sink)
    return bytes(sink.getvalue())


@pytest.mark.deep
@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
@pytest.mark.parametrize("form", FORMS)
def test_rows_have_the_event_time_as_a_timestamp(landing: Landing, form: str, format_: str) -> None:
    type_, event_time, values, first, _ = FORMS[form]
    spec = source(format_, {"n": "int64", "at": type_}, event_time=event_time)
    reader = pickle.loads(pickle.dumps(build_reader("s", spec)))
    obj = whole_object(landing.put("a", encoded(format_, type_, values)))
    rows = pa.Table.from_batches(reader.read_part(landing.store, obj), reader.schema)
    assert rows.schema.field("at").type == UTC_US and str(spec.row_types["at"]) == "timestamp[us, UTC]"
    assert rows["at"][0].as_py() == datetime.fromisoformat(first).replace(tzinfo=UTC)
    salvaged = pa.Table.from_batches(reader.salvage_part(landing.store, obj), reader.schema)
    assert salvaged.equals(rows) and rows.num_rows == len(values)


@pytest.mark.deep
@pytest.mark.parametrize("format_", ["csv", "json"])
@pytest.mark.parametrize("form", FORMS)
def test_a_value_that_is_not_a_time_is_a_bad_record_with_its_location(
    landing: Landing, form: str, format_: str
) -> None:
    type_, event_time, values, _, bad = FORMS[form]
    spec = source(format_, {"n": "int64", "at": type_}, event_time=event_time)
    reader = build_reader("s", spec)
    value = int(bad) if bad.isdigit() and format_ == "json" else bad
    obj = whole_object(landing.put("a", encoded(format_, type_, [values[0], value, values[0]])))
    with pytest.raises(BadRecord) as caught:
        list(reader.read_part(landing.store, obj))
    found = list(reader.salvage_part(landing.store, obj))
    (salvaged,) = [one for one in found if isinstance(one, BadRecord)]
    assert sum(one.num_rows for one in found if isinstance(one, pa.RecordBatch)) == 2
    for one in (caught.value, salvaged):
        assert (one.key, one.line, one.column, one.value) == ("a", 3 if format_ == "csv" else 2, "at", bad)
    assert caught.value.reason == salvaged.reason
    if "text" in form:
        wording.matches("bad_rows", caught.value.reason)
    if form in ("s", "ms"):
        wording.matches("bad_rows", caught.value.reason)


@pytest.mark.parametrize(
    ("type_", "event_time", "values", "bad"),
    [
        ("timestamp[s]", "at", pa.array([0, 2**50], pa.timestamp("s")), "is an event time beyond the range"),
        ("timestamp[ms]", "at", pa.array([0, -(2**62)], pa.timestamp("ms")), "is an event time beyond the range"),
        ("date", "at", pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()), "is an event time beyond the range"),
        ("date", "at", pa.array([0, None], pa.date32()), "is null, but the event time is required"),
        (
            "date", {"column": "at", "timezone": "Asia/Tokyo"}, pa.array([0, 3_000_000], pa.int32()).cast(pa.date32()),
            "is an event time beyond the range of timestamps in a time zone",
        ),
    ],
)  # fmt: skip
def test_a_time_out_of_range_is_a_bad_row_of_a_parquet_object(
    landing: Landing, type_: str, event_time: Any, values: pa.Array, bad: str
) -> None:
    """The lateness of what follows would be decided by a time that was made up."""
    reader = build_reader("s", source("parquet", {"at": type_}, event_time=event_time))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"at": values}), sink)
    obj = whole_object(landing.put("a", bytes(sink.getvalue())))
    with wording.raises(BadRecord) as caught:
        list(reader.read_part(landing.store, obj))
    assert bad in str(caught.value)
    assert (caught.value.row, caught.value.column) == (2, "at")
    rows, salvaged = list(reader.salvage_part(landing.store, obj))
    assert isinstance(salvaged, BadRecord) and salvaged.reason == caught.value.reason
    assert isinstance(rows, pa.RecordBatch) and rows.num_rows == 1


def column(type_: str, **keys: str) -> TimeColumn:
    return TimeColumn(EventTimeSpec.model_validate({"column": "at", **keys}), parse_type(type_))


@given(st.lists(st.datetimes()))
def test_texts_are_parsed_as_python_parses_them(moments: list[datetime]) -> None:
    texts = [f"{one.day}/{one.month:02}/{one.year:04} {one:%I:%M:%S.%f} {one:%p}" for one in moments]
    found = column("string", format="d/MM/yyyy hh:mm:ss.SSSSSS a").times(pa.array(texts, pa.string()))
    assert found.to_pylist() == [one.replace(tzinfo=UTC) for one in moments]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss[.SSSSSSSSS]XXX", "2026-01-03T10:00:00.123456789+02:00", "2026-01-03T08:00:00.123456"),
        ("yyyy-MM-dd'T'HH:mm:ss[.SSSSSSSSS]XXX", "2026-01-03T10:00:00Z", "2026-01-03T10:00:00"),
        ("yyyy-MM-dd HH:mm:ssX", "2026-01-03 10:00:00-0130", "2026-01-03T11:30:00"),
        ("yyyy-MM-dd HH:mm:ssX", "2026-01-03 10:00:00+19", None),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2026-01-03 10:00:00.5", "2026-01-03T10:00:00.500000"),
        ("MMM d, yy h a", "Feb 29, 24 12 AM", "2024-02-29T00:00:00"),
        ("MMM d, yy h a", "Feb 29, 26 12 AM", None),
        ("MMM d, yy h a", "Feb 28, 26 0 AM", None),
        ("d MMMM yyyy", "3 may 2026", None),
        ("yyyyMMdd", "20261301", None),
        ("yyyyMMdd", "00000101", None),
        ("yyyyMMdd HH", "20260101 24", None),
        ("yyyyMMdd", " 20260101", None),
        ("yyyyMMdd", "20260101\n", None),
    ],
)
def test_a_text_is_one_time_or_none(pattern: str, text: str, expected: str | None) -> None:
    found = column("string", format=pattern).times(pa.array([text, None])).to_pylist()
    assert found == [expected and datetime.fromisoformat(expected).replace(tzinfo=UTC), None]


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"]
)
@given(local=st.lists(st.integers(-3_000_000_000, 6_000_000_000)))
@example(local=[1774749600 - 1, 1774749600, 1774749600 + 1800, 1793242800, 1793242800 + 1800, 1793242800 + 3600])
def test_local_times_follow_clock_changes_as_windows_do(zone: str, local: list[int]) -> None:
    """Of a moment that is shown twice the first; one that is skipped is as if the clock had not been set yet."""
    rules = zone_of(zone_data(zone))
    expected = [(EPOCH + timedelta(seconds=one)).replace(tzinfo=rules).astimezone(UTC) for one in local]
    found = column("timestamp[s]", timezone=zone).times(pa.array(local, pa.timestamp("s")))
    assert found.cast(pa.int64()).to_pylist() == [(one - EPOCH) // timedelta(microseconds=1) for one in expected]


def test_a_day_begins_at_midnight_of_its_zone() -> None:
    """On 6 September 2026 those of Santiago are set from 24:00 to 01:00."""
    days = pa.array([date(2026, 9, 5), date(2026, 9, 6), date(2026, 9, 7)])
    found = column("date", timezone="America/Santiago").times(days)
    assert [one.isoformat()[5:16] for one in found.to_pylist()] == ["09-05T04:00", "09-06T04:00", "09-07T03:00"]
