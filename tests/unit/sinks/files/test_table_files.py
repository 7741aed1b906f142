"""A table's files hold the rows that were staged, whatever fits into memory together, in the same bytes each time."""

from __future__ import annotations

import datetime
import errno
import io
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import EnvironmentUnusable, StateCorrupt
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sinks.parquet_files import table_files
from milepost.sinks.parquet_files.deletes import latest_rows
from milepost.sinks.parquet_files.table_files import ReadOptions, TableFiles
from milepost.spill import external_sort, spilled_rows
from milepost.storage.open import open_store
from milepost.tables.records.committables import StagedFile, StagingContext
from milepost.tables.records.table_keys import staged_prefix
from milepost_testkit import wording
from milepost_testkit.stores.held_rows import hold_few_rows
from milepost_testkit.stores.memory_store import MemoryStore

_NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
_FLAT = pa.table(
    {
        "a.b": pa.array([3, None], pa.int64()),
        "a": pa.array(["x", None]),
        "t": pa.array([_NOON, None], pa.timestamp("us", "UTC")),
        "f": [1.5, None],
        "d": pa.array([Decimal("1.20"), None], pa.decimal128(5, 2)),
        "yes": [True, None],
    }
)
_SECONDS = pa.timestamp("s", "UTC")
_IN_SECONDS = pa.table(
    {
        "t": pa.array([_NOON, None], _SECONDS),
        "l": pa.array([[_NOON], None], pa.list_(_SECONDS)),
        "s": pa.array([{"t": _NOON}, None], pa.struct([("t", pa.timestamp("s"))])),
    }
)
_NESTED = pa.table({"k": [1, 2], "s": [{"x": 1, "y": ["p"]}, None], "l": [[1, 2], []]})
_ALL_AT_ONCE, _ONE_BY_ONE = 1 << 20, 0


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(file_url(tmp_path)))


@pytest.mark.parametrize("held_bytes", [_ALL_AT_ONCE, _ONE_BY_ONE])
@pytest.mark.parametrize("table", [_FLAT, _NESTED, _IN_SECONDS], ids=["flat", "nested", "in seconds"])
def test_staged_files_are_readable_and_another_attempt_writes_the_same_bytes(
    store: ObjectStore, table: pa.Table, held_bytes: int
) -> None:
    files = TableFiles("table", store)
    tables = [table, table.slice(0, 0), table.slice(1), table]

    staged = files.stage(iter(tables), StagingContext(1, 1, 0, held_bytes), "0")
    again = files.stage(iter(tables), StagingContext(1, 1, 0, held_bytes), "0")

    assert staged is not None and staged == again
    assert files.rows([staged], ReadOptions(table.schema, verify=True)).equals(
        pa.concat_tables(tables).combine_chunks()
    )
    groups = pq.ParquetFile(pa.BufferReader(store.get(staged.key))).num_row_groups
    assert groups == (1 if held_bytes else 3)


def test_a_table_without_rows_has_no_file(store: ObjectStore) -> None:
    assert (
        TableFiles("table", store).stage(iter([_FLAT.slice(0, 0)]), StagingContext(1, 1, 0, _ALL_AT_ONCE), "0") is None
    )


def test_packed_numbers_use_snappy_and_every_table_with_a_nested_column_zstd(store: ObjectStore) -> None:
    found = []
    for table in (_FLAT, _NESTED):
        staged = TableFiles("table", store).stage(iter([table]), StagingContext(1, 1, 0, _ALL_AT_ONCE), "0")
        assert staged is not None
        group = pq.ParquetFile(pa.BufferReader(store.get(staged.key))).metadata.row_group(0)
        columns = [group.column(index) for index in range(group.num_columns)]
        found.append({column.path_in_schema: column.compression for column in columns})
    flat, nested = found
    assert flat == {"a.b": "SNAPPY", "a": "ZSTD", "t": "SNAPPY", "f": "ZSTD", "d": "ZSTD", "yes": "ZSTD"}
    assert set(nested.values()) == {"ZSTD"}


def test_files_that_engines_rewrote_into_many_folders_are_found_and_a_missing_one_is_named(
    store: ObjectStore,
) -> None:
    """In addition to those below our own prefix, also in the table's root."""
    keys = [*(f"day={day}/part.parquet" for day in range(12)), "part.parquet", f"{staged_prefix(1, 1)}0.parquet"]
    files = [StagedFile(key, 1, store.put(key, b"rows").size, "0" * 64) for key in keys]
    for some in (files, files[-2:], files[:1]):
        TableFiles("table", store).check(some)
    store.delete([keys[3]])
    with wording.raises(StateCorrupt):
        TableFiles("table", store).check(files)


def test_times_that_an_engine_wrote_as_int96_are_the_instants_that_they_were(store: ObjectStore) -> None:
    """Spark's OPTIMIZE of a Delta table writes them so: without a zone, and of more years than nanoseconds have."""
    times = [datetime.datetime(year, 1, 1, 12, 0, 0, 7, tzinfo=datetime.UTC) for year in (1601, 1969, 2026, 2301)]
    rows = pa.table({"k": [1, 2, 3, 4, 5], "t": pa.array([*times, None], pa.timestamp("us", "UTC"))})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, use_deprecated_int96_timestamps=True)
    body = sink.getvalue().to_pybytes()
    store.put("part-0.snappy.parquet", body)
    files = TableFiles("table", store)
    file = files.with_digest(StagedFile("part-0.snappy.parquet", 5, len(body), ""))
    assert files.rows([file], ReadOptions(rows.schema, verify=True)) == rows
    assert files.problems([file], rows.schema, deep=True) == []
    with wording.raises(StateCorrupt):
        files.rows([file], ReadOptions(pa.schema([("k", pa.int64()), ("t", pa.int64())])))


