"""Data files of tables that a log refers to: their columns by name, constant columns, types, and parts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.job import EventTimeSpec
from milepost.language import parse_type
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.sources.contract import ObjectPart, SourceObject
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.file_columns import FileColumns, value_of, value_text
from milepost.sources.landed.tables.data_files import DataFile, read_data_files
from milepost.sources.landed.tables.file_references import file_references
from milepost.sources.landed.tables.table_failures import TableFailures
from milepost.sources.parquet import LandedFileReader
from milepost.storage.open import open_store

AT = dt.datetime(2026, 3, 1, 12, 30, 1, 5, tzinfo=dt.UTC)
INT96 = {"use_deprecated_int96_timestamps": True}
FAILURES = TableFailures("orders", "the table")


class File:
    """A Parquet file, and its rows as a copy of them has them, and as an epoch reads them where they are."""

    def __init__(self, folder: Path, rows: pa.Table, **options: Any) -> None:
        pq.write_table(rows, folder / "rows.parquet", **options)
        self.store = open_store(StoreConfig(file_url(folder)))
        self.size = (folder / "rows.parquet").stat().st_size

    def data_file(self, **constants: Any) -> DataFile:
        return DataFile(self.store, "rows.parquet", self.size, constants)

    def copied(self, types: dict[str, str], **constants: Any) -> list[dict[str, Any]]:
        declared = {name: parse_type(text) for name, text in types.items()}
        batches = read_data_files(FAILURES, [self.data_file(**constants)], declared, None)
        return [row for batch in batches for row in batch.to_pylist()]

    def referenced(
        self, types: dict[str, str], parts: int = 1, event_time: str | None = None, **constants: Any
    ) -> list[dict[str, Any]]:
        declared = {name: parse_type(text) for name, text in types.items()}
        time = None if event_time is None else EventTimeSpec(column=event_time)
        (file,) = file_references(FAILURES, [self.data_file(**constants)], declared, time)
        columns = {"rows.parquet": FileColumns(file.columns, file.values)}
        reader = LandedFileReader(DeclaredColumns("orders", declared, optional=[*declared]), columns)
        obj = SourceObject("rows.parquet", file.etag, file.size, 0)
        ends = [file.size * at // parts for at in range(parts + 1)]
        pieces = (ObjectPart(obj, start, stop) for start, stop in pairwise(ends))
        rows = [row for piece in pieces for batch in reader.read_part(self.store, piece) for row in batch.to_pylist()]
        assert len(rows) == file.rows
        return rows


@pytest.mark.parametrize(
    ("stored", "options", "declared"),
    [
        (pa.array([AT, None], pa.timestamp("us", "UTC")), {}, "timestamp[us, UTC]"),
        (
            pa.array([AT, None], pa.timestamp("us", "UTC")),
            {"use_deprecated_int96_timestamps": True},
            "timestamp[us, UTC]",
        ),
        (pa.array([AT.replace(tzinfo=None), None]), INT96, "timestamp[us]"),
        (pa.array([dt.datetime(2300, 1, 1, tzinfo=dt.UTC), None]), INT96, "timestamp[us, UTC]"),
        (pa.array([7, None], pa.int32()), {}, "int64"),
        (pa.array([0.5, None], pa.float32()), {}, "float64"),
        (pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), {}, "decimal(12,2)"),
        (pa.array(["a", None]).dictionary_encode(), {}, "string"),
        (pa.array([[1], None], pa.list_(pa.field("element", pa.int64(), False))), {}, "list<int64>"),
        (pa.array([{"a": 1, "b": "x"}, None]), {}, "struct<a: int64, b: string>"),
        (pa.array([b"\x00", None]), {}, "binary"),
    ],
)
def test_an_epoch_reads_the_values_that_a_copy_has(
    tmp_path: Path, stored: pa.Array, options: dict[str, Any], declared: str
) -> None:
    file = File(tmp_path, pa.table({"c": stored, "other": [1, 2]}), **options)
    types = {"c": declared, "p": "int64", "later": "string"}
    rows = file.referenced(types, p=3)
    assert rows == file.copied(types, p=3)
    assert [(row["p"], row["later"]) for row in rows] == [(3, None)] * 2


VALUES = [
    (3, "int64"),
    (0.1, "float64"),
    (True, "bool"),
    ("", "string"),
    ("a%2Fb é", "string"),
    (b"\x00\xff", "binary"),
    (dt.date(1, 1, 1), "date"),
    (AT, "timestamp[us, UTC]"),
    (AT.replace(year=9999, tzinfo=None), "timestamp[us]"),
    (Decimal("-0.000000000000000001"), "decimal(38,18)"),
    (None, "decimal(38,18)"),
]


@pytest.mark.parametrize(("value", "declared"), VALUES)
def test_the_value_of_a_partition_is_stored_as_text_and_read_back(tmp_path: Path, value: Any, declared: str) -> None:
    file = File(tmp_path, pa.table({"k": [1, 2]}))
    assert [row["p"] for row in file.referenced({"p": declared}, p=value)] == [value] * 2
    assert file.referenced({"p": declared, "k": "int64"}, p=value) == [{"p": value, "k": 1}, {"p": value, "k": 2}]


def test_a_value_that_is_not_of_its_type_is_not_guessed() -> None:
    with pytest.raises(pa.ArrowInvalid):
        value_of("x", pa.int64())
    assert value_text(None, pa.int64()) is None


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_of_a_large_file_have_each_row_once_and_in_order(tmp_path: Path, parts: int) -> None:
    file = File(tmp_path, pa.table({"k": range(1_000)}), row_group_size=100)
    assert [row["k"] for row in file.referenced({"k": "int64", "p": "string"}, parts, p="x")] == [*range(1_000)]


def test_a_renamed_column_is_read_by_the_name_that_it_has_in_the_file(tmp_path: Path) -> None:
    file = File(tmp_path, pa.table({"old": [1, 2], "new": [8, 9]}))
    declared = DeclaredColumns("orders", {"new": parse_type("int64"), "more": parse_type("int64")}, optional=["more"])
    reader = LandedFileReader(declared, {"rows.parquet": FileColumns({"new": "old"}, {})})
    stat = file.store.stat("rows.parquet")
    part = ObjectPart(SourceObject("rows.parquet", stat.etag, stat.size, 0), 0, stat.size)
    rows = [row for batch in reader.read_part(file.store, part) for row in batch.to_pylist()]
    assert rows == [{"new": 1, "more": None}, {"new": 2, "more": None}]


def test_a_type_that_only_a_copy_can_convert_is_refused_with_the_way_out(tmp_path: Path) -> None:
    file = File(tmp_path, pa.table({"c": [1, 0]}))
    with pytest.raises(InvalidRequest) as refused:
        file.referenced({"c": "bool"})
    assert "column c is int64" in refused.value.message and "{by: copy}" in refused.value.hint


def test_a_value_that_no_epoch_could_read_is_refused_by_the_landing(tmp_path: Path) -> None:
    file = File(tmp_path, pa.table({"c": [1 << 40]}))
    with pytest.raises(InvalidRequest, match="c"):
        file.referenced({"c": "int32"})


@pytest.mark.parametrize("options", [{}, {"write_statistics": False}, INT96])
def test_a_row_without_an_event_time_is_refused_whatever_the_footer_says(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    rows = pa.table({"at": pa.array([AT, None], pa.timestamp("us", "UTC"))})
    types = {"at": "timestamp[us, UTC]"}
    assert len(File(tmp_path, rows[:1], **options).referenced(types, event_time="at")) == 1
    with pytest.raises(InvalidRequest, match="is null, but the event time is required"):
        File(tmp_path, rows, **options).referenced(types, event_time="at")


class CountingStore:
    """Counts the bytes that are read of a store."""

    def __init__(self, store: Any) -> None:
        self._store, self.read = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        self.read += stop - start
        return bytes(self._store.get_range(key, etag, start, stop))


@pytest.mark.deep
@pytest.mark.parametrize("event_time", [None, "at"])
def test_a_landing_reads_only_the_footers_of_the_files(tmp_path: Path, event_time: str | None) -> None:
    rows = pa.table({"at": pa.array([AT] * 200_000), "text": [f"text number {at * 7919}" for at in range(200_000)]})
    file = File(tmp_path, rows)
    store = CountingStore(file.store)
    types = {"at": parse_type("timestamp[us, UTC]"), "text": parse_type("string")}
    data_file = DataFile(store, "rows.parquet", file.size)  # type: ignore[arg-type]
    time = None if event_time is None else EventTimeSpec(column=event_time)

    def refer() -> Iterator[Any]:
        yield from file_references(FAILURES, [data_file], types, time)

    assert [each.rows for each in refer()] == [200_000]
    assert store.read <= 1 << 16 < file.size // 10
