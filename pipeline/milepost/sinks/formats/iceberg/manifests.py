"""Manifests list the files of a snapshot: read once each, and written anew only where a move changes them.

pyiceberg's own overwrite is not used: it keeps a list of deletions per commit for ever, so that commits become slower,
and it cannot say that the rows are the same as before.
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
    """Reads manifests through the table's files, each once."""

    io: FileIO
    _read: dict[str, tuple[ManifestEntry, ...]] = field(default_factory=dict, repr=False)

    def of(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        """Return the manifests of a snapshot."""
        return snapshot.manifests(self.io) if snapshot is not None else []

    def live(self, manifests: Iterable[ManifestFile]) -> dict[str, tuple[ManifestEntry, ...]]:
        """Return the live entries of each manifest of data files, by its path."""
        wanted = {each.manifest_path: each for each in manifests if each.content != ManifestContent.DELETES}
        missing = [manifest for path, manifest in wanted.items() if path not in self._read]
        if missing:
            with ThreadPoolExecutor(min(_PARALLEL_READS, len(missing))) as pool:
                for manifest, entries in zip(missing, pool.map(self._fetch, missing), strict=True):
                    self._read[manifest.manifest_path] = entries
        return {path: self._read[path] for path in wanted}

    def files(self, snapshot: Snapshot | None) -> dict[str, DataFile]:
        """Return the live data files of a snapshot by location."""
        entries = self.live(self.of(snapshot)).values()
        return {entry.data_file.file_path: entry.data_file for each in entries for entry in each}

    def locations(self, snapshots: Collection[Snapshot]) -> frozenset[str]:
        """Return where the manifests of these snapshots lie, and the lists of them."""
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = pool.map(self.of, snapshots)
            manifests = frozenset(manifest.manifest_path for each in found for manifest in each)
        return manifests | {snapshot.manifest_list for snapshot in snapshots}

    def _fetch(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        return tuple(manifest.fetch_manifest_entry(self.io, discard_deleted=True))


@dataclass(slots=True)
class SnapshotFiles:
    """Writes the manifests of one new snapshot, and the list of them.

    Attributes:
        table: as it was opened. snapshot_id: of the new one. write: a name that no other commit has.
    """

    table: Table
    reader: ManifestReader
    snapshot_id: int
    write: UUID
    _written: int = 0

    def write_list(
        self, parent: Snapshot | None, added: Sequence[DataFile], removed: frozenset[str], sequence_number: int
    ) -> str:
        """Write what changes, and return the location of the list.

        Args:
            parent: the snapshot that it changes; None: there is none. removed: locations of its live files.
        """
        metadata = self.table.metadata
        manifests = self._kept(self.reader.of(parent), removed, room=1 if added else 0)
        if added:
            manifests.insert(0, self._manifest(metadata.default_spec_id, map(self._added, added)))
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

    def _kept(self, before: Sequence[ManifestFile], removed: frozenset[str], *, room: int) -> list[ManifestFile]:
        """Return the manifests of the parent without the removed files, those together that are written anew.

        With so many manifests as the table's properties say, all small ones are.
        """
        live = self.reader.live(before)
        kept: list[ManifestFile] = []
        changed: list[ManifestFile] = []
        for manifest in before:
            entries = live.get(manifest.manifest_path)
            if entries is None:
                kept.append(manifest)
            elif any(entry.data_file.file_path in removed for entry in entries):
                changed.append(manifest)
            elif entries:
                kept.append(manifest)
        if self._is_crowded(len(kept) + min(len(changed), 1) + room):
            small = [manifest for manifest in kept if self._is_small(manifest, live)]
            kept = [manifest for manifest in kept if manifest not in small]
            changed = [manifest for manifest in before if manifest in small or manifest in changed]
        return [*(self._joined(group, live, removed) for group in self._grouped(changed)), *kept]

    def _is_crowded(self, manifests: int) -> bool:
        properties = self.table.metadata.properties
        merges = property_as_bool(
            properties, TableProperties.MANIFEST_MERGE_ENABLED, TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT
        )
        most = property_as_int(
            properties, TableProperties.MANIFEST_MIN_MERGE_COUNT, TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT
        )
        return merges and manifests >= max(most or 0, 2)

    def _is_small(self, manifest: ManifestFile, live: Mapping[str, tuple[ManifestEntry, ...]]) -> bool:
        return manifest.manifest_path in live and manifest.manifest_length * 2 <= self._target_bytes

    def _grouped(self, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestFile]]:
        """Return groups of one partitioning each, of about as many bytes as a manifest is to have."""
        by_spec: dict[int, list[ManifestFile]] = {}
        for manifest in manifests:
            group = by_spec.setdefault(manifest.partition_spec_id, [])
            if group and sum(each.manifest_length for each in group) + manifest.manifest_length > self._target_bytes:
                yield list(group)
                group.clear()
            group.append(manifest)
        yield from by_spec.values()

    def _joined(
        self, group: Sequence[ManifestFile], live: Mapping[str, tuple[ManifestEntry, ...]], removed: frozenset[str]
    ) -> ManifestFile:
        entries = (entry for manifest in group for entry in live[manifest.manifest_path])
        return self._manifest(group[0].partition_spec_id, (self._carried(entry, removed) for entry in entries))

    def _carried(self, entry: ManifestEntry, removed: frozenset[str]) -> ManifestEntry:
        is_removed = entry.data_file.file_path in removed
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING,
            snapshot_id=self.snapshot_id if is_removed else entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _added(self, file: DataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self.snapshot_id,
            sequence_number=None,
            file_sequence_number=None,
            data_file=file,
        )

    def _manifest(self, spec_id: int, entries: Iterable[ManifestEntry]) -> ManifestFile:
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
