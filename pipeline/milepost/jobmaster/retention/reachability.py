"""Walk every root of a job and collect which stored objects are needed, and why (I8).

Order: list the objects, read the manifest's head, then follow every reference. An object that was listed before and is
not reached after can never become reachable. Roots are the manifest log with the input record of each completed epoch,
the retained and pending checkpoints of every timeline, the savepoints in the job's storage, the marks of each sink, and
the log of each landed source, also of one that the spec no longer has. Read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata, counted, decode_metadata
from milepost.errors import NotFound, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.savepoint_document import decode_document
from milepost.jobmaster.job.table_contents import unchecked_tables
from milepost.jobmaster.retention.garbage_lists import listed_garbage
from milepost.jobmaster.retention.landed_logs import LandedLogs
from milepost.jobmaster.retention.tables import (
    DroppedSink,
    ListedTable,
    OpenedTable,
    TableNeeds,
    TableShare,
    job_tables,
    list_dropped_sinks,
    retained_chain,
)
from milepost.jobmaster.retention.vetoes import is_expired
from milepost.protocol.landed import LogPosition, floor_of
from milepost.protocol.log import aborted_by, completion_of
from milepost.protocol.manifest.upkeep import without_expired_pins
from milepost.protocol.records import (
    SAVEPOINT_DOCUMENT,
    CheckpointId,
    CompletedCheckpoint,
    ManifestState,
    ObjectHandle,
    ObjectStat,
    ObjectStore,
    Savepoint,
    is_veto_key,
    landed_source_of_key,
    sink_of_staged_file,
)
from milepost.protocol.retention import CheckpointOutcome, GarbageKeys, handle_conflicts, root_in_job
from milepost.storage import read_handle

_WALKS = 3


@dataclass(frozen=True, slots=True)
class Reference:
    """One object that a root needs.

    Attributes:
        size: bytes; None if the reference does not state it.
        chain: of references, from the manifest to the object.
    """

    key: str
    size: int | None
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableReach:
    """A table of a sink, or the files of a dropped sink.

    Attributes:
        needs: what the table and the retained checkpoints need; None if a fault leaves that unknown.
        listed: files in the table's lists of garbage.
        unreadable_lists: key and fault of each list that cannot be read. Nothing that is needed depends on a list.
    """

    opened: ListedTable
    needs: TableNeeds | None
    listed: frozenset[str]
    unreadable_lists: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.opened.label

    @property
    def is_dropped(self) -> bool:
        """Whether it is no longer in the spec."""
        return isinstance(self.opened, DroppedSink)

    def references(self) -> dict[str, Reference]:
        """Return everything that must be stored below the table's path, by key."""
        needs = self.needs.files if self.needs is not None else {}
        return {key: Reference(item.key, item.size, item.chain) for key, item in needs.items()}


