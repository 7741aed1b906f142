"""The data files of tables that an epoch reads where they are (L6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from milepost.errors import SourceChanged
from milepost.protocol.landed import StoredRecord, is_reference
from milepost.protocol.records import CheckpointFailureReason, StoreConfig, split_uri
from milepost.sources.kernel.file_columns import FileColumns

LOST_FILE_HINT = (
    "restore the file from a copy, in a folder with its time (cp -p), then run again. If it is lost, void its record "
    "(milepost land JOB --source SOURCE --void-from RECORD). For rows to come, `land: {by: copy}` needs no files of "
    "the table; or lengthen the table's retention"
)
"""What to do about a data file that a table has deleted."""


_DELETES = {
    "delta": "as VACUUM deletes what OPTIMIZE, DELETE or UPDATE removed from a Delta table",
    "iceberg": "as expire_snapshots deletes what a rewrite or a delete removed from an Iceberg table",
}
"""Which operation of a table deletes files, by its format."""


@dataclass(frozen=True, slots=True)
class ReferencedFiles:
    """Data files of tables, which the records of a log refer to. Picklable.

    Attributes:
        columns: how each file has the declared columns, by URI.
        stores: how the stores of the files are reached, by root URL.
        format: of the table.
    """

    columns: Mapping[str, FileColumns] = field(default_factory=dict)
    stores: Mapping[str, StoreConfig] = field(default_factory=dict)
    format: str = ""

    def among(self, keys: Iterable[str]) -> ReferencedFiles:
        """Return those of some planned objects."""
        columns = {key: self.columns[key] for key in keys if is_reference(key)}
        return ReferencedFiles(columns, {root: self.stores[root] for root in _roots(columns)}, self.format)


def referenced_files(
    records: Iterable[StoredRecord], store_config: Callable[[str], StoreConfig], format_: str
) -> ReferencedFiles:
    """Return the files that records refer to.

    Args:
        format_: of the table.
        store_config: returns how a root URL is reached.
    """
    columns = {
        file.uri: FileColumns(stored.record.layouts[file.layout], file.values)
        for stored in records
        for file in stored.record.references
    }
    return ReferencedFiles(columns, {root: store_config(root) for root in _roots(columns)}, format_)


def lost_file_error(
    job: str, source: str, record: int, uri: str, format_: str, reason: CheckpointFailureReason
) -> SourceChanged:
    """Return the error for a data file that a table no longer has as it was landed.

    Args:
        record: the first record that refers to it.
    """
    hint = LOST_FILE_HINT.replace("JOB --source SOURCE", f"{job} --source {source}").replace("RECORD", str(record))
    return SourceChanged(
        f"source {source}: {lost_file_problem(uri, format_, reason)}. Record {record} of the log has it. Nothing was "
        "changed.",
        hint=hint,
        source=source,
        uri=uri,
    )


def _roots(uris: Iterable[str]) -> list[str]:
    return sorted({split_uri(uri)[0] for uri in uris})


def lost_file_problem(uri: str, format_: str, reason: CheckpointFailureReason) -> str:
    """Return one clause that says what happened to a data file of a table of some format."""
    what = f"data file {uri}, which its log refers to (land: {{by: reference}}),"
    if reason is CheckpointFailureReason.SOURCE_OBJECT_MISSING:
        return f"{what} was deleted, {_DELETES[format_]}"
    return f"{what} was replaced by another version after it was landed"
