"""Forget old consumed versions of deleted objects, so that the set stays bounded.

A version that is still listed is never forgotten, however old it is. So if the listing shows an object that is older
than the horizon and is not in the set, the source can report it: it is unknown whether that object was read.

Example with five rows and `before_ms` 40, where `a` was deleted and `b` is still listed:

    row   key  modified
    0     a    10         forgotten
    1     b    20         listed
    2     a    30         forgotten
    3     a    50         too recent
    4     a    20         forgotten

The ranges are [0, 1), [2, 3) and [4, 5). The horizon is 31: the set is complete for objects modified at 31 or later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MAX_RANGES = 4_000
"""Limit on the ranges forgotten in one epoch: the input record stores them. Later epochs forget the rest."""


@dataclass(frozen=True, slots=True)
class ForgottenRows:
    """Rows to remove from a set of consumed versions.

    Attributes:
        rows: half-open row ranges, ascending, none empty.
        of: number of rows in the set.
        horizon_ms: every removed version was modified before this time. The set stays complete from then on.
    """

    rows: tuple[tuple[int, int], ...]
    of: int
    horizon_ms: int

    def fault(self, table: pa.Table) -> str | None:
        """Return why these ranges do not fit the given set, or None."""
        if table.num_rows != self.of:
            return f"the set has {table.num_rows} rows, not {self.of}"
        ends = [0, *(end for rows in self.rows for end in rows)]
        if any(a > b for a, b in pairwise(ends)) or ends[-1] > self.of:
            return "its ranges of rows are not in order"
        forgotten = pc.filter(table["last_modified_ms"], pa.array(self._mask()))
        newest_ms = pc.max(forgotten).as_py()
        is_older = newest_ms is None or newest_ms < self.horizon_ms
        return None if is_older else "a row to forget is not older than the horizon"

    def remaining(self, table: pa.Table) -> pa.Table:
        """Return the rows that are not removed, in order."""
        return table.filter(pa.array(~self._mask()))

    def _mask(self) -> np.ndarray:
        mask = np.zeros(self.of, bool)
        for first, end in self.rows:
            mask[first:end] = True
        return mask


def find_forgettable(consumed: pa.Table, listed: Iterable[str], before_ms: int) -> ForgottenRows | None:
    """Return the rows that can be forgotten now, or None if there are none.

    Args:
        consumed: rows of the set.
        listed: keys of the objects in the current listing.
        before_ms: only versions modified before this time are forgotten.
    """
    deleted = ~pc.is_in(consumed["key"], value_set=pa.array(list(listed), pa.string())).to_numpy(zero_copy_only=False)
    modified = consumed["last_modified_ms"].to_numpy()
    mask = deleted & (modified < before_ms)
    # Pad with False: each run of True then has a rising and a falling edge, which are the ends of its range.
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    rows = edges.reshape(-1, 2)[:MAX_RANGES].tolist()
    if not rows:
        return None
    mask[rows[-1][1] :] = False
    ranges = tuple((first, end) for first, end in rows)
    return ForgottenRows(ranges, consumed.num_rows, int(modified[mask].max()) + 1)