@dataclass(frozen=True, slots=True)
class JobReach:
    """The result of one complete walk.

    Attributes:
        state: the manifest value that was walked, without expired pins.
        now_ms: the store's clock when the objects were listed.
        objects: of the job's own store, by key. references: to those objects, by key.
        outcomes: of each checkpoint that ended, from the log.
        listed: what the manifest value lists as garbage.
        logs: sequence of the newest record of each source's log.
        roots: what was walked, as text.
        faults: roots that could not be walked, one line each. With a fault nothing is proven unreachable.
        conflicts: keys that two checkpoints describe differently.
        unasked: tables that are no longer in the spec and were not read, as text.
    """

    state: ManifestState
    now_ms: int
    objects: Mapping[str, ObjectStat]
    references: Mapping[str, Reference]
    outcomes: Mapping[CheckpointId, CheckpointOutcome]
    listed: GarbageKeys
    logs: Mapping[str, int]
    tables: tuple[TableReach, ...]
    roots: tuple[str, ...]
    faults: tuple[str, ...]
    conflicts: tuple[str, ...]
    unasked: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every root was walked. Only then are the other objects unreachable."""
        return not self.faults and not self.conflicts


def walk_job(context: JobContext, logs: LandedLogs | None = None) -> JobReach:
    """Walk every root. A walk with faults is repeated if the head moved during it, since that may be the cause.

    Args:
        logs: from an earlier walk. Their records are not read again.
    Raises: NotFound (the job has never run), StoreUnavailable, EnvironmentUnusable.
    """
    logs = LandedLogs(context.store) if logs is None else logs
    reach = _walk(context, logs)
    for _ in range(_WALKS - 1):
        if reach.complete or context.head().version == reach.state.version:
            break
        reach = _walk(context, logs)
    return reach


def _walk(context: JobContext, logs: LandedLogs) -> JobReach:
    now_ms = context.store.clock_ms()
    stored = list(context.store.list(""))
    opened: list[ListedTable] = []
    opened += (OpenedTable.of(context, table) for table in job_tables(context, context.head().state))
    opened += list_dropped_sinks(context, (stat.key for stat in stored))
    objects = {stat.key: stat for stat in stored if sink_of_staged_file(stat.key) is None}
    state = without_expired_pins(context.head().state, now_ms)
    found = _ReferenceCollector(context, state)
    found.walk_log()
    for checkpoint in state.checkpoints:
        found.walk_checkpoint(checkpoint)
    for timeline in state.timelines:
        if timeline.pending is not None:
            chain = (f"manifest version {state.version}", f"pending checkpoint {timeline.pending.checkpoint_id}")
            found.add(timeline.pending.plan, chain)
    for savepoint in state.savepoints:
        found.walk_savepoint(savepoint)
    found.walk_vetoes(objects.values(), now_ms)
    found.walk_landed(logs, objects)
    tables = tuple(found.walk_table(table) for table in opened)
    return JobReach(
        state=state,
        now_ms=now_ms,
        objects=objects,
        references=found.references,
        outcomes=found.outcomes,
        listed=listed_garbage(context.store, state),
        logs=found.logs,
        tables=tables,
        roots=tuple(found.roots),
        faults=tuple(found.faults),
        conflicts=handle_conflicts(found.described),
        unasked=unchecked_tables(context, found.dropped_tables()),
    )


class _ReferenceCollector:
    """Collects what each root of one manifest value refers to."""

    def __init__(self, context: JobContext, state: ManifestState) -> None:
        self._context = context
        self._state = state
        self.references: dict[str, Reference] = {}
        self.described: list[tuple[str, ObjectHandle]] = []
        self.outcomes: dict[CheckpointId, CheckpointOutcome] = {}
        self.shares: dict[CheckpointId, TableShare] = {}
        self.positions: list[tuple[str, str, LogPosition]] = []
        self.logs: dict[str, int] = {}
        self.roots: list[str] = []
        self.faults: list[str] = []

    def add(self, handle: ObjectHandle, chain: tuple[str, ...]) -> None:
        self.references.setdefault(handle.key, Reference(handle.key, handle.size, chain))

    def walk_log(self) -> None:
        """Read every entry, including tombstones: checkpoint outcomes, and the input record of each completed epoch."""
        count = 0
        try:
            for entry in self._context.log.entries():
                count += 1
                for checkpoint_id in aborted_by(entry):
                    self.outcomes[checkpoint_id] = CheckpointOutcome(entry.version, None)
                completion = completion_of(entry)
                if completion is not None:
                    self.outcomes[completion.checkpoint_id] = CheckpointOutcome(entry.version, completion.token)
                    record = f"input record of checkpoint {completion.checkpoint_id}"
                    self.add(completion.plan, (f"manifest version {entry.version}", record))
        except StateCorrupt as error:
            self.faults.append(error.message)
        self.roots.append(f"manifest log ({count} {'entry' if count == 1 else 'entries'})")

    def walk_checkpoint(self, checkpoint: CompletedCheckpoint) -> None:
        """Read a retained checkpoint's metadata and follow each reference in it."""
        name = f"checkpoint {checkpoint.checkpoint_id}"
        top = retained_chain(self._state, checkpoint.checkpoint_id)
        self.add(checkpoint.metadata, top)
        try:
            metadata = self._context.metadata(checkpoint)
        except StateCorrupt as error:
            self.faults.append(f"{name}: {error.message}")
            return
        self.shares[checkpoint.checkpoint_id] = metadata.tables
        self._add_positions(name, metadata)
        chain = (*top, checkpoint.metadata.key)
        handles = metadata.handles()
        for handle in handles:
            self.add(handle, chain)
            self.described.append((name, handle))
        for key in metadata.references():
            self.references.setdefault(key, Reference(key, None, chain))
        self.roots.append(f"checkpoint {checkpoint.checkpoint_id} ({counted(len(handles) + 1, 'object')})")

    def walk_table(self, table: ListedTable) -> TableReach:
        """Find what a table and the retained checkpoints need of it, and follow its marks. Call it after those."""
        lists = table.sink.garbage().read(item.stat.key for item in table.objects if item.list_of_garbage)
        needs = self._needs(table) if len(self.shares) == len(self._state.checkpoints) else None
        for mark in needs.marks if needs is not None else ():
            for handle in mark.contents.records if mark.contents is not None else ():
                self.add(handle, (f"mark {mark.number} of sink {table.label}",))
        files = counted(len(needs.files), "file") if needs is not None else "unknown"
        if needs is not None and needs.elsewhere_keys:
            files += f"; in other locations, not checked: {len(needs.elsewhere_keys)}"
        self.roots.append(f"sink {table.label} ({files})")
        return TableReach(table, needs, lists.files, lists.unreadable)

    def _needs(self, table: ListedTable) -> TableNeeds | None:
        try:
            return table.needs(self._state, self.shares)
        except StateCorrupt as error:
            self.faults.append(f"sink {table.label}: {error.message}")
            return None

    def dropped_tables(self) -> dict[CheckpointId, TableShare]:
        """Return the contents, at each retained checkpoint, of tables of sinks that are no longer in the spec.

        Database tables are left out: their files are in the job's own storage, and walked.
        """
        spec_sinks = {spec.name for spec in self._context.spec.sinks}
        return {
            checkpoint_id: {
                name: contents
                for name, contents in share.items()
                if name not in spec_sinks and contents.address.path is not None
            }
            for checkpoint_id, share in self.shares.items()
        }

    def walk_savepoint(self, savepoint: Savepoint) -> None:
        """Follow each key in the document of a savepoint in the job's storage. An external one is its owner's."""
        root = root_in_job(savepoint)
        if root is None:
            return
        name = f"savepoint {savepoint.name}"
        top = (f"manifest version {self._state.version}", name)
        recorded = savepoint.document
        handle = ObjectHandle(root + SAVEPOINT_DOCUMENT, recorded.size, recorded.sha256)
        self.add(handle, top)
        try:
            document = decode_document(read_handle(self._context.store, handle), root)
        except StateCorrupt as error:
            self.faults.append(
                f"{name}: {error.message} If it was deleted, for example by start --claim of another job, remove it "
                f"from the list: milepost savepoint dispose {self._state.job} --name {savepoint.name}"
            )
            return
        for obj in document.objects:
            self.add(ObjectHandle(root + obj.key, obj.size, obj.sha256), (*top, handle.key))
        self._walk_saved_positions(name, root, document.metadata)
        self.roots.append(f"{name} ({counted(len(document.objects) + 1, 'object')})")

    def _walk_saved_positions(self, name: str, root: str, metadata: ObjectHandle) -> None:
        """Read the positions of a savepoint. Metadata that is missing or damaged is found by its reference."""
        with suppress(StateCorrupt):
            key = root + metadata.key
            body = read_handle(self._context.store, ObjectHandle(key, metadata.size, metadata.sha256))
            self._add_positions(name, decode_metadata(body, key))

    def _add_positions(self, name: str, metadata: CheckpointMetadata) -> None:
        self.positions += ((name, log, position) for log, position in metadata.log_positions.items())

    def walk_landed(self, logs: LandedLogs, stored: Iterable[str]) -> None:
        """Follow the log of each source, and check the positions on it. Call it after checkpoints and savepoints.

        Args:
            stored: keys of the listed objects. They show the logs of sources that the spec no longer has.
        """
        sources = {source for key in stored if (source := landed_source_of_key(key)) is not None}
        for source in sorted(sources | {source for _, source, _ in self.positions}):
            self._walk_log_of(source, logs)

    def _walk_log_of(self, source: str, logs: LandedLogs) -> None:
        try:
            log = logs.walk(source, floor_of(self._state, source))
        except StateCorrupt as error:
            self.faults.append(error.message)
            return
        chain = (f"log of source {source}",)
        for handle in log.objects:
            self.add(handle, chain)
        self.logs[source] = log.newest
        faults = ((name, log.position_fault(position)) for name, own, position in self.positions if own == source)
        self.faults += [f"{name}: {fault}" for name, fault in faults if fault is not None]
        life = "" if log.job in (None, self._context.identity) else ", of an earlier life of the job"
        trimmed = "" if log.floor is None else f", from record {log.floor.next} on"
        extent = f"{counted(len(log.digests), 'record')}, {counted(len(log.objects), 'object')}{trimmed}{life}"
        self.roots.append(f"log of source {source} ({extent})")

    def walk_vetoes(self, objects: Iterable[ObjectStat], now_ms: int) -> None:
        """Treat each unexpired veto as a root, because the log entry that names it may be compacted earlier."""
        for stat in objects:
            if is_veto_key(stat.key) and not is_expired(self._context, stat.last_modified_ms, now_ms):
                self.add(ObjectHandle(stat.key, stat.size, ""), ("failing rows of a vetoed epoch, for people",))


