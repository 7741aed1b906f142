"""A table in Iceberg as one look at its metadata shows it, and commits that compare with just that.

A commit is one request to the catalog: the new snapshot, where `main` and our tag point to, and the table's properties,
with what must still be so: the table's identity, the snapshot that `main` points to, and the columns. It is sent once.
Files of ours that were joined are a snapshot of their own in the same request, right before that of the epoch's rows.
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
from milepost.protocol.records.cached_property import cached_property
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.formats.iceberg.catalog_errors import catalog_errors
from milepost.sinks.formats.iceberg.catalogs import CatalogConfig
from milepost.sinks.formats.iceberg.data_files import data_file, found_file
from milepost.sinks.formats.iceberg.locations import key_below
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
    deletes_of_others,
    refusal,
    refuse_table,
    with_properties,
)
from milepost.sinks.formats.iceberg.schemas import to_arrow, to_iceberg
from milepost.sinks.formats.iceberg.snapshot_summaries import operation_of, summary_of
from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.reservation import TableOwner, is_same
from milepost.sinks.table_format import ForeignCommit, TableMove

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is.

    Attributes:
        sink: whose it is, for messages. catalog: that the table is in. root: its location. store: rooted at it.
        partition_by: the columns by which the sink wants it partitioned.
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

    def __init__(self, table: Table, place: TablePlace) -> None:
        self._table = table
        self._place = place
        self._reader = ManifestReader(table.io)
        metadata = table.metadata
        self._mark = find_mark(metadata)
        self.version = _compared(metadata)
        snapshot = metadata.current_snapshot_id
        self.readers_version = None if snapshot is None else str(snapshot)
        self.table_id = str(metadata.table_uuid)
        self.owner = owner_of(metadata.properties)
        self.number = self._mark.number if self._mark is not None else 0
        self.write_id = self._mark.write_id if self._mark is not None else None
        self.schema: pa.Schema | None = to_arrow(metadata.schema())

    def check(self, schema: pa.Schema | None) -> None:
        manifests = self._reader.of(self._metadata.current_snapshot())
        refuse_table(
            self._place.sink,
            self._place.catalog.table_name,
            with_properties(self._metadata, self._claimed_properties()),
            manifests,
            self._place.partition_by,
        )
        if schema is not None:
            to_iceberg(self._place.sink, schema)

    def lacks(self, owner: TableOwner) -> Mapping[str, str]:
        return {} if is_same(self.owner, owner) else owner_properties(owner) | self._claimed_properties()

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        number, write_id = mark if mark is not None else (self.number, self.write_id or uuid4().hex)
        move = TableMove(number, write_id, (), (), pa.schema([]))
        carried = {**properties, NUMBER: str(number), WRITE_ID: write_id}
        self._commit_move(move, carried, f"{self._place.name} did not change its owner")

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Nothing: rows of others lie in files of their own."""

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        found = self._deletes_of_others()
        return None if found is None else f"its table {found[0]}"

    def live(self) -> Mapping[str, int]:
        return {self._key(path): file.file_size_in_bytes for path, file in self._live.items()}

    def foreign(self) -> tuple[ForeignCommit, ...]:
        mark = self._mark
        if mark is None:
            before, since = dict[str, DataFile](), tuple(reversed([*history(self._metadata)]))
        else:
            before, since = self._reader.files(mark.snapshot), mark.since
        if mark is not None and not mark.is_unbroken and since:
            return (self._foreign_commit(since[-1], "several commits, of which some are expired", before, False),)
        found = []
        for snapshot in since:
            what = operation(snapshot)
            found.append(self._foreign_commit(snapshot, what, before, what == Operation.REPLACE.value))
            before = self._reader.files(snapshot)
        return tuple(found)

    def history(self) -> tuple[ForeignCommit, ...]:
        found, before = [], dict[str, DataFile]()
        for number, snapshot in enumerate(reversed([*history(self._metadata)])):
            after = self._reader.files(snapshot)
            if number or (snapshot.sequence_number or 0) <= 1:  # else it follows one that is expired
                found.append(self._foreign_commit(snapshot, operation(snapshot), before, False))
            before = after
        return tuple(found)

    def widen(self, schema: pa.Schema) -> None:
        wider = to_iceberg(self._place.sink, schema)
        names = set(self._metadata.schema().column_names)
        base = self._metadata
        with catalog_errors(self._place.catalog, f"{self._place.name} was not widened", may_land=True):
            with self._table.transaction() as transaction, transaction.update_schema() as update:
                for field in wider.fields:
                    if field.name not in names:
                        update.add_column((field.name,), field.field_type)
        self._drop_old_metadata(base, self._metadata)

    def commit(self, move: TableMove) -> None:
        properties = {NUMBER: str(move.number), WRITE_ID: move.write_id}
        self._commit_move(move, properties, f"{self._place.name} did not confirm move {move.number}")

    def _commit_move(self, move: TableMove, properties: Mapping[str, str], doing: str) -> None:
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
                _points(MAIN_BRANCH, SnapshotRefType.BRANCH, newest),
                _points(TAG, SnapshotRefType.TAG, newest),
                *self._checkpoint_tags(move, newest),
                SetPropertiesUpdate(updates=dict(properties)),
            ),
            doing,
        )

    def expire(self, before_ms: int, *, at_most: int, at_least: int) -> None:
        """Take old snapshots of ours out of the table's metadata, unless a branch or tag needs them.

        It is a commit, and what else needs a manifest of theirs is found by reading the lists of all snapshots that
        stay: so it waits until they are a quarter of those. Data files are never touched.

        Args:
            before_ms: UTC: older ones go. at_most: so many that are newer stay. at_least: with fewer nothing is done.
        """
        old = unneeded_snapshots(self._metadata, before_ms, at_most)
        if len(old) < max(at_least, (len(self._metadata.snapshots) - len(old)) // 4):
            return
        landed = self._commit(
            (self._main_is_unmoved(),),
            (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [snapshot.snapshot_id for snapshot in old]}),),
            f"{self._place.name} keeps its old snapshots",
        )
        self._delete(self._reader.locations(old) - self._reader.locations(landed.snapshots))

    # -- what a commit is made of -------------------------------------------------------------------------------

    def _snapshots(self, move: TableMove) -> list[Snapshot]:
        """Return the snapshots of a move, oldest first: one for files whose rows stay, one for the others.

        Who follows a table of appended rows passes over what replaces files, and fails at what overwrites them.
        """
        self._check_move(move)
        same = move.same_rows
        added, removed = ([file for file in files if file.key in same] for files in (move.added, move.removed))
        new, gone = ([file for file in files if file.key not in same] for files in (move.added, move.removed))
        parts = [(operation_of(new, gone), new, gone)] if new or gone or not same else []
        if same:
            parts.insert(0, (Operation.REPLACE, added, removed))
        found: list[Snapshot] = []
        for what, more, less in parts:
            found.append(self._snapshot(move, what, found[-1] if found else None, more, less))
        return found

    def _deletes_of_others(self) -> tuple[str, str] | None:
        return deletes_of_others(self._place.catalog.table_name, self._reader.of(self._metadata.current_snapshot()))

    def _check_move(self, move: TableMove) -> None:
        if (found := self._deletes_of_others()) is not None:
            raise refusal(self._place.sink, self._place.catalog.table_name, *found)
        live = {self._key(path) for path in self._live}
        twice = [file.key for file in move.added if file.key in live]
        missing = [file.key for file in move.removed if file.key not in live]
        if twice or missing:
            key, what = (twice[0], "is live already") if twice else (missing[0], "is not live")
            raise ProtocolViolation(
                f"{self._place.name} is not what move {move.number} says it is: {key} {what}. Nothing was published.",
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
        """Write a snapshot's manifests, and return it.

        Args:
            earlier: the one before it in the same commit; None: it follows the table's current one.
        """
        schema, spec = self._metadata.schema(), self._metadata.spec()
        more = [data_file(self._place.root, file, schema, spec) for file in added]
        parent = earlier or self._metadata.current_snapshot()
        before = self._reader.files(parent)
        keys = {file.key for file in removed}
        less = {path: file for path, file in before.items() if self._key(path) in keys}
        sequence_number = self._metadata.next_sequence_number()
        if earlier is not None and self._metadata.format_version > 1:
            sequence_number += 1
        snapshot_id = self._metadata.new_snapshot_id()
        files = SnapshotFiles(self._table, self._reader, snapshot_id, write=uuid4())
        after = [*(file for path, file in before.items() if path not in less), *more]
        return Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent is not None else None,
                "sequence-number": sequence_number,
                "timestamp-ms": max(time.time_ns() // 1_000_000, self._metadata.last_updated_ms),
                "manifest-list": files.write_list(parent, more, frozenset(less), sequence_number),
                "summary": summary_of(move, what, more, list(less.values()), after),
                "schema-id": self._metadata.current_schema_id,
            }
        )

    def _main_is_unmoved(self) -> TableRequirement:
        current = self._metadata.current_snapshot()
        return AssertRefSnapshotId.model_validate(
            {"ref": MAIN_BRANCH, "snapshot-id": current.snapshot_id if current is not None else None}
        )

    def _commit(
        self, required: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...], doing: str
    ) -> TableMetadata:
        """Send one request, once, and return the metadata that landed."""
        base = self._metadata
        required = (AssertTableUUID(uuid=base.table_uuid), *required)
        with catalog_errors(self._place.catalog, doing, may_land=True):
            landed = self._table.catalog.commit_table(self._table, required, updates)
        self._drop_old_metadata(base, landed.metadata)
        return landed.metadata

    def _drop_old_metadata(self, base: TableMetadata, landed: TableMetadata) -> None:
        """Delete metadata files that a commit, which landed, took out of the table's log."""
        if not property_as_bool(landed.properties, TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED, False):
            return
        still = {entry.metadata_file for entry in landed.metadata_log}
        self._delete({entry.metadata_file for entry in base.metadata_log} - still)

    def _delete(self, locations: Collection[str]) -> None:
        """Delete files of the table's log that nothing names any more; what fails is garbage, and nothing else."""
        try:
            self._place.store.delete(key for key in sorted(map(self._key, locations)) if "://" not in key)
        except CheckpointError as error:
            _log.warning("%s keeps old files of its log: %s", self._place.name, error)

    def _checkpoint_tags(self, move: TableMove, snapshot: Snapshot) -> Iterator[TableUpdate]:
        """Return what names the move's checkpoint to readers, and forgets those that are not retained any more."""
        if move.retained is None:
            return
        kept = move.retained | {move.checkpoint_id}
        for tag in outdated_tags(self._metadata.refs, kept):
            yield RemoveSnapshotRefUpdate.model_validate({"ref-name": tag})
        if move.checkpoint_id:
            yield _points(tag_of(move.checkpoint_id), SnapshotRefType.TAG, snapshot)

    def _claimed_properties(self) -> dict[str, str]:
        """Return what of a table that nobody owns yet is set with its owner: what keeps files, and what finds columns.

        A name mapping is for files without numbers of columns, which the table has none of before it has a mapping.
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
        return key_below(self._place.root, location)

    def _foreign_commit(
        self, snapshot: Snapshot, what: str, before: Mapping[str, DataFile], keeps_rows: bool
    ) -> ForeignCommit:
        after = self._reader.files(snapshot)
        added: tuple[StagedFile, ...] = tuple(
            found_file(self._place.root, file, self._metadata.schema(), self._metadata.specs()[file.spec_id])
            for path, file in after.items()
            if path not in before
        )
        removed = frozenset(self._key(path) for path in before if path not in after)
        return ForeignCommit(snapshot.snapshot_id, what, removed, added, keeps_rows)


def _compared(metadata: TableMetadata) -> int:
    """Return one number of all that a commit compares with: the newest snapshot, the columns and the partitioning."""
    return (metadata.current_snapshot_id or 0) << 64 | metadata.current_schema_id << 32 | metadata.default_spec_id


def _points(ref: str, kind: SnapshotRefType, snapshot: Snapshot) -> TableUpdate:
    """Return the update after which a branch or tag points to the snapshot."""
    return SetSnapshotRefUpdate.model_validate({"ref-name": ref, "type": kind, "snapshot-id": snapshot.snapshot_id})
