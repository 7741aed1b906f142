"""The reachability walk visits every root of a job: what is stored, what needs it, by which chain (I8).

Order: list the objects, then read the manifest's head, then follow every reference. So whatever was listed and is not
reached by then never will be. Roots: the manifest log with the input record of every completed epoch, the retained and
the pending checkpoints of every timeline, the garbage list, and the marks of each sink. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from milepost.epoch.quantities import counted
from milepost.errors import NotFound, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.savepoint_document import decode_document
from milepost.jobmaster.job.table_contents import unchecked_tables
from milepost.jobmaster.retention.dropped_sinks import DroppedSink, ListedTable, dropped_sinks
from milepost.jobmaster.retention.garbage_lists import listed_in
from milepost.jobmaster.retention.job_tables import job_tables
from milepost.jobmaster.retention.table_references import OpenedTable, TableNeeds, TableShare, retained_chain
from milepost.jobmaster.retention.vetoes import is_expired
from milepost.protocol.log.log_entries import aborted_by, completion_of
from milepost.protocol.manifest.upkeep.pins import without_expired_pins
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import SAVEPOINT_DOCUMENT, is_veto_key, sink_of_staged_file
from milepost.protocol.records.manifest_state import ManifestState, Savepoint
from milepost.protocol.records.object_store import ObjectStat, ObjectStore
from milepost.protocol.retention.reach import CheckpointOutcome, GarbageKeys
from milepost.protocol.retention.retention import handle_conflicts, root_in_job
from milepost.storage.object_handles import read_handle

_WALKS = 3


@dataclass(frozen=True, slots=True)
class Reference:
    """One object that a root needs.

    Attributes:
        size: bytes; None when the reference does not say.
        chain: how it is reached, from the manifest on.
    """

    key: str
    size: int | None
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableReach:
    """A table of a sink, or the files of a dropped sink.

    Attributes:
        needs: what the table and the retained checkpoints need; None when a fault keeps that from being known.
        listed: files that a list of garbage names. unreadable_lists: of each such list that cannot be read: its key
            and what is wrong; nothing that is needed depends on it.
    """

    opened: ListedTable
    needs: TableNeeds | None
    listed: frozenset[str]
    unreadable_lists: tuple[str, ...]

    @property
    def name(self) -> str:
        """What people call it."""
        return self.opened.label

    @property
    def is_dropped(self) -> bool:
        """Whether the spec has it no more."""
        return isinstance(self.opened, DroppedSink)

    def references(self) -> dict[str, Reference]:
        """Return everything that must lie below the table's path, by key."""
        needs = self.needs.files if self.needs is not None else {}
        return {key: Reference(item.key, item.size, item.chain) for key, item in needs.items()}