KEYED = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.mark.deep
@given(
    epochs=st.lists(
        st.lists(st.tuples(st.none() | st.integers(0, 4), st.sampled_from(["a", "b"]), st.booleans()), max_size=6),
        max_size=5,
    ),
    may_delete=st.booleans(),
)
def test_latest_rows_come_in_pieces_as_they_come_all_at_once(
    epochs: list[list[tuple[int | None, str, bool]]], may_delete: bool
) -> None:
    """Deletes too, whatever is held: in memory, or on the disk in runs of a row or two, as large files are."""
    store = MemoryStore("file:///memory")
    files, staged = TableFiles("table", store), []
    for number, rows in enumerate(epochs):
        table = pa.table([list(column) for column in zip(*rows, strict=True)] or [[], [], []], names=["k", "v", "gone"])
        table = table.cast(KEYED.append(pa.field("gone", pa.bool_())))
        changes = table.select(["k", "v"])
        if may_delete:
            changes = changes.append_column(pa.field(DELETED_COLUMN, pa.bool_(), nullable=False), table.column("gone"))
        file = files.stage(iter([changes]), StagingContext(number + 1, 1, 0, _ALL_AT_ONCE), "0")
        staged += [] if file is None else [file]
    whole = latest_rows([files.rows(staged, ReadOptions(KEYED, deletes=True))], ("k",)).sort_by("k")
    for held_bytes in (_ALL_AT_ONCE, 60):
        with pytest.MonkeyPatch.context() as patch:
            hold_few_rows(patch, held_bytes)
            for name in ("IN_MEMORY_BYTES", "_AHEAD_BYTES"):
                patch.setattr(table_files, name, held_bytes)
            pieces = list(files.latest_pieces(staged, ReadOptions(KEYED, verify=True), ("k",)))
            keys = list(files.latest_pieces(staged, ReadOptions(KEYED, columns=("k",)), ("k",)))
        assert pa.concat_tables([KEYED.empty_table(), *pieces]).equals(whole)
        assert sum(part.num_rows for part in keys) == whole.num_rows


@pytest.mark.deep
def test_of_a_table_in_pieces_no_more_than_so_much_is_in_memory_at_once(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.6 MB of rows in two files, the second of which replaces half: Arrow holds only a part of them at a time."""
    rows, held_bytes = 100_000, 100 << 10
    hold_few_rows(monkeypatch, held_bytes)
    monkeypatch.setattr(spilled_rows, "_PIECE_BYTES", 8 << 10)
    monkeypatch.setattr(external_sort, "_MERGED_RUNS", 64)
    for name in ("IN_MEMORY_BYTES", "_AHEAD_BYTES"):
        monkeypatch.setattr(table_files, name, held_bytes)
    files = TableFiles("table", store)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    staged = []
    for number, step in enumerate((1, 2)):
        keys = [row * 7919 % rows for row in range(0, rows, step)]
        tables = (pa.table([part, [number] * len(part)], schema=schema) for part in _parts(keys, 5_000))
        file = files.stage(tables, StagingContext(number + 1, 1, 0, 50 << 10), "0")
        assert file is not None
        staged.append(file)
    base, peak, found = pa.total_allocated_bytes(), 0, 0
    for part in files.latest_pieces(staged, ReadOptions(schema, verify=True), ("k",)):
        found += part.num_rows
        peak = max(peak, pa.total_allocated_bytes() - base)
    assert found == rows
    assert peak < rows * 16 // 2


def _parts(keys: list[int], size: int) -> Iterator[list[int]]:
    return (keys[at : at + size] for at in range(0, len(keys), size))


def test_a_disk_that_is_too_full_for_a_copy_is_reported_with_a_next_step(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that fits in a buffer, too: the disk is checked before the file is read or closed."""
    files = TableFiles("table", store)
    file = files.stage([pa.table({"k": [1], "v": ["a"]}, schema=KEYED)], StagingContext(1, 1, 0, _ALL_AT_ONCE), "0")
    assert file is not None
    monkeypatch.setattr(table_files, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", partial(Path("/dev/full").open, "w+b"))
    with wording.raises(EnvironmentUnusable):
        files.fetch(file, ReadOptions(KEYED, verify=True))


def test_a_disk_that_fails_to_return_a_copy_is_reported_and_the_file_is_not_called_corrupt(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What helps is another disk, not another copy of the file. Of content Arrow's error has no number."""
    files = TableFiles("table", store)
    file = files.stage([pa.table({"k": [1], "v": ["a"]}, schema=KEYED)], StagingContext(1, 1, 0, _ALL_AT_ONCE), "0")
    assert file is not None
    with monkeypatch.context() as patch:
        patch.setattr(table_files, "IN_MEMORY_BYTES", 0)
        patch.setattr(tempfile, "TemporaryFile", lambda **_: BrokenDisk())
        with wording.raises(EnvironmentUnusable):
            files.fetch(file, ReadOptions(KEYED, verify=True))
    store.put(file.key, b"PAR1" + bytes(file.size - 8) + b"PAR1")
    with wording.raises(StateCorrupt):
        files.fetch(file, ReadOptions(KEYED))


class BrokenDisk(io.BytesIO):
    """Takes what is written, and gives nothing back."""

    def read(self, size: int | None = -1) -> bytes:
        raise OSError(errno.EIO, "Input/output error")
