"""Read the rows of an operator's state at one or two checkpoints, in bounded memory.

Runs are read one after another, one row group at a time, and sorted on disk. A key's newest row wins. Each row has a
status per checkpoint: absent (the checkpoint does not have its run), live, or dead (deleted or expired). Example for
checkpoints A and B, where run 1 is in both and run 2 only in B:

    run 1: k=1 v=10, k=2 v=20        run 2: k=2 v=25
    A has k=1 v=10 and k=2 v=20, B has k=1 v=10 and k=2 v=25. Only k=2 differs, so only its rows are yielded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.epoch import CheckpointMetadata, OperatorTable
from milepost.errors import StateCorrupt
from milepost.protocol.records import ObjectHandle, ObjectStore
from milepost.spill import ordered_rows, reading_scratch
from milepost.state.keyed import referenced_runs
from milepost.state.layers import Bools, Hashes, KeySpec, Layer, key_numbers, newest_rows, stable_order
from milepost.state.runs import CheckpointObjects, RunHandle, StateIdentity, decode_pieces
from milepost.state.statistics import Times
from milepost.storage import handle_files

MAX_CHANGED_ROWS = 4_000_000
"""Up to this number of rows that differ between two checkpoints, all other keys are omitted from a comparison."""

_HASH, _IS_DEAD, _AGE = "__state_hash", "__state_dead", "__state_age"
_ABSENT, _LIVE, _DEAD = 0, 1, 2
"""Status of a row at a checkpoint: in no run of it; live; deleted or expired."""


@dataclass(frozen=True, slots=True)
class StateSide:
    """A table of an operator's state at a checkpoint."""

    metadata: CheckpointMetadata
    table: OperatorTable

    @property
    def keys(self) -> KeySpec:
        """How rows are identified and routed."""
        return KeySpec(self.table.state.key, self.table.state.routing_key, self.metadata.hasher)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([pa.field(field.name, field.type) for field in self.table.state.schema])

    def is_comparable(self, other: StateSide) -> bool:
        """Return whether a run that both sides have means the same rows to both."""
        return self.keys == other.keys and self.table.state.schema.equals(other.table.state.schema, check_metadata=True)

    def objects(self, store: ObjectStore) -> CheckpointObjects:
        """The store with the runs."""
        return CheckpointObjects(store, self.metadata.checkpoint_id, self.metadata.job)

    def parts(self, objects: CheckpointObjects) -> Iterator[tuple[StateIdentity, RunHandle, int | None]]:
        """Yield each run of each subtask, oldest first, with the firing watermark by which its rows expire."""
        state = self.table.state
        for handle, firing_us in zip(state.handles, self.table.firing, strict=True):
            own = StateIdentity.of(self.table.uid, self.keys, state.schema, handle.key_groups, handle.max_parallelism)
            yield from ((own, run, firing_us) for run in referenced_runs(own, [handle], objects))


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of a subtask. firing: the firing watermark of each side that has the run."""

    own: StateIdentity
    run: RunHandle
    firing: Mapping[int, int | None]

    def statuses(self, layer: Layer, side: int, times: Times) -> pa.Array:
        """Return the status of each row at a side."""
        if side not in self.firing:
            return pa.array(np.full(layer.num_rows, _ABSENT, dtype=np.uint8))
        live = ~layer.deleted & times.alive(layer, self.firing[side])
        return pa.array(np.where(live, _LIVE, _DEAD).astype(np.uint8))


def rows_by_hash(store: ObjectStore, side: StateSide) -> Iterator[pa.Table]:
    """Yield all live rows in the order of their key hash, as stored.

    Raises:
        StateCorrupt: a run is missing, or does not match its handle.
    """
    times = Times.of(side.table.state.schema)

    def hashed(part: _Part, layer: Layer) -> pa.Table:
        dead = layer.deleted | ~times.alive(layer, part.firing[0])
        return _with(layer.rows, {_HASH: layer.hashes, _IS_DEAD: dead})

    def newest(rows: pa.Table) -> pa.Table:
        rows = rows.combine_chunks()
        order, hashes = stable_order(rows.column(_HASH).to_numpy())
        dead = np.asarray(rows.column(_IS_DEAD), dtype=np.bool_)
        layer = newest_rows(order, hashes, rows.drop_columns([_HASH, _IS_DEAD]), dead, side.keys)
        return _with(layer.rows, {_HASH: layer.hashes, _IS_DEAD: layer.deleted})

    pieces = (hashed(*piece) for piece in _layers(store, side, _parts(store, [side])))
    for rows in ordered_rows(pieces, [_HASH], newest):
        yield rows.filter(pc.invert(rows.column(_IS_DEAD))).drop_columns([_HASH, _IS_DEAD])


def rows_by_key(
    store: ObjectStore, side: StateSide, types: Mapping[str, pa.DataType] | None = None
) -> Iterator[pa.Table]:
    """Yield all live rows in the order of their key, nulls last.

    Args:
        types: wider types to cast key columns to; None: none.
    Raises: as `rows_by_hash`.
    """
    for (rows,) in _by_key(store, [side], types or {}):
        yield rows


def changed_by_key(store: ObjectStore, before: StateSide, after: StateSide) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield, in steps and in key order, the live rows of two comparable sides that are not the same on both.

    A run that both have is read once. Of its rows, only keys that another run has, or that expired, are compared.
    """
    return ((old, new) for old, new in _by_key(store, [before, after], {}))


