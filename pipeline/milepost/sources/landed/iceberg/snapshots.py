"""The snapshots of a branch, and the data files of each.

The manifests of a snapshot list the files that it added. The library's incremental scan is not used: it silently
returns rows that were deleted within the range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile as ManifestedFile
from pyiceberg.manifest import FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import IdentityTransform

from milepost.language import ColumnType, to_arrow
from milepost.protocol.records import ObjectStore
from milepost.sources.landed.tables.column_types import check_declared
from milepost.sources.landed.tables.data_files import DataFile, FieldNames
from milepost.sources.landed.tables.table_failures import TableFailures
from milepost.tables.iceberg import ReaderFileIO, UnsupportedType, arrow_type

_VERSION = 2
"""The only supported format version: 1 has no sequence numbers, and 3 has deletion vectors."""

_MAIN = "main"


@dataclass(frozen=True, slots=True)
class Snapshots:
    """One state of a table.

    Attributes:
        io: reads the table's files. types: the declared columns.
    """

    failures: TableFailures
    io: ReaderFileIO
    metadata: TableMetadata
    types: Mapping[str, ColumnType]
    branch: str

    def check(self) -> None:
        """Check that the table can be read as declared. Raises InvalidRequest."""
        version = self.metadata.format_version
        if version != _VERSION:
            raise self.failures.invalid(
                f"has format version {version}, which cannot be read",
                f"ALTER TABLE … SET TBLPROPERTIES ('format-version' = '{_VERSION}')"
                if version < _VERSION
                else f"read a table of format version {_VERSION}",
            )
        check_declared(self.failures, self.types, {field.name: _type(field) for field in self.metadata.schema().fields})

    def head(self) -> Snapshot | None:
        """Return the newest snapshot of the branch; None if the table has none. Raises InvalidRequest: no branch."""
        ref = self.metadata.refs.get(self.branch)
        if ref is not None:
            return self.metadata.snapshot_by_id(ref.snapshot_id)
        if self.branch == _MAIN:
            return self.metadata.current_snapshot()
        raise self.failures.invalid(
            f"has no branch {self.branch}; it has {', '.join(sorted(self.metadata.refs)) or 'none'}", "correct `branch`"
        )

    def count_files(self) -> int | None:
        """Return how many data files the branch has; None: its snapshot does not say."""
        head = self.head()
        if head is None:
            return 0
        stated = None if head.summary is None else head.summary["total-data-files"]
        return int(stated) if stated and stated.isdecimal() else None

    def chain(self) -> list[Snapshot]:
        """Return the snapshots of the branch from the oldest that is not expired to its head."""
        chain: list[Snapshot] = []
        snapshot = self.head()
        while snapshot is not None:
            chain.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.metadata.snapshot_by_id(parent)
        return chain[::-1]

    def appended(self, snapshot: Snapshot) -> list[DataFile]:
        """Return the files that a snapshot appended, in its order. Raises InvalidRequest: it did something else."""
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation is Operation.REPLACE:
            return []
        entries = [entry for manifest in self._own_manifests(snapshot) for entry in self._entries(manifest)]
        own = [entry for entry in entries if entry.snapshot_id == snapshot.snapshot_id]
        if operation is not Operation.APPEND or any(entry.status == ManifestEntryStatus.DELETED for entry in own):
            stated = "no operation" if operation is None else operation.value
            raise self.failures.refused(
                f"deleted or overwrote rows in snapshot {snapshot.snapshot_id} ({stated}), and a landed log is only "
                "appended to"
            )
        return self._files(entry for entry in own if entry.status == ManifestEntryStatus.ADDED)

    def all(self, snapshot: Snapshot) -> list[DataFile]:
        """Return the files of the table as of a snapshot, the oldest first. Raises InvalidRequest."""
        entries: list[ManifestEntry] = []
        for manifest in snapshot.manifests(self.io):
            live = [each for each in self._entries(manifest) if each.status != ManifestEntryStatus.DELETED]
            if live and manifest.content == ManifestContent.DELETES:
                raise self.failures.refused(
                    f"has delete files in snapshot {snapshot.snapshot_id}, which remove rows of its data files",
                    "apply them (CALL CATALOG.system.rewrite_data_files with 'delete-file-threshold'='1'), or begin "
                    "with `start: latest`",
                )
            entries += live
        entries.sort(key=lambda entry: (entry.sequence_number or 0, entry.data_file.file_path))
        return self._files(entries)

    def _own_manifests(self, snapshot: Snapshot) -> Iterator[ManifestFile]:
        """Yield the manifests that a snapshot wrote. Raises InvalidRequest: one is of delete files."""
        for manifest in snapshot.manifests(self.io):
            if manifest.added_snapshot_id not in (None, snapshot.snapshot_id):
                continue
            if manifest.content == ManifestContent.DELETES:
                raise self.failures.refused(
                    f"deleted rows in snapshot {snapshot.snapshot_id} (delete files), and a landed log is only "
                    "appended to"
                )
            yield manifest

    def _entries(self, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        return manifest.fetch_manifest_entry(self.io, discard_deleted=False)

    def _files(self, entries: Iterator[ManifestEntry] | Sequence[ManifestEntry]) -> list[DataFile]:
        columns = self._columns()
        return [self._file(entry.data_file, columns) for entry in entries]

    def _columns(self) -> dict[str, FieldNames]:
        mapping = self.metadata.name_mapping()
        names = {entry.field_id: tuple(entry.names) for entry in mapping or ()}
        ids = {name: self.metadata.schema().find_field(name).field_id for name in self.types}
        return {name: FieldNames(field_id, names.get(field_id, ())) for name, field_id in ids.items()}

    def _file(self, file: ManifestedFile, columns: Mapping[str, FieldNames]) -> DataFile:
        if file.file_format != FileFormat.PARQUET or file.key_metadata:
            what = "an encrypted data file" if file.key_metadata else f"a data file in {file.file_format}"
            raise self.failures.refused(f"has {what}, which Milepost cannot read", "rewrite it as plain Parquet")
        stored = self.io.new_input(file.file_path)
        store: ObjectStore = stored.store
        return DataFile(store, stored.key, file.file_size_in_bytes, self._constants(file, columns), columns)

    def _constants(self, file: ManifestedFile, columns: Mapping[str, FieldNames]) -> dict[str, Any]:
        """Return the values of identity partition columns, which imported files may lack."""
        spec = self.metadata.specs().get(file.spec_id)
        by_id = {column.field_id: name for name, column in columns.items()}
        return {
            by_id[field.source_id]: _value(file.partition[position], to_arrow(self.types[by_id[field.source_id]]))
            for position, field in enumerate(() if spec is None else spec.fields)
            if isinstance(field.transform, IdentityTransform) and field.source_id in by_id
        }


def _type(field: Any) -> pa.DataType | str:
    try:
        return arrow_type(field.field_type)
    except UnsupportedType:
        return str(field.field_type)


def _value(stored: Any, declared: pa.DataType) -> Any:
    """Return a partition value. Manifests have dates as days and timestamps as microseconds since 1970."""
    if isinstance(stored, int) and pa.types.is_date32(declared):
        return pa.scalar(stored, pa.int32()).cast(declared).as_py()
    if isinstance(stored, int) and pa.types.is_timestamp(declared):
        return pa.scalar(stored, pa.int64()).cast(declared).as_py()
    return stored
