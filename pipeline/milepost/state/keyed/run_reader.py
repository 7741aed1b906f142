"""The run reader restores layers from state handles, by the node cache or the store, and checks them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from milepost.protocol.records.errors import InvalidRequest, NotFound, StateCorrupt
from milepost.state.cache.cache import StateCache
from milepost.state.layers.layer import Layer
from milepost.state.runs.handles import RunHandle, StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.state.runs.runs import check_body, decode_run


def references(
    identity: StateIdentity, handles: Sequence[StateHandle], objects: CheckpointObjects
) -> tuple[RunHandle, ...]:
    """Runs that this subtask refers to, each narrowed to the key groups for which it counts here, oldest first."""
    own, covered, checkpoint_id = identity.key_groups, 0, objects.checkpoint_id
    runs: list[RunHandle] = []
    for handle in sorted(handles, key=lambda handle: handle.key_groups.start):
        if handle.max_parallelism != identity.max_parallelism:
            raise InvalidRequest(
                f"checkpoint {checkpoint_id}: state of {identity.uid!r} has {handle.max_parallelism} key groups, the "
                f"spec asks for {identity.max_parallelism}. Nothing was changed.",
                hint="`checkpointing.max_parallelism` is fixed for the job's life: set it back.",
            )
        if handle.uid != identity.uid:
            raise StateCorrupt(
                f"checkpoint {checkpoint_id}: got state of {handle.uid!r}, expected of {identity.uid!r}. Nothing was "
                "changed.",
                hint=f"Run `milepost verify {objects.job}`.",
            )
        common = _intersection(handle.key_groups, own)
        covered += len(common)
        for run in handle.runs:
            valid = _intersection(run.valid, common)
            if len(valid):
                runs.append(replace(run, valid=valid))
    if handles and covered != len(own):
        raise StateCorrupt(
            f"checkpoint {checkpoint_id}: the state handles of {identity.uid!r} cover {covered} of the {len(own)} key "
            f"groups {own.start} to {own.stop - 1}. Nothing was changed.",
            hint=f"Run `milepost verify {objects.job}` for all that is broken; restore it from a copy of the store.",
        )
    return tuple(runs)


def _intersection(left: range, right: range) -> range:
    start = max(left.start, right.start)
    return range(start, max(start, min(left.stop, right.stop)))


_TOGETHER_BYTES = 32 << 20
"""Of runs that are read side by side."""


class RunReader:
    """Reads runs from the cache, else from the store with their size and checksum verified; each object once."""

    def __init__(self, identity: StateIdentity, objects: CheckpointObjects, cache: StateCache | None) -> None:
        self._identity = identity
        self._objects = objects
        self._cache = cache
        self._bodies = {} if objects.bodies is None else objects.bodies

    def read(self, runs: Sequence[RunHandle]) -> list[Layer]:
        """Return the rows of runs that count here; of those that the cache has not, the bodies are read side by side.

        With a cache they come out of it, mapped, also when they had to be put there first: of many runs that are
        decoded one after another, only one lies in this process's own memory.
        """
        cached = [None if self._cache is None else self._cache.load(self._identity, run) for run in runs]
        self._fetch({run.key: run for run, layer in zip(runs, cached, strict=True) if layer is None}.values())
        return [self._read(run) if layer is None else layer for run, layer in zip(runs, cached, strict=True)]

    def _read(self, run: RunHandle) -> Layer:
        layer = self._decoded(run)
        if self._cache is not None and self._cache.stage(self._identity, run, layer):
            return self._cache.load(self._identity, run) or layer
        return layer

    def _decoded(self, run: RunHandle) -> Layer:
        identity, body = self._identity, self._bodies[run.key]
        try:
            return decode_run(body, run, run.valid, identity.stored, identity.keys, identity.max_parallelism)
        except StateCorrupt as error:
            raise self._corrupt(run, error.message) from error
        except MemoryError:  # among pyarrow's errors too: it is about the process
            raise
        except (pa.ArrowException, OSError) as error:
            raise self._corrupt(run, f"it is not a readable Parquet file ({error})") from error

    def _fetch(self, runs: Iterable[RunHandle]) -> None:
        """Read and check the bodies that were not read before, of about so many bytes at a time."""
        together, size = list[RunHandle](), 0
        for run in runs:
            if run.key in self._bodies:
                continue
            if together and size + run.size > _TOGETHER_BYTES:
                self._fetch_at_once(together)
                together, size = [], 0
            together.append(run)
            size += run.size
        self._fetch_at_once(together)

    def _fetch_at_once(self, runs: Sequence[RunHandle]) -> None:
        for run, body in zip(runs, self._objects.each(self._body, runs), strict=True):
            self._bodies[run.key] = body

    def _body(self, run: RunHandle) -> bytes:
        try:
            body = self._objects.store.get(run.key)
        except NotFound as error:
            raise self._corrupt(run, "it is missing") from error
        problem = check_body(run, body)
        if problem is not None:
            raise self._corrupt(run, problem)
        return body

    def _corrupt(self, run: RunHandle, problem: str) -> StateCorrupt:
        return self._objects.unusable("state run", run.key, self._identity.uid, problem)
