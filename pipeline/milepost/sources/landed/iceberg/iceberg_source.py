"""Format `iceberg`: the rows that are appended to a branch of an Iceberg table.

A landing reads up to the snapshot that was the newest of the branch at its start. It walks the snapshots after the one
that was landed, and takes the files that each added.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.snapshots import Snapshot

from milepost.errors import CheckpointError, PositionExpired, SourceWentBack, StateCorrupt
from milepost.jobspec.job import CatalogSpec
from milepost.protocol.landed import Identity, Position, SourceBacklog
from milepost.protocol.records import ObjectStore, StoreConfig
from milepost.sources.landed.contract import INITIAL_COPY, FileReference, FileRetention, Note, Pull, Reached, Resumption
from milepost.sources.landed.iceberg.positions import IcebergPosition
from milepost.sources.landed.iceberg.snapshots import Snapshots
from milepost.sources.landed.tables.data_files import DataFile, DataFileMissing, read_data_files
from milepost.sources.landed.tables.file_references import file_references
from milepost.sources.landed.tables.pulls import FileSteps, Lost, Step, after_loss
from milepost.sources.landed.tables.reading import TableReading
from milepost.sources.landed.tables.reserved_table import require_appends, reservation_at, upsert_notes
from milepost.sources.landed.tables.table_failures import TableFailures, names_outages
from milepost.tables.iceberg import (
    CatalogConfig,
    CatalogKind,
    ReaderFileIO,
    normal_location,
    open_reader_catalog,
    translated_errors,
)
from milepost.tables.records import Reservation

_UNREADABLE = (ValueError, TypeError, LookupError, EOFError, AssertionError, zlib.error)
"""Errors of the library for a file that is not a manifest."""

_SNAPSHOT_AGE, _DEFAULT_SNAPSHOT_AGE_MS = "history.expire.max-snapshot-age-ms", "432000000"
"""A property of tables, and its default: five days."""


def open_iceberg_source(
    reading: TableReading,
    catalog: CatalogSpec,
    table: str,
    branch: str,
    open_at: Callable[[str], ObjectStore],
    access: StoreConfig,
) -> IcebergSource:
    """Open a table for one landing. Connects at the first call.

    Args:
        catalog, table: as in the spec, resolved. branch: the branch to read.
        open_at: opens the store of a folder, by its URL. access: credentials and region of a catalog on AWS.
    """
    kind, names = CatalogKind(catalog.type), tuple(table.split("."))
    config = CatalogConfig(kind, catalog.uri, names, catalog.name, catalog.options, f"sources.{reading.source}.catalog")
    failures = TableFailures(reading.source, f"the Iceberg table {table}")
    return IcebergSource(reading, failures, config, open_at, access, branch)


@dataclass
class IcebergSource:
    """A table, opened for one landing. Arguments: as in `open_iceberg_source`."""

    reading: TableReading
    failures: TableFailures
    catalog: CatalogConfig
    open_at: Callable[[str], ObjectStore]
    access: StoreConfig
    branch: str
    _opened: Snapshots | None = field(default=None, init=False)
    _initial: list[DataFile] | None = field(default=None, init=False)
    _unread: FileSteps[IcebergPosition] = field(default_factory=FileSteps, init=False)

    @names_outages
    def identity(self) -> Identity:
        uuid = self._snapshots().metadata.table_uuid
        return {"format": "iceberg", "table": str(uuid), "branch": self.branch}

    @names_outages
    def notes(self, position: Position | None) -> tuple[Note, ...]:
        return *upsert_notes(self._reservation()), *self.reading.start_notes(position, self._snapshots().count_files)

    @names_outages
    def initial_position(self) -> Position:
        snapshots = self._snapshots()
        snapshots.check()
        require_appends(self.failures, self._reservation())
        chain = snapshots.chain()
        if not chain:
            if not isinstance(self.reading.start, int):
                return _after(None).encode()
            raise self._no_start("it has no snapshots")
        head = chain[-1]
        if self.reading.start == "earliest":
            return replace(_after(head), file=0, is_initial=True).encode()
        if self.reading.start == "latest":
            return _after(head).encode()
        if isinstance(self.reading.start, int):
            first = next((each for each in chain if each.snapshot_id == self.reading.start), None)
            if first is None:
                raise self._no_start(f"branch {self.branch} begins with snapshot {chain[0].snapshot_id}")
            return _before(first).encode()
        since_ms = self.failures.past_start_ms(self.reading.start)
        first = next((each for each in chain if each.timestamp_ms >= since_ms), None)
        if first is chain[0] and not _is_root(first) and first.timestamp_ms > since_ms:
            raise self.failures.invalid(
                f"no longer has snapshots before {first.snapshot_id}, which is later than `start`",
                "choose a later time, or `start: earliest`",
            )
        return (_after(head) if first is None else _before(first)).encode()

    @names_outages
    def next_pull(self, position: Position) -> Pull | None:
        start, snapshots = IcebergPosition.decode(position), self._snapshots()
        snapshots.check()
        following = self._following(start, snapshots.chain())
        if not following and start.file is None:
            return None
        with self._missing_manifests(start):
            end, files = self._unread.take(
                start,
                lambda at: self._steps(at, following),
                self.reading.max_bytes,
                by_reference=self.reading.by_reference,
            )
        ahead = SourceBacklog(len(following) + (start.file is not None), "snapshot")
        behind = (INITIAL_COPY,) if end.is_initial else ()
        return Pull([files] if files else [], end.encode(), behind, ahead, _backlog(following, end))

    @names_outages
    def resume_position(self, where: str | int, position: Position) -> Resumption:
        """Return a position after the newest file that is lost, or snapshot with unknown files."""
        start, snapshots = IcebergPosition.decode(position), self._snapshots()
        snapshots.check()
        chain, expired = snapshots.chain(), 0
        end = _after(chain[-1] if chain else None)
        try:
            following = self._following(start, chain)
        except PositionExpired:
            following, expired = chain, 1
            start = _before(chain[0]) if chain else end
        since = end.sequence if where == "latest" else -1
        if isinstance(where, int):
            since = next((_before(each) for each in chain if each.timestamp_ms >= where), end).sequence
        steps = self._steps(start, following, over_loss=True)
        resumed, passed = after_loss(start, steps, lambda at: at.sequence <= since)
        passed = replace(passed, unknown_commits=passed.unknown_commits + expired)
        return Resumption(
            resumed.encode(), (INITIAL_COPY,) if resumed.is_initial else (), _backlog(chain, resumed), passed
        )

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        """Return the first position whose snapshot is in the history of the branch. Raises InvalidRequest: unknown."""
        snapshots = self._snapshots()
        snapshots.check()
        chain = snapshots.chain()
        for number, end in enumerate(ends):
            position = IcebergPosition.decode(end)
            with suppress(SourceWentBack):
                try:
                    self._following(position, chain)
                except PositionExpired as error:
                    raise self.failures.invalid(
                        f"no longer has snapshot {position.snapshot}: whether it was of branch {self.branch} is "
                        "unknown",
                        "give the source another name in the spec, which copies the table again",
                    ) from error
                return number
        return None

    def read(self, split: Any) -> Iterator[pa.RecordBatch | FileReference | Reached]:
        read = file_references if self.reading.by_reference else read_data_files
        try:
            with self.failures.outages():
                yield from read(self.failures, split, self.reading.types, self.reading.event_time)
        except DataFileMissing as missing:
            raise self._expired(f"no longer has the data file {missing.args[0]}") from missing

    def commit(self, end: Position) -> None:
        """Nothing waits for an acknowledgement."""

    @names_outages
    def file_retention(self) -> FileRetention | None:
        """Return how long `expire_snapshots` retains a snapshot with its files."""
        if not self.reading.by_reference:
            return None
        stated = self._snapshots().metadata.properties.get(_SNAPSHOT_AGE, _DEFAULT_SNAPSHOT_AGE_MS)
        return FileRetention(_SNAPSHOT_AGE, int(stated) if stated.isdecimal() else None)

    def _reservation(self) -> Reservation | None:
        """Return which job of Milepost writes the table; None: none does."""
        return reservation_at(self.failures, self.open_at(normal_location(self._snapshots().metadata.location)))

    def _snapshots(self) -> Snapshots:
        """Return the table at the start of the landing. Raises: as `translated_errors`."""
        if self._opened is None:
            name = self.catalog.table_name
            try:
                with translated_errors(self.catalog, f"source {self.failures.source}: its table {name} was not opened"):
                    try:
                        table = open_reader_catalog(self.catalog, self.open_at, self.access).load_table(
                            self.catalog.table
                        )
                    except NoSuchTableError as error:
                        raise self.failures.invalid(
                            f"does not exist in {self.catalog.where}", "correct `table`, or the `name` of the catalog"
                        ) from error
            except StateCorrupt as error:
                raise self.failures.invalid(
                    f"cannot be opened: its catalog names {error.details.get('key')}, which does not exist",
                    "restore that file from a copy",
                ) from error
            assert isinstance(table.io, ReaderFileIO), table.io
            self._opened = Snapshots(self.failures, table.io, table.metadata, self.reading.types, self.branch)
        return self._opened

    def _following(self, position: IcebergPosition, chain: list[Snapshot]) -> list[Snapshot]:
        """Return the snapshots after a position, the oldest first. Raises: PositionExpired, SourceWentBack."""
        at = next((at for at, each in enumerate(chain) if each.snapshot_id == position.snapshot), None)
        if at is not None:
            return chain[at + 1 :]
        oldest, newest = (chain[0], chain[-1]) if chain else (None, None)
        if position.snapshot is None and oldest is None:
            return []
        if oldest is not None and position.file is None and _follows(oldest, position):
            return chain  # the snapshot that was landed is expired, and none after it is
        # A history that begins or ends before the position would contain the snapshot, if it were of the branch.
        if (
            oldest is None
            or newest is None
            or _is_root(oldest)
            or not (position.sequence < _sequence(oldest) and position.sequence < _sequence(newest))
        ):
            raise self.failures.went_back(
                f"was rolled back: snapshot {position.snapshot}, which was landed, is not in the history of branch "
                f"{self.branch}",
                _after(newest).encode(),
            )
        raise self._expired(f"no longer has the snapshots after {position.snapshot}: they are expired")

    def _steps(
        self, position: IcebergPosition, following: list[Snapshot], *, over_loss: bool = False
    ) -> Iterator[Step[IcebergPosition]]:
        """Yield the files after a position, each with the position after it.

        Args:
            over_loss: yield a step over a snapshot of which a manifest was deleted. Otherwise it is StateCorrupt.
        """
        snapshots = self._snapshots()

        def files_of(snapshot: Snapshot, *, initial: bool = False) -> list[DataFile] | None:
            try:
                return snapshots.all(snapshot) if initial else snapshots.appended(snapshot)
            except StateCorrupt:
                if not over_loss:
                    raise
                return None

        if position.file is not None:
            assert position.snapshot is not None
            snapshot = snapshots.metadata.snapshot_by_id(position.snapshot)
            assert snapshot is not None, "it is in the chain"
            files = self._initial if position.is_initial else None
            files = files or files_of(snapshot, initial=position.is_initial)
            self._initial = files if position.is_initial else self._initial
            if files is None:
                yield _after(snapshot), Lost.COMMIT
            for number, file in enumerate((files or [])[position.file :], position.file + 1):
                yield replace(position, file=number), file
            yield _after(snapshot), None
        for snapshot in following:
            files = files_of(snapshot)
            if files is None:
                yield _after(snapshot), Lost.COMMIT
            for number, file in enumerate(files or [], 1):
                yield replace(_after(snapshot), file=number), file
            yield _after(snapshot), None

    @contextmanager
    def _missing_manifests(self, position: IcebergPosition) -> Iterator[None]:
        try:
            yield
        except StateCorrupt as error:
            raise self._expired(
                f"no longer has {error.details.get('key')}, a manifest of a snapshot after {position.snapshot}"
            ) from error
        except _UNREADABLE as error:
            raise self.failures.invalid(
                f"has a manifest that is not readable ({type(error).__name__}), of a snapshot after "
                f"{position.snapshot}",
                "restore the file from a copy",
            ) from error

    def _no_start(self, has: str) -> CheckpointError:
        return self.failures.invalid(
            f"does not have the snapshot {self.reading.start}, where `start` begins: {has}",
            "correct `start`; `start: earliest` begins with the table as it is",
        )

    def _expired(self, problem: str) -> CheckpointError:
        chain = self._snapshots().chain()
        earliest, latest = (_before(chain[0]), _after(chain[-1])) if chain else (_after(None), _after(None))
        return self.failures.expired(problem, earliest.encode(), latest.encode())


def _after(snapshot: Snapshot | None) -> IcebergPosition:
    """Return the position at which everything up to a snapshot is read."""
    return IcebergPosition(None, 0) if snapshot is None else IcebergPosition(snapshot.snapshot_id, _sequence(snapshot))


def _before(snapshot: Snapshot) -> IcebergPosition:
    """Return the position before a snapshot. The one before it may be expired, and its id unknown."""
    return IcebergPosition(snapshot.parent_snapshot_id, _sequence(snapshot) - 1)


def _follows(snapshot: Snapshot, position: IcebergPosition) -> bool:
    """Return whether no snapshot is missing between a position and the oldest snapshot that there is."""
    if snapshot.parent_snapshot_id is not None:
        return snapshot.parent_snapshot_id == position.snapshot
    return _sequence(snapshot) == position.sequence + 1


def _backlog(snapshots: Sequence[Snapshot], position: IcebergPosition) -> SourceBacklog:
    """Return how many of these snapshots are not read, or not to their end, at a position."""
    after = sum(_sequence(each) > position.sequence for each in snapshots)
    return SourceBacklog(after + (position.file is not None), "snapshot")


def _is_root(snapshot: Snapshot) -> bool:
    """Return whether a snapshot was the first of its table. Any other snapshot without a parent has an expired one."""
    return snapshot.parent_snapshot_id is None and _sequence(snapshot) == 1


def _sequence(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0
