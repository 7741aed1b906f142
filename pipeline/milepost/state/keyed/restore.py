"""Restore the keyed state of one subtask from the runs of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.state.cache.cache import StateCache
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.run_reader import RunReader, referenced_runs
from milepost.state.keyed.snapshot import RestoredState
from milepost.state.layers.key_groups import overlap
from milepost.state.runs.handles import RunKind, StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.state.statistics.row_statistics import RowStatistics


def restore_state(
    identity: StateIdentity,
    handles: Sequence[StateHandle],
    objects: CheckpointObjects,
    *,
    watermark_us: int | None,
    firing: Sequence[int | None] = (),
    cache: StateCache | None = None,
) -> SubtaskState:
    """Restore one subtask's state from a checkpoint of any parallelism.

    Args:
        identity: must use the key hash that placed the rows of `handles`.
        handles: the state handle of every subtask of this operator in the checkpoint; empty for empty state.
        watermark_us: firing watermark from which this subtask continues. Rows that expired by then are dead.
        firing: the firing watermark of each handle's subtask, none below `watermark_us`. Where one is later, its
            expired rows stay dead and its fired timers do not fire again.
        cache: read for each run, and filled with missing ones. The result is the same without it.
    Raises:
        StateCorrupt: a run is missing or altered, or does not match its handle.
        InvalidRequest: the schema or `max_parallelism` does not fit.
        StoreUnavailable, EnvironmentUnusable: from the store.
    """
    reader = RunReader(identity, objects, cache)
    runs = referenced_runs(identity, handles, objects)
    layers = [(run.kind, layer) for run, layer in zip(runs, reader.read(runs), strict=True)]
    if cache is not None:
        cache.retain(identity, runs, objects.checkpoint_id)
    bases = tuple(layer for kind, layer in layers if kind is RunKind.BASE)
    deltas = tuple(layer for kind, layer in layers if kind is RunKind.DELTA)
    same_watermark = all(fired_us in (None, watermark_us) for fired_us in firing)
    statistics = _statistics(identity, handles) if same_watermark else None
    state = SubtaskState(RestoredState(identity, bases, deltas, runs, watermark_us, statistics, cache))
    for handle, fired_us in zip(handles, firing, strict=False):
        mine = overlap(handle.key_groups, identity.key_groups)
        if mine and fired_us is not None and fired_us != watermark_us:
            state.forget(state.expired(handle.key_groups, fired_us))
            state.pass_timers(handle.key_groups, fired_us)
    return state


def _statistics(identity: StateIdentity, handles: Sequence[StateHandle]) -> RowStatistics | None:
    """Return the sum of the recorded statistics of a subtask's handles.

    None if a rescale split the key groups of a handle: its statistics cannot be divided.
    """
    own = identity.key_groups
    mine = [item for item in handles if overlap(item.key_groups, own)]
    if any(item.key_groups.start < own.start or item.key_groups.stop > own.stop for item in mine):
        return None
    return RowStatistics(sum(item.live_rows for item in mine), tuple(timer for item in mine for timer in item.timers))
