"""A table in Iceberg keeps the sinks' contract on a local store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.sinks.contract import SinkMode
from milepost_testkit.formats.iceberg_writers import compact
from milepost_testkit.readers.reading_engines import ReadingEngines
from tests.conformance.sinks.contract.case import Pairs, pairs
from tests.conformance.sinks.contract.deletes import SinkDeleteTests
from tests.conformance.sinks.contract.faults import SinkDeleteFaultTests, SinkFaultTests
from tests.conformance.sinks.contract.foreign import SinkForeignTests
from tests.conformance.sinks.contract.sink import SinkTests
from tests.conformance.sinks.contract.small_files import SmallFilesTests
from tests.conformance.sinks.contract.strangers import SinkStrangerTests
from tests.conformance.sinks.contract.timelines import SinkTimelineTests
from tests.conformance.sinks.formats.iceberg_sink import IcebergCase

pytestmark = pytest.mark.long


class LocalCase(IcebergCase):
    mode = SinkMode.APPEND

    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / f"a {part}"))


class TestAppend(LocalCase, SmallFilesTests, SinkStrangerTests, SinkTimelineTests, SinkTests):
    pass


class TestFaults(LocalCase, SinkFaultTests):
    every_call = False


@pytest.mark.deep
class TestUpsert(LocalCase, SinkTimelineTests, SinkTests):
    mode = SinkMode.UPSERT


class TestUpsertFaults(LocalCase, SinkDeleteFaultTests, SinkFaultTests):
    mode = SinkMode.UPSERT
    every_call = False


class TestDeletes(LocalCase, SinkDeleteTests):
    """DuckDB reads the table."""

    mode = SinkMode.UPSERT

    @pytest.fixture(autouse=True)
    def _read_by(self, reading_engines: ReadingEngines) -> None:
        self.engines = reading_engines

    def seen(self, root: Path) -> Pairs:
        newest = self.loaded(root).metadata_location
        return pairs(self.engines.read("duckdb", newest, table_format="iceberg"))


class TestForeign(LocalCase, SinkForeignTests):
    """Others write by the library itself, as another client of the catalog."""

    def append_foreign(self, root: Path, table: pa.Table) -> None:
        self.loaded(root).append(table)

    def compact_foreign(self, root: Path) -> None:
        compact(self.loaded(root))

    def delete_foreign(self, root: Path, key: int) -> None:
        self.loaded(root).delete(f"k = {key}")

    def undo_foreign(self, root: Path) -> None:
        table = self.loaded(root)
        newest = table.current_snapshot()
        assert newest is not None and newest.parent_snapshot_id is not None
        with table.manage_snapshots() as snapshots:
            snapshots.rollback_to_snapshot(newest.parent_snapshot_id)

    def engine_rows(self, root: Path) -> Pairs:
        return pairs(self.loaded(root).scan().to_arrow())
