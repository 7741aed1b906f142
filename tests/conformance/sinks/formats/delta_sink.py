"""A Delta table in the tests of sinks, on whatever store a subclass names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.formats.delta.delta_format import DeltaFormat
from milepost.sinks.formats.delta.locations import delta_location
from tests.conformance.sinks.contract.case import Pairs, SinkCase, pairs

WEEK_MS = 7 * 24 * 3_600_000


class DeltaCase(SinkCase):
    """Mixed into what a subclass tests."""

    format_name = "delta"

    def table_format(self, store: ObjectStore) -> DeltaFormat:
        return DeltaFormat("table", store, WEEK_MS, self.partition_by)


class ForeignDelta(DeltaCase):
    """With an external writer that creates the table and adds rows."""

    def make_foreign(self, root: Path, table: pa.Table) -> None:
        self._written(root, table, "error")

    def append_foreign(self, root: Path, table: pa.Table) -> None:
        self._written(root, table, "append")

    def engine_rows(self, root: Path) -> Pairs:
        location = delta_location("others", self.table_store(root).config)
        found = DeltaTable(location.uri, storage_options=location.options)
        return pairs(pa.table(found.to_pyarrow_table()))

    def _written(self, root: Path, table: pa.Table, mode: Literal["error", "append"]) -> None:
        location = delta_location("others", self.table_store(root).config)
        write_deltalake(location.uri, table, mode=mode, storage_options=location.options)