def check_rows(store: ObjectStore, side: StateSide) -> None:
    """Read and decode every run. Raises: as `rows_by_hash`."""
    for _ in _layers(store, side, _parts(store, [side])):
        pass


def _by_key(
    store: ObjectStore, sides: Sequence[StateSide], types: Mapping[str, pa.DataType]
) -> Iterator[list[pa.Table]]:
    """Yield the live rows of each side, in steps and in key order. Of several sides, only rows that not all have."""
    key, names = list(sides[0].table.state.key), [f"__state_side_{at}" for at in range(len(sides))]
    times = Times.of(sides[0].table.state.schema)
    parts = _parts(store, sides)
    ages = {id(part): age for age, part in enumerate(parts)}
    # Runs of only some sides come first. After them it is known which keys of the shared runs matter.
    parts.sort(key=lambda part: len(part.firing) == len(sides) > 1)
    changed = _ChangedKeys()

    def pieces() -> Iterator[pa.Table]:
        for part, layer in _layers(store, sides[0], parts):
            statuses = [part.statuses(layer, side, times) for side in range(len(sides))]
            rows = layer.rows
            for name, type_ in types.items():
                rows = rows.set_column(rows.column_names.index(name), name, rows.column(name).cast(type_))
            age = np.full(layer.num_rows, ages[id(part)], dtype=np.int32)
            rows = _with(rows, {_AGE: age, **dict(zip(names, statuses, strict=True))})
            differs = np.zeros(layer.num_rows, dtype=np.bool_)
            for status in statuses[1:]:
                differs |= np.asarray(pc.not_equal(status, statuses[0]))
            changed.add(layer.hashes[differs])  # in a shared run: rows that expired on one side only
            yield rows if len(sides) == 1 else rows.filter(pa.array(changed.contains(layer.hashes)))

    def newest(rows: pa.Table) -> pa.Table:
        rows = rows.combine_chunks()
        rows = rows.take(pa.array(np.argsort(rows.column(_AGE).to_numpy(), kind="stable")))
        numbers = key_numbers(rows.select(key).combine_chunks())
        chosen = np.zeros(rows.num_rows, dtype=np.bool_)
        for name in names:
            status = rows.column(name).to_numpy()
            present = np.flatnonzero(status != _ABSENT)
            last = np.full(int(numbers.max()) + 1, -1, dtype=np.int64)
            last[numbers[present]] = present  # of equal key numbers, the last (newest) row wins
            last = last[last >= 0]
            newest_status = np.full(rows.num_rows, _ABSENT, dtype=np.uint8)
            newest_status[last] = status[last]
            chosen[last] = True
            rows = rows.set_column(rows.column_names.index(name), name, pa.array(newest_status))
        positions = np.flatnonzero(chosen)
        return rows.take(pa.array(positions[np.argsort(numbers[positions], kind="stable")]))

    for rows in ordered_rows(pieces(), key, newest):
        statuses = [rows.column(name).to_numpy() for name in names]
        live = [status == _LIVE for status in statuses]
        differ = np.ones(rows.num_rows, dtype=np.bool_) if len(sides) == 1 else ~np.logical_and.reduce(live)
        plain = rows.drop_columns([_AGE, *names])
        yield [plain.filter(pa.array(side & differ)) for side in live]


