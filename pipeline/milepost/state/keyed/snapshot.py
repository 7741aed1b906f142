"""Encode frozen state: choose what to write, encode it, and list the runs of the state.

A `FrozenState` shares immutable layers with the state it came from. Encoding is a pure function of those layers. So two
attempts of a task write the same bytes under the same name, and acknowledge the same handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from milepost.state.cache.cache import StateCache
from milepost.state.layers.layer import Layer, mask_without, match, stack
from milepost.state.runs.compaction import SnapshotWrite, choose_write
from milepost.state.runs.handles import RunHandle, RunKind, StateHandle
from milepost.state.runs.identity import StateIdentity
from milepost.state.runs.runs import encode_run
from milepost.state.statistics.row_statistics import Change, RowStatistics, Times, counted


@dataclass(frozen=True, slots=True)
class RestoredState:
    """One subtask's state in a checkpoint.

    Attributes:
        bases, deltas: layers of the base and delta runs, in the order of `runs`. No two bases share a key group.
        watermark_us: firing watermark of the subtask at the checkpoint.
        statistics: of the checkpoint; None when all rows must be counted.
        cache: stores the run of the next snapshot.
    """

    identity: StateIdentity
    bases: tuple[Layer, ...]
    deltas: tuple[Layer, ...]
    runs: tuple[RunHandle, ...]
    watermark_us: int | None
    statistics: RowStatistics | None
    cache: StateCache | None

    @property
    def times(self) -> Times:
        return Times.of(self.identity.stored)


@dataclass(frozen=True, slots=True)
class Upload:
    """One object that must be durable before the snapshot is acknowledged. `key` is relative to the job's root."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The handle that the subtask acknowledges, and the uploads it must finish first; none when no key changed."""

    handle: StateHandle
    uploads: tuple[Upload, ...]


class FrozenState:
    """The state at the barrier. It can be encoded at any time: later changes of the operator do not affect it.

    Args:
        watermark_us: firing watermark at this checkpoint.
        added: number of changed rows with keys that had no live row; None if unknown.
    """

    def __init__(self, restored: RestoredState, changes: Layer, watermark_us: int | None, added: int | None) -> None:
        self._restored = restored
        self._identity = restored.identity
        self._bases, self._deltas, self._runs = restored.bases, restored.deltas, restored.runs
        self._watermark_us = watermark_us
        self._times = restored.times
        self._all_changes = changes
        self._changes = self._drop_useless_tombstones(changes, (*reversed(self._deltas), *self._bases))
        self._added = added
        self._written: Layer | None = None

    @property
    def changed_rows(self) -> int:
        """The number of rows and tombstones that this epoch must record."""
        return self._changes.num_rows

    def encode(self, directory: str) -> StateSnapshot:
        """Return the handle to acknowledge and the objects to upload before that.

        Args:
            directory: prefix of the object keys, relative to the job's root; ends in ``/``.
        """
        choice = choose_write(
            base_rows=sum(int(np.count_nonzero(self._times.alive(base, self._watermark_us))) for base in self._bases),
            delta_rows=[layer.num_rows for layer in self._deltas],
            changed_rows=self._changes.num_rows,
        )
        runs = self._runs
        uploads: tuple[Upload, ...] = ()
        if choice.write is SnapshotWrite.BASE:
            whole = self._stack([*self._bases, *self._deltas, self._changes])
            live = whole.where(self._times.alive(whole, self._watermark_us) & ~whole.deleted)
            runs, uploads = self._write(live, RunKind.BASE, (), directory)
            statistics = self._count([live])
        elif choice.write is SnapshotWrite.MERGED_DELTA:
            older, newest = self._deltas[: -choice.merged], self._deltas[-choice.merged :]
            replaced = [run for run in self._runs if run.kind is RunKind.DELTA][-choice.merged :]
            merged = self._drop_useless_tombstones(
                self._stack([*newest, self._changes]), (*reversed(older), *self._bases)
            )
            kept = tuple(run for run in self._runs if run not in replaced)
            runs, uploads = self._write(merged, RunKind.DELTA, kept, directory)
        elif choice.write is SnapshotWrite.DELTA:
            runs, uploads = self._write(self._changes, RunKind.DELTA, self._runs, directory)
        if choice.write is not SnapshotWrite.BASE:
            statistics = self._updated_statistics()
        handle = StateHandle(
            uid=self._identity.uid,
            key_groups=self._identity.key_groups,
            max_parallelism=self._identity.max_parallelism,
            runs=runs,
            timers=statistics.timers,
            live_rows=statistics.live_rows,
        )
        return StateSnapshot(handle, uploads)

    def _updated_statistics(self) -> RowStatistics:
        """Return the statistics after this epoch, computed from the previous ones and the changes where possible."""
        older = [layer for layer in (*reversed(self._deltas), *self._bases) if layer.num_rows]
        if self._restored.statistics is None:
            return self._count([self._all_changes, *older])
        identity = self._identity
        change = Change(
            self._times,
            identity.keys,
            identity.max_parallelism,
            self._restored.watermark_us,
            self._watermark_us,
            self._all_changes,
            older,
            self._added,
        )
        return change.renewed(self._restored.statistics)

    def _count(self, layers: Sequence[Layer]) -> RowStatistics:
        identity = self._identity
        return counted(layers, self._times, identity.keys, identity.max_parallelism, self._watermark_us)

    def _stack(self, layers: Sequence[Layer]) -> Layer:
        return stack(layers, self._identity.keys, self._identity.schema)

    def stage_cache(self, snapshot: StateSnapshot) -> None:
        """Store the run just written in the node-local cache, for the next epoch's restore. Faults are only logged."""
        cache = self._restored.cache
        if cache is not None and self._written is not None and snapshot.uploads:
            cache.stage(self._identity, snapshot.handle.runs[-1], self._written)

    def _drop_useless_tombstones(self, changes: Layer, below: tuple[Layer, ...]) -> Layer:
        """Replace dead rows with tombstones, and drop the tombstones that hide no live row below.

            changes   a dead   b deleted   c=4          below   a=1   c=3
            result    a deleted            c=4          b is dropped: no older layer has a live b

        Args:
            below: the older layers that remain, newest first.
        """
        dead = changes.deleted | ~self._times.alive(changes, self._watermark_us)
        if not dead.any():
            return changes
        hides = np.zeros(changes.num_rows, dtype=np.bool_)
        unresolved = np.flatnonzero(dead)
        for layer in below:
            query, found = match(layer, changes.hashes[unresolved], changes.rows, self._identity.keys, unresolved)
            visible = ~layer.deleted[found] & self._times.alive(layer, self._watermark_us, found)
            hides[unresolved[query[visible]]] = True
            unresolved = unresolved[mask_without(query, len(unresolved))]
        marked = Layer(changes.hashes, changes.stored, changes.deleted | dead)
        return marked.where(~dead | hides)

    def _write(
        self, layer: Layer, kind: RunKind, kept: tuple[RunHandle, ...], directory: str
    ) -> tuple[tuple[RunHandle, ...], tuple[Upload, ...]]:
        if not layer.num_rows:
            return kept, ()
        identity = self._identity
        self._written = layer
        handle, body = encode_run(
            layer, kind, identity.key_groups, identity.max_parallelism, directory, identity.keys, identity.stored
        )
        return (*kept, handle), (Upload(handle.key, body),)
