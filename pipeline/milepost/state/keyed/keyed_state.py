"""The keyed state of one operator in one subtask, for one epoch: restored, changed, frozen.

In memory it is layers, one for each run (memory-mapped when cached), and *changes* (this epoch). A change of
parallelism or a memory limit leaves several base runs: they have no key group in common and are not merged to be read.
A read asks the newest layer first, each time for fewer keys. Nothing is ever rewritten in place, so a frozen state
needs no copy.

A row whose `__expires` is at most the operator's firing watermark at the checkpoint is dead: reads skip it, runs drop
it. `snapshot.py` holds what follows the freeze.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.protocol.records.errors import ProtocolViolation
from milepost.protocol.records.object_store import ObjectStore
from milepost.state.cache.cache import StateCache
from milepost.state.keyed.grouping import Numbered, number_keys
from milepost.state.keyed.run_reader import RunReader, references
from milepost.state.keyed.snapshot import FrozenState, StateIdentity
from milepost.state.layers.key_groups import (
    Hashes,
    Ints,
    check_key_type,
    check_max_parallelism,
)
from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import Bools, KeySpec, Layer, match, not_hidden, others, sort_rows, stack
from milepost.state.layers.take import Hits, found_of, take
from milepost.state.runs.handles import RunHandle, RunKind, StateHandle
from milepost.state.statistics.row_statistics import EXPIRES_COLUMN, RowStatistics


class SubtaskState:
    """Implements `operators.contract.KeyedState` over restored runs; made by `restore_state`."""

    def __init__(
        self,
        identity: StateIdentity,
        bases: tuple[Layer, ...],
        deltas: tuple[Layer, ...],
        runs: tuple[RunHandle, ...],
        watermark_us: int | None,
        cache: StateCache | None,
        statistics: RowStatistics | None,
    ) -> None:
        """Take what was restored.

        Args:
            bases, deltas: of each base and delta run, in the order of `runs`.
            statistics: of the restored checkpoint, where it is known.
        """
        self._identity = identity
        self._bases = bases
        self._deltas = deltas
        self._runs = runs
        self._watermark_us = watermark_us
        self._cache = cache
        self._statistics = statistics
        self._times = identity.times
        self._added: int | None = 0
        self._changes: list[Layer] = []
        self._frozen = False

    @property
    def schema(self) -> pa.Schema:
        return self._identity.schema

    def group(self, keys: pa.Table) -> KeysOfRows:
        """Number rows by their key, and find the way to their state (nulls equal nulls)."""
        wanted = self._key_columns(keys).combine_chunks()
        numbered = number_keys(wanted, self._identity.keys.hashes)
        return KeysOfRows(self, wanted.take(pa.array(numbered.first)), numbered)

    def lookup(self, keys: pa.Table) -> pa.Table:
        """Live rows whose key columns equal one of `keys` (nulls equal nulls); any order, each once."""
        rows, found = self.group(keys).find()
        return rows.filter(pa.array(found))

    def find(self, keys: pa.Table, hashes: Hashes) -> tuple[pa.Table, Bools]:
        """The live row of each key, in order and null beside the key where there is none; and where there is one.

        Args:
            keys: distinct. hashes: state hash of each, ascending.
        """
        hits: list[Hits] = []
        open_, sought = np.arange(len(hashes)), hashes
        for layer in self._newest_first():
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
        rows = self.due(time_us).filter(pc.field(EXPIRES_COLUMN) <= time_us)
        if not rows.num_rows:
            return rows
        keys = self._identity.keys
        groups = keys.hasher.key_groups(rows, keys.routing_key, self._identity.max_parallelism)
        return rows.filter(pa.array((groups >= key_groups.start) & (groups < key_groups.stop)))

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

    def rows(self) -> pa.Table:
        """All live rows, in the order of their state hash."""
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
        return FrozenState(
            self._identity,
            self._bases,
            self._deltas,
            changes,
            self._runs,
            (self._watermark_us, watermark_us),
            self._cache,
            self._statistics,
            self._added,
        )

    def _newest_first(self) -> list[Layer]:
        if len(self._changes) > 1:
            self._changes = [stack(self._changes, self._identity.keys, self.schema)]
        layers = [*self._changes, *reversed(self._deltas), *self._bases]
        return [layer for layer in layers if layer.num_rows]

    def _is_live(self, layer: Layer, positions: Ints) -> Bools:
        """Which of some rows are alive."""
        live = ~layer.deleted[positions]
        return live & self._times.alive(layer, self._watermark_us, positions)

    def _concat(self, parts: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(parts).combine_chunks() if parts else self.schema.empty_table()

    def _key_columns(self, keys: pa.Table) -> pa.Table:
        names = list(self._identity.keys.key)
        return keys.select(names).cast(pa.schema([self.schema.field(name) for name in names]))


def restore_state(
    uid: str,
    key: Sequence[str],
    schema: pa.Schema,
    *,
    routing_key: Sequence[str],
    hasher: KeyHash,
    handles: Sequence[StateHandle],
    key_groups: range,
    max_parallelism: int,
    watermark_us: int | None,
    firing: Sequence[int | None] = (),
    store: ObjectStore,
    checkpoint_id: int,
    job: str,
    prefix: str = "",
    cache: StateCache | None = None,
    bodies: MutableMapping[str, bytes] | None = None,
) -> SubtaskState:
    """Return one subtask's state as of a checkpoint, whatever the parallelism that wrote it.

    Args:
        uid, key, schema: of the operator; the schema's key columns identify a row. Runs of an older schema are
            converted by the stored names in it (see `evolution`).
        routing_key: the columns by which rows are exchanged; part of `key`.
        hasher: the key hash that placed the rows of `handles`.
        handles: every subtask's state handle of this operator in the checkpoint; empty for the empty state.
        key_groups: what this subtask owns.
        watermark_us: this subtask's firing watermark from here on: rows expired by then are dead.
        firing: the firing watermark of each handle's subtask, none below `watermark_us`, where they differ: what one of
            them had forgotten stays forgotten, although this subtask goes on from an earlier time.
        store, prefix: a run lies at `prefix + handle.key`.
        checkpoint_id, job: for messages.
        cache: used if it holds a run, filled if not; the result is the same without it.
        bodies: of runs that were read and checked before, by key; those read now are added.
    Raises:
        StateCorrupt: a run is missing, altered or not what its handle says.
        InvalidRequest: the schema, `max_parallelism` or a key type does not fit.
        StoreUnavailable, EnvironmentUnusable: from the store.
    """
    check_max_parallelism(max_parallelism)
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    for name in key:
        check_key_type(name, plain.field(name).type)
    keys = KeySpec(tuple(key), tuple(routing_key), hasher)
    identity = StateIdentity(uid, keys, plain, schema, key_groups, max_parallelism)
    reader = RunReader(identity, store, prefix, cache, checkpoint_id, job, {} if bodies is None else bodies)
    runs = references(identity, handles, checkpoint_id, job)
    layers = [(run.kind, reader.read(run)) for run in runs]
    if cache is not None:
        kept = [(run, run.valid) for run in runs]
        cache.retain(uid, key_groups, kept, schema, keys, max_parallelism, checkpoint_id)
    bases = tuple(layer for kind, layer in layers if kind is RunKind.BASE)
    deltas = tuple(layer for kind, layer in layers if kind is RunKind.DELTA)
    known = all(fired_us in (None, watermark_us) for fired_us in firing)
    statistics = _statistics(identity, handles) if known else None
    state = SubtaskState(identity, bases, deltas, runs, watermark_us, cache, statistics)
    for handle, fired_us in zip(handles, firing, strict=False):
        if fired_us is not None and fired_us != watermark_us:
            state.delete(state.expired(handle.key_groups, fired_us))
    return state


def _statistics(identity: StateIdentity, handles: Sequence[StateHandle]) -> RowStatistics | None:
    """What is recorded of a subtask that owns all that these handles, or some of them, describe.

    None where a handle was cut in two by a change of parallelism.
    """
    own = identity.key_groups
    mine = [item for item in handles if item.key_groups.start < own.stop and own.start < item.key_groups.stop]
    if any(item.key_groups.start < own.start or item.key_groups.stop > own.stop for item in mine):
        return None
    return RowStatistics(sum(item.live_rows for item in mine), tuple(timer for item in mine for timer in item.timers))


def read_state(
    uid: str,
    key: Sequence[str],
    schema: pa.Schema,
    *,
    routing_key: Sequence[str],
    hasher: KeyHash,
    handles: Sequence[StateHandle],
    watermark_us: int | None,
    store: ObjectStore,
    checkpoint_id: int,
    job: str,
    prefix: str = "",
    key_groups: range | None = None,
    bodies: dict[str, bytes] | None = None,
) -> pa.Table:
    """Return an operator's live state at a checkpoint as one table; of all key groups unless told. As `restore_state`.

    Raises: what `restore_state` raises.
    """
    if not handles:
        return schema.empty_table()
    max_parallelism = handles[0].max_parallelism
    state = restore_state(
        uid,
        key,
        schema,
        routing_key=routing_key,
        hasher=hasher,
        handles=handles,
        key_groups=range(max_parallelism) if key_groups is None else key_groups,
        max_parallelism=max_parallelism,
        watermark_us=watermark_us,
        store=store,
        checkpoint_id=checkpoint_id,
        job=job,
        prefix=prefix,
        bodies=bodies,
    )
    return state.rows()


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
        """The live row of each key, null beside the key where there is none; and where there is one."""
        rows, self._found = self._state.find(self._keys, self._numbered.hashes)
        return rows, self._found

    def put(self, rows: pa.Table, kept: Bools | None = None) -> None:
        """Insert or replace the keys, or those in `kept`: a row for each, in order."""
        hashes, found = self._numbered.hashes, self._found
        if kept is not None:
            hashes, found = hashes[kept], None if found is None else found[kept]
        self._state.put(hashes, rows, None if found is None else len(found) - int(np.count_nonzero(found)))
