"""Parquet objects: columns by name, types that mean the same, typed refusals."""

from __future__ import annotations

import gzip
import io
import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.language.types import parse_type, to_arrow
from milepost.sources.contract import BadRecord, whole_object
from milepost.sources.formats import build_reader
from milepost.sources.parquet import parquet_reader
from milepost_testkit import wording
from milepost_testkit.jobs.landing import Landing, source

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
def test_a_type_with_the_same_meaning_is_accepted(landing: Landing, columns: dict[str, pa.Array]) -> None:
    spec = source("parquet", SCHEMA, event_time="at")
    assert landing.read(spec, "a.parquet", encoded(table(**columns))).equals(
        landing.read(spec, "b.parquet", encoded(table()))
    )


@pytest.mark.parametrize(
    ("columns", "column"),
    [
        ({"n": pa.array(["0", "1", "2"])}, "n"),
        ({"n": pa.array([0.0, 1.0, 2.0])}, "n"),
        ({"at": pa.array([0, 1, 2], pa.timestamp("us"))}, "at"),
        ({"n": pa.array([0, 2**40, 2], pa.int64())}, "n"),
        ({"at": pa.array([AT, AT, None], pa.timestamp("us", "UTC"))}, "at"),
        ({"at": pa.array([0, 1_000, 1_001], pa.timestamp("ns", "UTC"))}, "at"),
    ],
)  # fmt: skip
def test_a_value_or_type_that_does_not_fit_is_named(
    landing: Landing, columns: dict[str, pa.Array], column: str
) -> None:
    bad = refused(landing, encoded(table(**columns)))
    wording.matches("bad_rows", bad.reason)
    assert (bad.line, bad.column) == (None, column)


def test_the_row_of_a_bad_value_counts_from_the_beginning_of_the_object(landing: Landing) -> None:
    values = pa.array([2**40 if n == 150_000 else n for n in range(200_000)], pa.int64())
    bad = refused(landing, encoded(table(200_000, n=values), row_group_size=30_000))
    wording.matches("bad_rows", bad.reason)
    assert (bad.column, bad.value) == ("n", str(2**40))


def test_the_reported_value_is_not_its_neighbour(landing: Landing) -> None:
    """A slice of lists is judged by its own values only."""
    lists = pa.array([[1], [2], [2**40], [3]], pa.list_(pa.int64()))
    with pytest.raises(BadRecord) as raised:
        landing.read(source("parquet", {"n": "list<int32>"}), "a.parquet", encoded(pa.table({"n": lists})))
    wording.matches("bad_rows", raised.value.reason)
    assert raised.value.value == "[1099511627776]"


def test_a_missing_column_is_a_bad_record(landing: Landing) -> None:
    bad = refused(landing, encoded(table().drop_columns("name")))
    assert (bad.column, bad.value) == ("name", None)
    wording.matches("bad_rows", bad.clause)
    wording.matches("bad_rows", bad.reason)
    assert bad.clause in bad.reason


@pytest.mark.parametrize("fault", ["text", "cut", "flipped"])
def test_a_file_that_is_not_parquet_is_a_bad_record(landing: Landing, fault: str) -> None:
    body = encoded(table(1000), compression="snappy")
    bodies = {"text": b"n,name,at\n", "cut": body[:-100], "flipped": body[:4] + b"\xff" * 200 + body[204:]}
    wording.matches("bad_rows", refused(landing, bodies[fault]).reason)


def test_nested_types_are_read(landing: Landing) -> None:
    tags = pa.array([[{"k": "a", "v": 1}], [], None], pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())])))
    spec = source("parquet", {"tags": "list<struct<k: string, v: int32>>"})
    assert landing.read(spec, "a.parquet", encoded(pa.table({"tags": tags})))["tags"].to_pylist() == tags.to_pylist()


def test_batches_are_bounded_and_in_order(landing: Landing) -> None:
    reader = build_reader("f", source("parquet", SCHEMA, event_time="at"))
    batches = list(reader.read_part(landing.store, whole_object(landing.put("a.parquet", encoded(table(200_000))))))
    assert max(batch.num_rows for batch in batches) <= 65_536
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(200_000))


