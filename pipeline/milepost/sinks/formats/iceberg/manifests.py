"""Read and write Iceberg manifests, the lists of a snapshot's files.

A manifest is read once, and rewritten only if a move changes it. pyiceberg's own overwrite is not used. It retains
a list of deletions per commit permanently, so commits become slower, and it cannot mark a commit as a compaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.properties import property_as_bool, property_as_int

_PARALLEL_READS = 8


@dataclass(frozen=True, slots=True)
class ManifestReader:
    """Reads each manifest once, through the table's file IO."""

    io: FileIO
    _read: dict[str, tuple[ManifestEntry, ...]] = field(default_factory=dict, repr=False)

    def manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        return snapshot.manifests(self.io) if snapshot is not None else []

    def live_entries(self, manifests: Iterable[ManifestFile]) -> dict[str, tuple[ManifestEntry, ...]]:
        """Return the live entries of each data manifest, by manifest path. Delete manifests are ignored."""
        by_path = {each.manifest_path: each for each in manifests if each.content != ManifestContent.DELETES}
        missing = [manifest for path, manifest in by_path.items() if path not in self._read]
        if missing:
            with ThreadPoolExecutor(min(_PARALLEL_READS, len(missing))) as pool:
                for manifest, entries in zip(missing, pool.map(self._fetch, missing), strict=True):
                    self._read[manifest.manifest_path] = entries
        return {path: self._read[path] for path in by_path}

    def files(self, snapshot: Snapshot | None) -> dict[str, DataFile]:
        """Return the live data files of a snapshot by location."""
        entries = self.live_entries(self.manifests(snapshot)).values()
        return {entry.data_file.file_path: entry.data_file for each in entries for entry in each}

    def locations(self, snapshots: Collection[Snapshot]) -> frozenset[str]:
        """Return the locations of the snapshots' manifests and manifest lists."""
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            per_snapshot = pool.map(self.manifests, snapshots)
            paths = frozenset(manifest.manifest_path for each in per_snapshot for manifest in each)
        return paths | {snapshot.manifest_list for snapshot in snapshots}

    def _fetch(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        return tuple(manifest.fetch_manifest_entry(self.io, discard_deleted=True))


@dataclass(slots=True)
class SnapshotFiles:
    """Writes the manifests and the manifest list of one new snapshot.

    Attributes:
        table: the table as it was opened.
        snapshot_id: the id of the new snapshot.
        write: unique to this commit; part of the file names.
    """

    table: Table
    reader: ManifestReader
    snapshot_id: int
    write: UUID
    _written: int = 0

    def write_list(
        self, parent: Snapshot | None, added: Sequence[DataFile], removed: frozenset[str], sequence_number: int
    ) -> str:
        """Write the changed manifests and the manifest list; return the location of the list.

        Args:
            parent: the snapshot that the new one follows; None for the first snapshot.
            removed: locations of live files of the parent.
        """
        metadata = self.table.metadata
        manifests = self._carried_manifests(self.reader.manifests(parent), removed, new_manifests=1 if added else 0)
        if added:
            manifests.insert(0, self._write_manifest(metadata.default_spec_id, map(self._added_entry, added)))
        location = self._location(f"snap-{self.snapshot_id}-0-{self.write}.avro")
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=self.table.io.new_output(location),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent is not None else None,
            sequence_number=sequence_number,
            avro_compression=self._compression,
        ) as writer:
            writer.add_manifests(manifests)
        return location

    def _carried_manifests(
        self, parent: Sequence[ManifestFile], removed: frozenset[str], *, new_manifests: int
    ) -> list[ManifestFile]:
        """Return the parent's manifests without the removed files.

        Manifests that list a removed file are merged and rewritten. If the snapshot would have as many manifests as
        `commit.manifest.min-count-to-merge`, all small manifests are merged with them.

            parent: m1 (a b)  m2 (c)  m3 (d)      removed: b
            below the limit     ->  m4 (a, b deleted)  m2 (c)  m3 (d)
            at the limit        ->  m4 (a, b deleted, c, d)
        """
        live = self.reader.live_entries(parent)
        unchanged: list[ManifestFile] = []
        rewritten: list[ManifestFile] = []
        for manifest in parent:
            entries = live.get(manifest.manifest_path)
            if entries is None:
                unchanged.append(manifest)
            elif any(entry.data_file.file_path in removed for entry in entries):
                rewritten.append(manifest)
            elif entries:
                unchanged.append(manifest)
        if self._needs_merge(len(unchanged) + min(len(rewritten), 1) + new_manifests):
            small = [manifest for manifest in unchanged if self._is_small(manifest, live)]
            unchanged = [manifest for manifest in unchanged if manifest not in small]
            rewritten = [manifest for manifest in parent if manifest in small or manifest in rewritten]
        return [*(self._merged(group, live, removed) for group in self._groups(rewritten)), *unchanged]

    def _needs_merge(self, manifests: int) -> bool:
        properties = self.table.metadata.properties
        merges = property_as_bool(
            properties, TableProperties.MANIFEST_MERGE_ENABLED, TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT
        )
        min_count = property_as_int(
            properties, TableProperties.MANIFEST_MIN_MERGE_COUNT, TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT
        )
        return merges and manifests >= max(min_count or 0, 2)

    def _is_small(self, manifest: ManifestFile, live: Mapping[str, tuple[ManifestEntry, ...]]) -> bool:
        return manifest.manifest_path in live and manifest.manifest_length * 2 <= self._target_bytes

    def _groups(self, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestFile]]:
        """Yield groups of manifests to merge: one partition spec each, up to about the target size of a manifest."""
        by_spec: dict[int, list[ManifestFile]] = {}
        for manifest in manifests:
            group = by_spec.setdefault(manifest.partition_spec_id, [])
            if group and sum(each.manifest_length for each in group) + manifest.manifest_length > self._target_bytes:
                yield list(group)
                group.clear()
            group.append(manifest)
        yield from by_spec.values()

    def _merged(
        self, group: Sequence[ManifestFile], live: Mapping[str, tuple[ManifestEntry, ...]], removed: frozenset[str]
    ) -> ManifestFile:
        entries = (entry for manifest in group for entry in live[manifest.manifest_path])
        carried = (self._carried_entry(entry, removed) for entry in entries)
        return self._write_manifest(group[0].partition_spec_id, carried)

    def _carried_entry(self, entry: ManifestEntry, removed: frozenset[str]) -> ManifestEntry:
        is_removed = entry.data_file.file_path in removed
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING,
            snapshot_id=self.snapshot_id if is_removed else entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _added_entry(self, file: DataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self.snapshot_id,
            sequence_number=None,
            file_sequence_number=None,
            data_file=file,
        )

    def _write_manifest(self, spec_id: int, entries: Iterable[ManifestEntry]) -> ManifestFile:
        with self._writer(spec_id) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _writer(self, spec_id: int) -> ManifestWriter:
        metadata = self.table.metadata
        name = f"{self.write}-m{self._written}.avro"
        self._written += 1
        return write_manifest(
            format_version=metadata.format_version,
            spec=metadata.specs()[spec_id],
            schema=metadata.schema(),
            output_file=self.table.io.new_output(self._location(name)),
            snapshot_id=self.snapshot_id,
            avro_compression=self._compression,
        )

    def _location(self, name: str) -> str:
        return self.table.location_provider().new_metadata_location(name)

    @property
    def _compression(self) -> AvroCompressionCodec:
        codec = self.table.metadata.properties.get(
            TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
        )
        return cast(AvroCompressionCodec, codec)

    @property
    def _target_bytes(self) -> int:
        size = property_as_int(
            self.table.metadata.properties,
            TableProperties.MANIFEST_TARGET_SIZE_BYTES,
            TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
        )
        return size or TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT
