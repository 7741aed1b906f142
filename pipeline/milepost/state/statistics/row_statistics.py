"""Count live rows, due rows and waiting timers.

A checkpoint records the number of live rows and the earliest timer of each key group. The statistics of the next one
are computed from these, from the changed rows and from the due rows. For all other rows only the time columns are read.
If no usable statistics are recorded, or they are not sufficient, all rows are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.protocol.records import EXPIRES_COLUMN, TIMER_COLUMN, TIMER_EVERY
from milepost.state.layers.key_groups import Hashes, Ints, group_cuts, key_group
from milepost.state.layers.layer import Bools, KeySpec, Layer, mask_without, match, not_hidden, stack

_NEVER = np.iinfo(np.int64).max
_ROUNDS = 32
"""Number of rows hidden by newer ones that are skipped in a key group, before all rows are counted."""


@dataclass(frozen=True, slots=True)
class RowStatistics:
    """What a state handle records in addition to its runs.

    Attributes:
        timers: (key group, earliest pending timer in us), ascending.
    """

    live_rows: int
    timers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Times:
    """Decides when rows of one state schema are alive or due.

    Args:
        names: names of its columns.
        every_us: interval of periodic timers, which fire until their row expires; 0: timers fire once.
    """

    names: tuple[str, ...]
    every_us: int = 0

    @classmethod
    def of(cls, stored: pa.Schema) -> Times:
        """Read the time columns from a schema with field metadata."""
        every = (
            (stored.field(TIMER_COLUMN).metadata or {}).get(TIMER_EVERY, b"0") if TIMER_COLUMN in stored.names else 0
        )
        return cls(tuple(stored.names), int(every))

    @property
    def has_timers(self) -> bool:
        return TIMER_COLUMN in self.names

    @property
    def has_expiry(self) -> bool:
        return EXPIRES_COLUMN in self.names

    def alive(self, layer: Layer, watermark_us: int | None, rows: Ints | None = None) -> Bools:
        """Return which rows expire after a firing watermark. Rows without an expiry always do.

        Args:
            rows: indices; None: all rows.
        """
        if watermark_us is None or not self.has_expiry:
            return np.ones(layer.num_rows if rows is None else len(rows), dtype=np.bool_)
        return ~_at_most(layer, EXPIRES_COLUMN, watermark_us, rows)

    def due(self, layer: Layer, time_us: int) -> Bools:
        """Return whether each row's timer or expiry is <= time_us. Tombstones count as rows."""
        due = np.zeros(layer.num_rows, dtype=np.bool_)
        for name in (TIMER_COLUMN, EXPIRES_COLUMN):
            if name in self.names:
                due |= _at_most(layer, name, time_us)
        return due

    def waiting(self, layer: Layer, watermark_us: int | None, rows: Ints | None = None) -> Ints:
        """Return the pending timer of each row, or the end of time if it has none after the watermark."""
        timers, valid = _values(layer, TIMER_COLUMN, rows)
        if watermark_us is not None and self.every_us:
            timers = self.next_timers(timers, watermark_us)
        waits = ~(layer.deleted if rows is None else layer.deleted[rows]) & self.alive(layer, watermark_us, rows)
        if valid is not None:
            waits &= valid
        if watermark_us is not None:
            waits &= timers > watermark_us
        return np.where(waits, timers, _NEVER)

    def next_timers(self, timers: Ints, watermark_us: int) -> Ints:
        """Return the next time after a watermark at which periodic timers fire; the end of time if never.

        >>> Times((), every_us=10).next_timers(np.array([5, 25]), 15).tolist()
        [25, 25]
        """
        fired = (watermark_us - timers) // self.every_us + 1
        return np.where(timers > watermark_us, timers, timers + fired * self.every_us)


def _at_most(layer: Layer, column: str, time_us: int, rows: Ints | None = None) -> Bools:
    times, valid = _values(layer, column, rows)
    compared: Bools = times <= time_us
    return compared if valid is None else compared & valid


