"""One job, opened: its spec, its stores, its manifest log. What every use case starts from.

What reads metadata, tables or what was consumed imports Arrow; a use case of the log alone does not wait for that.
"""

from __future__ import annotations

import functools
import hashlib
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from milepost.epoch.timing.step_clock import StepClock
from milepost.errors import NotFound, ProtocolViolation
from milepost.jobmaster.job.transactions import BegunTransaction, TransactResult
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.job.environment import resolve_sink
from milepost.jobspec.job.spec import JobSpec, SinkSpec
from milepost.jobspec.load.load import LoadedJob
from milepost.jobspec.values.times.durations import in_ms
from milepost.protocol.manifest.transaction.answers import Answer
from milepost.protocol.records.cached_property import cached_property
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle, PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import heartbeat_key, metadata_key, staged_files_prefix
from milepost.protocol.records.locations import child_url
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.protocol.retention.retention import minimum_grace_ms
from milepost.sources.planning.listing import split_path
from milepost.state.cache.node_cache import node_cache
from milepost.storage.concurrency.parallel_map import parallel_map
from milepost.storage.log.manifest_log import Decide, ManifestLog
from milepost.storage.log.records import Head, LandedTransition
from milepost.storage.object_cache import ObjectCache
from milepost.storage.object_handles import handle_of, read_handle
from milepost.storage.open import open_store

if TYPE_CHECKING:
    import pyarrow as pa

    from milepost.epoch.metadata import CheckpointMetadata
    from milepost.protocol.manifest.decisions import Request
    from milepost.sinks.contract import Sink
    from milepost.sinks.records.contents import ContentsRecords
    from milepost.sinks.records.table_address import TableAddress
    from milepost.sources.planning.consumed import ConsumedSet


_METADATA_BYTES = 16 << 20
"""How much metadata of checkpoints one opened job keeps in memory: each step asks for that of all retained ones."""


