"""Forgetting keeps the set of consumed objects bounded: versions that are old, and whose objects are gone, leave it.

A version that is still listed stays, however old it is: so an object that is as old as something forgotten, and not in
the set, can be named. Nobody knows of it whether it was read.

Like so, of five rows and a limit of 40 (a: gone, b: listed): a 10, b 20, a 30, a 50, a 20 -> rows [0, 1), [2, 3),
[4, 5); from then on the set is whole from 31 on: that is its horizon.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MAX_RANGES = 4_000
"""So many ranges of rows leave a set at once: they stand in the input record. The others leave it later."""


@dataclass(frozen=True, slots=True)
class ForgottenRows:
    """What leaves a set of consumed versions.

    Attributes:
        rows: half-open ranges of its rows, ascending, none of them empty. of: rows that it has.
        horizon_ms: all that leaves was modified before; at or after it, the set stays whole.
    """

    rows: tuple[tuple[int, int], ...]
    of: int
    horizon_ms: int

    def fault(self, table: pa.Table) -> str | None:
        """Return why this is not about the set with these rows; None when it may leave it."""
        if table.num_rows != self.of:
            return f"the set has {table.num_rows} rows, not {self.of}"
        ends = [0, *(end for rows in self.rows for end in rows)]
        if any(a > b for a, b in pairwise(ends)) or ends[-1] > self.of:
            return "its ranges of rows are not in order"
        leaving = pc.filter(table["last_modified_ms"], pa.array(self._mask()))
        newest_ms = pc.max(leaving).as_py()
        return None if newest_ms is None or newest_ms < self.horizon_ms else "a row that leaves is not that old"

    def remaining(self, table: pa.Table) -> pa.Table:
        """Return the rows that stay, in their order."""
        return table.filter(pa.array(~self._mask()))

    def _mask(self) -> np.ndarray:
        leaves = np.zeros(self.of, bool)
        for first, end in self.rows:
            leaves[first:end] = True
        return leaves


def find_forgettable(consumed: pa.Table, listed: Iterable[str], before_ms: int) -> ForgottenRows | None:
    """Return what may leave a set now; None: nothing.

    Args:
        consumed: the rows of the set. listed: keys of the objects that are there now.
        before_ms: what was modified then or later stays.
    """
    gone = ~pc.is_in(consumed["key"], value_set=pa.array(list(listed), pa.string())).to_numpy(zero_copy_only=False)
    modified = consumed["last_modified_ms"].to_numpy()
    leaves = gone & (modified < before_ms)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], leaves, [False])).astype(np.int8)))
    rows = edges.reshape(-1, 2)[:MAX_RANGES].tolist()
    if not rows:
        return None
    leaves[rows[-1][1] :] = False
    ranges = tuple((first, end) for first, end in rows)
    return ForgottenRows(ranges, consumed.num_rows, int(modified[leaves].max()) + 1)
