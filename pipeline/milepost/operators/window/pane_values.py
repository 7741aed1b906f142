"""Count the distinct values of sliding windows, for `count(distinct x)`.

A value of a pane is in the windows from the first one that the pane's rows count for to the last one that contains the
pane. Overlapping spans of the same value are merged, so a window is in at most one span per value. The number of its
values is the number of spans that have started by it, minus those that have ended, for any number of panes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.operators.contract import Ints
from milepost.operators.rows.columns import group_rows
from milepost.operators.window.spans import merge_spans


@dataclass(frozen=True, slots=True)
class PaneValues:
    """Spans of windows that contain a value.

    Attributes:
        owners: index of each span's key.
        first: number of the first window.
        behind: number of the window after the last one.
    """

    owners: Ints
    first: Ints
    behind: Ints

    @classmethod
    def of(cls, owners: Ints, values: pa.ChunkedArray, first: Ints, behind: Ints) -> PaneValues:
        """Merge the spans of values of panes, each with the index of its key and its windows."""
        codes, _ = group_rows(pa.table({"owner": pa.array(owners), "value": values}))
        spans = merge_spans(codes, first, behind)
        count = int(spans.max(initial=-1)) + 1
        begins, ends = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        np.minimum.at(begins, spans, first)
        np.maximum.at(ends, spans, behind)
        of_span = np.empty(count, dtype=np.int64)
        of_span[spans] = owners
        return cls(of_span, begins, ends)

    def counts(self, owners: Ints, windows: Ints) -> Ints:
        """Return the number of distinct values in each window. owners: index of each window's key.

        >>> spans = PaneValues(np.array([0, 0, 1]), np.array([1, 2, 1]), np.array([3, 5, 9]))
        >>> spans.counts(np.array([0, 0, 0, 1]), np.array([1, 2, 3, 2])).tolist()
        [1, 2, 1, 1]
        """
        moments = np.unique(np.concatenate([self.first, self.behind, windows]))
        size = len(moments)
        wanted = owners * size + np.searchsorted(moments, windows)
        begun, ended = (
            np.searchsorted(np.sort(self.owners * size + np.searchsorted(moments, bounds)), wanted, side="right")
            for bounds in (self.first, self.behind)
        )
        return begun - ended