@dataclass(frozen=True)
class JobContext:
    """A job's spec with its environment resolved, and lazily opened stores.

    Attributes:
        listeners: told each transition of the manifest that this process makes; they neither wait nor raise.
        clocks: of the checkpoint, if any, whose epoch this process runs as a whole.
    """

    job: LoadedJob
    listeners: list[Callable[[LandedTransition], None]] = field(default_factory=list, compare=False, repr=False)
    clocks: dict[CheckpointId, StepClock] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Look each Connection up once: nobody may edit one in the middle of a use case, which would use two stores."""
        found = functools.cache(self.job.find_connection)
        object.__setattr__(self, "job", replace(self.job, find_connection=found))

    @cached_property
    def spec(self) -> JobSpec:
        return self.job.resolved()

    @cached_property
    def graph(self) -> JobGraph:
        return self.job.graph()

    @property
    def timeout_ms(self) -> int:
        """How long an epoch may take, from its trigger or the last try of `run_epoch` to its commit point."""
        return in_ms(self.spec.checkpointing.timeout)

    @cached_property
    def store_config(self) -> StoreConfig:
        return self.job.job_store

    @cached_property
    def store(self) -> ObjectStore:
        """Rooted at `<storage>/<job>/`."""
        return open_store(self.store_config)

    @cached_property
    def log(self) -> ManifestLog:
        return ManifestLog(self.store, lambda: uuid.uuid4().hex, self._tell)

    def _tell(self, landed: LandedTransition) -> None:
        for listener in self.listeners:
            listener(landed)

    @cached_property
    def identity(self) -> str:
        """Which life of the job this is: the write id of its first manifest version."""
        return self.log.entry(1).write_id

    def store_at(self, location: str) -> ObjectStore:
        """Return a store elsewhere, reached with this job's connection: a URL, or a path relative to the spec.

        Raises: InvalidRequest: it is no location.
        """
        return open_store(self.job.store_config(self.job.url(location)))

    def source(self, name: str) -> tuple[StoreConfig, str]:
        """Return a source's store, and the pattern of its objects below it."""
        url, pattern = split_path(self.job.url(self.spec.sources[name].path))
        return self.job.store_config(url), pattern

    def sink_address(self, name: str) -> TableAddress:
        """Return where a sink's table is by the spec, with `${env:…}` unresolved."""
        from milepost.sinks.records.table_address import address_of

        return address_of(self.job.spec.sink(name))

    def sink_spec(self, name: str, address: TableAddress | None = None) -> SinkSpec:
        """Return a sink of the spec, resolved.

        Args:
            address: of a table that the spec may no longer, or not yet, name; None: the spec's.
        Raises: InvalidRequest: a variable that it refers to is not set.
        """
        if address is None or address == self.sink_address(name):
            return self.spec.sink(name)
        from milepost.sinks.records.table_address import at_address

        sink = resolve_sink(at_address(self.job.spec.sink(name), address), os.environ, f"sink {name}")
        return self.job.with_catalog_file(sink)

    def sink_config(self, name: str, address: TableAddress | None = None) -> StoreConfig:
        """Return where a sink's files are staged: its path, or a place below the job's own folder."""
        path = self.sink_spec(name, address).path
        return self._staged_config(name) if path is None else self.job.store_config(self.job.url(path))

    def staged_files(self, name: str) -> ObjectStore:
        """Return where the files of a sink lie whose table is in a database, also of one that the spec has no more."""
        return self._opened(name, self._staged_config(name))

    def _staged_config(self, name: str) -> StoreConfig:
        url = child_url(self.store_config.url, staged_files_prefix(name).rstrip("/"))
        return replace(self.store_config, url=url)

    def sink_location(self, name: str, address: TableAddress | None = None) -> str:
        """Return a digest of a sink's path with `${env:…}` resolved (the text may hold a secret), and of its table.

        Of a table in a database its name alone: host and user may change, and each commit compares its identity. Of
        the path as it is written: a folder that moves with its relative paths, or an endpoint with another port, is
        the same place. That the table there is the right one is checked before the commit point.
        """
        sink = self.sink_spec(name, address)
        place = sink.location if sink.path is None or sink.table is None else f"{sink.path}\n{sink.table}"
        return hashlib.sha256(place.encode()).hexdigest()

    def sink(self, name: str, address: TableAddress | None = None) -> Sink:
        """Return a sink, opened for the table at an address; None: for the one that the spec names.

        Raises: NotFound: the spec does not have such a sink.
        """
        from milepost.sinks.build import build_sink

        known = {sink.name for sink in self.spec.sinks}
        if name not in known:
            raise NotFound(
                f"job {self.spec.name} has no sink {name}; it has {', '.join(sorted(known)) or 'none'}", sink=name
            )
        return build_sink(
            self.sink_spec(name, address),
            self.graph.sink_inputs[name],
            job=self.spec.name,
            store=self._opened(name, self.sink_config(name, address)),
            job_store=self.store,
            records=self.table_records,
            retention_ms=self.spec.checkpointing.retained.reach_ms + minimum_grace_ms(self.timeout_ms),
            find_access=partial(self.job.postgres_access, name),
            identity=lambda: self.identity,
        )

    @cached_property
    def table_records(self) -> ContentsRecords:
        """The records that the contents of the job's tables are folded from; each is read once."""
        from milepost.sinks.records.contents import ContentsRecords

        return ContentsRecords(self.store)

    @cached_property
    def _sink_stores(self) -> dict[tuple[str, StoreConfig], ObjectStore]:
        return {}

    def _opened(self, name: str, config: StoreConfig) -> ObjectStore:
        """A sink's store, the same one for as long as this context lives: it knows which head was the newest."""
        place = name, config
        if place not in self._sink_stores:
            self._sink_stores[place] = open_store(config)
        return self._sink_stores[place]

    def reserve(
        self, name: str, address: TableAddress | None = None, before_create: Callable[[], None] = lambda: None
    ) -> None:
        """Make a sink's new table this job's (`Sink.reserve`); asked once, because a reservation is never deleted."""
        if not self.is_reserved(name, address):
            self.sink(name, address).reserve(self.identity, before_create)
            self._reserved.add((name, self.sink_location(name, address)))

    def is_reserved(self, name: str, address: TableAddress | None = None) -> bool:
        """Return whether `reserve` was asked before, for the place that the sink has now."""
        return (name, self.sink_location(name, address)) in self._reserved

    @cached_property
    def _reserved(self) -> set[tuple[str, str]]:
        return set()

    def consumed(self, source: str, handles: Sequence[ObjectHandle]) -> ConsumedSet:
        """Return what a source has consumed, by the runs of one checkpoint; runs are read once. Raises StateCorrupt."""
        from milepost.sources.planning.consumed import ConsumedSet, read_run

        known = self._consumed_runs.get(source, {})
        new = [one for one in handles if one not in known]
        known = known | dict(zip(new, parallel_map(self.store, partial(read_run, self.store), new), strict=True))
        runs = {one: known[one] for one in handles}
        self._consumed_runs[source] = runs
        return ConsumedSet.of(runs.values())

    def cache_consumed(self, source: str, handle: ObjectHandle, run: pa.Table) -> None:
        """Keep a run that was written under a handle: it is not read again."""
        self._consumed_runs[source] = self._consumed_runs.get(source, {}) | {handle: run}

    @cached_property
    def _consumed_runs(self) -> dict[str, dict[ObjectHandle, pa.Table]]:
        return {}

    @cached_property
    def cache_directory(self) -> str:
        """The node-local state cache of this job and storage; always disposable."""
        return node_cache(hashlib.sha256(self.store_config.url.encode()).hexdigest()[:16])

    def head(self) -> Head:
        """Return the manifest's head. Raises NotFound for a job that has never run."""
        head = self.log.head()
        if head is None:
            raise NotFound(
                f"job {self.spec.name} has no checkpoint yet: nothing lies under {self.store_config.url}",
                hint=f"milepost run {self.spec.name}",
            )
        return head

    def recent_state(self) -> ManifestState:
        """Return the head's state as it was seen a moment ago, else as it is.

        For what is only looked at, and for what a transition decides again: outside the manifest nothing is done by it.
        Raises: as `head`.
        """
        seen = self.log.recent_head()
        return self.head().state if seen is None else seen.state

    def transact(
        self, request: Request, *, check: Callable[[ManifestState], None] | None = None, at_least_ms: int = 0
    ) -> TransactResult:
        """Make the transition that a request asks for, of a job that exists; return the re-read head with it (I1).

        Args:
            check: raises for a head of which nothing may be decided; asked again when another session was faster.
            at_least_ms: a time by the store's clock that was read before; the clock may have gone back since.
        """
        result = self.log.transact(_decision(request, check, at_least_ms))
        head = result.head.state if result.head is not None else None
        return TransactResult(result.outcome, _present(head))

    def begin(self, request: Request) -> BegunTransaction:
        """As `transact`, for what begins below the granted token's own prefix: the head after it is not read yet."""
        begun = self.log.begin(_decision(request, None, 0))

        def head() -> ManifestState:
            after = begun.head()
            return _present(after.state if after is not None else None)

        return BegunTransaction(begun.outcome, _present(begun.state), head)

    def record(self, request: Request) -> Answer:
        """As `transact`, where nothing that follows depends on the head: it is not read again."""
        return self.log.begin(_decision(request, None, 0)).outcome

    def heartbeat_ms(self, pending: PendingCheckpoint) -> int | None:
        """When the driver of the pending token gave its last sign of life; None when it has not begun."""
        try:
            return self.store.stat(heartbeat_key(pending.checkpoint_id, pending.token)).last_modified_ms
        except NotFound:
            return None

    def metadata(self, checkpoint: CompletedCheckpoint) -> CheckpointMetadata:
        """Return the checked metadata of a retained checkpoint, kept in memory once read. Raises StateCorrupt."""
        handle = checkpoint.metadata
        return self._kept.read(self.store, _named(handle), handle.size, lambda: self.stored_metadata(checkpoint))

    def cache_metadata(self, handle: ObjectHandle, metadata: CheckpointMetadata) -> None:
        """Keep what was read under a handle: it names the content by its hash, so what was read stays true."""
        self._kept.read(self.store, _named(handle), handle.size, lambda: metadata)

    def write_metadata(self, metadata: CheckpointMetadata) -> ObjectHandle:
        """Make the metadata of a try durable under its token. Returns its handle, of the bytes that were put."""
        key, body = metadata_key(CheckpointId(metadata.checkpoint_id), FencingToken(metadata.token)), metadata.encode()
        self.store.put(key, body)
        return handle_of(key, body)

    def stored_metadata(self, checkpoint: CompletedCheckpoint) -> CheckpointMetadata:
        """Return the metadata as the store has it now. Raises StateCorrupt."""
        from milepost.epoch.metadata import decode_metadata

        return decode_metadata(read_handle(self.store, checkpoint.metadata), checkpoint.metadata.key)

    @cached_property
    def _kept(self) -> ObjectCache:
        return ObjectCache(_METADATA_BYTES, min_entries=1)

    def cached_base(self, state: ManifestState, base: int) -> CheckpointMetadata | None:
        """Return what `base_metadata` does, of a checkpoint whose metadata this process knows; else None."""
        checkpoint = state.checkpoint(CheckpointId(base))
        known = checkpoint is not None and self._kept.has(self.store, _named(checkpoint.metadata))
        return self.base_metadata(state, base) if known else None

    def base_metadata(self, state: ManifestState, base: int) -> CheckpointMetadata | None:
        """Return the metadata of the checkpoint that an epoch continues, with its operators under the uids of the spec.

        None for checkpoint 0, the empty state.
        """
        if base == 0:
            return None
        checkpoint = state.checkpoint(CheckpointId(base))
        if checkpoint is None:
            raise NotFound(f"checkpoint {base} of job {self.spec.name} is not retained any more", checkpoint_id=base)
        from milepost.epoch.renames import with_names_of

        return with_names_of(self.job.spec, self.metadata(checkpoint))


def _named(handle: ObjectHandle) -> tuple[str, str, str]:
    """Return what metadata is kept under."""
    return "metadata", handle.key, handle.sha256


def _decision(request: Request, check: Callable[[ManifestState], None] | None, at_least_ms: int) -> Decide:
    from milepost.protocol.manifest.decisions import decide

    def decision(state: ManifestState | None, now_ms: int) -> Answer:
        head = _present(state)
        if check is not None:
            check(head)
        return decide(head, request, max(now_ms, at_least_ms))

    return decision


def _present(state: ManifestState | None) -> ManifestState:
    """Return the state of a job that exists: its manifest never goes away once it is there."""
    if state is None:
        raise ProtocolViolation("the job's manifest was there and is gone. Nothing was written.")
    return state
