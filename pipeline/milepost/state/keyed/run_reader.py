"""The run reader restores layers from state handles, by the node cache or the store, and checks them."""

from __future__ import annotations

from collections.abc import Sequence
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


class RunReader:
    """Reads runs from the cache, else from the store with their size and checksum verified; each object once."""

    def __init__(self, identity: StateIdentity, objects: CheckpointObjects, cache: StateCache | None) -> None:
        self._identity = identity
        self._objects = objects
        self._cache = cache
        self._bodies = {} if objects.bodies is None else objects.bodies

    def read(self, run: RunHandle) -> Layer:
        """Return the rows of a run that count here.

        With a cache they come out of it, mapped, also when they had to be put there first: of many runs that are
        decoded one after another, only one lies in this process's own memory.
        """
        cache = self._cache
        if cache is None:
            return self._decoded(run)
        layer = cache.load(self._identity, run)
        if layer is None:
            layer = self._decoded(run)
            if cache.stage(self._identity, run, layer):
                layer = cache.load(self._identity, run) or layer
        return layer

    def _decoded(self, run: RunHandle) -> Layer:
        identity, body = self._identity, self._body(run)
        try:
            return decode_run(body, run, run.valid, identity.stored, identity.keys, identity.max_parallelism)
        except StateCorrupt as error:
            raise self._corrupt(run, error.message) from error
        except (pa.ArrowException, OSError) as error:
            raise self._corrupt(run, f"it is not a readable Parquet file ({error})") from error

    def _body(self, run: RunHandle) -> bytes:
        if run.key not in self._bodies:
            try:
                body = self._objects.store.get(run.key)
            except NotFound as error:
                raise self._corrupt(run, "it is missing") from error
            problem = check_body(run, body)
            if problem is not None:
                raise self._corrupt(run, problem)
            self._bodies[run.key] = body
            return body
        return self._bodies[run.key]

    def _corrupt(self, run: RunHandle, problem: str) -> StateCorrupt:
        return self._objects.unusable("state run", run.key, self._identity.uid, problem)
