"""The objects of a record have all rows of its splits, in order (L2)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.jobmaster.landing import object_writer
from milepost.jobmaster.landing.object_writer import ObjectWriter
from milepost.storage.object_handles import handle_of
from milepost_testkit import profiles
from milepost_testkit.stores.memory_store import MemoryStore

PREFIX = "landed/numbers/objects/"


def batches(*sizes: int) -> list[pa.RecordBatch]:
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    return [pa.record_batch({"n": pa.array(range(a, a + b), pa.int64())}) for a, b in zip(starts, sizes, strict=True)]


def of_part(part: int, rows: list[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    return ((part, batch) for batch in rows)


def test_many_small_batches_become_one_row_group() -> None:
    store = MemoryStore("memory://job")
    with ObjectWriter(store, "numbers", 2, "w") as writer:
        writer.write(0, of_part(0, batches(*[1] * 500, 0)))
        (landed,) = writer.finish()
    assert (landed.key, landed.rows) == ("00000000000000000002/w/00000-0000000000.parquet", 500)
    assert pq.ParquetFile(io.BytesIO(store.get(PREFIX + landed.key))).num_row_groups == 1


def test_a_large_split_becomes_several_objects_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_writer, "OBJECT_BYTES", 1)
    monkeypatch.setattr(object_writer, "_GROUP_ROWS", 4)
    store = MemoryStore("memory://job")
    with ObjectWriter(store, "numbers", 2, "w") as writer:
        writer.write(0, of_part(0, batches(3, 3, 3, 3)))
        writer.write(1, iter([]))
        writer.write(2, of_part(0, batches(1)))
        objects = writer.finish()
    bodies = [store.get(PREFIX + landed.key) for landed in objects]
    assert [landed.key.rpartition("/")[2] for landed in objects] == [
        "00000-0000000000.parquet",
        "00000-0000000001.parquet",
        "00002-0000000000.parquet",
    ]
    assert [n for body in bodies for n in pq.read_table(io.BytesIO(body))["n"].to_pylist()] == [*range(12), 0]
    for landed, body in zip(objects, bodies, strict=True):
        assert (landed.size, landed.sha256) == (handle_of("", body).size, handle_of("", body).sha256)


def test_a_failure_of_the_source_or_of_the_encoding_is_raised_and_stores_nothing_more() -> None:
    store = MemoryStore("memory://job")

    def failing() -> Iterator[tuple[int, pa.RecordBatch]]:
        yield from of_part(0, batches(3))
        raise ConnectionError("lost")

    with pytest.raises(ConnectionError, match="lost"), ObjectWriter(store, "numbers", 2, "w") as writer:
        writer.write(0, failing())
    mixed = [pa.record_batch({"n": pa.array([1])}), pa.record_batch({"m": pa.array([1])})]
    with pytest.raises(pa.ArrowInvalid), ObjectWriter(store, "numbers", 2, "w") as writer:
        writer.write(0, of_part(0, mixed))
        writer.finish()
    assert list(store.list("")) == []


def test_an_object_has_the_metadata_of_its_batches_and_of_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_writer, "_GROUP_ROWS", 4)
    store = MemoryStore("memory://job")
    first, second, third, fourth = batches(3, 3, 3, 3)
    monkeypatch.setattr(object_writer, "OBJECT_BYTES", 1)
    marked = [first.replace_schema_metadata({"a": "1"}), second, third.replace_schema_metadata({"b": "2"}), fourth]
    with ObjectWriter(store, "numbers", 2, "w") as writer:
        writer.write(0, of_part(0, marked))
        objects = writer.finish()
    found = [pq.read_metadata(io.BytesIO(store.get(PREFIX + landed.key))).metadata for landed in objects]
    assert [{key: value for key, value in one.items() if key in (b"a", b"b")} for one in found] == [
        {b"a": b"1"},
        {b"b": b"2"},
    ]


@profiles.examples(share=0.5)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=30), st.integers(1, 12), st.integers(1, 200))
def test_the_rows_of_parts_that_come_mixed_are_stored_part_by_part(
    pieces: list[tuple[int, int]], group_rows: int, object_bytes: int
) -> None:
    store = MemoryStore("memory://job")
    rows = batches(*(count for _, count in pieces))
    with (
        patch.object(object_writer, "_GROUP_ROWS", group_rows),
        patch.object(object_writer, "OBJECT_BYTES", object_bytes),
        ObjectWriter(store, "numbers", 2, "w") as writer,
    ):
        writer.write(0, ((part, batch) for (part, _), batch in zip(pieces, rows, strict=True)))
        objects = writer.finish()
    stored = [pq.read_table(io.BytesIO(store.get(PREFIX + landed.key)))["n"].to_pylist() for landed in objects]
    ordered = sorted(zip(pieces, rows, strict=True), key=lambda item: item[0][0])
    assert [n for one in stored for n in one] == [n for _, batch in ordered for n in batch["n"].to_pylist()]
    assert [len(one) for one in stored] == [landed.rows for landed in objects]


def test_many_small_parts_share_an_object_and_a_large_one_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_writer, "_GROUP_ROWS", 100)
    store = MemoryStore("memory://job")
    rows = batches(1, 300, 2, 3, 1, 2)
    with ObjectWriter(store, "numbers", 2, "w") as writer:
        writer.write(0, iter(zip([0, 1, 2, 3, 0, 3], rows, strict=True)))
        objects = writer.finish()
    assert [landed.rows for landed in objects] == [2, 300, 7]
