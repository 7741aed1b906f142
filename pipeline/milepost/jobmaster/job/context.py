"""An opened job: its spec, stores and manifest log. Every use case starts from it.

Methods that read metadata, tables or consumed sets import Arrow when called, so that a use case of the log alone does
not pay for the import.
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

from milepost.epoch.timing import StepClock
from milepost.errors import NotFound
from milepost.jobmaster.job.transactions import BegunTransaction, TransactResult, decision, require_state
from milepost.jobmaster.job.use_case import UseCaseEnds
from milepost.jobspec.graph import JobGraph
from milepost.jobspec.job import JobSpec, SinkSpec, resolve_sink
from milepost.jobspec.load import LoadedJob
from milepost.language.times import in_ms
from milepost.protocol.landed import floor_of
from milepost.protocol.manifest.transaction import Answer
from milepost.protocol.records import (
    CheckpointId,
    CompletedCheckpoint,
    FencingToken,
    ManifestState,
    ObjectHandle,
    ObjectStore,
    PendingCheckpoint,
    StoreConfig,
    cached_property,
    child_url,
    heartbeat_key,
    landed_objects_prefix,
    metadata_key,
    staged_files_prefix,
)
from milepost.protocol.retention import minimum_grace_ms
from milepost.sources.planning import split_path
from milepost.state.cache import node_cache
from milepost.storage import ObjectCache, handle_of, open_store, read_handle
from milepost.storage.log import Head, LandedTransition, ManifestLog, SourceLog

if TYPE_CHECKING:
    from milepost.epoch import CheckpointMetadata
    from milepost.jobmaster.job.input.consumed_runs import ConsumedRuns
    from milepost.protocol.manifest import Request
    from milepost.sinks import Sink
    from milepost.sources.planning import ConsumedSet
    from milepost.tables.records import ContentsRecords, TableAddress


_METADATA_BYTES = 16 << 20
"""Bytes of checkpoint metadata that one opened job caches: each step reads that of all retained checkpoints."""


@dataclass(frozen=True)
class JobContext:
    """A job's spec with its environment resolved, and lazily opened stores.

    Attributes:
        listeners: called with each manifest transition of this process. They must neither block nor raise.
        clocks: step clock of the checkpoint, if this process runs its whole epoch.
    """

    job: LoadedJob
    listeners: list[Callable[[LandedTransition], None]] = field(default_factory=list, compare=False, repr=False)
    clocks: dict[CheckpointId, StepClock] = field(default_factory=dict, compare=False, repr=False)
    use_case_ends: UseCaseEnds = field(default_factory=UseCaseEnds, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Cache Connection lookups: one that is edited during a use case must not switch it to another store."""
        find_connection = functools.cache(self.job.find_connection)
        object.__setattr__(self, "job", replace(self.job, find_connection=find_connection))

    @cached_property
    def spec(self) -> JobSpec:
        return self.job.resolved()

    @cached_property
    def graph(self) -> JobGraph:
        return self.job.graph()

    @property
    def timeout_ms(self) -> int:
        """Time limit of an epoch, from its trigger or the last try of `run_epoch` to its commit point."""
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
        return ManifestLog(self.store, lambda: uuid.uuid4().hex, self._notify_listeners)

    def _notify_listeners(self, landed: LandedTransition) -> None:
        for listener in self.listeners:
            listener(landed)

    @cached_property
    def identity(self) -> str:
        """Identifies this life of the job: the write id of its first manifest version."""
        return self.log.entry(1).write_id

    def store_at(self, location: str) -> ObjectStore:
        """Open a store at a URL, or at a path relative to the spec, with this job's connection.

        Raises: InvalidRequest: not a location.
        """
        return open_store(self.job.store_config(self.job.url(location)))

    def source(self, name: str) -> tuple[StoreConfig, str]:
        """Return the store of a source that is files, and the pattern of its objects, relative to the store."""
        url, pattern = split_path(self.job.url(self.spec.files[name].path))
        return self.job.store_config(url), pattern

    def log_store(self, name: str) -> StoreConfig:
        """Return the store of a landed source's objects, a folder below the job's own."""
        folder = landed_objects_prefix(self.stored_name(name)).rstrip("/")
        return replace(self.store_config, url=child_url(self.store_config.url, folder))

    def source_store(self, name: str) -> StoreConfig:
        """Return the store to which the keys of a source's planned objects are relative."""
        return self.log_store(name) if self.spec.sources[name].is_landed else self.source(name)[0]

    def sink_address(self, name: str) -> TableAddress:
        """Return the address of a sink's table in the spec, with `${env:…}` unresolved."""
        from milepost.tables.records import address_of

        return address_of(self.job.spec.sink(name))

    def sink_spec(self, name: str, address: TableAddress | None = None) -> SinkSpec:
        """Return a sink of the spec, resolved.

        Args:
            address: of the table, which the spec may not name; None: the spec's.
        Raises: InvalidRequest: a referenced variable is not set.
        """
        if address is None or address == self.sink_address(name):
            return self.spec.sink(name)
        from milepost.tables.records import at_address

        sink = resolve_sink(at_address(self.job.spec.sink(name), address), os.environ, f"sink {name}")
        return self.job.with_catalog_file(sink)

    def sink_config(self, name: str, address: TableAddress | None = None) -> StoreConfig:
        """Return the store in which a sink stages files: its path, or a folder below the job's own."""
        path = self.sink_spec(name, address).path
        return self._staged_config(name) if path is None else self.job.store_config(self.job.url(path))

    def staged_files(self, name: str) -> ObjectStore:
        """Return the store with the staged files of a database sink, which the spec may no longer have."""
        return self._sink_store(name, self._staged_config(name))

    def _staged_config(self, name: str) -> StoreConfig:
        url = child_url(self.store_config.url, staged_files_prefix(name).rstrip("/"))
        return replace(self.store_config, url=url)

    def sink_location(self, name: str, address: TableAddress | None = None) -> str:
        """Return a digest of a sink's resolved path and table. The path itself may contain a secret.

        For a table in a database only the name counts: host and user may change, and each commit checks the table's
        identity. The path counts as it is written, so a folder that moves together with its relative paths, or an
        endpoint with another port, is the same location. Each commit checks that the table there is the right one.
        """
        sink = self.sink_spec(name, address)
        location = sink.location if sink.path is None or sink.table is None else f"{sink.path}\n{sink.table}"
        return hashlib.sha256(location.encode()).hexdigest()

    def sink(self, name: str, address: TableAddress | None = None) -> Sink:
        """Open a sink for the table at an address; None: the table that the spec names.

        Raises: NotFound: the spec has no such sink.
        """
        from milepost.sinks import build_sink

        names = {sink.name for sink in self.spec.sinks}
        if name not in names:
            raise NotFound(
                f"job {self.spec.name} has no sink {name}; it has {', '.join(sorted(names)) or 'none'}", sink=name
            )
        return build_sink(
            self.sink_spec(name, address),
            self.graph.sink_inputs[name],
            job=self.spec.name,
            store=self._sink_store(name, self.sink_config(name, address)),
            job_store=self.store,
            records=self.table_records,
            retention_ms=self.spec.checkpointing.retained.reach_ms + minimum_grace_ms(self.timeout_ms),
            find_access=partial(self.job.postgres_access, name),
            identity=lambda: self.identity,
        )

    @cached_property
    def table_records(self) -> ContentsRecords:
        """Records from which the contents of the job's tables are folded. Each record is read once."""
        from milepost.tables.records import ContentsRecords

        return ContentsRecords(self.store)

    @cached_property
    def _sink_stores(self) -> dict[tuple[str, StoreConfig], ObjectStore]:
        return {}

    def _sink_store(self, name: str, config: StoreConfig) -> ObjectStore:
        """Return a sink's store, always the same object, because it caches the newest head of the table."""
        key = name, config
        if key not in self._sink_stores:
            self._sink_stores[key] = open_store(config)
        return self._sink_stores[key]

    def reserve(
        self, name: str, address: TableAddress | None = None, before_create: Callable[[], None] = lambda: None
    ) -> None:
        """Reserve a sink's new table for this job (`Sink.reserve`). Called once, because a reservation is permanent."""
        if not self.is_reserved(name, address):
            self.sink(name, address).reserve(self.identity, before_create)
            self._reserved.add((name, self.sink_location(name, address)))

    def is_reserved(self, name: str, address: TableAddress | None = None) -> bool:
        """Return whether `reserve` was called for the sink's current location."""
        return (name, self.sink_location(name, address)) in self._reserved

    @cached_property
    def _reserved(self) -> set[tuple[str, str]]:
        return set()

    @cached_property
    def consumed_runs(self) -> ConsumedRuns:
        """The runs of consumed objects that this process has read or written."""
        from milepost.jobmaster.job.input.consumed_runs import ConsumedRuns

        return ConsumedRuns(self.store)

    def consumed(self, source: str, handles: Sequence[ObjectHandle]) -> ConsumedSet:
        """Return the set of consumed objects of a source, from the runs of one checkpoint. Raises StateCorrupt."""
        return self.consumed_runs.read(source, handles)

    @cached_property
    def cache_directory(self) -> str:
        """The node-local state cache of this job and storage; disposable."""
        return node_cache(hashlib.sha256(self.store_config.url.encode()).hexdigest()[:16])

    def head(self) -> Head:
        """Return the manifest's head. Raises NotFound for a job that has never run."""
        head = self.log.head()
        if head is None:
            raise NotFound(
                f"job {self.spec.name} has no checkpoint yet: nothing is stored under {self.store_config.url}",
                hint=f"milepost run {self.spec.name}",
            )
        return head

    def recent_state(self) -> ManifestState:
        """Return the head's state from a moment ago if this process has read it, else the current one.

        Use it only for display, or where a transition decides again. Never act outside the manifest on it.
        Raises: as `head`.
        """
        recent = self.log.recent_head()
        return self.head().state if recent is None else recent.state

    def source_log(self, source: str) -> SourceLog:
        """Return the log of a landed source, from its floor. Raises: as `stored_name`."""
        return self.stored_log(self.stored_name(source), source)

    def stored_log(self, name: str, source: str | None = None) -> SourceLog:
        """Return the log that is stored under a name. A recent floor is enough, since deletion waits longer.

        Args:
            source: for messages: the source of the log; None: its name is that of the log.
        """
        try:
            floor = floor_of(self.recent_state(), name)
        except NotFound:  # the job has never run
            floor = None
        return SourceLog(self.store, source or name, floor, name)

    def stored_name(self, source: str) -> str:
        """Return the name under which the log of a landed source is stored. Raises InvalidRequest: it is taken."""
        from milepost.jobmaster.job.log_names import require_own_log_name

        return require_own_log_name(self.job.spec, source, self.log_names())

    def log_names(self) -> dict[str, str]:
        """Return the names under which the logs of landed sources are stored, also of those the spec has dropped."""
        from milepost.jobmaster.job.log_names import current_log_names

        return current_log_names(self.job.spec, self.recent_state, self.metadata) if self.job.spec.landed else {}

    def transact(
        self, request: Request, *, check: Callable[[ManifestState], None] | None = None, at_least_ms: int = 0
    ) -> TransactResult:
        """Commit the transition of a request to an existing job, and return it with the re-read head (I1).

        Args:
            check: raises for a head on which the request must not be decided. Called again after a lost race.
            at_least_ms: an earlier reading of the store's clock, in case the clock went back since.
        """
        result = self.log.transact(decision(request, check, at_least_ms))
        head = result.head.state if result.head is not None else None
        return TransactResult(result.outcome, require_state(head))

    def begin(self, request: Request) -> BegunTransaction:
        """As `transact`, for work that starts below the granted token's own prefix: the head is not re-read yet."""
        begun = self.log.begin(decision(request, None, 0))

        def head() -> ManifestState:
            after = begun.head()
            return require_state(after.state if after is not None else None)

        return BegunTransaction(begun.outcome, require_state(begun.state), head)

    def record(self, request: Request) -> Answer:
        """As `transact`, if nothing that follows depends on the head: it is not re-read."""
        return self.log.begin(decision(request, None, 0)).outcome

    def heartbeat_ms(self, pending: PendingCheckpoint) -> int | None:
        """Return when the driver of the pending token sent its last heartbeat; None if it has not started."""
        try:
            return self.store.stat(heartbeat_key(pending.checkpoint_id, pending.token)).last_modified_ms
        except NotFound:
            return None

    def metadata(self, checkpoint: CompletedCheckpoint) -> CheckpointMetadata:
        """Return the verified metadata of a retained checkpoint, cached once read. Raises StateCorrupt."""
        handle = checkpoint.metadata
        return self._metadata_cache.read(
            self.store, _cache_key(handle), handle.size, lambda: self.stored_metadata(checkpoint)
        )

    def cache_metadata(self, handle: ObjectHandle, metadata: CheckpointMetadata) -> None:
        """Cache metadata under its handle. The handle has the content hash, so the entry never becomes stale."""
        self._metadata_cache.read(self.store, _cache_key(handle), handle.size, lambda: metadata)

    def write_metadata(self, metadata: CheckpointMetadata) -> ObjectHandle:
        """Store the metadata of a try under its token. Returns the handle of the stored bytes."""
        key, body = metadata_key(CheckpointId(metadata.checkpoint_id), FencingToken(metadata.token)), metadata.encode()
        self.store.put(key, body)
        return handle_of(key, body)

    def stored_metadata(self, checkpoint: CompletedCheckpoint) -> CheckpointMetadata:
        """Read the metadata from the store, bypassing the cache. Raises StateCorrupt."""
        from milepost.epoch import decode_metadata

        return decode_metadata(read_handle(self.store, checkpoint.metadata), checkpoint.metadata.key)

    @cached_property
    def _metadata_cache(self) -> ObjectCache:
        return ObjectCache(_METADATA_BYTES, min_entries=1)

    def cached_base(self, state: ManifestState, base: int) -> CheckpointMetadata | None:
        """Return `base_metadata` of a checkpoint with cached metadata, else None."""
        checkpoint = state.checkpoint(CheckpointId(base))
        is_cached = checkpoint is not None and self._metadata_cache.has(self.store, _cache_key(checkpoint.metadata))
        return self.base_metadata(state, base) if is_cached else None

    def base_metadata(self, state: ManifestState, base: int) -> CheckpointMetadata | None:
        """Return the metadata of the checkpoint that an epoch continues, with operators under the uids of the spec.

        None for checkpoint 0, the empty state.
        """
        if base == 0:
            return None
        checkpoint = state.checkpoint(CheckpointId(base))
        if checkpoint is None:
            raise NotFound(f"checkpoint {base} of job {self.spec.name} is no longer retained", checkpoint_id=base)
        from milepost.epoch import with_names_of

        return with_names_of(self.job.spec, self.metadata(checkpoint), self.log_names())


def _cache_key(handle: ObjectHandle) -> tuple[str, str, str]:
    return "metadata", handle.key, handle.sha256
