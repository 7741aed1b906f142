"""Cache the minimum or maximum of each key over retractable input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import Bools, Ints
from milepost.operators.rows.columns import key_columns
from milepost.operators.rows.row_order import order_numbers
from milepost.protocol.records import WEIGHT_COLUMN

NEGATIVE_ZEROS = "__negative_zeros"
"""State column (int64) of a table of floats: how many of the zeros of a row, which is one value, are -0.0."""

WEIGHTS = (WEIGHT_COLUMN, NEGATIVE_ZEROS)
"""State columns that count how often a value occurs."""

_LEAST = np.int64(-(2**63))


@dataclass(frozen=True, slots=True)
class Values:
    """Distinct values of keys.

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
        """Which values occur at least once."""
        is_live: Bools = self.rows.column(WEIGHT_COLUMN).to_numpy() > 0
        return is_live

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
    """State columns of the cached extreme.

    Attributes:
        fields: in the order of the columns of `Values`; null of a key that has no value. largest: which one it is.
    """

    fields: tuple[pa.Field, ...]
    largest: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def none(self, count: int) -> pa.Table:
        """Return null columns for `count` keys without a value."""
        return pa.table([pa.nulls(count, field.type) for field in self.fields], schema=pa.schema(self.fields))

    def chosen(self, previous: pa.Table, changed: Values) -> tuple[Sequence[pa.ChunkedArray], Bools]:
        """Choose between the cached extreme and the changed values.

        With max(x) = 9 cached for each key::

            change             new max(x)    values must be read
            +12                12            no
            -9, +7             7             yes: an unchanged 8 may exist
            +9                 9             no

        Args:
            previous: has the state columns, a row for each key.
        Returns:
            (the new columns, which keys may have a more extreme unchanged value: the cached one was retracted and no
            value as extreme replaced it).
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
        """Return a number for each cached and each changed value. A more extreme value has a higher number."""
        ordered = changed.ordered
        kept = key_columns(stored.filter(pa.array(known)), stored.column_names)
        numbers = order_numbers(pa.concat_tables([kept, ordered]).columns)
        if not self.largest:
            numbers = ~numbers
        before = np.full(len(known), _LEAST)
        before[known] = numbers[: kept.num_rows]
        return before, numbers[kept.num_rows :]