@dataclass(frozen=True, slots=True)
class JobReach:
    """What one complete walk found.

    Attributes:
        state: the manifest value that it is about, without the pins whose time is over.
        now_ms: the store's clock when the objects were listed.
        objects: of the job's own store, by key. references: what the roots need of them, by key.
        outcomes: of each checkpoint that ended, as the log tells.
        listed: what the manifest value lists as garbage.
        roots: what was walked, for people.
        faults: roots that could not be walked, one line each; with one of them nothing is proven unreachable.
        conflicts: keys that two checkpoints describe differently.
        unasked: tables that the spec has no more, of which nothing was looked for, in words.
    """

    state: ManifestState
    now_ms: int
    objects: Mapping[str, ObjectStat]
    references: Mapping[str, Reference]
    outcomes: Mapping[CheckpointId, CheckpointOutcome]
    listed: GarbageKeys
    tables: tuple[TableReach, ...]
    roots: tuple[str, ...]
    faults: tuple[str, ...]
    conflicts: tuple[str, ...]
    unasked: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every root was walked: only then is what was not reached unreachable."""
        return not self.faults and not self.conflicts


def walk_job(context: JobContext) -> JobReach:
    """Walk every root. A walk that met a fault while the manifest moved on is repeated: it may have seen both sides.

    Raises: NotFound (the job has never run), StoreUnavailable, EnvironmentUnusable.
    """
    reach = _walk(context)
    for _ in range(_WALKS - 1):
        if reach.complete or context.head().version == reach.state.version:
            break
        reach = _walk(context)
    return reach


def _walk(context: JobContext) -> JobReach:
    now_ms = context.store.clock_ms()
    stored = list(context.store.list(""))
    opened: list[ListedTable] = []
    opened += (OpenedTable.of(context, one) for one in job_tables(context, context.head().state))
    opened += dropped_sinks(context, (stat.key for stat in stored))
    objects = {stat.key: stat for stat in stored if sink_of_staged_file(stat.key) is None}
    state = without_expired_pins(context.head().state, now_ms)
    found = _Roots(context, state)
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
    tables = tuple(found.walk_table(table) for table in opened)
    return JobReach(
        state=state,
        now_ms=now_ms,
        objects=objects,
        references=found.references,
        outcomes=found.outcomes,
        listed=listed_in(context.store, state),
        tables=tables,
        roots=tuple(found.roots),
        faults=tuple(found.faults),
        conflicts=handle_conflicts(found.described),
        unasked=unchecked_tables(context, found.dropped_tables()),
    )


class _Roots:
    """Collects what each root of one manifest value refers to."""

    def __init__(self, context: JobContext, state: ManifestState) -> None:
        self._context = context
        self._state = state
        self.references: dict[str, Reference] = {}
        self.described: list[tuple[str, ObjectHandle]] = []
        self.outcomes: dict[CheckpointId, CheckpointOutcome] = {}
        self.shares: dict[CheckpointId, TableShare] = {}
        self.roots: list[str] = []
        self.faults: list[str] = []

    def add(self, handle: ObjectHandle, chain: tuple[str, ...]) -> None:
        self.references.setdefault(handle.key, Reference(handle.key, handle.size, chain))

    def walk_log(self) -> None:
        """Read every entry, tombstones included: the history, and the input record of each completed epoch."""
        count = 0
        try:
            for entry in self._context.log.entries():
                count += 1
                for checkpoint_id in aborted_by(entry):
                    self.outcomes[checkpoint_id] = CheckpointOutcome(entry.version, None)
                done = completion_of(entry)
                if done is not None:
                    self.outcomes[done.checkpoint_id] = CheckpointOutcome(entry.version, done.token)
                    whose = f"input record of checkpoint {done.checkpoint_id}"
                    self.add(done.plan, (f"manifest version {entry.version}", whose))
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
        chain = (*top, checkpoint.metadata.key)
        handles = metadata.handles()
        for handle in handles:
            self.add(handle, chain)
            self.described.append((name, handle))
        for key in metadata.references():
            self.references.setdefault(key, Reference(key, None, chain))
        self.roots.append(f"checkpoint {checkpoint.checkpoint_id} ({counted(len(handles) + 1, 'object')})")

    def walk_table(self, table: ListedTable) -> TableReach:
        """Find what a table and the retained checkpoints, all walked before, need of it, and follow its marks."""
        lists = table.sink.garbage().read(item.stat.key for item in table.objects if item.list_of_garbage)
        needs = self._needs(table) if len(self.shares) == len(self._state.checkpoints) else None
        for mark in needs.marks if needs is not None else ():
            for handle in mark.contents.records if mark.contents is not None else ():
                self.add(handle, (f"mark {mark.number} of sink {table.label}",))
        files = counted(len(needs.files), "file") if needs is not None else "unknown"
        if needs is not None and needs.elsewhere:
            files += f"; not looked for, as they lie elsewhere: {len(needs.elsewhere)}"
        self.roots.append(f"sink {table.label} ({files})")
        return TableReach(table, needs, lists.files, lists.unreadable)

    def _needs(self, table: ListedTable) -> TableNeeds | None:
        try:
            return table.needs(self._state, self.shares)
        except StateCorrupt as error:
            self.faults.append(f"sink {table.label}: {error.message}")
            return None

    def dropped_tables(self) -> dict[CheckpointId, TableShare]:
        """Return what the retained checkpoints say of tables of sinks that the spec has no more.

        Of one in a database the files are in the job's own storage, and walked.
        """
        there = {spec.name for spec in self._context.spec.sinks}
        return {
            checkpoint_id: {
                name: contents
                for name, contents in share.items()
                if name not in there and contents.address.path is not None
            }
            for checkpoint_id, share in self.shares.items()
        }

    def walk_savepoint(self, savepoint: Savepoint) -> None:
        """Read the document of a savepoint below the job and follow each key in it; one elsewhere is its owner's."""
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
                f"{name}: {error.message} One that is gone, as another job takes it by start --claim, is taken off the "
                f"list by: milepost savepoint dispose {self._state.job} --name {savepoint.name}"
            )
            return
        for one in document.objects:
            self.add(ObjectHandle(root + one.key, one.size, one.sha256), (*top, handle.key))
        self.roots.append(f"{name} ({counted(len(document.objects) + 1, 'object')})")

    def walk_vetoes(self, objects: Iterable[ObjectStat], now_ms: int) -> None:
        """Take each veto that is young enough for a root: the entry that names it may be compacted before."""
        for stat in objects:
            if is_veto_key(stat.key) and not is_expired(self._context, stat.last_modified_ms, now_ms):
                self.add(ObjectHandle(stat.key, stat.size, ""), ("failing rows of a vetoed epoch, for people",))


def missing_objects(context: JobContext, reach: JobReach) -> Iterator[tuple[str, Reference, str]]:
    """Yield (store, reference, problem) of each needed object that is absent or has another size, asked once more.

    An object that was written after the listing is there on the second look.
    """
    listed = {key: stat.size for key, stat in reach.objects.items()}
    doubtful = [item for item in reach.references.values() if _problem(listed, item)]
    yield from _still(f"job {reach.state.job}", doubtful, _sizes(context.store, doubtful))
    for table in reach.tables:
        listed = {item.stat.key: item.stat.size for item in table.opened.objects}
        doubtful = [item for item in table.references().values() if _problem(listed, item)]
        if doubtful:
            sizes = table.opened.sink.stored_sizes([item.key for item in doubtful])
            yield from _still(f"sink {table.name}", doubtful, sizes)


def _problem(sizes: Mapping[str, int], reference: Reference) -> str | None:
    found = sizes.get(reference.key)
    if found is None:
        return "missing"
    return None if reference.size in (None, found) else f"{found} bytes, recorded {reference.size}"


def _sizes(store: ObjectStore, references: Iterable[Reference]) -> dict[str, int]:
    sizes = {}
    for reference in references:
        with suppress(NotFound):
            sizes[reference.key] = store.stat(reference.key).size
    return sizes


def _still(
    where: str, references: Iterable[Reference], sizes: Mapping[str, int]
) -> Iterator[tuple[str, Reference, str]]:
    for reference in references:
        problem = _problem(sizes, reference)
        if problem is not None:
            yield where, reference, problem
