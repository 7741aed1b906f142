"""What a source subtask passes on: every row once and in plan order, rows of small objects together."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from milepost.language.types import parse_type
from milepost.protocol.exchange.barrier import SubtaskIdentity
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import StoreConfig
from milepost.sources.contract import whole_object
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.parquet.parquet_reader import ParquetReader
from milepost.sources.planning.listing import list_objects
from milepost.spark.task.source_task import SourceSplit, run_source
from milepost.spark.wire.task_output import Declined, OperatorStageEnd, Rows, TaskOutput
from milepost.spark.worker.task_memory import task_memory
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording

_BATCH_ROWS = 65_536
_SCHEMA = pa.schema([("value", pa.int64())])


def _run(folder: Path, sizes: list[int], gone: str | None = None) -> list[TaskOutput]:
    """The items of a subtask that reads Parquet files of these numbers of rows; values are row numbers.

    Args:
        gone: a file that is deleted once it is planned.
    """
    folder.mkdir()
    first = 0
    for index, size in enumerate(sizes):
        rows = pa.table({"value": pa.array(range(first, first + size), pa.int64())}, _SCHEMA)
        pq.write_table(rows, folder / f"{index:05d}.parquet")
        first += size
    return _read(folder, gone=gone)


def _read(
    folder: Path, declared: str = "int64", gone: str | None = None, event_time: str | None = None
) -> list[TaskOutput]:
    config = StoreConfig(folder.as_uri())
    store = LocalStore(config)
    split = SourceSplit(
        source="bids",
        identity=SubtaskIdentity(CheckpointId(1), FencingToken(1), 0, 0),
        store=config,
        parts=tuple(map(whole_object, list_objects(store, "*.parquet").objects)),
        reader=ParquetReader(DeclaredColumns("bids", {"value": parse_type(declared)})),
        event_time=event_time,
        skips_missing=False,
    )
    if gone is not None:
        (folder / gone).unlink()
    with task_memory(str(folder)) as memory:
        return list(run_source(split, store, TaskMetrics(0, 0, 0), memory))


def _rows(items: list[TaskOutput]) -> list[pa.Table]:
    return [item.rows for item in items if isinstance(item, Rows)]


@pytest.mark.deep
@profiles.examples(share=0.2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([1, 7, 1_000, 40_000, _BATCH_ROWS - 1, _BATCH_ROWS, 70_000, 140_000]), max_size=9))
def test_every_row_goes_on_once_in_plan_order_and_never_more_than_a_batch_at_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    items = _run(tmp_path_factory.mktemp("landing") / "bids", sizes)
    parts = _rows(items)
    assert pa.concat_tables([_SCHEMA.empty_table(), *parts]).column("value").to_pylist() == list(range(sum(sizes)))
    assert all(0 < part.num_rows <= _BATCH_ROWS and part.column("value").num_chunks == 1 for part in parts)
    end = items[-1]
    assert isinstance(end, OperatorStageEnd) and end.ack["sources"]["bids"]["rows"] == sum(sizes)


@pytest.mark.deep
def test_rows_of_small_objects_go_on_together(tmp_path: Path) -> None:
    assert [part.num_rows for part in _rows(_run(tmp_path / "bids", [10] * 200))] == [2_000]


def test_a_full_batch_goes_on_before_the_next_object_is_opened(tmp_path: Path) -> None:
    items = _run(tmp_path / "bids", [_BATCH_ROWS, 1], gone="00001.parquet")
    assert [part.num_rows for part in _rows(items)] == [_BATCH_ROWS]
    assert isinstance(items[-1], Declined)


def test_wide_rows_are_held_up_to_a_megabyte(tmp_path: Path) -> None:
    (tmp_path / "bids").mkdir()
    for index in range(30):
        pq.write_table(pa.table({"value": ["x" * 1_000] * 100}), tmp_path / "bids" / f"{index:02d}.parquet")
    parts = _rows(_read(tmp_path / "bids", "string"))
    assert sum(part.num_rows for part in parts) == 3_000
    assert len(parts) == 3
    assert max(part.nbytes for part in parts) <= 1 << 20


def test_a_bad_object_behind_good_ones_is_a_decline_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    (tmp_path / "bids").mkdir()
    pq.write_table(pa.table({"value": [1, 2]}), tmp_path / "bids" / "0.parquet")
    (tmp_path / "bids" / "1.parquet").write_bytes(b"no Parquet")
    items = _read(tmp_path / "bids")
    assert isinstance(items[-1], Declined)
    assert "1.parquet" in items[-1].decline.detail
    assert not any(isinstance(item, OperatorStageEnd) for item in items)


def test_the_newest_event_time_is_that_of_all_batches(tmp_path: Path) -> None:
    """A source's watermark never goes back within an epoch: an older object may be read last."""
    for name, times in (("a", [3, 9]), ("b", [7]), ("c", [])):
        column = pa.array(times, pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"value": column}), tmp_path / f"{name}.parquet")
    (*_, end) = _read(tmp_path, "timestamp[us, UTC]", event_time="value")
    assert isinstance(end, OperatorStageEnd)
    assert end.ack["sources"]["bids"]["newest_event_us"] == 9


def test_memory_that_the_worker_s_own_limit_refuses_is_reported_with_the_object(tmp_path: Path) -> None:
    """The limit is not the object's fault, but a person still has to know which object met it."""
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), pa.array(["x" * (8 << 20)]))
    options = {"store_schema": False, "write_statistics": False, "dictionary_pagesize_limit": 1 << 30}
    pq.write_table(pa.table({"value": long}), tmp_path / "long.parquet", **options)
    pool = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())  # as in a worker; others have reserved address space before
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (128 << 20), hard))
    try:
        with wording.raises(MemoryError, replace={r"malloc of size \d+": "malloc of size {size}"}) as refused:
            _read(tmp_path, "string")
        assert "bids" in str(refused.value) and "long.parquet" in str(refused.value)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        pa.set_memory_pool(pool)
