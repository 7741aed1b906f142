"""A SQL predicate selects the same rows as in DuckDB. Unsupported syntax is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import Session
from milepost.jobmaster.reports.tables.row_filter import rows_where
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TABLE = pa.table(
    {
        "n": pa.array(range(7), pa.int64()),
        "k": pa.array([1, 2, None, 4, 5, -6, 7], pa.int32()),
        "city": ["Bergen", "Porto", "O'Hare", None, "bergen", "", "Bern"],
        "price": pa.array([Decimal("1.10"), Decimal("2.20"), None, Decimal("0"), Decimal("-5.5"), Decimal("9"), None]),
        "ratio": pa.array([0.5, None, 2.0, 1e9, -1.0, 0.0, 0.5]),
        "at": pa.array([*(DAY + dt.timedelta(hours=8 * n) for n in range(6)), None], pa.timestamp("us", "UTC")),
        "day": pa.array([*(dt.date(2026, 1, 1 + n) for n in range(6)), None], pa.date32()),
        "ok": pa.array([True, False, None, True, False, True, None]),
    }
)


@pytest.mark.parametrize(
    "predicate",
    [
        "k > 1", "k >= 1 AND k < 5", "k <> 2", "NOT k = 2", "k IN (1, 5, 99)", "k NOT IN (1, 5)", "k IS NULL",
        "k IS NOT NULL AND city IS NOT NULL", "k BETWEEN -6 AND 2", "NOT k BETWEEN 1 AND 4", "k = 2 OR city = 'Bern'",
        "city LIKE 'Ber%'", "city NOT LIKE '%e%'", "city LIKE '_ern'", "city > 'C'", "city = ''",
        "price > 1.1", "price * 2 >= 4.4", "ratio = 0.5", "ratio > 1e3", "n / 2 > 1.4", "n - k < 0", "-n < -3", "1 < k",
        "(k + 1) * 2 = 4", "ok", "NOT ok", "ok = true", "ok AND ratio < 1", "ok OR k > 1", "k > ratio", "true", "false",
        "day = DATE '2026-01-03'", "day > '2026-01-03'", "2 = 2",
    ],
)  # fmt: skip
def test_the_filtered_rows_equal_those_of_duckdb(predicate: str) -> None:
    rows = TABLE  # by this name the query finds it
    connection = duckdb.cursor()
    connection.execute("SET TimeZone = 'UTC'")
    wanted = connection.execute(f"SELECT n FROM rows WHERE {predicate} ORDER BY n").fetchall()
    assert [(n,) for n in rows_where(rows, predicate)["n"].to_pylist()] == wanted


def test_a_time_may_be_given_as_text_and_is_utc_without_an_offset() -> None:
    for text in ("'2026-01-01 08:00'", "'2026-01-01T09:00+01:00'", "TIMESTAMP '2026-01-01 08:00:00'"):
        assert rows_where(TABLE, f"at = {text}")["n"].to_pylist() == [1]
        assert rows_where(TABLE, f"{text} > at")["n"].to_pylist() == [0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_compare_in_any_unit_with_and_without_a_zone(unit: str, zone: str | None) -> None:
    times = pa.array([0, 1, 2], pa.int64()).cast(pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    table = pa.table({"n": [0, 1, 2], "at": times})
    assert rows_where(table, "at > '1970-01-01T00:00:00.5'")["n"].to_pylist() == [1, 2]
    assert rows_where(table, "at <= '1970-01-01T01:00:01+01:00'")["n"].to_pylist() == [0, 1]


def test_a_date_is_compared_as_its_midnight() -> None:
    assert rows_where(TABLE, "day < '2026-01-02T00:00:01'")["n"].to_pylist() == [0, 1]
    assert rows_where(TABLE, "day = '2026-01-02T02:00+02:00'")["n"].to_pylist() == [1]


def test_names_and_texts_are_quoted_as_in_spark() -> None:
    assert rows_where(TABLE, '`city` = "O\'Hare"')["n"].to_pylist() == [2]


def test_a_field_of_a_struct_is_reached_by_a_dot() -> None:
    table = pa.table({"a": pa.array([{"b": 1}, {"b": 2}])})
    assert rows_where(table, "a.b = 2").to_pylist() == [{"a": {"b": 2}}]


@pytest.mark.parametrize(
    "predicate",
    [
        "citi = 'Bern'",
        "city.x = 1",
        "k >",
        "k = 'one",
        "k = 1; SELECT 2",
        "k = 1 ORDER BY k",
        "",
        "k",
        "k = 'one'",
        "city = 1",
        "at > 'noon'",
        "lower(city) = 'bern'",
        "k IN (SELECT 1)",
        "count(*) > 1",
        "k BETWEEN SYMMETRIC 3 AND 1",
        "1 / 0 > 1",
    ],
)
def test_an_unusable_predicate_is_refused_with_the_reason(predicate: str) -> None:
    with wording.raises(InvalidRequest) as caught:
        rows_where(TABLE, predicate)
    assert caught.value.exit_code == 2


@pytest.mark.long
def test_read_takes_a_predicate_a_limit_and_a_time(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, {"retained: {last: 1}": "retained: {last: 5}"})
    spec = job.folder / "config" / "small.yaml"
    for number in range(2):
        job.land(f"{number}.csv", "k,v\n" + "".join(f"{k},x\n" for k in range(5)))
        job.master.epochs.run(Session.cli(), SparklessRunner())
    rows = milepost("read", spec, "table", "--where", "k >= 3 AND rows = 2", "--json").document()["rows"]
    assert sorted(row["k"] for row in rows) == [3, 4]
    limited = milepost("read", spec, "table", "--limit", "2")
    assert len(limited.stdout.splitlines()) == 4
    wording.matches("read", limited.stderr)
    first, second = (job.master.reports.show(number).trigger_time for number in (1, 2))
    assert first and second
    for time, count in ((first, 1), (second, 2)):
        at = milepost("read", spec, "table", "--at", time, "--limit", "1", "--json")
        assert at.document()["rows"][0]["rows"] == count
    assert milepost("state", spec, "latest", "--at", second, "--json").document()["rows"][0]["rows"] == 2
    assert_clear_error(milepost("read", spec, "table", "--where", "kk = 1"), 2, golden="read")
    assert_clear_error(milepost("read", spec, "table", "--at", "noon"), 2, golden="read")
    assert_clear_error(milepost("read", spec, "table", "--at", "2001-01-01"), 3, golden="read")
