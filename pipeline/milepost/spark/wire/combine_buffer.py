"""Two-phase aggregation: the sender folds the rows of an edge before they are exchanged, where that makes them fewer.

Whether it does is seen on the rows themselves: on the first ones, and again on every part that was folded. So the
decision, like the buffers, is a function of the rows and their order, and a second attempt makes the same one (I12).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from milepost.operators import Combiner

SAMPLE_ROWS = 65_536
"""So many rows are folded to see whether it pays; an input of fewer is sent as it is."""

ROWS_PER_PARTIAL = 4
"""From here on it pays: a partial result has more columns than a row, and folding costs about what sending saves."""

PART_BYTES = 64_000_000
"""What is held at most before it is folded."""


class CombineBuffer:
    """Rows of one edge and one stamp, held until they are folded or let through.

    Args:
        held_bytes: what a task of little memory holds at most, if that is less.
    """

    def __init__(self, combiner: Combiner, held_bytes: int) -> None:
        self._combiner, self._held_bytes = combiner, held_bytes
        self._held: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._is_worthwhile: bool | None = None

    def add(self, rows: pa.Table) -> Iterator[tuple[pa.Table, bool]]:
        """Take rows in; yield what is to be sent now, and whether it is partial results."""
        self._held.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._is_worthwhile is None and self._rows >= SAMPLE_ROWS:
            sample = pa.concat_tables(self._held).slice(0, SAMPLE_ROWS)
            self._is_worthwhile = self._reduces_enough(self._combiner.combine(sample), sample)
        if self._is_worthwhile is False or self._bytes >= min(PART_BYTES, self._held_bytes):
            yield from self.flush()

    def flush(self) -> Iterator[tuple[pa.Table, bool]]:
        """Yield what is held."""
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        if not held:
            return
        if not self._is_worthwhile:
            yield from ((rows, False) for rows in held)
            return
        rows = pa.concat_tables(held)
        partials = self._combiner.combine(rows)
        self._is_worthwhile = self._reduces_enough(partials, rows)
        yield partials, True

    def _reduces_enough(self, partials: pa.Table, rows: pa.Table) -> bool:
        return partials.num_rows * ROWS_PER_PARTIAL <= rows.num_rows
