"""Rows of an operator's state at a checkpoint, or at two, however many there are.

Runs are read one after another, row group by row group; what of them waits for its turn is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.epoch.metadata import CheckpointMetadata, OperatorTable
from milepost.errors import StateCorrupt
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.object_store import ObjectStore
from milepost.spill.ordered_rows import ordered_rows
from milepost.spill.scratch_reading import reading_scratch
from milepost.state.keyed.run_reader import referenced_runs
from milepost.state.layers.exact_keys import key_numbers
from milepost.state.layers.key_groups import Hashes
from milepost.state.layers.layer import Bools, KeySpec, Layer, newest_rows, stable_order
from milepost.state.runs.handles import RunHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.state.runs.runs import decode_pieces
from milepost.state.statistics.row_statistics import Times
from milepost.storage.object_handles import handle_files

MAX_CHANGED_ROWS = 4_000_000
"""Rows that are not the same to two checkpoints up to which other keys are left out of a comparison."""

_HASH, _GONE, _AGE = "__state_hash", "__state_gone", "__state_age"
_ABSENT, _LIVE, _DEAD = 0, 1, 2
"""What a row is to a checkpoint: of a run that it has not; alive; deleted or expired."""


@dataclass(frozen=True, slots=True)
class StateSide:
    """A table of an operator's state at a checkpoint."""

    metadata: CheckpointMetadata
    table: OperatorTable

    @property
    def keys(self) -> KeySpec:
        """How its rows are identified and placed."""
        return KeySpec(self.table.state.key, self.table.state.routing_key, self.metadata.hasher)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema([pa.field(field.name, field.type) for field in self.table.state.schema])

    def is_like(self, other: StateSide) -> bool:
        """Return whether a run that both have is the same rows to both."""
        return self.keys == other.keys and self.table.state.schema.equals(other.table.state.schema, check_metadata=True)

    def objects(self, store: ObjectStore) -> CheckpointObjects:
        """Where its runs lie."""
        return CheckpointObjects(store, self.metadata.checkpoint_id, self.metadata.job)

    def parts(self, objects: CheckpointObjects) -> Iterator[tuple[StateIdentity, RunHandle, int | None]]:
        """Yield each run that a subtask has, the oldest first, with the firing watermark by which its rows are dead."""
        state = self.table.state
        for handle, firing_us in zip(state.handles, self.table.firing, strict=True):
            own = StateIdentity.of(self.table.uid, self.keys, state.schema, handle.key_groups, handle.max_parallelism)
            yield from ((own, run, firing_us) for run in referenced_runs(own, [handle], objects))


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of a subtask. firing: of each side that has it its own."""

    own: StateIdentity
    run: RunHandle
    firing: Mapping[int, int | None]

    def standing(self, layer: Layer, side: int, times: Times) -> pa.Array:
        """Return what each row is to a side."""
        if side not in self.firing:
            return pa.array(np.full(layer.num_rows, _ABSENT, dtype=np.uint8))
        live = ~layer.deleted & times.alive(layer, self.firing[side])
        return pa.array(np.where(live, _LIVE, _DEAD).astype(np.uint8))


def rows_by_hash(store: ObjectStore, side: StateSide) -> Iterator[pa.Table]:
    """Yield all live rows in the order of their key hash, as the subtasks have them.

    Raises:
        StateCorrupt: a run is missing, altered or not what its handle says.
    """
    times = Times.of(side.table.state.schema)

    def hashed(part: _Part, layer: Layer) -> pa.Table:
        gone = layer.deleted | ~times.alive(layer, part.firing[0])
        return _with(layer.rows, {_HASH: layer.hashes, _GONE: gone})

    def newest(rows: pa.Table) -> pa.Table:
        rows = rows.combine_chunks()
        order, hashes = stable_order(rows.column(_HASH).to_numpy())
        gone = np.asarray(rows.column(_GONE), dtype=np.bool_)
        layer = newest_rows(order, hashes, rows.drop_columns([_HASH, _GONE]), gone, side.keys)
        return _with(layer.rows, {_HASH: layer.hashes, _GONE: layer.deleted})

    pieces = (hashed(*piece) for piece in _layers(store, side, _parts(store, [side])))
    for rows in ordered_rows(pieces, [_HASH], newest):
        yield rows.filter(pc.invert(rows.column(_GONE))).drop_columns([_HASH, _GONE])


def rows_by_key(
    store: ObjectStore, side: StateSide, types: Mapping[str, pa.DataType] | None = None
) -> Iterator[pa.Table]:
    """Yield all live rows in the order of their key, nulls last.

    Args:
        types: of key columns, which those of the state widen to; None: they have theirs.
    Raises: as `rows_by_hash`.
    """
    for (rows,) in _by_key(store, [side], types or {}):
        yield rows


def changed_by_key(store: ObjectStore, before: StateSide, after: StateSide) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield step by step, in the order of their keys, live rows of two like sides without those that both have.

    A run that both have is read once; of its rows the keys are looked at that another run has, or that expired.
    """
    return ((old, new) for old, new in _by_key(store, [before, after], {}))