def missing_objects(context: JobContext, reach: JobReach) -> Iterator[tuple[str, Reference, str]]:
    """Yield (store, reference, problem) of each needed object that is missing or has another size.

    Each candidate is checked a second time, because it may have been written after the listing.
    """
    listed = {key: stat.size for key, stat in reach.objects.items()}
    doubtful = [item for item in reach.references.values() if _problem(listed, item)]
    yield from _confirm_missing(f"job {reach.state.job}", doubtful, _stored_sizes(context.store, doubtful))
    for table in reach.tables:
        listed = {item.stat.key: item.stat.size for item in table.opened.objects}
        doubtful = [item for item in table.references().values() if _problem(listed, item)]
        if doubtful:
            sizes = table.opened.sink.stored_sizes([item.key for item in doubtful])
            yield from _confirm_missing(f"sink {table.name}", doubtful, sizes)


def _problem(sizes: Mapping[str, int], reference: Reference) -> str | None:
    size = sizes.get(reference.key)
    if size is None:
        return "missing"
    return None if reference.size in (None, size) else f"{size} bytes, recorded {reference.size}"


def _stored_sizes(store: ObjectStore, references: Iterable[Reference]) -> dict[str, int]:
    sizes = {}
    for reference in references:
        with suppress(NotFound):
            sizes[reference.key] = store.stat(reference.key).size
    return sizes


def _confirm_missing(
    where: str, references: Iterable[Reference], sizes: Mapping[str, int]
) -> Iterator[tuple[str, Reference, str]]:
    for reference in references:
        problem = _problem(sizes, reference)
        if problem is not None:
            yield where, reference, problem
