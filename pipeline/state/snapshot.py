"""What follows the freeze: choose what to write, encode it, name the runs that are the state from now on.

A `FrozenState` shares immutable layers with the state it came from. Encoding is a pure function of them, so two
attempts of a task produce the same bytes under the same name, and acknowledge the same handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.state.cache import StateCache
from pipeline.state.compaction import SnapshotWrite, choose_write
from pipeline.state.handles import RunHandle, RunKind, StateHandle
from pipeline.state.key_groups import KEY_HASH_VERSION, key_group
from pipeline.state.layer import Bools, KeySpec, Layer, match, stack
from pipeline.state.runs import encode_run

TIMER_COLUMN = "__timer"
EXPIRES_COLUMN = "__expires"

_Parts: TypeAlias = tuple[tuple[Layer, Bools], ...]


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


def alive(layer: Layer, watermark_us: int | None) -> Bools:
    """Whether each row's expiry is still ahead of the firing watermark; rows without expiry always are."""
    if watermark_us is None or EXPIRES_COLUMN not in layer.rows.column_names:
        return np.ones(layer.num_rows, dtype=np.bool_)
    return ~_at_most(layer, EXPIRES_COLUMN, watermark_us)


def is_due(layer: Layer, time_us: int) -> Bools:
    """Whether each row's timer or expiry is <= time_us. Tombstones count as rows."""
    due = np.zeros(layer.num_rows, dtype=np.bool_)
    for name in (TIMER_COLUMN, EXPIRES_COLUMN):
        if name in layer.rows.column_names:
            due |= _at_most(layer, name, time_us)
    return due


def _at_most(layer: Layer, column: str, time_us: int) -> Bools:
    compared = pc.less_equal(layer.rows.column(column), pa.scalar(time_us, pa.int64()))
    return pc.fill_null(compared, False).to_numpy().astype(np.bool_)


class FrozenState:
    """The state at the barrier: encode it when you like; later changes of the operator do not reach it.

    Args:
        deltas: of each delta run, in the order of `runs`.
        live_rows: with the changes; None when they have to be counted.
    """

    def __init__(
        self,
        identity: StateIdentity,
        base: Layer,
        deltas: tuple[Layer, ...],
        changes: Layer,
        runs: tuple[RunHandle, ...],
        watermark_us: int | None,
        cache: StateCache | None,
        live_rows: int | None,
    ) -> None:
        self._identity = identity
        self._base = base
        self._deltas = deltas
        self._runs = runs
        self._watermark_us = watermark_us
        self._cache = cache
        self._changes = self._needed(changes, (*reversed(deltas), base))
        self._live_rows = live_rows
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
            base_rows=int(np.count_nonzero(alive(self._base, self._watermark_us))),
            delta_rows=[layer.num_rows for layer in self._deltas],
            changed_rows=self._changes.num_rows,
        )
        runs = self._runs
        uploads: tuple[Upload, ...] = ()
        parts: _Parts | None = None
        if choice.write is SnapshotWrite.BASE:
            whole = self._stack([self._base, *self._deltas, self._changes])
            live = whole.where(alive(whole, self._watermark_us) & ~whole.deleted)
            runs, uploads = self._write(live, RunKind.BASE, (), directory)
            parts = ((live, np.ones(live.num_rows, dtype=np.bool_)),)
        elif choice.write is SnapshotWrite.MERGED_DELTA:
            older, newest = self._deltas[: -choice.merged], self._deltas[-choice.merged :]
            replaced = [run for run in self._runs if run.kind is RunKind.DELTA][-choice.merged :]
            merged = self._needed(self._stack([*newest, self._changes]), (*reversed(older), self._base))
            kept = tuple(run for run in self._runs if run not in replaced)
            runs, uploads = self._write(merged, RunKind.DELTA, kept, directory)
        elif choice.write is SnapshotWrite.DELTA:
            runs, uploads = self._write(self._changes, RunKind.DELTA, self._runs, directory)
        live_rows = self._live_rows
        if live_rows is None or TIMER_COLUMN in self._identity.schema.names:
            parts = parts or self._live()
            live_rows = sum(int(np.count_nonzero(live)) for _, live in parts)
        handle = StateHandle(
            uid=self._identity.uid,
            key_groups=self._identity.key_groups,
            max_parallelism=self._identity.max_parallelism,
            hash_version=KEY_HASH_VERSION,
            runs=runs,
            timers=self._timers(parts or ()),
            live_rows=live_rows,
        )
        return StateSnapshot(handle, uploads)

    def _live(self) -> _Parts:
        """The base, and all that is newer as one layer, each with what is alive of it and not hidden."""
        recent = self._stack([*self._deltas, self._changes])
        shadowed = np.zeros(self._base.num_rows, dtype=np.bool_)
        _, hidden = match(self._base, recent.hashes, recent.rows, self._identity.keys)
        shadowed[hidden] = True
        base_live = alive(self._base, self._watermark_us) & ~shadowed
        return (self._base, base_live), (recent, alive(recent, self._watermark_us) & ~recent.deleted)

    def _stack(self, layers: Sequence[Layer]) -> Layer:
        return stack(layers, self._identity.keys, self._identity.schema)

    def stage_cache(self, snapshot: StateSnapshot) -> None:
        """Put the run just written into the node-local cache, for the next epoch. A fault is logged, never raised."""
        if self._cache is None or self._written is None or not snapshot.uploads:
            return
        run = snapshot.handle.runs[-1]
        identity = self._identity
        self._cache.stage(
            identity.uid, run, run.valid, identity.stored, identity.keys, identity.max_parallelism, self._written
        )

    def _needed(self, changes: Layer, below: tuple[Layer, ...]) -> Layer:
        """Drop dead rows, or make them tombstones; of tombstones keep those that hide a row alive below.

        Args:
            below: the older layers that stay, newest first.
        """
        gone = changes.deleted | ~alive(changes, self._watermark_us)
        if not gone.any():
            return changes
        positions = np.flatnonzero(gone)
        hides = np.zeros(changes.num_rows, dtype=np.bool_)
        hashes = changes.hashes[positions]
        keys = changes.rows.select(list(self._identity.keys.key)).take(pa.array(positions))
        open_ = np.ones(len(positions), dtype=np.bool_)
        for layer in below:
            asked, found = match(layer, hashes, keys, self._identity.keys)
            visible = (alive(layer, self._watermark_us) & ~layer.deleted)[found] & open_[asked]
            hides[positions[asked[visible]]] = True
            open_[asked] = False
        marked = Layer(changes.hashes, changes.rows, changes.deleted | gone)
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

    def _timers(self, parts: _Parts) -> tuple[tuple[int, int], ...]:
        """Earliest timer per key group that this epoch did not fire, of live rows."""
        if TIMER_COLUMN not in self._identity.schema.names:
            return ()
        earliest = np.full(self._identity.max_parallelism, np.iinfo(np.int64).max, dtype=np.int64)
        seen = np.zeros(self._identity.max_parallelism, dtype=np.bool_)
        for layer, live in parts:
            if not layer.num_rows:
                continue
            timers = layer.rows.column(TIMER_COLUMN)
            pending = live & timers.is_valid().to_numpy().astype(np.bool_)
            times = pc.fill_null(timers, 0).to_numpy()
            if self._watermark_us is not None:
                pending &= times > self._watermark_us
            groups = key_group(layer.hashes[pending], self._identity.max_parallelism)
            np.minimum.at(earliest, groups, times[pending])
            seen[groups] = True
        return tuple((int(group), int(earliest[group])) for group in np.flatnonzero(seen))
