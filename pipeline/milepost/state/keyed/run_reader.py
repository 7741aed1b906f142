"""Restore and verify layers of state handles, from the node cache or the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from milepost.errors import InvalidRequest, NotFound, StateCorrupt
from milepost.state.cache.cache import StateCache
from milepost.state.layers.layer import Layer
from milepost.state.runs.handles import RunHandle, StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.state.runs.runs import check_body, decode_run


def referenced_runs(
    identity: StateIdentity, handles: Sequence[StateHandle], objects: CheckpointObjects
) -> tuple[RunHandle, ...]:
    """Return the runs of this subtask, oldest first, each narrowed to the key groups that are valid here.

    A rescale from one subtask to two halves the valid key groups of a run, not its file: run 0..127 becomes 0..63 of
    the first subtask and 64..127 of the second.

    Raises:
        InvalidRequest: `max_parallelism` differs from the recorded one.
        StateCorrupt: the handles do not cover the subtask's key groups, or belong to another operator.
    """
    own, covered, checkpoint_id = identity.key_groups, 0, objects.checkpoint_id
    runs: list[RunHandle] = []
    for handle in sorted(handles, key=lambda handle: handle.key_groups.start):
        if handle.max_parallelism != identity.max_parallelism:
            raise InvalidRequest(
                f"checkpoint {checkpoint_id}: state of {identity.uid!r} has {handle.max_parallelism} key groups, the "
                f"spec has {identity.max_parallelism}. Nothing was changed.",
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
            hint=f"Run `milepost verify {objects.job}` to list the damaged objects, and restore them from a copy.",
        )
    return tuple(runs)


def _intersection(left: range, right: range) -> range:
    start = max(left.start, right.start)
    return range(start, max(start, min(left.stop, right.stop)))


_BATCH_BYTES = 32 << 20
"""Maximum size of the runs that are read in parallel."""


class RunReader:
    """Reads runs from the cache, or else from the store, where it verifies size and checksum. Reads an object once."""

    def __init__(self, identity: StateIdentity, objects: CheckpointObjects, cache: StateCache | None) -> None:
        self._identity = identity
        self._objects = objects
        self._cache = cache
        self._bodies = {} if objects.bodies is None else objects.bodies

    def read(self, runs: Sequence[RunHandle]) -> list[Layer]:
        """Return the rows of the runs' valid key groups. Bodies that are not cached are read in parallel.

        With a cache, every layer is mapped from it, including the runs that are decoded now. So only one decoded run at
        a time is in this process's own memory.
        """
        cached = [None if self._cache is None else self._cache.load(self._identity, run) for run in runs]
        self._fetch({run.key: run for run, layer in zip(runs, cached, strict=True) if layer is None}.values())
        return [self._read(run) if layer is None else layer for run, layer in zip(runs, cached, strict=True)]

    def _read(self, run: RunHandle) -> Layer:
        layer = self._decode(run)
        if self._cache is not None and self._cache.stage(self._identity, run, layer):
            return self._cache.load(self._identity, run) or layer
        return layer

    def _decode(self, run: RunHandle) -> Layer:
        identity, body = self._identity, self._bodies[run.key]
        try:
            return decode_run(body, run, run.valid, identity.stored, identity.keys, identity.max_parallelism)
        except StateCorrupt as error:
            raise self._corrupt(run, error.message) from error
        except MemoryError:  # pyarrow's memory error is also an ArrowException
            raise
        except (pa.ArrowException, OSError) as error:
            raise self._corrupt(run, f"it is not a readable Parquet file ({error})") from error

    def _fetch(self, runs: Iterable[RunHandle]) -> None:
        """Read and check the bodies not read before, in batches of about `_BATCH_BYTES`."""
        batch, size = list[RunHandle](), 0
        for run in runs:
            if run.key in self._bodies:
                continue
            if batch and size + run.size > _BATCH_BYTES:
                self._fetch_parallel(batch)
                batch, size = [], 0
            batch.append(run)
            size += run.size
        self._fetch_parallel(batch)

    def _fetch_parallel(self, runs: Sequence[RunHandle]) -> None:
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
