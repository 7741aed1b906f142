"""Buffered rows of a join, searchable by key and time range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.operators.contract import Bools, Ints, KeyedState, OperatorInput, RowsOfKeys
from milepost.operators.rows.columns import EventTime, check_event_time
from milepost.operators.rows.timers import due_since_firing
from milepost.protocol.exchange import BEGINNING_OF_TIME_US, END_OF_TIME_US
from milepost.protocol.records import IDENTITY_COLUMNS, WEIGHT_COLUMN

_BATCH_PAIRS = 1 << 20


@dataclass(frozen=True, slots=True)
class BufferedRows:
    """Buffered rows of one side, ordered by key and time.

    Attributes:
        order: positions among `found`, by key and time. A row of weight n occurs n times.
        owners, times: in that order.
    """

    found: RowsOfKeys
    order: Ints
    owners: Ints
    times: Ints

    @classmethod
    def of(cls, found: RowsOfKeys, event_time: EventTime) -> BufferedRows:
        known = found.take([event_time.column, WEIGHT_COLUMN])
        times, weights = event_time.of(known), known.column(WEIGHT_COLUMN).to_numpy()
        order = np.lexsort((times, found.owners))
        if bool((weights != 1).any()):
            order = np.repeat(order, weights[order])
        return cls(found, order, found.owners[order], times[order])

    @classmethod
    def of_single(cls, found: RowsOfKeys, event_time: EventTime) -> BufferedRows:
        """Return the rows of a table without weights, which has each row once."""
        times = event_time.of(found.take([event_time.column]))
        order = np.lexsort((times, found.owners))
        return cls(found, order, found.owners[order], times[order])

    def between(self, owners: Ints, least: Ints, most: Ints) -> tuple[Ints, Ints]:
        """Return the half-open range of rows that each key has from `least` to `most`, both inclusive.

        Key 0 has rows at 10 and 20, key 1 has one at 20. Key 0 from 15 to 30 matches only its row at 20.

        >>> kept = BufferedRows(None, np.arange(3), np.array([0, 0, 1]), np.array([10, 20, 20]))
        >>> [bounds.tolist() for bounds in kept.between(np.array([0]), np.array([15]), np.array([30]))]
        [[1], [2]]
        """
        moments = np.unique(np.concatenate([self.times, least, most]))
        size = len(moments) + 1

        def place(keys: Ints, times: Ints) -> Ints:
            return keys * size + np.searchsorted(moments, times)

        places = place(self.owners, self.times)
        begins = np.searchsorted(places, place(owners, least), side="left")
        ends = np.searchsorted(places, place(owners, most), side="right")
        return begins, ends

    def covered(self, begins: Ints, ends: Ints) -> Ints:
        """Return the positions that at least one of these ranges contains, each once.

        >>> kept = BufferedRows(None, np.arange(4), np.array([0, 0, 0, 1]), np.array([10, 20, 30, 20]))
        >>> kept.covered(np.array([0, 1, 3]), np.array([2, 2, 3])).tolist()
        [0, 1]
        """
        there = ends > begins
        steps = np.zeros(len(self.order) + 1, dtype=np.int64)
        np.add.at(steps, begins[there], 1)
        np.add.at(steps, ends[there], -1)
        return np.flatnonzero(np.cumsum(steps)[:-1])


@dataclass(frozen=True, slots=True)
class MatchedRanges:
    """The buffered rows that match each row of a piece: a range of them, in which further bounds are compared.

    Attributes:
        begins, ends: the range of each row. times: its event time.
        since, until: of each buffered row, the least and greatest event time that matches it. None: the ranges match as
            a whole.
    """

    begins: Ints
    ends: Ints
    times: Ints
    since: Ints | None = None
    until: Ints | None = None

    def pairs(self, batch_rows: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs (row, position of a buffered row) in batches of up to `batch_rows` pairs.

        >>> bounds = np.array([0, 0]), np.array([20, 30])
        >>> ranges = MatchedRanges(np.array([0, 0]), np.array([2, 2]), np.array([15, 25]), *bounds)
        >>> [(own.tolist(), others.tolist()) for own, others in ranges.pairs(9)]
        [([0, 0, 1], [0, 1, 1])]
        """
        for own, others in batched_pairs(self.begins, self.ends, batch_rows):
            if self.since is None or self.until is None:
                yield own, others
            else:
                fits = (self.since[others] <= self.times[own]) & (self.times[own] <= self.until[others])
                if fits.any():
                    yield own[fits], others[fits]

    def touched(self, kept: BufferedRows) -> tuple[Bools, Ints]:
        """Return (whether each row has a match, the positions of the buffered rows that have one, each once)."""
        if self.until is None:
            return self.ends > self.begins, kept.covered(self.begins, self.ends)
        paired, met = np.zeros(len(self.begins), dtype=np.bool_), np.zeros(len(kept.order), dtype=np.bool_)
        for own, others in self.pairs(_BATCH_PAIRS):
            paired[own] = met[others] = True
        return paired, np.flatnonzero(met)


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """The column with the least or greatest event time that matches each row. Null matches nothing."""

    time: EventTime

    @classmethod
    def of_column(cls, uid: str, schema: pa.Schema, column: str) -> BoundColumn:
        """Return the bound in a column. Raises InvalidRequest: it does not exist, or is not a time."""
        return cls(check_event_time(uid, OperatorInput(schema, column), "a bound of a join"))

    @property
    def column(self) -> str:
        return self.time.column

    def of(self, rows: pa.Table) -> Ints:
        """Return the bounds in microseconds, the beginning of time for null.

        Raises OperatorFailed: one does not fit int64 microseconds.
        """
        column = rows.column(self.column)
        filled = pa.table({self.column: column.fill_null(pa.scalar(0, pa.int64()).cast(column.type))})
        return np.where(self.valid(rows), self.time.of(filled), BEGINNING_OF_TIME_US)

    def valid(self, rows: pa.Table) -> Bools:
        """Return which bounds are not null."""
        valid: Bools = rows.column(self.column).is_valid().to_numpy()
        return valid