def _values(layer: Layer, name: str, rows: Ints | None = None) -> tuple[Ints, Bools | None]:
    """Return a column of times, 0 for null, and the mask of non-null values; None if all are."""
    chunks = layer.stored.column(name)  # times are not narrowed
    column = (
        chunks.chunk(0) if chunks.num_chunks == 1 else pa.concat_arrays([pa.array([], chunks.type), *chunks.chunks])
    )
    if not column.null_count:
        values = column.to_numpy()
        return (values if rows is None else values[rows]), None
    if rows is not None:
        column = column.take(pa.array(rows))
    return pc.fill_null(column, 0).to_numpy(), column.is_valid().to_numpy(zero_copy_only=False)


def counted(
    layers: Sequence[Layer], times: Times, keys: KeySpec, max_parallelism: int, watermark_us: int | None
) -> RowStatistics:
    """Count all rows of layers, newest first."""
    names = [name for name in (*keys.key, TIMER_COLUMN, EXPIRES_COLUMN) if name in times.names]
    layers = [replace(layer, stored=layer.stored.select(names)) for layer in layers if layer.num_rows]
    if not layers:
        return RowStatistics(0, ())
    oldest = layers[-1]
    recent = stack(list(reversed(layers[:-1])), keys, oldest.stored.schema)
    live, earliest = 0, np.full(max_parallelism, _NEVER, dtype=np.int64)
    for layer, newer in ((recent, None), (oldest, recent)):
        shown = ~layer.deleted & times.alive(layer, watermark_us)
        if newer is not None:
            shown[match(layer, newer.hashes, newer.stored, keys)[1]] = False
        live += int(np.count_nonzero(shown))
        if times.has_timers:
            waiting = np.where(shown, times.waiting(layer, watermark_us), _NEVER)
            np.minimum(earliest, _earliest(layer.hashes, waiting, max_parallelism), out=earliest)
    return RowStatistics(live, _pairs(earliest))


@dataclass(frozen=True, slots=True)
class Change:
    """Updates statistics from one checkpoint to the next.

    Attributes:
        before_us, now_us: firing watermarks of the two checkpoints. changes: changed rows of the epoch, including
            tombstones. older: layers before the epoch, newest first.
        added: number of rows of `changes` that were not alive before; None: not known.
    """

    times: Times
    keys: KeySpec
    max_parallelism: int
    before_us: int | None
    now_us: int | None
    changes: Layer
    older: Sequence[Layer]
    added: int | None

    def renewed(self, before: RowStatistics) -> RowStatistics:
        """Return the updated statistics, computed from changed and due rows only."""
        expired = self._expired()
        live = before.live_rows - sum(len(rows) for _, rows in expired)
        if self.added is not None:
            live += self.added - int(np.count_nonzero(~self.times.alive(self.changes, self.now_us)))
        else:
            after = ~self.changes.deleted & self.times.alive(self.changes, self.now_us)
            replaced = sum(len(rows) for _, rows in self._replaced(np.arange(self.changes.num_rows)))
            live += int(np.count_nonzero(after)) - replaced
        if not self.times.has_timers:
            return RowStatistics(live, ())
        earliest = self._earliest_waiting(before, expired)
        if earliest is None:
            layers = [self.changes, *self.older]
            return counted(layers, self.times, self.keys, self.max_parallelism, self.now_us)
        return RowStatistics(live, _pairs(earliest))

    def _expired(self) -> list[tuple[Layer, Ints]]:
        """Return the rows that expired without a change."""
        found: list[tuple[Layer, Ints]] = []
        if self.now_us is None or not self.times.has_expiry or self.now_us == self.before_us:
            return found
        newer = [self.changes]
        for layer in self.older:
            dead = np.flatnonzero(~self.times.alive(layer, self.now_us))
            dead = dead[~layer.deleted[dead] & self.times.alive(layer, self.before_us, dead)]
            rows = not_hidden(newer, layer, dead, self.keys)
            if rows.size:
                found.append((layer, rows))
            newer.append(layer)
        return found

    def _replaced(self, positions: Ints) -> list[tuple[Layer, Ints]]:
        """Return the live rows that the changes replace or delete."""
        found: list[tuple[Layer, Ints]] = []
        for layer in self.older:
            if not positions.size:
                break
            query, rows = match(layer, self.changes.hashes[positions], self.changes.rows, self.keys, positions)
            if not query.size:
                continue
            rows_alive = rows[~layer.deleted[rows] & self.times.alive(layer, self.before_us, rows)]
            if rows_alive.size:
                found.append((layer, rows_alive))
            positions = positions[mask_without(query, len(positions))]
        return found

    def _earliest_waiting(self, before: RowStatistics, expired: Sequence[tuple[Layer, Ints]]) -> Ints | None:
        """Return the earliest timer of each key group; None if that needs a count of all rows."""
        recorded = np.full(self.max_parallelism, _NEVER, dtype=np.int64)
        for group, timer_us in before.timers:
            recorded[group] = timer_us
        changed = _earliest(self.changes.hashes, self.times.waiting(self.changes, self.now_us), self.max_parallelism)
        open_ = np.zeros(self.max_parallelism, dtype=np.bool_)
        if self.now_us is not None:
            open_ |= recorded <= self.now_us
        # Elsewhere the recorded timer is still the earliest, unless its row has changed or expired.
        checked = ~open_ & (recorded < changed)
        groups = key_group(self.changes.hashes, self.max_parallelism)
        for layer, rows in (*self._replaced(np.flatnonzero(checked[groups])), *expired):
            held = key_group(layer.hashes[rows], self.max_parallelism)
            open_[held[self.times.waiting(layer, self.before_us, rows) == recorded[held]]] = True
        earliest = np.minimum(changed, np.where(open_, _NEVER, recorded))
        return earliest if self._search(np.flatnonzero(open_), earliest) else None

    def _search(self, groups: Ints, earliest: Ints) -> bool:
        """Lower the earliest timers of key groups to those of unchanged rows. False: too many rounds.

        Each round takes the earliest row of each group, and skips it if a newer row hides it.
        """
        layers = [layer for layer in self.older if layer.num_rows]
        waiting: list[Ints | None] = [None] * len(layers)
        for _ in range(_ROUNDS):
            if not groups.size:
                return True
            best, of_layer, row = _earliest_rows(layers, waiting, self, groups)
            decided = best >= earliest[groups]
            for at in np.unique(of_layer[~decided]):
                here = np.flatnonzero(~decided & (of_layer == at))
                shown = not_hidden([self.changes, *layers[:at]], layers[at], row[here], self.keys)
                visible = np.isin(row[here], shown, assume_unique=True)
                earliest[groups[here[visible]]] = best[here[visible]]
                decided[here[visible]] = True
                hidden = waiting[at]
                assert hidden is not None, "`_earliest_rows` fills it"
                hidden[row[here[~visible]]] = _NEVER
            groups = groups[~decided]
        return not groups.size


