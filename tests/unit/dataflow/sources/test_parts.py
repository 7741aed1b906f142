"""Parts of an object, wherever it is cut: one after another they have the rows of the object, each once, in order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.dataflow.sources.contract import BadRecord, ObjectPart, ObjectReader, SourceObject
from milepost.dataflow.sources.readers.declared_columns import DeclaredColumns
from milepost.dataflow.sources.readers.parquet import ParquetReader
from milepost.spec.values.types import parse_type
from tests.harness.stores.memory_store import MemoryStore

DECLARED = DeclaredColumns("s", {"k": parse_type("int64"), "t": parse_type("string")})

cuts = st.lists(st.floats(0, 1), max_size=6)


def landed(body: bytes, key: str = "a") -> tuple[MemoryStore, SourceObject]:
    store = MemoryStore("memory://")
    stat = store.put(key, body)
    return store, SourceObject(key, stat.etag, stat.size, stat.last_modified_ms)


def parts_of(obj: SourceObject, at: Iterable[float]) -> list[ObjectPart]:
    """The object cut at these shares of its bytes; some of its parts may have none."""
    stops = sorted(int(share * obj.size) for share in at)
    return [ObjectPart(obj, start, stop) for start, stop in pairwise([0, *stops, obj.size])]


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


def read(reader: ObjectReader, store: MemoryStore, parts: Iterable[ObjectPart]) -> list[dict[str, object]]:
    return [row for part in parts for row in rows(reader.read_part(store, part))]


def parquet_body(table: pa.Table, groups: Iterable[int]) -> bytes:
    """A file with row groups of these numbers of rows."""
    sink, first = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(sink, table.schema) as writer:
        for size in groups:
            writer.write_table(table.slice(first, size), row_group_size=max(size, 1))
            first += size
    return sink.getvalue().to_pybytes()


@settings(deadline=None, max_examples=60)
@given(groups=st.lists(st.integers(0, 60), max_size=12), at=cuts)
def test_parts_of_a_parquet_file_have_its_row_groups_each_once_and_in_order(groups: list[int], at: list[float]) -> None:
    numbers = range(sum(groups))
    table = pa.table(
        {"k": pa.array(numbers, pa.int64()), "t": pa.array([f"text {row}" for row in numbers], pa.string())}
    )
    store, obj = landed(parquet_body(table, groups))
    reader = ParquetReader(DECLARED)
    assert read(reader, store, parts_of(obj, at)) == table.to_pylist()


def test_half_of_a_parquet_file_has_half_of_its_row_groups() -> None:
    table = pa.table({"k": range(8_000), "t": ["text"] * 8_000})
    store, obj = landed(parquet_body(table, [1_000] * 8))
    reader = ParquetReader(DECLARED)
    halves = [rows(reader.read_part(store, part)) for part in parts_of(obj, [0.5])]
    assert [len(half) for half in halves] == [4_000, 4_000]


def test_a_bad_row_of_a_part_is_named_by_its_place_in_the_file() -> None:
    """A person looks for it in the file, and knows nothing of parts."""
    table = pa.table({"k": range(400), "t": ["text"] * 399 + ["x" * 10]})
    table = table.set_column(0, "k", pa.array([*range(390), 2**40, *range(9)]))
    store, obj = landed(parquet_body(table, [100] * 4))
    reader = ParquetReader(DeclaredColumns("s", {"k": parse_type("int32")}))
    first, second = parts_of(obj, [0.5])
    assert len(rows(reader.read_part(store, first))) == 200
    with pytest.raises(BadRecord) as caught:
        rows(reader.read_part(store, second))
    assert caught.value.row == 391