def check_rows(store: ObjectStore, side: StateSide) -> None:
    """Read and decode every run. Raises: as `rows_by_hash`."""
    for _ in _layers(store, side, _parts(store, [side])):
        pass


def _by_key(
    store: ObjectStore, sides: Sequence[StateSide], types: Mapping[str, pa.DataType]
) -> Iterator[list[pa.Table]]:
    """Yield of each side, step by step, its live rows in the order of their key; of several, those not all have."""
    key, names = list(sides[0].table.state.key), [f"__state_side_{at}" for at in range(len(sides))]
    times = Times.of(sides[0].table.state.schema)
    parts = _parts(store, sides)
    ages = {id(part): age for age, part in enumerate(parts)}
    # What only some sides have comes first: by then it is known which keys of the others matter.
    parts.sort(key=lambda part: len(part.firing) == len(sides) > 1)
    changed = _ChangedKeys()

    def pieces() -> Iterator[pa.Table]:
        for part, layer in _layers(store, sides[0], parts):
            standings = [part.standing(layer, side, times) for side in range(len(sides))]
            rows = layer.rows
            for name, type_ in types.items():
                rows = rows.set_column(rows.column_names.index(name), name, rows.column(name).cast(type_))
            age = np.full(layer.num_rows, ages[id(part)], dtype=np.int32)
            rows = _with(rows, {_AGE: age, **dict(zip(names, standings, strict=True))})
            differs = np.zeros(layer.num_rows, dtype=np.bool_)
            for standing in standings[1:]:
                differs |= np.asarray(pc.not_equal(standing, standings[0]))
            changed.add(layer.hashes[differs])  # of a run that all have what expired; a newer row may hide that
            yield rows if len(sides) == 1 else rows.filter(pa.array(changed.among(layer.hashes)))

    def newest(rows: pa.Table) -> pa.Table:
        rows = rows.combine_chunks()
        rows = rows.take(pa.array(np.argsort(rows.column(_AGE).to_numpy(), kind="stable")))
        numbers = key_numbers(rows.select(key).combine_chunks())
        chosen = np.zeros(rows.num_rows, dtype=np.bool_)
        for name in names:
            standing = rows.column(name).to_numpy()
            there = np.flatnonzero(standing != _ABSENT)
            last = np.full(int(numbers.max()) + 1, -1, dtype=np.int64)
            last[numbers[there]] = there  # of several with a number, the last stays
            last = last[last >= 0]
            kept = np.full(rows.num_rows, _ABSENT, dtype=np.uint8)
            kept[last] = standing[last]
            chosen[last] = True
            rows = rows.set_column(rows.column_names.index(name), name, pa.array(kept))
        positions = np.flatnonzero(chosen)
        return rows.take(pa.array(positions[np.argsort(numbers[positions], kind="stable")]))

    for rows in ordered_rows(pieces(), key, newest):
        standings = [rows.column(name).to_numpy() for name in names]
        live = [standing == _LIVE for standing in standings]
        differ = np.ones(rows.num_rows, dtype=np.bool_) if len(sides) == 1 else ~np.logical_and.reduce(live)
        plain = rows.drop_columns([_AGE, *names])
        yield [plain.filter(pa.array(one & differ)) for one in live]


class _ChangedKeys:
    """The key hashes of rows that are not the same to all sides; too many are any."""

    def __init__(self) -> None:
        self._known = np.empty(0, dtype=np.uint64)
        self._added: list[Hashes] = []
        self._any = False

    def add(self, hashes: Hashes) -> None:
        if len(hashes) and not self._any:
            self._added.append(hashes)
            self._any = len(self._known) + sum(map(len, self._added)) > MAX_CHANGED_ROWS

    def among(self, hashes: Hashes) -> Bools:
        """Return which hashes are among them."""
        if self._any:
            return np.ones(len(hashes), dtype=np.bool_)
        if self._added:
            self._known = np.unique(np.concatenate([self._known, *self._added]))
            self._added = []
        if not len(self._known):
            return np.zeros(len(hashes), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
        return np.asarray(self._known[at] == hashes, dtype=np.bool_)


def _parts(store: ObjectStore, sides: Sequence[StateSide]) -> list[_Part]:
    """Return the runs of all sides, each once, of every side's subtasks the older ones first."""
    merged: list[_Part] = []
    for number, side in enumerate(sides):
        at = 0
        for own, run, firing_us in side.parts(side.objects(store)):
            known = [i for i, part in enumerate(merged[at:], at) if (part.own, part.run) == (own, run)]
            if known:
                at = known[0]
                merged[at] = _Part(own, run, {**merged[at].firing, number: firing_us})
            else:
                merged.insert(at, _Part(own, run, {number: firing_us}))
            at += 1
    return merged


def _layers(store: ObjectStore, side: StateSide, parts: Iterable[_Part]) -> Iterator[tuple[_Part, Layer]]:
    """Yield the rows of runs, each piece by itself in the order of the hash."""
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
