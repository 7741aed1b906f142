"""Summaries say what a snapshot is: its operation, what it adds and removes, and whose move it is."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation, Summary

from milepost.sinks.formats.iceberg.mark import NUMBER, WRITE_ID
from milepost.sinks.records.committables import StagedFile
from milepost.sinks.table_format import TableMove


def operation_of(added: Sequence[StagedFile], removed: Sequence[StagedFile]) -> Operation:
    """Return what a snapshot does to the table's rows, in the words of the format."""
    if not removed:
        return Operation.APPEND
    return Operation.OVERWRITE if added else Operation.DELETE


def summary_of(
    move: TableMove, what: Operation, added: list[DataFile], gone: list[DataFile], after: list[DataFile]
) -> Summary:
    """Return what engines and people are told of a snapshot; totals are counted, not carried on."""
    counts = {**_counts(added, "added-data-files", "added-records", "added-files-size")}
    counts |= _counts(gone, "deleted-data-files", "deleted-records", "removed-files-size")
    counts = {name: count for name, count in counts.items() if count}
    counts |= _counts(after, "total-data-files", "total-records", "total-files-size")
    mark = {NUMBER: str(move.number), WRITE_ID: move.write_id}
    return Summary(what, **{name: str(count) for name, count in counts.items()}, **mark)


def _counts(files: list[DataFile], number: str, rows: str, size: str) -> dict[str, int]:
    return {
        number: len(files),
        rows: sum(file.record_count for file in files),
        size: sum(file.file_size_in_bytes for file in files),
    }
