"""A sample of a file has its first rows, and never requests or holds more than its bounds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.errors import StateCorrupt
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.sinks.parquet_files import file_sample
from milepost.sinks.parquet_files.file_sample import SAMPLE_BYTES, WHOLE_BYTES, FileSample, first_rows
from milepost.storage.open import open_store
from milepost.tables.records.committables import StagedFile
from milepost_testkit import wording
from milepost_testkit.stores.called_store import CalledStore

T = TypeVar("T")


class _Measured(CalledStore):
    """Counts the bytes of ranges, and refuses to read a large object whole."""

    def __init__(self, folder: Path) -> None:
        self.inner = open_store(StoreConfig(file_url(folder)))
        self.read = 0

    def _call(self, operation: str, key: str, act: Callable[[], T]) -> T:
        return act()

    def get(self, key: str) -> bytes:
        raise AssertionError(f"{key} is read without its version")

    def get_if_match(self, key: str, etag: str) -> bytes:
        body = self.inner.get_if_match(key, etag)
        assert len(body) <= WHOLE_BYTES
        self.read += len(body)
        return body

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        self.read += stop - start
        return self.inner.get_range(key, etag, start, stop)


def sample(
    folder: Path, rows: pa.Table, limit: int = 3, schema: pa.Schema | None = None, **options: object
) -> tuple[FileSample, int]:
    """Return the sample of a file with these rows, and the number of bytes that it requested."""
    pq.write_table(rows, folder / "f", **options)
    body = (folder / "f").read_bytes()
    store = _Measured(folder)
    file = StagedFile("f", rows.num_rows, len(body), hashlib.sha256(body).hexdigest())
    shown = first_rows("t", store, file, schema or rows.schema, limit)
    return shown, store.read


def test_a_small_file_shows_its_first_rows_in_the_columns_of_the_table(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, 3, 4], "a.b": ["w", None, "y", "z"], "s": [{"x": 1}, None, {"x": None}, {"x": 2}]})
    schema = pa.schema([*rows.schema, pa.field("newer", pa.date32())])
    shown, _ = sample(tmp_path, rows, schema=schema)
    assert shown.rows.schema.names == [name for name in schema.names if name not in shown.left_out]
    assert shown.rows.select(["k", "s"]).equals(rows.slice(0, 3).select(["k", "s"]))
    assert shown.rows["newer"].null_count == 3


def test_deletes_are_not_shown(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, 3, 4], DELETED_COLUMN: [True, False, True, False]})
    shown, _ = sample(tmp_path, rows, schema=pa.schema([("k", pa.int64())]))
    assert shown.rows.to_pydict() == {"k": [2, 4]}


def test_only_ranges_of_a_large_file_are_read(tmp_path: Path) -> None:
    rows = pa.table({"k": range(200_000), "v": [os.urandom(64) for _ in range(200_000)]})
    shown, read = sample(tmp_path, rows, 20, row_group_size=50_000, use_dictionary=False)
    assert (tmp_path / "f").stat().st_size > SAMPLE_BYTES and read < SAMPLE_BYTES / 2
    assert shown.rows.equals(rows.slice(0, 20)) and not shown.left_out


def test_a_column_beyond_a_bound_is_omitted_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First, one value that a dictionary repeats in each row. Then, a page that exceeds the bound on requests."""
    repeated = pa.table({"k": [1] * 40, "v": ["x" * 3_000_000] * 40})
    shown, _ = sample(tmp_path, repeated, 20)
    assert shown.left_out == ("v",) and shown.rows.to_pydict() == {"k": [1] * 20}
    noise = pa.table({"v": [os.urandom(9_000_000)] * 2, "k": [1, 2]})
    shown, read = sample(tmp_path, noise, 20, use_dictionary=False, compression="none")
    assert shown.left_out == ("v",) and shown.rows.to_pydict() == {"k": [1, 2]} and read <= SAMPLE_BYTES
    monkeypatch.setattr(file_sample, "SAMPLE_COLUMNS", 1)
    shown, _ = sample(tmp_path, pa.table({"a": [1], "b": [2]}))
    assert shown.left_out == ("b",)


def test_a_file_that_is_not_the_recorded_one_is_refused(tmp_path: Path) -> None:
    store = _Measured(tmp_path)
    file = StagedFile("f", 1, 3, hashlib.sha256(b"abc").hexdigest())
    schema = pa.schema([("k", pa.int64())])
    with wording.raises(StateCorrupt):
        first_rows("t", store, file, schema, 3)
    for body in (b"abcd", b"abd", b"abc"):
        (tmp_path / "f").write_bytes(body)
        with wording.raises(StateCorrupt):
            first_rows("t", store, file, schema, 3)
