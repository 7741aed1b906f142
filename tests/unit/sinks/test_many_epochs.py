"""Hundreds of epochs leave a table of few files, whose rows engines see at every checkpoint, and once each."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Operation

from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from tests.conformance.sinks.contract.case import SCHEMA, SinkCase, Story
from tests.conformance.sinks.formats.delta_sink import DeltaCase
from tests.conformance.sinks.formats.iceberg_sink import TABLE, IcebergCase

PER_EPOCH = 1000
MAX_JOINED_FILES = 40


class Placed(SinkCase):
    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / part))


class DeltaOnDisk(Placed, DeltaCase):
    pass


class IcebergOnDisk(Placed, IcebergCase):
    pass


def publish(job: Story, epochs: int) -> None:
    """Epochs of two subtasks, with rows of their own."""
    for _ in range(epochs):
        first = job.manifest.next_id * PER_EPOCH
        halves = (range(first, first + PER_EPOCH // 2), range(first + PER_EPOCH // 2, first + PER_EPOCH))
        job.publish(*(pa.table([list(half), [str(key) for key in half]], schema=SCHEMA) for half in halves))


def keys_of(epochs: int) -> list[int]:
    return list(range(PER_EPOCH, (epochs + 1) * PER_EPOCH))


@pytest.mark.long
@pytest.mark.parametrize("epochs", [40, pytest.param(300, marks=pytest.mark.deep)])
def test_hundreds_of_epochs_are_few_files_in_delta_and_engines_see_every_row_once(
    epochs: int, tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    """TABLES 1.14 and 6: bounded files and bytes; who follows changes sees each row come once."""
    case = DeltaOnDisk()
    job = case.begin(tmp_path)
    shown, most = {}, 0
    step = min(25, epochs // 4)
    for until in range(step, epochs + 1, step):
        publish(job, step)
        assert job.manifest.head is not None
        shown[until] = job.manifest.head
        most = max(most, shown[until].contents.files)
        job.sink.maintain()
        assert_engines_see(case, tmp_path, reading_engines, keys_of(until))
    assert most < MAX_JOINED_FILES
    store = case.table_store(tmp_path)
    files = (stat.key for stat in store.list("_milepost/data/"))
    written = sum(pq.read_metadata(pa.BufferReader(store.get(key))).num_rows for key in files)
    assert written <= 4 * len(keys_of(epochs)), "a row is written when it comes, and few times more"
    assert keys_that_came(tmp_path / "table") == keys_of(epochs)
    for until in (step, epochs // 2, epochs, 3 * step):
        job.back_to(shown[until])
        assert_engines_see(case, tmp_path, reading_engines, keys_of(until))


@pytest.mark.long
@pytest.mark.parametrize("epochs", [40, pytest.param(100, marks=pytest.mark.deep)])
def test_many_epochs_are_few_files_in_iceberg_and_its_appends_have_every_row_once(
    epochs: int, tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    """Who follows appended rows passes over snapshots that replace files, and meets no other kind."""
    case = IcebergOnDisk()
    job = case.begin(tmp_path)
    publish(job, epochs // 2)
    before = job.manifest.head
    publish(job, epochs // 2)
    assert job.manifest.head is not None and job.manifest.head.contents.files < MAX_JOINED_FILES
    table = SqlCatalog("milepost", uri=case.catalog_uri(case.table_store(tmp_path))).load_table(TABLE)
    snapshots = [snapshot for snapshot in table.snapshots() if snapshot.summary is not None]
    operations = [snapshot.summary.operation for snapshot in snapshots if snapshot.summary is not None]
    assert set(operations) == {Operation.APPEND, Operation.REPLACE} and operations.count(Operation.APPEND) == epochs
    appended = sum(int(one.summary["added-records"]) for one in snapshots if one.summary is not None
                   and one.summary.operation is Operation.APPEND)  # fmt: skip
    assert appended == epochs * PER_EPOCH
    assert_engines_see(case, tmp_path, reading_engines, keys_of(epochs))
    job.back_to(before)
    assert_engines_see(case, tmp_path, reading_engines, keys_of(epochs // 2))


def assert_engines_see(case: SinkCase, root: Path, engines: ReadingEngines, keys: list[int]) -> None:
    tables = {}
    if isinstance(case, IcebergCase):
        others = SqlCatalog("milepost", uri=case.catalog_uri(case.table_store(root))).load_table(TABLE)
        tables["pyiceberg"] = others.scan().to_arrow()
        tables["duckdb"] = engines.read("duckdb", others.metadata_location, table_format="iceberg")
    else:
        tables = {engine: engines.read(engine, root / "table") for engine in ENGINES}
    for engine, found in tables.items():
        assert sorted(found.column("k").to_pylist()) == keys, engine
        assert pc.all(pc.equal(pc.cast(found.column("k"), pa.string()), found.column("v"))).as_py()


def keys_that_came(table: Path) -> list[int]:
    """The rows of all files that the log says are added with a change of data, as a stream reads them."""
    came, gone = list[int](), 0
    for commit in sorted((table / "_delta_log").glob("*[0-9].json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if action.get("add", {}).get("dataChange"):
                came += pq.read_table(table / unquote(action["add"]["path"])).column("k").to_pylist()
            gone += bool(action.get("remove", {}).get("dataChange"))
    assert gone == 0
    return sorted(came)
