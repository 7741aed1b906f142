"""Two-phase aggregation: combine an edge's rows before the exchange if that pays.

The decision is measured on the rows: on the first sample, and again on every combined part. So it is a function of the
rows and their order, like the buffers, and a second attempt decides the same (I12)::

    first 65,536 rows -> 16,384 partial results     combine
    first 65,536 rows -> 16,385 partial results     send the rows unchanged
    fewer rows in the whole epoch                   send the rows unchanged
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from milepost.operators import Combiner

SAMPLE_ROWS = 65_536
"""Number of rows in the first sample. A smaller input is sent unchanged."""

ROWS_PER_PARTIAL = 4
"""Combining pays from this ratio on. A partial result has more columns than a row, and combining takes CPU time."""

PART_BYTES = 64_000_000
"""Maximum size of the buffered rows. At this size they are combined."""


class CombineBuffer:
    """Buffered rows of one edge and one stamp, until they are combined or passed on unchanged.

    Args:
        held_bytes: limit of a task with little memory, if it is lower than `PART_BYTES`.
    """

    def __init__(self, combiner: Combiner, held_bytes: int) -> None:
        self._combiner, self._held_bytes = combiner, held_bytes
        self._held: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._is_worthwhile: bool | None = None

    def add(self, rows: pa.Table) -> Iterator[tuple[pa.Table, bool]]:
        """Buffer rows. Yield each table to send now, with whether it holds partial results."""
        self._held.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._is_worthwhile is None and self._rows >= SAMPLE_ROWS:
            sample = pa.concat_tables(self._held).slice(0, SAMPLE_ROWS)
            self._is_worthwhile = self._reduces_enough(self._combiner.combine(sample), sample)
        if self._is_worthwhile is False or self._bytes >= min(PART_BYTES, self._held_bytes):
            yield from self.flush()

    def flush(self) -> Iterator[tuple[pa.Table, bool]]:
        """Yield the buffered rows, as `add` does."""
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
