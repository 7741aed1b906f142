"""Merge overlapping spans of each owner."""

from __future__ import annotations

import numpy as np

from milepost.operators.contract import Ints


def merge_spans(owners: Ints, starts: Ints, ends: Ints) -> Ints:
    """Return for each span the number of the merged span that contains it.

    Spans are half-open, so spans that only touch stay apart.

    >>> merge_spans(np.array([0, 0, 1, 0]), np.array([9, 0, 4, 5]), np.array([19, 6, 9, 9])).tolist()
    [1, 0, 2, 0]
    """
    moments = np.unique(np.concatenate([starts, ends]))
    size = len(moments)
    # Owners share one number line, each after the previous owner, so a single sort serves them all. For one owner:
    #   spans        [0, 10)  [20, 30)  [12, 22)
    #   by start     [0, 10)  [12, 22)  [20, 30)
    #   end so far      10       22        30      a span opens a new number if it starts at or after the previous end
    #   number           0        1         1
    begins = owners * size + np.searchsorted(moments, starts)
    stops = owners * size + np.searchsorted(moments, ends)
    order = np.argsort(begins, kind="stable")
    end_so_far = np.maximum.accumulate(stops[order])
    new = np.ones(len(order), dtype=np.int64)
    new[1:] = begins[order][1:] >= end_so_far[:-1]
    joined = np.empty(len(order), dtype=np.int64)
    joined[order] = np.cumsum(new) - 1
    return joined
