"""Writers of Iceberg tables that are not ours, and do what the library at hand has no method for."""

from __future__ import annotations

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate


def set_properties(table: Table, **properties: str) -> None:
    """Set properties of a table."""
    with table.transaction() as transaction:
        transaction.set_properties(properties)


def require(table: Table) -> None:
    """Require values in the column `k`."""
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("k", required=True)


def identify(table: Table) -> None:
    """Say that `k` identifies a row."""
    require(table)
    with table.update_schema() as update:
        update.set_identifier_fields("k")


def compact(table: Table) -> None:
    """Overwrite a table with its own rows, as a service does that compacts files."""
    rows = table.scan().to_arrow()
    transaction = table.transaction()
    transaction.overwrite(rows)
    added = [update.snapshot for update in transaction._updates if isinstance(update, AddSnapshotUpdate)]
    last = added[-1].model_copy(
        update={"parent_snapshot_id": table.metadata.current_snapshot_id, "summary": Summary(Operation.REPLACE)}
    )
    _publish(table, last)


def delete_rows(table: Table) -> None:
    """Delete rows as others do that write files of deletions instead of data files anew."""

    class _Deletions(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

    head, metadata = table.current_snapshot(), table.metadata
    assert head is not None
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"{table.location()}/data/deletes.parquet",
        file_format="PARQUET",
        partition=next(iter(head.manifests(table.io))).fetch_manifest_entry(table.io)[0].data_file.partition,
        record_count=1,
        file_size_in_bytes=1,
    )
    snapshot_id = metadata.new_snapshot_id()
    output = table.io.new_output(f"{table.location()}/metadata/deletions-m0.avro")
    with _Deletions(metadata.spec(), metadata.schema(), output, snapshot_id, "null") as writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
        )
    manifests = [*head.manifests(table.io), writer.to_manifest_file()]
    location = f"{table.location()}/metadata/snap-deletions.avro"
    sequence = metadata.next_sequence_number()
    listing = table.io.new_output(location)
    with write_manifest_list(2, listing, snapshot_id, head.snapshot_id, sequence, "null") as list_writer:
        list_writer.add_manifests(manifests)
    values = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": head.snapshot_id,
        "sequence-number": sequence,
        "manifest-list": location,
        "summary": Summary(Operation.DELETE),
        "schema-id": metadata.current_schema_id,
    }
    _publish(table, Snapshot.model_validate(values))


def _publish(table: Table, snapshot: Snapshot) -> None:
    main = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot.snapshot_id}
    table.catalog.commit_table(
        table, (), (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(main))
    )
