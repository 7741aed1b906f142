"""Rows are staged as files of a table, which nobody sees before a commit names them; the gate reads them back."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from milepost.errors import ProtocolViolation
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.contract import SinkMode
from milepost.sinks.files.deletes import changelog_rows, rows_that_stay, stageable, table_columns
from milepost.sinks.files.partitions import PartitionBy, PartitionFiles
from milepost.sinks.files.table_files import Reading, TableFiles
from milepost.sinks.files.table_schema import changes_schema, rows_to_stage
from milepost.sinks.records.committables import (
    Committable,
    RowsPiece,
    StagedRows,
    decode_schema,
    encode_schema,
)
from milepost.sinks.records.staging_place import StagingPlace
from milepost.sinks.records.table_keys import check_staged_key


class TableStaging:
    """What tasks stage for one table, and what an epoch makes of it.

    Args:
        key: key columns of an upsert table, () of one that has one row; () for others. store: rooted at the table.
        op: what each row is to a changelog. statistics: whether a staged file says those of its columns.
        partition: by what the table is partitioned; None: by nothing.
    """

    def __init__(
        self,
        name: str,
        *,
        mode: SinkMode,
        key: tuple[str, ...],
        store: ObjectStore,
        op: str = "insert",
        statistics: bool = False,
        partition: PartitionBy | None = None,
    ) -> None:
        self.name = name
        self.mode = mode
        self.key = key
        self._op = op
        self._partition = partition
        self._files = TableFiles(name, store, statistics=statistics)

    def stage_pieces(self, pieces: Iterable[RowsPiece], place: StagingPlace) -> StagedRows:
        """Write one file durably, named by its content; of an upsert table's key its last row. Of a partitioned table
        a file for each partition."""
        rows = rows_to_stage(self.name, pieces, self.key, upsert=self.mode is SinkMode.UPSERT)
        if self.mode is SinkMode.CHANGELOG:
            rows = (changelog_rows(one, self._op, place.checkpoint_id) for one in rows)
        rows = map(stageable, rows)
        if self._partition is not None:
            parted = PartitionFiles(self.name, self._files, self._partition)
            files = parted.stage(rows, place)
            return StagedRows(sum(file.rows for file in files), files)
        file = self._files.stage(rows, place, str(place.subtask))
        return StagedRows() if file is None else StagedRows(file.rows, (file,))

    def committable(self, staged: Iterable[StagedRows], schema: pa.Schema) -> Committable:
        columns = table_columns(schema)
        columns = changes_schema(columns) if self.mode is SinkMode.CHANGELOG else columns
        return Committable(self.name, encode_schema(columns), tuple(staged))

    def staged_table(self, committable: Committable) -> pa.Table:
        """Return the rows this epoch would publish, checksums verified; no deletes. Raises StateCorrupt."""
        return rows_that_stay(self._staged_changes(committable))

    def _staged_changes(self, committable: Committable) -> pa.Table:
        """Return the same with deletes."""
        self.check_committable(committable)
        reading = Reading(decode_schema(committable.schema), verify=True, deletes=True)
        return self._files.rows(committable.files, reading)

    def check_committable(self, committable: Committable) -> None:
        """Refuse what another sink staged. Raises ProtocolViolation, StateCorrupt."""
        if committable.sink != self.name:
            raise ProtocolViolation(f"sink {self.name}: was given what sink {committable.sink} staged.")
        for file in committable.written:
            check_staged_key(file)
