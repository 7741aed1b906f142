"""An Iceberg table as of one read of its metadata, and compare-and-set commits against that metadata.

A commit is one request to the catalog, sent once. Its updates are the new snapshot, the refs `main` and ``milepost``,
and the table's properties. Its requirements are the table's UUID, the snapshot of `main`, the schema and the partition
spec. Compacted files get a snapshot of their own in the same request, right before that of the epoch's rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.utils.properties import property_as_bool

from milepost.errors import CheckpointError, ProtocolViolation
from milepost.protocol.records import ObjectStore, cached_property
from milepost.sinks.formats.iceberg.data_files import data_file, foreign_file
from milepost.sinks.formats.iceberg.manifests import ManifestReader, SnapshotFiles
from milepost.sinks.formats.iceberg.mark import (
    NUMBER,
    TAG,
    WRITE_ID,
    find_mark,
    history,
    operation,
    outdated_tags,
    owner_of,
    owner_properties,
    tag_of,
    unneeded_snapshots,
)
from milepost.sinks.formats.iceberg.refusals import (
    GC_ENABLED,
    foreign_deletes,
    refuse_metadata,
    with_properties,
)
from milepost.sinks.formats.iceberg.schemas import to_arrow, to_iceberg
from milepost.sinks.formats.iceberg.snapshot_summaries import operation_of, summary_of
from milepost.sinks.formats.refusals import Refusal, refuse_table
from milepost.sinks.table_format import ForeignCommit, TableMove
from milepost.tables.iceberg import CatalogConfig, key_below, translated_errors
from milepost.tables.records import StagedFile, TableOwner, is_same_owner

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableContext:
    """A table's sink, catalog and location.

    Attributes:
        sink: the sink's name, for messages.
        root: location of the table. store: rooted at it.
        partition_by: the partition columns that the spec states.
    """

    sink: str
    catalog: CatalogConfig
    root: str
    store: ObjectStore
    partition_by: tuple[str, ...]

    @property
    def name(self) -> str:
        """The sink and its table, for messages."""
        return f"sink {self.sink}: its table {self.catalog.table_name}"


class IcebergTable:
    """An open table; see `table_format.OpenTable`."""

    def __init__(self, table: Table, context: TableContext) -> None:
        self._table = table
        self._context = context
        self._reader = ManifestReader(table.io)
        metadata = table.metadata
        self._mark = find_mark(metadata)
        self.version = _version(metadata)
        snapshot = metadata.current_snapshot_id
        self.readers_version = None if snapshot is None else str(snapshot)
        self.table_id = str(metadata.table_uuid)
        self.owner = owner_of(metadata.properties)
        self.number = self._mark.number if self._mark is not None else 0
        self.write_id = self._mark.write_id if self._mark is not None else None
        self.schema: pa.Schema | None = to_arrow(metadata.schema())

    def check(self, schema: pa.Schema | None) -> None:
        manifests = self._reader.manifests(self._metadata.current_snapshot())
        refuse_metadata(
            self._context.sink,
            self._context.catalog.table_name,
            with_properties(self._metadata, self._claimed_properties()),
            manifests,
            self._context.partition_by,
        )
        if schema is not None:
            to_iceberg(self._context.sink, schema)

    def missing_properties(self, owner: TableOwner) -> Mapping[str, str]:
        return {} if is_same_owner(self.owner, owner) else owner_properties(owner) | self._claimed_properties()

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        number, write_id = mark if mark is not None else (self.number, self.write_id or uuid4().hex)
        move = TableMove(number, write_id, (), (), pa.schema([]))
        carried = {**properties, NUMBER: str(number), WRITE_ID: write_id}
        self._commit_move(move, carried, f"{self._context.name} did not change its owner")

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Accept all keys: rows of other writers are in files of their own."""

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        refusal = next(self._foreign_deletes(), None)
        return None if refusal is None else f"its table {refusal.reason}"

    def live_files(self) -> Mapping[str, int]:
        return {self._key(path): file.file_size_in_bytes for path, file in self._live.items()}

    def foreign_commits(self) -> tuple[ForeignCommit, ...]:
        mark = self._mark
        if mark is None:
            before, later = dict[str, DataFile](), tuple(reversed([*history(self._metadata)]))
        else:
            before, later = self._reader.files(mark.snapshot), mark.later
        if mark is not None and not mark.is_complete and later:
            return (self._foreign_commit(later[-1], "several commits, of which some are expired", before, False),)
        commits = []
        for snapshot in later:
            what = operation(snapshot)
            commits.append(self._foreign_commit(snapshot, what, before, what == Operation.REPLACE.value))
            before = self._reader.files(snapshot)
        return tuple(commits)

    def history(self) -> tuple[ForeignCommit, ...]:
        commits, before = [], dict[str, DataFile]()
        for number, snapshot in enumerate(reversed([*history(self._metadata)])):
            after = self._reader.files(snapshot)
            if number or (snapshot.sequence_number or 0) <= 1:  # otherwise its parent is expired, `before` unknown
                commits.append(self._foreign_commit(snapshot, operation(snapshot), before, False))
            before = after
        return tuple(commits)

    def widen(self, schema: pa.Schema) -> None:
        wider = to_iceberg(self._context.sink, schema)
        names = set(self._metadata.schema().column_names)
        base = self._metadata
        with translated_errors(self._context.catalog, f"{self._context.name} was not widened", may_land=True):
            with self._table.transaction() as transaction, transaction.update_schema() as update:
                for field in wider.fields:
                    if field.name not in names:
                        update.add_column((field.name,), field.field_type)
        self._drop_old_metadata(base, self._metadata)

    def commit(self, move: TableMove) -> None:
        properties = {NUMBER: str(move.number), WRITE_ID: move.write_id}
        self._commit_move(move, properties, f"{self._context.name} did not confirm move {move.number}")

    def _commit_move(self, move: TableMove, properties: Mapping[str, str], failure: str) -> None:
        snapshots = self._snapshots(move)
        newest = snapshots[-1]
        self._commit(
            (
                self._main_is_unmoved(),
                AssertCurrentSchemaId.model_validate({"current-schema-id": self._metadata.current_schema_id}),
                AssertDefaultSpecId.model_validate({"default-spec-id": self._metadata.default_spec_id}),
            ),
            (
                *(AddSnapshotUpdate(snapshot=snapshot) for snapshot in snapshots),
                _set_ref(MAIN_BRANCH, SnapshotRefType.BRANCH, newest),
                _set_ref(TAG, SnapshotRefType.TAG, newest),
                *self._checkpoint_tags(move, newest),
                SetPropertiesUpdate(updates=dict(properties)),
            ),
            failure,
        )

    def expire(self, before_ms: int, *, at_most: int, at_least: int) -> None:
        """Remove the job's old snapshots from the metadata, unless a branch or tag refers to them.

        This is a commit, and it reads the manifest lists of all remaining snapshots to find manifests that are still
        needed. So it waits until the old snapshots are a quarter of the remaining ones. Data files are never deleted.

        Args:
            before_ms: UTC; older snapshots are removed.
            at_most: number of newer snapshots to retain.
            at_least: do nothing for fewer snapshots.
        """
        old = unneeded_snapshots(self._metadata, before_ms, at_most)
        if len(old) < max(at_least, (len(self._metadata.snapshots) - len(old)) // 4):
            return
        landed = self._commit(
            (self._main_is_unmoved(),),
            (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [snapshot.snapshot_id for snapshot in old]}),),
            f"{self._context.name} did not expire its old snapshots",
        )
        self._delete(self._reader.locations(old) - self._reader.locations(landed.snapshots))

    # -- parts of a commit --------------------------------------------------------------------------------------

    def _snapshots(self, move: TableMove) -> list[Snapshot]:
        """Return the snapshots of a move, oldest first: compacted files first, then the changed rows.

        A streaming reader of an append table skips a `replace` snapshot and fails on an `overwrite`. So a compaction
        must not share a snapshot with new rows.

            removed a b, added j (the rows of a and b) and k (new rows)
            ->  replace: -a -b +j,  append: +k
        """
        self._check_move(move)
        same = move.same_rows
        compacted, inputs = ([file for file in files if file.key in same] for files in (move.added, move.removed))
        added, removed = ([file for file in files if file.key not in same] for files in (move.added, move.removed))
        parts = [(operation_of(added, removed), added, removed)] if added or removed or not same else []
        if same:
            parts.insert(0, (Operation.REPLACE, compacted, inputs))
        snapshots: list[Snapshot] = []
        for what, added, removed in parts:
            snapshots.append(self._snapshot(move, what, snapshots[-1] if snapshots else None, added, removed))
        return snapshots

    def _foreign_deletes(self) -> Iterator[Refusal]:
        manifests = self._reader.manifests(self._metadata.current_snapshot())
        return foreign_deletes(self._context.catalog.table_name, manifests)

    def _check_move(self, move: TableMove) -> None:
        refuse_table(self._context.sink, self._context.catalog.table_name, self._foreign_deletes())
        live = {self._key(path) for path in self._live}
        duplicates = [file.key for file in move.added if file.key in live]
        missing = [file.key for file in move.removed if file.key not in live]
        if duplicates or missing:
            key, what = (duplicates[0], "is already live") if duplicates else (missing[0], "is not live")
            raise ProtocolViolation(
                f"{self._context.name} differs from what move {move.number} expects: {key} {what}. Nothing was "
                "published.",
                key=key,
            )

    def _snapshot(
        self,
        move: TableMove,
        what: Operation,
        earlier: Snapshot | None,
        added: Sequence[StagedFile],
        removed: Sequence[StagedFile],
    ) -> Snapshot:
        """Write a snapshot's manifests, and return the snapshot.

        Args:
            earlier: the preceding snapshot of the same commit; None if the new one follows the current snapshot.
        """
        schema, spec = self._metadata.schema(), self._metadata.spec()
        added_files = [data_file(self._context.root, file, schema, spec) for file in added]
        parent = earlier or self._metadata.current_snapshot()
        before = self._reader.files(parent)
        keys = {file.key for file in removed}
        removed_files = {path: file for path, file in before.items() if self._key(path) in keys}
        sequence_number = self._metadata.next_sequence_number()
        if earlier is not None and self._metadata.format_version > 1:
            sequence_number += 1
        snapshot_id = self._metadata.new_snapshot_id()
        files = SnapshotFiles(self._table, self._reader, snapshot_id, write=uuid4())
        after = [*(file for path, file in before.items() if path not in removed_files), *added_files]
        return Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent is not None else None,
                "sequence-number": sequence_number,
                "timestamp-ms": max(time.time_ns() // 1_000_000, self._metadata.last_updated_ms),
                "manifest-list": files.write_list(parent, added_files, frozenset(removed_files), sequence_number),
                "summary": summary_of(move, what, added_files, list(removed_files.values()), after),
                "schema-id": self._metadata.current_schema_id,
            }
        )

    def _main_is_unmoved(self) -> TableRequirement:
        current = self._metadata.current_snapshot()
        return AssertRefSnapshotId.model_validate(
            {"ref": MAIN_BRANCH, "snapshot-id": current.snapshot_id if current is not None else None}
        )

    def _commit(
        self, required: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...], failure: str
    ) -> TableMetadata:
        """Send one request, without retries, and return the metadata that landed."""
        base = self._metadata
        required = (AssertTableUUID(uuid=base.table_uuid), *required)
        with translated_errors(self._context.catalog, failure, may_land=True):
            landed = self._table.catalog.commit_table(self._table, required, updates)
        self._drop_old_metadata(base, landed.metadata)
        return landed.metadata

    def _drop_old_metadata(self, base: TableMetadata, landed: TableMetadata) -> None:
        """Delete metadata files that a landed commit removed from the table's log."""
        if not property_as_bool(landed.properties, TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED, False):
            return
        listed = {entry.metadata_file for entry in landed.metadata_log}
        self._delete({entry.metadata_file for entry in base.metadata_log} - listed)

    def _delete(self, locations: Collection[str]) -> None:
        """Delete unreferenced files of the table's log. A file that cannot be deleted is only garbage."""
        try:
            self._context.store.delete(key for key in sorted(map(self._key, locations)) if "://" not in key)
        except CheckpointError as error:
            _log.warning("%s: old files of its log were not deleted: %s", self._context.name, error)

    def _checkpoint_tags(self, move: TableMove, snapshot: Snapshot) -> Iterator[TableUpdate]:
        """Yield the updates that tag the move's checkpoint and remove the tags of checkpoints no longer retained."""
        if move.retained is None:
            return
        retained = move.retained | {move.checkpoint_id}
        for tag in outdated_tags(self._metadata.refs, retained):
            yield RemoveSnapshotRefUpdate.model_validate({"ref-name": tag})
        if move.checkpoint_id:
            yield _set_ref(tag_of(move.checkpoint_id), SnapshotRefType.TAG, snapshot)

    def _claimed_properties(self) -> dict[str, str]:
        """Return the properties to set along with the owner on an unowned table: `gc.enabled` and a name mapping.

        The mapping applies to files without field ids. The table has no such files before it has a mapping.
        """
        if self.owner is not None:
            return {}
        names = create_mapping_from_schema(self._metadata.schema()).model_dump_json()
        mapped = {TableProperties.DEFAULT_NAME_MAPPING: names} if self._metadata.name_mapping() is None else {}
        return {GC_ENABLED: "false", **mapped}

    # -- the table ----------------------------------------------------------------------------------------------

    @property
    def _metadata(self) -> TableMetadata:
        return self._table.metadata

    @cached_property
    def _live(self) -> Mapping[str, DataFile]:
        return self._reader.files(self._metadata.current_snapshot())

    def _key(self, location: str) -> str:
        return key_below(self._context.root, location)

    def _foreign_commit(
        self, snapshot: Snapshot, what: str, before: Mapping[str, DataFile], keeps_rows: bool
    ) -> ForeignCommit:
        after = self._reader.files(snapshot)
        added: tuple[StagedFile, ...] = tuple(
            foreign_file(self._context.root, file, self._metadata.schema(), self._metadata.specs()[file.spec_id])
            for path, file in after.items()
            if path not in before
        )
        removed = frozenset(self._key(path) for path in before if path not in after)
        return ForeignCommit(snapshot.snapshot_id, what, removed, added, keeps_rows)


def _version(metadata: TableMetadata) -> int:
    """Return one number for everything that a commit requires: the current snapshot, schema id and spec id."""
    return (metadata.current_snapshot_id or 0) << 64 | metadata.current_schema_id << 32 | metadata.default_spec_id


def _set_ref(ref: str, kind: SnapshotRefType, snapshot: Snapshot) -> TableUpdate:
    """Return the update that makes a branch or tag point to the snapshot."""
    return SetSnapshotRefUpdate.model_validate({"ref-name": ref, "type": kind, "snapshot-id": snapshot.snapshot_id})
