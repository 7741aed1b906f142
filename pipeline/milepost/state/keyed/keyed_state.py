"""The keyed state of one operator in one subtask, for one epoch: restored, changed, frozen.

In memory it is layers, one for each run (memory-mapped when cached), and *changes* (this epoch). A change of
parallelism or a memory limit leaves several base runs: they have no key group in common and are not merged to be read.
A read asks the newest layer first, each time for fewer keys. Nothing is ever rewritten in place, so a frozen state
needs no copy.

A row whose `__expires` is at most the operator's firing watermark at the checkpoint is dead: reads skip it, runs drop
it. `snapshot.py` holds what follows the freeze.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.protocol.records.errors import ProtocolViolation
from milepost.protocol.records.state_columns import EXPIRES_COLUMN, FIRED_COLUMN, TIMER_COLUMN, WEIGHT_COLUMN
from milepost.state.cache.cache import StateCache
from milepost.state.keyed.grouping import Numbered, number_keys
from milepost.state.keyed.multi_row import RowIdentity
from milepost.state.keyed.rows_of_keys import RowsOfKeys, rows_of_keys
from milepost.state.keyed.run_reader import RunReader, references
from milepost.state.keyed.snapshot import FrozenState, RestoredState
from milepost.state.layers.key_groups import Hashes, Ints, overlap
from milepost.state.layers.layer import Bools, Layer, match, not_hidden, others, sort_rows, stack
from milepost.state.layers.row_identity import plain_columns
from milepost.state.layers.take import Hits, found_of, take
from milepost.state.runs.handles import RunKind, StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.state.statistics.row_statistics import RowStatistics


class SubtaskState:
    """Implements `operators.contract.KeyedState` over restored runs; made by `restore_state`."""

    def __init__(self, restored: RestoredState) -> None:
        self._restored = restored
        self._identity = restored.identity
        self._bases, self._deltas = restored.bases, restored.deltas
        self._watermark_us = restored.watermark_us
        self._times = restored.times
        self._added: int | None = 0
        self._changes: list[Layer] = []
        self._forgotten: tuple[Layer, ...] = ()
        self._frozen = False

    @property
    def schema(self) -> pa.Schema:
        return self._identity.schema

    def group(self, keys: pa.Table) -> KeysOfRows:
        """Number rows by their key, and find the way to their state (nulls equal nulls)."""
        wanted = self._key_columns(keys).combine_chunks()
        numbered = number_keys(wanted, self._identity.keys.hashes)
        return KeysOfRows(self, wanted.take(pa.array(numbered.first)), numbered)

    def owns(self, keys: pa.Table) -> Bools:
        """Return which keys lie in the key groups of this state."""
        own = self._identity.key_groups
        groups = self._groups(keys)
        return (groups >= own.start) & (groups < own.stop)

    def lookup(self, keys: pa.Table) -> pa.Table:
        """Live rows whose key columns equal one of `keys` (nulls equal nulls); any order, each once."""
        rows, found = self.group(keys).find()
        return rows.filter(pa.array(found))

    def find(self, keys: pa.Table, hashes: Hashes, *, at_start: bool = False) -> tuple[pa.Table, Bools]:
        """The live row of each key, in order and null beside the key where there is none; and where there is one.

        Args:
            keys: distinct. hashes: state hash of each, ascending. at_start: those of when the epoch began.
        """
        hits: list[Hits] = []
        open_, sought = np.arange(len(hashes)), hashes
        for layer in self._at_start() if at_start else self._newest_first():
            query, rows = match(layer, sought, keys, self._identity.keys, open_)
            if not query.size:
                continue
            asked, live = open_[query], self._is_live(layer, rows)
            hits.append(Hits(asked, layer, rows) if bool(live.all()) else Hits(asked[live], layer, rows[live]))
            left = others(query, len(open_))
            open_, sought = open_[left], sought[left]
            if not open_.size:
                break
        found = found_of(hits, len(hashes))
        columns = [
            keys.column(field.name) if field.name in self._identity.keys.key else take(field, hits, found)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema), found

    def put(self, hashes: Hashes, rows: pa.Table, added: int | None) -> None:
        """Insert or replace rows in the order of their ascending state hashes; no key twice.

        Args:
            added: how many of them were not alive; None when that was not looked at.
        """
        if len(hashes):
            rows = rows.select(self.schema.names).cast(self.schema).combine_chunks()
            layer = Layer(hashes, rows, np.zeros(len(hashes), dtype=np.bool_))
            if added is None or not bool(self._times.alive(layer, self._watermark_us).all()):
                self._added = None
            elif self._added is not None:
                self._added += added
            self._changes.append(layer)

    def due(self, time_us: int) -> pa.Table:
        """Live rows whose timer or expiry is <= time_us; any order."""
        parts: list[pa.Table] = []
        newer: list[Layer] = []
        for layer in self._newest_first():
            positions = np.flatnonzero(self._times.due(layer, time_us))
            positions = positions[self._is_live(layer, positions)]
            positions = not_hidden(newer, layer, positions, self._identity.keys)
            if positions.size:
                parts.append(layer.take(positions))
            newer.append(layer)
        return self._concat(parts)

    def expired(self, key_groups: range, time_us: int) -> pa.Table:
        """Live rows of some key groups whose expiry is <= time_us; any order."""
        if EXPIRES_COLUMN not in self.schema.names:
            return self.schema.empty_table()
        return self._of_groups(self.due(time_us).filter(pc.field(EXPIRES_COLUMN) <= time_us), key_groups)

    def _of_groups(self, rows: pa.Table, key_groups: range) -> pa.Table:
        if not rows.num_rows:
            return rows
        groups = self._groups(rows)
        return rows.filter(pa.array((groups >= key_groups.start) & (groups < key_groups.stop)))

    def _groups(self, rows: pa.Table) -> Ints:
        keys = self._identity.keys
        return keys.hasher.key_groups(rows, keys.routing_key, self._identity.max_parallelism)

    def upsert(self, rows: pa.Table) -> None:
        """Insert or replace by key; `rows` has the state schema and no key twice."""
        if not rows.num_rows:
            return
        rows = rows.select(self.schema.names).cast(self.schema)
        self._added = None
        self._changes.append(sort_rows(rows, self._identity.keys, deleted=False))

    def delete(self, keys: pa.Table) -> None:
        """Remove by key; unknown keys are fine."""
        if not keys.num_rows:
            return
        wanted = self._key_columns(keys)
        columns = [
            wanted.column(field.name) if field.name in self._identity.keys.key else pa.nulls(keys.num_rows, field.type)
            for field in self.schema
        ]
        tombstones = pa.table(columns, schema=self.schema)
        self._added = None
        self._changes.append(sort_rows(tombstones, self._identity.keys, deleted=True))

    def lookup_all(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Find all live rows of distinct routing keys, which have the names and types that they have in the table."""
        alive = self._times, self._watermark_us
        return rows_of_keys(self._newest_first(), routing_keys, self._identity.keys, self.schema, alive)

    def lookup_all_at_start(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Find the rows that routing keys had when the epoch began."""
        alive = self._times, self._watermark_us
        return rows_of_keys(self._at_start(), routing_keys, self._identity.keys, self.schema, alive)

    def forget(self, rows: pa.Table) -> None:
        """Remove rows before the epoch begins: they are no part of the state at its start."""
        self.delete(rows)
        self._forgotten = tuple(self._changes)

    def pass_timers(self, key_groups: range, time_us: int) -> None:
        """Have timers of some key groups not ring again for a time at which they have rung, before the epoch.

        One that rings again moves behind it. A row without an expiry does not outlive its timer as it is: who made it
        has replaced it, or set another timer, which may wait at an earlier time.
        """
        if not (self._times.has_timers and self._times.has_expiry):
            return
        rung = self.due(time_us).filter(pc.field(TIMER_COLUMN) <= time_us)
        if self._watermark_us is not None and not self._times.every_us:
            rung = rung.filter(pc.field(TIMER_COLUMN) > self._watermark_us)
        rows = self._of_groups(rung, key_groups)
        if FIRED_COLUMN in self.schema.names:
            name, values = FIRED_COLUMN, pa.array([True] * rows.num_rows, pa.bool_())
        elif self._times.every_us:
            timers = self._times.next_timers(rows.column(TIMER_COLUMN).to_numpy(), time_us)
            name, values = TIMER_COLUMN, pa.array(timers)
        else:
            name, values = TIMER_COLUMN, pa.nulls(rows.num_rows, pa.int64())
        at = rows.column_names.index(name)
        self.upsert(rows.set_column(at, rows.field(at), values))
        self._forgotten = tuple(self._changes)

    def add(self, rows: pa.Table) -> None:
        """Add rows to a multi-row table, one by one: all columns but their identity and number.

        With `WEIGHT_COLUMN` each comes so many times, or goes as often; one that is there no time is removed.

        Raises InvalidRequest: two different rows have one identity.
        """
        if not rows.num_rows:
            return
        identity = RowIdentity.of(self._identity)
        once = WEIGHT_COLUMN not in rows.column_names
        rows, plain = identity.identified(rows)
        grouped = self.group(rows)
        identity.check_same(plain, np.arange(rows.num_rows), plain, grouped.first[grouped.codes])
        stored, known = grouped.find()
        weight = np.bincount(grouped.codes, minlength=len(grouped.first)).astype(np.int64)
        if not once:
            weight[:] = 0
            np.add.at(weight, grouped.codes, rows.column(WEIGHT_COLUMN).to_numpy())
        if known.any():
            before = stored.filter(pa.array(known))
            there = plain_columns(before.select(list(identity.columns)))
            identity.check_same(plain, grouped.first[known], there, np.arange(before.num_rows))
            weight[known] += before.column(WEIGHT_COLUMN).to_numpy()
        rows = rows.take(pa.array(grouped.first))
        rows = rows.set_column(rows.column_names.index(WEIGHT_COLUMN), WEIGHT_COLUMN, pa.array(weight))
        there = weight != 0
        if bool(there.all()):
            grouped.put(rows)
            return
        grouped.put(rows.filter(pa.array(there)), there)
        self.delete(grouped.keys.filter(pa.array(~there & known)))

    def rows(self) -> pa.Table:
        """Return all live rows, in the order of their state hash."""
        merged = stack([*self._bases, *self._deltas, *self._changes], self._identity.keys, self.schema)
        return merged.where(~merged.deleted & self._times.alive(merged, self._watermark_us)).rows

    def freeze(self, watermark_us: int | None) -> FrozenState:
        """End the epoch: the synchronous part of a snapshot. Later changes do not reach what it returns.

        Args:
            watermark_us: the operator's firing watermark of this epoch; never below the restored one.
        Raises:
            ProtocolViolation: frozen before (a restored state serves one epoch), or the watermark went back.
        """
        uid = self._identity.uid
        if self._frozen:
            raise ProtocolViolation(f"state of {uid!r} was frozen already; restore it again for the next epoch.")
        if self._watermark_us is not None and (watermark_us is None or watermark_us < self._watermark_us):
            raise ProtocolViolation(
                f"state of {uid!r}: the firing watermark went back from {self._watermark_us} to {watermark_us}. "
                "Nothing was written."
            )
        self._frozen = True
        changes = stack(self._changes, self._identity.keys, self.schema)
        return FrozenState(self._restored, changes, watermark_us, self._added)

    def _newest_first(self) -> list[Layer]:
        if len(self._changes) > 1:
            self._changes = [stack(self._changes, self._identity.keys, self.schema)]
        return self._restored_below(self._changes)

    def _at_start(self) -> list[Layer]:
        return self._restored_below(reversed(self._forgotten))

    def _restored_below(self, newer: Iterable[Layer]) -> list[Layer]:
        return [layer for layer in (*newer, *reversed(self._deltas), *self._bases) if layer.num_rows]

    def _is_live(self, layer: Layer, positions: Ints) -> Bools:
        """Return which of some rows are alive."""
        live = ~layer.deleted[positions]
        return live & self._times.alive(layer, self._watermark_us, positions)

    def _concat(self, parts: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(parts).combine_chunks() if parts else self.schema.empty_table()

    def _key_columns(self, keys: pa.Table) -> pa.Table:
        names = list(self._identity.keys.key)
        return keys.select(names).cast(pa.schema([self.schema.field(name) for name in names]))


def restore_state(
    identity: StateIdentity,
    handles: Sequence[StateHandle],
    objects: CheckpointObjects,
    *,
    watermark_us: int | None,
    firing: Sequence[int | None] = (),
    cache: StateCache | None = None,
) -> SubtaskState:
    """Return one subtask's state as of a checkpoint, whatever the parallelism that wrote it.

    Args:
        identity: its keys are hashed as the rows of `handles` were placed.
        handles: every subtask's state handle of this operator in the checkpoint; empty for the empty state.
        watermark_us: this subtask's firing watermark from here on: rows expired by then are dead.
        firing: the firing watermark of each handle's subtask, none below `watermark_us`, where they differ: what one of
            them had forgotten stays forgotten, and what has rung does not ring again, although this subtask goes on
            from an earlier time.
        cache: used if it holds a run, filled if not; the result is the same without it.
    Raises:
        StateCorrupt: a run is missing, altered or not what its handle says.
        InvalidRequest: the schema or `max_parallelism` does not fit.
        StoreUnavailable, EnvironmentUnusable: from the store.
    """
    reader = RunReader(identity, objects, cache)
    runs = references(identity, handles, objects)
    layers = [(run.kind, layer) for run, layer in zip(runs, reader.read(runs), strict=True)]
    if cache is not None:
        cache.retain(identity, runs, objects.checkpoint_id)
    bases = tuple(layer for kind, layer in layers if kind is RunKind.BASE)
    deltas = tuple(layer for kind, layer in layers if kind is RunKind.DELTA)
    known = all(fired_us in (None, watermark_us) for fired_us in firing)
    statistics = _statistics(identity, handles) if known else None
    state = SubtaskState(RestoredState(identity, bases, deltas, runs, watermark_us, statistics, cache))
    for handle, fired_us in zip(handles, firing, strict=False):
        mine = overlap(handle.key_groups, identity.key_groups)
        if mine and fired_us is not None and fired_us != watermark_us:
            state.forget(state.expired(handle.key_groups, fired_us))
            state.pass_timers(handle.key_groups, fired_us)
    return state


def _statistics(identity: StateIdentity, handles: Sequence[StateHandle]) -> RowStatistics | None:
    """Return what is recorded of a subtask that owns all that these handles, or some of them, describe.

    None where a handle was cut in two by a change of parallelism.
    """
    own = identity.key_groups
    mine = [item for item in handles if overlap(item.key_groups, own)]
    if any(item.key_groups.start < own.start or item.key_groups.stop > own.stop for item in mine):
        return None
    return RowStatistics(sum(item.live_rows for item in mine), tuple(timer for item in mine for timer in item.timers))


class KeysOfRows:
    """Implements `operators.contract.GroupedKeys`; made by `SubtaskState.group`."""

    def __init__(self, state: SubtaskState, keys: pa.Table, numbered: Numbered) -> None:
        self._state = state
        self._keys = keys
        self._numbered = numbered
        self._found: Bools | None = None

    @property
    def keys(self) -> pa.Table:
        """One row per distinct key, in the order of the state hash."""
        return self._keys

    @property
    def codes(self) -> Ints:
        """Of each row the number of its key."""
        return self._numbered.codes

    @property
    def first(self) -> Ints:
        """Of each key the index of its first row."""
        return self._numbered.first

    def find(self) -> tuple[pa.Table, Bools]:
        """Return the live row of each key, null beside the key where there is none; and where there is one."""
        rows, self._found = self._state.find(self._keys, self._numbered.hashes)
        return rows, self._found

    def find_at_start(self) -> tuple[pa.Table, Bools]:
        """Return as `find` does the rows of when the epoch began."""
        return self._state.find(self._keys, self._numbered.hashes, at_start=True)

    def put(self, rows: pa.Table, kept: Bools | None = None) -> None:
        """Insert or replace the keys, or those in `kept`: a row for each, in order."""
        hashes, found = self._numbered.hashes, self._found
        if kept is not None:
            hashes, found = hashes[kept], None if found is None else found[kept]
        self._state.put(hashes, rows, None if found is None else len(found) - int(np.count_nonzero(found)))
