"""Kept values: of each key the least or greatest value that is there, while values come and are taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import Bools, Ints
from milepost.operators.rows.columns import key_columns
from milepost.operators.rows.row_order import order_numbers
from milepost.protocol.records.state_columns import WEIGHT_COLUMN

NEGATIVE_ZEROS = "__negative_zeros"
"""State column (int64) of a table of floats: how many of the zeros of a row, which is one value, are -0.0."""

WEIGHTS = (WEIGHT_COLUMN, NEGATIVE_ZEROS)
"""State columns that say how often a value is there."""

_LEAST = np.int64(-(2**63))


@dataclass(frozen=True, slots=True)
class Values:
    """Values of keys, each of them once per key.

    Attributes:
        owners: of each the number of its key. rows: what orders them, the value itself last, and how often each is
            there: `WEIGHT_COLUMN`, and of floats `NEGATIVE_ZEROS`.
    """

    owners: Ints
    rows: pa.Table

    @property
    def ordered(self) -> pa.Table:
        """The columns that order them, one zero and one NaN in each."""
        return self.rows.select(
            [name for name in self.rows.column_names if name not in (WEIGHT_COLUMN, NEGATIVE_ZEROS)]
        )

    @property
    def is_live(self) -> Bools:
        """Which of them are there."""
        there: Bools = self.rows.column(WEIGHT_COLUMN).to_numpy() > 0
        return there

    def shown(self, *, largest: bool) -> pa.Table:
        """Return them as they came: of both zeros -0.0 is the least, and 0.0 the greatest."""
        rows = self.ordered
        if NEGATIVE_ZEROS not in self.rows.column_names:
            return rows
        negative = self.rows.column(NEGATIVE_ZEROS).to_numpy()
        is_negative = self.rows.column(WEIGHT_COLUMN).to_numpy() <= negative if largest else negative > 0
        at = rows.num_columns - 1
        field, values = rows.field(at), rows.column(at)
        zero = pc.fill_null(pc.equal(values, pa.scalar(0.0, field.type)), False)
        shown = pc.if_else(pc.and_(zero, pa.array(is_negative)), pa.scalar(-0.0, field.type), values)
        return rows.set_column(at, field, shown)


@dataclass(frozen=True, slots=True)
class CachedExtreme:
    """State columns of the value that is kept.

    Attributes:
        fields: in the order of the columns of `Values`; null of a key that has no value. largest: which one it is.
    """

    fields: tuple[pa.Field, ...]
    largest: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def none(self, count: int) -> pa.Table:
        """Return the columns of keys without a value."""
        return pa.table([pa.nulls(count, field.type) for field in self.fields], schema=pa.schema(self.fields))

    def chosen(self, previous: pa.Table, changed: Values) -> tuple[Sequence[pa.ChunkedArray], Bools]:
        """Choose among the value that was kept and those that have changed.

        Args:
            previous: has the state columns, a row for each key.
        Returns:
            (the new columns, which keys may have a value that is farther out and has not changed: the kept one was
            taken back, and none has come that is as far out).
        """
        shown = changed.shown(largest=self.largest)
        stored = previous.select(self.names).rename_columns(shown.column_names).cast(shown.schema)
        known = np.asarray(stored.column(0).is_valid())
        before, new = self._numbers(stored, known, changed)
        there, owners = changed.is_live, changed.owners
        touched = known[owners] & (new == before[owners])
        left = known.copy()
        left[owners[touched]] = False
        best = np.where(left, before, _LEAST)
        np.maximum.at(best, owners[there], new[there])
        has = left.copy()
        has[owners[there]] = True
        places = np.arange(previous.num_rows)
        found = np.flatnonzero(there & (new == best[owners]))
        places[owners[found]] = previous.num_rows + found
        columns = pa.concat_tables([stored, shown]).take(pa.array(places, mask=~has)).columns
        return columns, known & ~left & (~has | (best < before))

    def _numbers(self, stored: pa.Table, known: Bools, changed: Values) -> tuple[Ints, Ints]:
        """Return numbers by which what is kept of each key, and each changed value, are the farther out the higher."""
        ordered = changed.ordered
        kept = key_columns(stored.filter(pa.array(known)), stored.column_names)
        numbers = order_numbers(pa.concat_tables([kept, ordered]).columns)
        if not self.largest:
            numbers = ~numbers
        before = np.full(len(known), _LEAST)
        before[known] = numbers[: kept.num_rows]
        return before, numbers[kept.num_rows :]