def test_a_file_that_expands_beyond_its_bound_is_a_bad_record(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts what the rows hold: a run of one value takes the same few bytes for one row as for a million."""
    monkeypatch.setattr(parquet_reader, "EXPANSION_FREE_BYTES", 1 << 16)
    body = encoded(pa.table({"name": ["z"] * 200_000}), write_statistics=False, store_schema=False)
    assert pq.ParquetFile(io.BytesIO(body)).metadata.row_group(0).total_byte_size < len(body)
    with wording.raises(BadRecord):
        landing.read(source("parquet", {"name": "string"}), "a.parquet", body)


def bomb(rows: int, value_bytes: int, encoding: str) -> bytes:
    """A few hundred bytes that hold rows of one long text, or of lists of nothing."""
    text = pa.array(["x" * value_bytes])
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), text)
    options: dict[str, Any] = {"compression": "zstd", "write_statistics": False, "store_schema": False}
    if encoding != "dictionary":
        repeated = repeated.cast(pa.string())
        options |= {"use_dictionary": False, "column_encoding": {"name": encoding}}
    return encoded(pa.table({"name": repeated}), **options)


@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("rows", [500, 40])
@pytest.mark.deep
def test_a_small_file_that_expands_to_long_texts_never_fills_the_memory(
    landing: Landing, encoding: str, rows: int
) -> None:
    """374 bytes became a batch of 500 MiB: what the file says of itself counts a dictionary as it is encoded."""
    body = bomb(rows, 1 << 20, encoding)
    assert len(body) < 2_000
    reader = build_reader("f", source("parquet", {"name": "string"}))
    before = pa.total_allocated_bytes()
    largest = 0
    try:
        for batch in reader.read_part(landing.store, whole_object(landing.put("a.parquet", body))):
            largest = max(largest, batch.nbytes)
    except BadRecord as bad:
        wording.matches("bad_rows", bad.reason)
        assert rows == 500
    else:
        assert rows == 40
    assert largest <= (64 << 20) + 4096
    del batch
    assert pa.total_allocated_bytes() <= before + (1 << 20)


@pytest.mark.long
def test_a_compressed_file_whose_content_does_not_fit_is_a_bad_record(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_reader, "_CONTENT_BYTES", 96 << 20)
    body = gzip.compress(bytes(250 << 20), 1)
    with wording.raises(BadRecord):
        landing.read(source("parquet", {"name": "string"}), "a.parquet.gz", body)


@pytest.mark.long
def test_wide_rows_after_narrow_ones_are_refused_before_they_fill_the_memory(landing: Landing) -> None:
    """Of 16,384 rows that look like any others, the next batch holds 16 GiB."""
    index = pa.array([0] * 100_000 + [1] * 100_000, pa.int32())
    text = pa.DictionaryArray.from_arrays(index, pa.array(["a", "x" * (1 << 20)]))
    body = encoded(pa.table({"name": text}), compression="zstd", write_statistics=False, store_schema=False)
    with pytest.raises(BadRecord) as raised:
        landing.read(source("parquet", {"name": "string"}), "a.parquet", body)
    wording.matches("bad_rows", raised.value.reason)


@pytest.mark.deep
def test_a_batch_of_wide_rows_has_few_rows(landing: Landing) -> None:
    body = encoded(pa.table({"name": [f"{n:06}" + "x" * 1_000_000 for n in range(100)]}), use_dictionary=False)
    reader = build_reader("f", source("parquet", {"name": "string"}))
    assert (
        max(batch.num_rows for batch in reader.read_part(landing.store, whole_object(landing.put("a.parquet", body))))
        <= 4
    )


def test_the_memory_limit_of_a_reader_ends_with_its_step(landing: Landing) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    reader = build_reader("f", source("parquet", {"name": "string"}))
    for _ in reader.read_part(landing.store, whole_object(landing.put("a.parquet", bomb(40, 1 << 20, "dictionary")))):
        assert resource.getrlimit(resource.RLIMIT_AS) == before
    refused(landing, b"no Parquet")
    assert resource.getrlimit(resource.RLIMIT_AS) == before


BAD_TEXT = b"b\xff\xfe"


def with_bad_text(table: pa.Table, **options: Any) -> bytes:
    """A Parquet file in which the text `bad` is no UTF-8."""
    return encoded(table, compression="none", write_statistics=False, **options).replace(b"bad", BAD_TEXT)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("string", ["a", "bad", "ä"]),
        ("list<string>", [["a"], ["ä", "bad"], []]),
        ("struct<a: string, b: int64>", [{"a": "a", "b": 1}, {"a": "bad", "b": 1}, None]),
        ("list<struct<a: list<string>>>", [[], [{"a": ["bad"]}], None]),
    ],
)
@pytest.mark.parametrize("dictionary", [False, True])
def test_text_that_is_not_utf8_is_named(landing: Landing, type_: str, values: list[Any], dictionary: bool) -> None:
    """Published, it would end whatever shows it."""
    array = pa.array([values[0]] * 70_000 + values, to_arrow(parse_type(type_)))
    body = with_bad_text(pa.table({"s": array}), use_dictionary=dictionary)
    with pytest.raises(BadRecord) as raised:
        landing.read(source("parquet", {"s": type_}), "a.parquet", body)
    bad = raised.value
    wording.matches("bad_rows", bad.reason)
    assert (bad.key, bad.column) == ("a.parquet", "s")
    assert bad.value == ("b\ufffd\ufffd" if type_ == "string" else None)


def test_text_in_a_stored_dictionary_is_checked_as_well(landing: Landing) -> None:
    body = with_bad_text(pa.table({"s": pa.array(["a", "bad", "a"]).dictionary_encode()}))
    with wording.raises(BadRecord):
        landing.read(source("parquet", {"s": "string"}), "a.parquet", body)


def test_bytes_that_are_not_text_are_read_if_bytes_are_declared(landing: Landing) -> None:
    read = landing.read(source("parquet", {"s": "binary"}), "a.parquet", with_bad_text(pa.table({"s": [b"bad"]})))
    assert read["s"].to_pylist() == [BAD_TEXT]


@pytest.mark.parametrize("table", [{"bad": [1], "s": ["a"]}, {"bad": [{"x": 1}], "s": ["a"]}, {"s": [{"bad": 1}]}])
def test_a_column_s_name_that_is_not_utf8_is_a_bad_record(landing: Landing, table: dict[str, list[Any]]) -> None:
    body = with_bad_text(pa.table(table), store_schema=False)
    with wording.raises(BadRecord):
        landing.read(source("parquet", {"s": "string"}), "a.parquet", body)


def test_a_time_outside_the_years_of_python_is_named(landing: Landing) -> None:
    years = pa.array([0, 2**60], pa.timestamp("us", "UTC"))
    with pytest.raises(BadRecord) as raised:
        landing.read(source("parquet", {"t": "timestamp[ns, UTC]"}), "a.parquet", encoded(pa.table({"t": years})))
    wording.matches("bad_rows", raised.value.reason)
    assert raised.value.value == str(2**60)
