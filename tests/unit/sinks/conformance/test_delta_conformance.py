"""A Delta table keeps the sinks' contract on a local store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.sinks.contract import SinkMode
from milepost_testkit.readers.reading_engines import ReadingEngines
from tests.conformance.sinks.contract.case import Pairs, pairs
from tests.conformance.sinks.contract.deletes import SinkDeleteTests
from tests.conformance.sinks.contract.faults import SinkDeleteFaultTests, SinkFaultTests
from tests.conformance.sinks.contract.foreign import SinkForeignTests
from tests.conformance.sinks.contract.sink import SinkTests
from tests.conformance.sinks.contract.small_files import SmallFilesTests
from tests.conformance.sinks.contract.strangers import SinkStrangerTests
from tests.conformance.sinks.contract.timelines import SinkTimelineTests
from tests.conformance.sinks.formats.delta_sink import DeltaCase

pytestmark = pytest.mark.long


class LocalCase(DeltaCase):
    mode = SinkMode.APPEND

    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / f"a {part}"))


class TestAppend(LocalCase, SmallFilesTests, SinkStrangerTests, SinkTimelineTests, SinkTests):
    pass


@pytest.mark.deep
class TestUpsert(LocalCase, SinkStrangerTests, SinkTimelineTests, SinkTests):
    mode = SinkMode.UPSERT


class TestFaults(LocalCase, SinkFaultTests):
    every_call = False


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
        return pairs(self.engines.read("duckdb", root / "a table"))


class TestForeign(LocalCase, SinkForeignTests):
    """Others write by the library itself."""

    def append_foreign(self, root: Path, table: pa.Table) -> None:
        write_deltalake(self._uri(root), table, mode="append")

    def compact_foreign(self, root: Path) -> None:
        DeltaTable(self._uri(root)).optimize.compact()

    def delete_foreign(self, root: Path, key: int) -> None:
        DeltaTable(self._uri(root)).delete(f"k = {key}")

    def undo_foreign(self, root: Path) -> None:
        table = DeltaTable(self._uri(root))
        table.restore(table.version() - 1)

    def engine_rows(self, root: Path) -> Pairs:
        return pairs(pa.table(DeltaTable(self._uri(root)).to_pyarrow_table()))

    def _uri(self, root: Path) -> str:
        return str(root / "a table")
