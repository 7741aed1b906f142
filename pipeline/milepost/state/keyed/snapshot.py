"""The snapshot follows the freeze: choose what to write, encode it, name the runs that are the state.

A `FrozenState` shares immutable layers with the state it came from. Encoding is a pure function of them, so two
attempts of a task produce the same bytes under the same name, and acknowledge the same handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.state.cache.cache import StateCache
from milepost.state.layers.layer import KeySpec, Layer, match, others, stack
from milepost.state.runs.compaction import SnapshotWrite, choose_write
from milepost.state.runs.handles import RunHandle, RunKind, StateHandle
from milepost.state.runs.runs import encode_run
from milepost.state.statistics.row_statistics import Change, RowStatistics, Times, counted


@dataclass(frozen=True, slots=True)
class StateIdentity:
    """Whose state it is, and which part of it.

    Attributes:
        uid: operator. schema: of its state rows, all nullable, without metadata. stored: the same columns with their
            names in runs.
        key_groups: what the subtask owns, of max_parallelism.
    """

    uid: str
    keys: KeySpec
    schema: pa.Schema
    stored: pa.Schema
    key_groups: range
    max_parallelism: int

    @property
    def times(self) -> Times:
        return Times(tuple(self.schema.names))


@dataclass(frozen=True, slots=True)
class Upload:
    """One object that must be durable before the snapshot is acknowledged. `key` is relative to the job's root."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """What the subtask acknowledges, and what it must upload first; nothing when no key changed."""

    handle: StateHandle
    uploads: tuple[Upload, ...]


class FrozenState:
    """The state at the barrier: encode it when you like; later changes of the operator do not reach it.

    Args:
        bases, deltas: of each base and delta run, in the order of `runs`; no two bases share a key group.
        watermarks_us: firing watermarks at the restored checkpoint and at this one.
        statistics: of the restored checkpoint; None when all rows have to be counted.
        added: how many of the changes were not alive; None when that was not looked at.
    """

    def __init__(
        self,
        identity: StateIdentity,
        bases: tuple[Layer, ...],
        deltas: tuple[Layer, ...],
        changes: Layer,
        runs: tuple[RunHandle, ...],
        watermarks_us: tuple[int | None, int | None],
        cache: StateCache | None,
        statistics: RowStatistics | None,
        added: int | None,
    ) -> None:
        self._identity = identity
        self._bases = bases
        self._deltas = deltas
        self._runs = runs
        self._before_us, self._watermark_us = watermarks_us
        self._times = identity.times
        self._cache = cache
        self._all_changes = changes
        self._changes = self._needed(changes, (*reversed(deltas), *bases))
        self._statistics, self._added = statistics, added
        self._written: Layer | None = None

    @property
    def changed_rows(self) -> int:
        """Rows and tombstones that this epoch must record."""
        return self._changes.num_rows

    def encode(self, directory: str) -> StateSnapshot:
        """Return the handle to acknowledge and the bytes to upload before.

        Args:
            directory: of the object key relative to the job's root, ends in ``/``.
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
            merged = self._needed(self._stack([*newest, self._changes]), (*reversed(older), *self._bases))
            kept = tuple(run for run in self._runs if run not in replaced)
            runs, uploads = self._write(merged, RunKind.DELTA, kept, directory)
        elif choice.write is SnapshotWrite.DELTA:
            runs, uploads = self._write(self._changes, RunKind.DELTA, self._runs, directory)
        if choice.write is not SnapshotWrite.BASE:
            statistics = self._renewed()
        handle = StateHandle(
            uid=self._identity.uid,
            key_groups=self._identity.key_groups,
            max_parallelism=self._identity.max_parallelism,
            runs=runs,
            timers=statistics.timers,
            live_rows=statistics.live_rows,
        )
        return StateSnapshot(handle, uploads)

    def _renewed(self) -> RowStatistics:
        """The statistics of a state of which only the changes are written."""
        older = [layer for layer in (*reversed(self._deltas), *self._bases) if layer.num_rows]
        if self._statistics is None:
            return self._count([self._all_changes, *older])
        identity = self._identity
        change = Change(
            self._times,
            identity.keys,
            identity.max_parallelism,
            self._before_us,
            self._watermark_us,
            self._all_changes,
            older,
            self._added,
        )
        return change.renewed(self._statistics)

    def _count(self, layers: Sequence[Layer]) -> RowStatistics:
        identity = self._identity
        return counted(layers, self._times, identity.keys, identity.max_parallelism, self._watermark_us)

    def _stack(self, layers: Sequence[Layer]) -> Layer:
        return stack(layers, self._identity.keys, self._identity.schema)

    def stage_cache(self, snapshot: StateSnapshot) -> None:
        """Put the run just written into the node-local cache: the next epoch restores it. A fault is only logged."""
        if self._cache is None or self._written is None or not snapshot.uploads:
            return
        identity, run = self._identity, snapshot.handle.runs[-1]
        self._cache.stage(
            identity.uid, run, run.valid, identity.stored, identity.keys, identity.max_parallelism, self._written
        )

    def _needed(self, changes: Layer, below: tuple[Layer, ...]) -> Layer:
        """Drop dead rows, or make them tombstones; of tombstones keep those that hide a row alive below.

        Args:
            below: the older layers that stay, newest first.
        """
        gone = changes.deleted | ~self._times.alive(changes, self._watermark_us)
        if not gone.any():
            return changes
        hides = np.zeros(changes.num_rows, dtype=np.bool_)
        open_ = np.flatnonzero(gone)
        for layer in below:
            query, found = match(layer, changes.hashes[open_], changes.rows, self._identity.keys, open_)
            visible = ~layer.deleted[found] & self._times.alive(layer, self._watermark_us, found)
            hides[open_[query[visible]]] = True
            open_ = open_[others(query, len(open_))]
        marked = Layer(changes.hashes, changes.stored, changes.deleted | gone)
        return marked.where(~gone | hides)

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
