"""Keyed state of one operator in one subtask, for one epoch. `restore.py` creates it.

In memory, state is one layer per run (memory-mapped when cached) and the *changes* of this epoch. A rescale or a memory
limit leaves several base runs. They share no key group and are not merged for reading. A read searches the newest layer
first, then looks for the remaining keys in the next one:

    changes      b=7            find(a, b, c):  b from the changes
    delta                c=4                    c from the delta
    base    a=1  b=2     c=3                    a from the base

Layers are never modified in place, so a frozen state needs no copy.

A row is dead once its `__expires` is at most the operator's firing watermark at the checkpoint: reads skip it, and runs
drop it. `snapshot.py` implements what follows the freeze.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import ProtocolViolation
from milepost.protocol.records import EXPIRES_COLUMN, FIRED_COLUMN, TIMER_COLUMN, WEIGHT_COLUMN
from milepost.state.keyed.grouping import Numbered, number_keys
from milepost.state.keyed.multi_row import RowIdentity, WeightChanges, weight_changes
from milepost.state.keyed.rows_of_keys import RowsOfKeys, rows_of_keys
from milepost.state.keyed.snapshot import FrozenState, RestoredState
from milepost.state.layers.key_groups import Hashes, Ints
from milepost.state.layers.layer import Bools, Layer, empty_layer, mask_without, match, not_hidden, sort_rows, stack
from milepost.state.layers.row_identity import plain_columns
from milepost.state.layers.take import Hits, hit_mask, take


class SubtaskState:
    """Implements `operators.contract.KeyedState` over restored runs."""

    def __init__(self, restored: RestoredState) -> None:
        self._restored = restored
        self._identity = restored.identity
        self._bases, self._deltas = restored.bases, restored.deltas
        self._watermark_us, self._times = restored.watermark_us, restored.times
        self._added: int | None = 0
        self._changes: list[Layer] = []
        self._forgotten: tuple[Layer, ...] = ()
        self._frozen = False
        self._cached_changes: tuple[Layer, WeightChanges] | None = None
        """The stacked changes, and which of them change a weight."""

    @property
    def schema(self) -> pa.Schema:
        return self._identity.schema

    def group(self, keys: pa.Table) -> KeysOfRows:
        """Number the distinct keys of rows (nulls equal nulls), and return access to their state."""
        key_columns = self._key_columns(keys).combine_chunks()
        numbered = number_keys(key_columns, self._identity.keys.hashes)
        return KeysOfRows(self, key_columns.take(pa.array(numbered.first)), numbered)

    def owns(self, keys: pa.Table) -> Bools:
        """Return which keys are in the key groups of this state."""
        own = self._identity.key_groups
        groups = self._groups(keys)
        return (groups >= own.start) & (groups < own.stop)

    def lookup(self, keys: pa.Table) -> pa.Table:
        """Return the live rows with a key in `keys` (nulls equal nulls), each once, in any order."""
        rows, found = self.group(keys).find()
        return rows.filter(pa.array(found))

    def find(self, keys: pa.Table, hashes: Hashes, *, at_start: bool = False) -> tuple[pa.Table, Bools]:
        """Return the live row of each key, in order, and a mask of the keys that have one.

        A key without a live row gets a row that is null except for the key.

        Args:
            keys: distinct.
            hashes: state hash of each key, ascending.
            at_start: whether to read the state as it was when the epoch began.
        """
        hits: list[Hits] = []
        pending, pending_hashes = np.arange(len(hashes)), hashes
        for layer in self._at_start() if at_start else self._newest_first():
            query, rows = match(layer, pending_hashes, keys, self._identity.keys, pending)
            if not query.size:
                continue
            positions_hit, live = pending[query], self._is_live(layer, rows)
            hits.append(
                Hits(positions_hit, layer, rows) if bool(live.all()) else Hits(positions_hit[live], layer, rows[live])
            )
            missed = mask_without(query, len(pending))
            pending, pending_hashes = pending[missed], pending_hashes[missed]
            if not pending.size:
                break
        found = hit_mask(hits, len(hashes))
        columns = [
            keys.column(field.name) if field.name in self._identity.keys.key else take(field, hits, found)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema), found

    def put(self, hashes: Hashes, rows: pa.Table, added: int | None) -> None:
        """Insert or replace rows, which are in ascending order of their state hashes, with distinct keys.

        Args:
            added: number of rows with keys that had no live row; None if unknown.
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
        """Return the live rows with a timer or expiry <= time_us, in any order."""
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
        """Return the live rows of the given key groups with an expiry <= time_us, in any order."""
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
        """Insert or replace rows by key. `rows` has the state schema, and each key at most once."""
        if not rows.num_rows:
            return
        rows = rows.select(self.schema.names).cast(self.schema)
        self._added = None
        self._changes.append(sort_rows(rows, self._identity.keys, deleted=False))

    def delete(self, keys: pa.Table) -> None:
        """Remove rows by key. Unknown keys are ignored."""
        if not keys.num_rows:
            return
        key_columns = self._key_columns(keys)
        columns = [
            key_columns.column(field.name)
            if field.name in self._identity.keys.key
            else pa.nulls(keys.num_rows, field.type)
            for field in self.schema
        ]
        tombstones = pa.table(columns, schema=self.schema)
        self._added = None
        self._changes.append(sort_rows(tombstones, self._identity.keys, deleted=True))

    def lookup_all(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Find all live rows of distinct routing keys. Their columns have the names and types of the table."""
        alive = self._times, self._watermark_us
        return rows_of_keys(self._newest_first(), routing_keys, self._identity.keys, self.schema, alive)

    def lookup_all_at_start(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Find the rows that the routing keys had when the epoch began."""
        alive = self._times, self._watermark_us
        return rows_of_keys(self._at_start(), routing_keys, self._identity.keys, self.schema, alive)

    def forget(self, rows: pa.Table) -> None:
        """Remove rows before the epoch begins, so that they are not part of the state at its start."""
        self.delete(rows)
        self._forgotten = tuple(self._changes)

    def pass_timers(self, key_groups: range, time_us: int) -> None:
        """Mark timers up to `time_us` as fired, before the epoch begins, so that they do not fire twice.

        A periodic timer moves to its first time after `time_us`. Tables whose rows have no expiry are skipped: there,
        the operator has replaced the row or set another timer when the timer fired, and that timer may be earlier.

        Args:
            key_groups: of the rows with fired timers.
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
        """Add rows to a multi-row table.

        A row that is stored with weight 2 and added with weight 1 then has weight 3. A negative weight removes
        copies, and a row that reaches weight 0 is deleted.

        Args:
            rows: all columns but the identity. Without `WEIGHT_COLUMN` each row counts once.
        Raises:
            InvalidRequest: two different rows have the same identity.
        """
        if not rows.num_rows:
            return
        identity = RowIdentity.of(self._identity)
        has_weights = WEIGHT_COLUMN in rows.column_names
        rows, plain = identity.add_identity(rows)
        grouped = self.group(rows)
        identity.check_same(plain, np.arange(rows.num_rows), plain, grouped.first[grouped.codes])
        stored, is_stored = grouped.find()
        weight = np.bincount(grouped.codes, minlength=len(grouped.first)).astype(np.int64)
        if has_weights:
            weight[:] = 0
            np.add.at(weight, grouped.codes, rows.column(WEIGHT_COLUMN).to_numpy())
        if is_stored.any():
            before = stored.filter(pa.array(is_stored))
            stored_plain = plain_columns(before.select(list(identity.columns)))
            identity.check_same(plain, grouped.first[is_stored], stored_plain, np.arange(before.num_rows))
            weight[is_stored] += before.column(WEIGHT_COLUMN).to_numpy()
        rows = rows.take(pa.array(grouped.first))
        rows = rows.set_column(rows.column_names.index(WEIGHT_COLUMN), WEIGHT_COLUMN, pa.array(weight))
        remains = weight != 0
        if bool(remains.all()):
            grouped.put(rows)
            return
        grouped.put(rows.filter(pa.array(remains)), remains)
        self.delete(grouped.keys.filter(pa.array(~remains & is_stored)))

    def weight_changes(self) -> tuple[pa.Table, Ints]:
        """Return the rows of a multi-row table with weights that this epoch changed, and their weight when it began."""
        changes = self._weight_changes()
        return changes.rows, changes.before

    def lookup_unchanged(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Find the live rows of routing keys in a multi-row table, except those of `weight_changes`."""
        changes = self._stacked_changes()
        # A changed row is marked as deleted: it is not returned, but still hides older rows of its key.
        changed = ~mask_without(self._weight_changes().positions, changes.num_rows)
        layers = self._restored_below([replace(changes, deleted=changes.deleted | changed)])
        return rows_of_keys(layers, routing_keys, self._identity.keys, self.schema, (self._times, self._watermark_us))

    def _weight_changes(self) -> WeightChanges:
        changes = self._stacked_changes()
        if self._cached_changes is None or self._cached_changes[0] is not changes:
            before = self.find(self._key_columns(changes.rows), changes.hashes, at_start=True)
            self._cached_changes = changes, weight_changes(changes, *before)
        return self._cached_changes[1]

    def rows(self) -> pa.Table:
        """Return all live rows, in ascending order of their state hash."""
        merged = stack([*self._bases, *self._deltas, *self._changes], self._identity.keys, self.schema)
        return merged.where(~merged.deleted & self._times.alive(merged, self._watermark_us)).rows

    def freeze(self, watermark_us: int | None) -> FrozenState:
        """End the epoch and return its state: the synchronous part of a snapshot. It is isolated from later changes.

        Args:
            watermark_us: the operator's firing watermark of this epoch; never below the restored one.
        Raises:
            ProtocolViolation: the state was frozen before (it serves one epoch), or the watermark went back.
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
        return FrozenState(self._restored, self._stacked_changes(), watermark_us, self._added)

    def _newest_first(self) -> list[Layer]:
        return self._restored_below([self._stacked_changes()])

    def _stacked_changes(self) -> Layer:
        if len(self._changes) > 1:
            self._changes = [stack(self._changes, self._identity.keys, self.schema)]
        return self._changes[0] if self._changes else empty_layer(self.schema)

    def _at_start(self) -> list[Layer]:
        return self._restored_below(reversed(self._forgotten))

    def _restored_below(self, newer: Iterable[Layer]) -> list[Layer]:
        return [layer for layer in (*newer, *reversed(self._deltas), *self._bases) if layer.num_rows]

    def _is_live(self, layer: Layer, positions: Ints) -> Bools:
        """Return which of the rows at `positions` are alive."""
        return ~layer.deleted[positions] & self._times.alive(layer, self._watermark_us, positions)

    def _concat(self, parts: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(parts).combine_chunks() if parts else self.schema.empty_table()

    def _key_columns(self, keys: pa.Table) -> pa.Table:
        names = list(self._identity.keys.key)
        return keys.select(names).cast(pa.schema([self.schema.field(name) for name in names]))


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
        """The number of each row's key."""
        return self._numbered.codes

    @property
    def first(self) -> Ints:
        """The index of each key's first row."""
        return self._numbered.first

    def find(self) -> tuple[pa.Table, Bools]:
        """Return the live row of each key and a mask of the keys that have one, as `SubtaskState.find` does."""
        rows, self._found = self._state.find(self._keys, self._numbered.hashes)
        return rows, self._found

    def find_at_start(self) -> tuple[pa.Table, Bools]:
        """Return what `find` would have returned when the epoch began."""
        return self._state.find(self._keys, self._numbered.hashes, at_start=True)

    def put(self, rows: pa.Table, kept: Bools | None = None) -> None:
        """Insert or replace one row per key, in order.

        Args:
            kept: mask of the keys that get a row; None: all of them.
        """
        hashes, found = self._numbered.hashes, self._found
        if kept is not None:
            hashes, found = hashes[kept], None if found is None else found[kept]
        self._state.put(hashes, rows, None if found is None else len(found) - int(np.count_nonzero(found)))
