"""Stage rows as table files, invisible until a commit names them, and read them back for the gate."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from milepost.errors import ProtocolViolation
from milepost.protocol.records import ObjectStore
from milepost.sinks.contract import SinkMode
from milepost.sinks.parquet_files.deletes import changelog_rows, table_columns, to_change_rows, without_deletes
from milepost.sinks.parquet_files.partitions import PartitionBy, PartitionFiles
from milepost.sinks.parquet_files.table_files import ReadOptions, TableFiles
from milepost.sinks.parquet_files.table_schema import changes_schema, rows_to_stage
from milepost.tables.records import (
    Committable,
    RowsPiece,
    StagedRows,
    StagingContext,
    check_staged_key,
    decode_schema,
    encode_schema,
)


class TableStaging:
    """Stages the rows of one table, and collects what was staged.

    Args:
        key: key columns of an upsert table, () for an upsert table of a single row; () for other modes.
        store: rooted at the table.
        op: operation of each row in a changelog. statistics: whether staged files carry column statistics.
        partition: the table's partitioning; None if it has none.
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

    def stage_pieces(self, pieces: Iterable[RowsPiece], context: StagingContext) -> StagedRows:
        """Write one file durably, named by its content, or one per partition. An upsert keeps the last row per key."""
        rows = rows_to_stage(self.name, pieces, self.key, upsert=self.mode is SinkMode.UPSERT)
        if self.mode is SinkMode.CHANGELOG:
            rows = (changelog_rows(table, self._op, context.checkpoint_id) for table in rows)
        rows = map(to_change_rows, rows)
        if self._partition is not None:
            files = PartitionFiles(self.name, self._files, self._partition).stage(rows, context)
            return StagedRows(sum(file.rows for file in files), files)
        file = self._files.stage(rows, context, str(context.subtask))
        return StagedRows() if file is None else StagedRows(file.rows, (file,))

    def committable(self, staged: Iterable[StagedRows], schema: pa.Schema) -> Committable:
        columns = table_columns(schema)
        columns = changes_schema(columns) if self.mode is SinkMode.CHANGELOG else columns
        return Committable(self.name, encode_schema(columns), tuple(staged))

    def staged_table(self, committable: Committable) -> pa.Table:
        """Return the rows that the epoch would publish, without deletes. Verifies checksums. Raises StateCorrupt."""
        return without_deletes(self._staged_changes(committable))

    def _staged_changes(self, committable: Committable) -> pa.Table:
        """Return the rows that the epoch would publish, with deletes."""
        self.check_committable(committable)
        reading = ReadOptions(decode_schema(committable.schema), verify=True, deletes=True)
        return self._files.rows(committable.files, reading)

    def check_committable(self, committable: Committable) -> None:
        """Refuse what another sink staged. Raises ProtocolViolation, StateCorrupt."""
        if committable.sink != self.name:
            raise ProtocolViolation(f"sink {self.name}: the committable belongs to sink {committable.sink}.")
        for file in committable.written:
            check_staged_key(file)
