"""The oracle and the comparison, against answers worked out by hand: who judges must be judged first."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.jobspec.job.spec import JobSpec
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.models.data.csv_oracle import Expected, expected_tables
from milepost_testkit.rows.tables import assert_same_rows

SPEC = {
    "name": "t",
    "storage": "file:///nowhere",
    "sources": {
        "f": {
            "format": "csv",
            "path": "file:///nowhere/*.csv",
            "schema": {"k": "string", "v": "int32", "ts": "timestamp[us, UTC]"},
            "options": {"null_values": ["NA"]},
            "event_time": "ts",
            "watermark_delay": "2h",
        }
    },
    "operators": [
        {"uid": "clean", "kind": "sql", "inputs": ["f"], "sql": "SELECT k, v, ts FROM f WHERE v IS NOT NULL"},
        {"uid": "unique", "kind": "deduplicate", "inputs": ["clean"], "key": ["k", "v", "ts"], "ttl": "1h"},
        {"uid": "sums", "kind": "aggregate", "inputs": ["unique"], "key": ["k"],
         "aggregates": {"n": "count(*)", "total": "sum(v)", "mean": "avg(v)"}},
        {"uid": "hourly", "kind": "window", "inputs": ["unique"], "key": ["k"], "window": {"tumbling": "1h"},
         "aggregates": {"n": "count(*)"}},
    ],
    "sinks": [
        {"name": "sums", "input": "sums", "format": "parquet", "path": "x", "mode": "upsert"},
        {"name": "hourly", "input": "hourly", "format": "parquet", "path": "y", "mode": "append"},
        {"name": "late", "input": "hourly.late", "format": "parquet", "path": "z", "mode": "append"},
    ],
}  # fmt: skip


@pytest.fixture
def landing(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(f"file://{tmp_path}"))


def us(text: str) -> int:
    """Microseconds of a time of 1 January 2013."""
    hours, minutes = map(int, text.split(":"))
    return int(datetime(2013, 1, 1, hours, minutes, tzinfo=UTC).timestamp()) * 1_000_000


def answer(landing: ObjectStore, *epochs: list[tuple[str, object, str]], deduplicate: bool = True) -> Expected:
    keys = []
    for number, rows in enumerate(epochs):
        body = "k,v,ts\n" + "".join(f"{k},{v},2013-01-01T{at}:00Z\n" for k, v, at in rows)
        landing.put(f"{number}.csv", body.encode())
        keys.append([f"{number}.csv"])
    return expected_tables(JobSpec.model_validate(SPEC), landing, keys, deduplicate=deduplicate)


def test_the_example_of_the_interface(landing: ObjectStore) -> None:
    """Delay 2h, 12:00 delivered: watermark 10:00. Then 09:30 is late, 10:00 is not; [09:00, 10:00) is emitted."""
    told = answer(
        landing, [("a", 1, "09:10"), ("a", 2, "12:00")], [("a", 3, "09:30"), ("a", 4, "10:00"), ("a", 5, "12:59")]
    )
    assert told.watermarks_us == (us("10:00"), us("10:59"))
    assert told.late == {"unique": 0, "hourly": 1}
    assert_same_rows(told.tables["late"], pa.table({"k": ["a"], "v": [3], "ts": [us("09:30")]}))
    assert_same_rows(
        told.tables["hourly"],
        pa.table({"k": ["a"], "window_start": [us("09:00")], "window_end": [us("10:00")], "n": [1]}),
    )
    assert_same_rows(told.tables["sums"], pa.table({"k": ["a"], "n": [5], "total": [15], "mean": [3.0]}))


def test_a_window_that_ends_at_the_last_watermark_is_emitted_and_the_next_is_not(landing: ObjectStore) -> None:
    told = answer(landing, [("a", 1, "09:59"), ("a", 2, "10:00"), ("a", 3, "12:00")])
    assert told.tables["hourly"]["window_end"].to_pylist() == [us("10:00")]


def test_nothing_is_late_in_the_first_epoch(landing: ObjectStore) -> None:
    told = answer(landing, [("a", 1, "20:00"), ("a", 2, "00:10")])
    assert told.late == {"unique": 0, "hourly": 0}


def test_a_row_is_dropped_by_ttl_only_when_older_than_the_watermark_less_ttl(landing: ObjectStore) -> None:
    """Watermark 10:00, ttl 1h: 09:00 is not late for deduplicate, 08:59 is."""
    told = answer(landing, [("a", 1, "12:00")], [("a", 2, "09:00"), ("a", 3, "08:59"), ("a", 1, "12:00")])
    assert told.late == {"unique": 1, "hourly": 1}
    assert told.duplicates == {"unique": 1}
    assert told.tables["sums"]["total"].to_pylist() == [3]


def test_rows_that_sql_drops_still_move_the_watermark(landing: ObjectStore) -> None:
    assert answer(landing, [("a", "NA", "12:00")]).watermarks_us == (us("10:00"),)


def test_without_deduplication_the_answer_is_another(landing: ObjectStore) -> None:
    rows = [("a", 1, "09:00"), ("a", 1, "09:00"), ("b", 2, "13:00")]
    told, other = answer(landing, rows), answer(landing, rows, deduplicate=False)
    assert (told.duplicates, other.duplicates) == ({"unique": 1}, {"unique": 0})
    for sink in ("sums", "hourly"):
        with pytest.raises(AssertionError, match="not expected"):
            assert_same_rows(told.tables[sink], other.tables[sink])


def test_a_null_text_is_null_for_numbers_and_a_text_for_text(landing: ObjectStore) -> None:
    told = answer(landing, [("NA", 1, "09:00"), ("b", "NA", "09:00")])
    assert told.tables["sums"]["k"].to_pylist() == ["NA"]


class TestComparison:
    LEFT = pa.table({"k": ["a", "b"], "n": pa.array([1, 2], pa.int32()), "x": [0.1, None]})

    def test_order_of_rows_and_columns_and_width_of_integers_do_not_matter(self) -> None:
        right = pa.table({"x": [None, 0.1], "n": pa.array([2, 1], pa.int64()), "k": ["b", "a"]})
        assert_same_rows(self.LEFT, right)

    def test_floats_may_differ_in_their_last_bits_only(self) -> None:
        assert_same_rows(self.LEFT, self.LEFT.set_column(2, "x", pa.array([0.1 * (1 + 9e-13), None])))
        with pytest.raises(AssertionError):
            assert_same_rows(self.LEFT, self.LEFT.set_column(2, "x", pa.array([0.1 * (1 + 2e-12), None])))

    def test_special_floats_are_equal_to_themselves(self) -> None:
        special = pa.table({"x": [float("nan"), float("inf"), float("-inf"), 0.0]})
        assert_same_rows(special, special)
        with pytest.raises(AssertionError):
            assert_same_rows(special, pa.table({"x": [float("nan"), float("inf"), float("inf"), 0.0]}))

    @pytest.mark.parametrize(
        "other",
        [
            {"n": [1, 3]},
            {"k": ["a", "B"]},
            {"k": ["a", None]},
            {"x": [0.1, 0.0]},
            {"n": [1.0, 2.0]},
            {"x": [1, None]},
            {"extra": [1, 2]},
        ],
    )
    def test_any_other_difference_fails(self, other: dict[str, list[object]]) -> None:
        columns = {name: self.LEFT[name] for name in self.LEFT.column_names} | other
        with pytest.raises(AssertionError):
            assert_same_rows(self.LEFT, pa.table(columns))

    def test_a_row_twice_is_not_a_row_once(self) -> None:
        with pytest.raises(AssertionError, match=r"3 rows, expected 2\n  not expected: \{'k': 'a'"):
            assert_same_rows(pa.concat_tables([self.LEFT, self.LEFT.slice(0, 1)]), self.LEFT)

    def test_the_message_shows_the_first_rows_that_differ(self) -> None:
        right = self.LEFT.set_column(1, "n", pa.array([1, 7], pa.int32()))
        with pytest.raises(AssertionError) as raised:
            assert_same_rows(self.LEFT, right, "carriers")
        assert str(raised.value).splitlines() == [
            "carriers: 2 rows, expected 2",
            "  not expected: {'k': 'b', 'n': 2, 'x': None}",
            "  missing:      {'k': 'b', 'n': 7, 'x': None}",
        ]

    def test_empty_tables_are_equal(self) -> None:
        assert_same_rows(self.LEFT.slice(0, 0), self.LEFT.slice(0, 0))