def _earliest_rows(
    layers: Sequence[Layer], waiting: list[Ints | None], change: Change, groups: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return, per key group, the earliest pending timer, its layer (the newest of several) and its row.

    Args:
        waiting: pending timers of each layer. Computed and stored here if None.
    """
    best = np.full(len(groups), _NEVER, dtype=np.int64)
    of_layer, row = np.zeros(len(groups), dtype=np.int64), np.zeros(len(groups), dtype=np.int64)
    for at, layer in enumerate(layers):
        times = waiting[at]
        if times is None:
            times = waiting[at] = change.times.waiting(layer, change.now_us)
        least = _earliest(layer.hashes, times, change.max_parallelism)[groups]
        of_layer[least < best] = at
        np.minimum(best, least, out=best)
    cuts = [group_cuts(layer.hashes, change.max_parallelism) for layer in layers]
    for index in np.flatnonzero(best != _NEVER).tolist():
        at, group = int(of_layer[index]), int(groups[index])
        times = waiting[at]
        assert times is not None, "filled above"
        start, stop = cuts[at][group : group + 2]
        row[index] = start + int(times[start:stop].argmin())
    return best, of_layer, row


def _earliest(hashes: Hashes, times: Ints, max_parallelism: int) -> Ints:
    """Return the earliest time in each key group; the end of time for a group without rows."""
    earliest = np.full(max_parallelism, _NEVER, dtype=np.int64)
    if len(hashes):
        cuts = group_cuts(hashes, max_parallelism)
        filled = np.flatnonzero(np.diff(cuts))
        earliest[filled] = np.minimum.reduceat(times, cuts[filled])
    return earliest


def _pairs(earliest: Ints) -> tuple[tuple[int, int], ...]:
    return tuple((int(group), int(earliest[group])) for group in np.flatnonzero(earliest != _NEVER))