class _ChangedKeys:
    """Key hashes of rows that differ between sides. Beyond `MAX_CHANGED_ROWS`, every key counts as changed."""

    def __init__(self) -> None:
        self._sorted = np.empty(0, dtype=np.uint64)
        self._added: list[Hashes] = []
        self._is_full = False

    def add(self, hashes: Hashes) -> None:
        if len(hashes) and not self._is_full:
            self._added.append(hashes)
            self._is_full = len(self._sorted) + sum(map(len, self._added)) > MAX_CHANGED_ROWS

    def contains(self, hashes: Hashes) -> Bools:
        """Return which hashes are among the changed keys."""
        if self._is_full:
            return np.ones(len(hashes), dtype=np.bool_)
        if self._added:
            self._sorted = np.unique(np.concatenate([self._sorted, *self._added]))
            self._added = []
        if not len(self._sorted):
            return np.zeros(len(hashes), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        return np.asarray(self._sorted[at] == hashes, dtype=np.bool_)


def _parts(store: ObjectStore, sides: Sequence[StateSide]) -> list[_Part]:
    """Merge the runs of all sides, each run once, keeping the order within each side.

    Example: side 0 has runs a, b and side 1 has runs a, c. The result is a (sides 0 and 1), c (side 1), b (side 0).
    """
    merged: list[_Part] = []
    for number, side in enumerate(sides):
        at = 0
        for own, run, firing_us in side.parts(side.objects(store)):
            matches = [i for i, part in enumerate(merged[at:], at) if (part.own, part.run) == (own, run)]
            if matches:
                at = matches[0]
                merged[at] = _Part(own, run, {**merged[at].firing, number: firing_us})
            else:
                merged.insert(at, _Part(own, run, {number: firing_us}))
            at += 1
    return merged


def _layers(store: ObjectStore, side: StateSide, parts: Iterable[_Part]) -> Iterator[tuple[_Part, Layer]]:
    """Yield the rows of runs in pieces, each sorted by key hash."""
    parts = list(parts)
    objects = side.objects(store)
    files = handle_files(store, [ObjectHandle(part.run.key, part.run.size, part.run.sha256) for part in parts])
    for part in parts:
        yield from ((part, layer) for layer in _layers_of(part, next(files), objects))


def _layers_of(part: _Part, file: IO[bytes], objects: CheckpointObjects) -> Iterator[Layer]:
    own, run = part.own, part.run

    def refused(error: Exception) -> StateCorrupt:
        return objects.unusable("state run", run.key, own.uid, f"it is not a readable Parquet file ({error})")

    with reading_scratch(refused):
        try:
            source = pa.PythonFile(file, mode="r")
            yield from decode_pieces(source, run, run.valid, own.stored, own.keys, own.max_parallelism)
        except StateCorrupt as error:
            raise objects.unusable("state run", run.key, own.uid, error.message) from error


def _with(rows: pa.Table, columns: Mapping[str, object]) -> pa.Table:
    for name, column in columns.items():
        rows = rows.append_column(name, pa.array(column))
    return rows
