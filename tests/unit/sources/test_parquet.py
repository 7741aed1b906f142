"""Parquet objects: columns by name, types that mean the same, typed refusals."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.sources import parquet
from pipeline.sources.build import build_reader
from pipeline.sources.contract import BadRecord
from tests.harness.landing import Landing, source

SCHEMA = {"n": "int32", "name": "string", "at": "timestamp[us, UTC]"}
AT = datetime(2013, 1, 1, 10, tzinfo=UTC)


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path)


def encoded(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def table(rows: int = 3, **columns: pa.Array) -> pa.Table:
    values = {
        "extra": pa.array(["?"] * rows),
        "at": pa.array([AT] * rows, pa.timestamp("us", "UTC")),
        "name": pa.array(["a"] * rows),
        "n": pa.array(range(rows), pa.int32()),
    }
    return pa.table(values | columns)


def refused(landing: Landing, body: bytes) -> BadRecord:
    with pytest.raises(BadRecord) as raised:
        landing.read(source("parquet", SCHEMA, event_time="at"), "a.parquet", body)
    return raised.value


def test_columns_are_matched_by_name_and_others_ignored(landing: Landing) -> None:
    read = landing.read(source("parquet", SCHEMA, event_time="at"), "a.parquet", encoded(table()))
    assert read.column_names == ["n", "name", "at"]
    assert read["n"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    "columns",
    [
        {"n": pa.array([0, 1, 2], pa.int64())},
        {"n": pa.array([0, 1, 2], pa.uint8())},
        {"name": pa.array(["a"] * 3).dictionary_encode()},
        {"name": pa.array(["a"] * 3, pa.large_string())},
        {"at": pa.array([AT] * 3, pa.timestamp("ms", "UTC"))},
        {"at": pa.array([AT] * 3, pa.timestamp("ns", "America/New_York"))},
    ],
)
def test_a_type_that_means_the_same_is_taken(landing: Landing, columns: dict[str, pa.Array]) -> None:
    spec = source("parquet", SCHEMA, event_time="at")
    assert landing.read(spec, "a.parquet", encoded(table(**columns))).equals(
        landing.read(spec, "b.parquet", encoded(table()))
    )


@pytest.mark.parametrize(
    ("columns", "column", "reason"),
    [
        ({"n": pa.array(["0", "1", "2"])}, "n", "is string in the file, declared int32"),
        ({"n": pa.array([0.0, 1.0, 2.0])}, "n", "is double in the file, declared int32"),
        ({"at": pa.array([0, 1, 2], pa.timestamp("us"))}, "at",
         "is timestamp[us] in the file, declared timestamp[us, UTC]"),
        ({"n": pa.array([0, 2**40, 2], pa.int64())}, "n", "does not fit int32 (row 2)"),
        ({"at": pa.array([AT, AT, None], pa.timestamp("us", "UTC"))}, "at",
         "is null, but it is the event time (row 3)"),
        ({"at": pa.array([0, 1_000, 1_001], pa.timestamp("ns", "UTC"))}, "at",
         "does not fit timestamp[us, UTC] (row 3)"),
    ],
)  # fmt: skip
def test_a_value_or_type_that_does_not_fit_is_named(
    landing: Landing, columns: dict[str, pa.Array], column: str, reason: str
) -> None:
    bad = refused(landing, encoded(table(**columns)))
    assert (bad.line, bad.column, bad.reason) == (None, column, reason)


def test_the_row_of_a_bad_value_counts_from_the_beginning_of_the_object(landing: Landing) -> None:
    values = pa.array([2**40 if n == 150_000 else n for n in range(200_000)], pa.int64())
    bad = refused(landing, encoded(table(200_000, n=values), row_group_size=30_000))
    assert (bad.column, bad.value, bad.reason) == ("n", str(2**40), "does not fit int32 (row 150,001)")


def test_a_missing_column_is_a_bad_record(landing: Landing) -> None:
    bad = refused(landing, encoded(table().drop_columns("name")))
    assert (bad.column, bad.reason) == ("name", "the file has no such column")


@pytest.mark.parametrize("fault", ["text", "cut", "flipped"])
def test_a_file_that_is_no_parquet_is_a_bad_record(landing: Landing, fault: str) -> None:
    body = encoded(table(1000), compression="snappy")
    bodies = {"text": b"n,name,at\n", "cut": body[:-100], "flipped": body[:4] + b"\xff" * 200 + body[204:]}
    assert "not a readable Parquet file" in refused(landing, bodies[fault]).reason


def test_nested_types_are_read(landing: Landing) -> None:
    tags = pa.array([[{"k": "a", "v": 1}], [], None], pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())])))
    spec = source("parquet", {"tags": "list<struct<k: string, v: int32>>"})
    assert landing.read(spec, "a.parquet", encoded(pa.table({"tags": tags})))["tags"].to_pylist() == tags.to_pylist()


def test_batches_are_bounded_and_in_order(landing: Landing) -> None:
    reader = build_reader("f", source("parquet", SCHEMA, event_time="at"))
    batches = list(reader.read(landing.store, landing.put("a.parquet", encoded(table(200_000)))))
    assert max(batch.num_rows for batch in batches) <= 65_536
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(200_000))


def test_a_file_that_expands_beyond_its_bound_is_a_bad_record(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "EXPANSION_FREE_BYTES", 1 << 16)
    monkeypatch.setattr(parquet, "MAX_EXPANSION", 10)
    body = encoded(table(3, name=pa.array(["z" * 1_000_000] * 3)), compression="zstd")
    assert "it expands to more than 10 times" in refused(landing, body).reason