def due_rows(state: KeyedState, column: str, key: Sequence[str], after_us: int | None, until_us: int) -> pa.Table:
    """Return the rows that fall due after a firing, by time, key and identity, each as often as its weight."""
    due = due_since_firing(state, column, after_us, until_us)
    due = due.sort_by([(name, "ascending") for name in (column, *key, *IDENTITY_COLUMNS)])
    weights = due.column(WEIGHT_COLUMN).to_numpy()
    return due.take(pa.array(np.repeat(np.arange(len(weights)), weights)))


def batched_pairs(begins: Ints, ends: Ints, batch_rows: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs (row, position in its range) in batches of up to `batch_rows` pairs.

    >>> parts = list(batched_pairs(np.array([5, 0, 7]), np.array([7, 0, 8]), 2))
    >>> [(own.tolist(), others.tolist()) for own, others in parts]
    [([0, 0], [5, 6]), ([2], [7])]
    """
    counts = np.maximum(ends - begins, 0)
    before = np.cumsum(counts) - counts
    total = int(counts.sum())
    for start in range(0, total, batch_rows):
        pair = np.arange(start, min(start + batch_rows, total))
        own = np.searchsorted(before + counts, pair, side="right")
        yield own, begins[own] + pair - before[own]


def reachable_times(times: Ints, reach_us: tuple[int, int]) -> tuple[Ints, Ints]:
    """Return the first and last matching time of the other side, clamped to the representable times."""
    low, high = (
        np.where(
            times > END_OF_TIME_US - by if by > 0 else times < BEGINNING_OF_TIME_US - by,
            END_OF_TIME_US if by > 0 else BEGINNING_OF_TIME_US,
            times + by,
        )
        for by in reach_us
    )
    return low, high
