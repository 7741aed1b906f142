"""Build snapshot summaries: the operation, the counts of files and rows, and the mark."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation, Summary

from milepost.sinks.formats.iceberg.mark import NUMBER, WRITE_ID
from milepost.sinks.table_format import TableMove
from milepost.tables.records import StagedFile


def operation_of(added: Sequence[StagedFile], removed: Sequence[StagedFile]) -> Operation:
    """Return a snapshot's operation, as Iceberg names it."""
    if not removed:
        return Operation.APPEND
    return Operation.OVERWRITE if added else Operation.DELETE


def summary_of(
    move: TableMove, operation: Operation, added: list[DataFile], removed: list[DataFile], after: list[DataFile]
) -> Summary:
    """Return the summary of a snapshot. Totals are counted from `after`, not added to the parent's totals."""
    counts = {**_counts(added, "added-data-files", "added-records", "added-files-size")}
    counts |= _counts(removed, "deleted-data-files", "deleted-records", "removed-files-size")
    counts = {name: count for name, count in counts.items() if count}
    counts |= _counts(after, "total-data-files", "total-records", "total-files-size")
    mark = {NUMBER: str(move.number), WRITE_ID: move.write_id}
    return Summary(operation, **{name: str(count) for name, count in counts.items()}, **mark)


def _counts(files: list[DataFile], number: str, rows: str, size: str) -> dict[str, int]:
    return {
        number: len(files),
        rows: sum(file.record_count for file in files),
        size: sum(file.file_size_in_bytes for file in files),
    }
