"""Spans that overlap are one: numbered for each owner."""

from __future__ import annotations

import numpy as np

from milepost.operators.contract import Ints


def merge_spans(owners: Ints, starts: Ints, ends: Ints) -> Ints:
    """Return the number of the joined span that each span is in: spans of an owner that overlap are in one.

    >>> merge_spans(np.array([0, 0, 1, 0]), np.array([9, 0, 4, 5]), np.array([19, 6, 9, 9])).tolist()
    [1, 0, 2, 0]
    """
    moments = np.unique(np.concatenate([starts, ends]))
    size = len(moments)
    # One line for all owners, each behind the one before it.
    begins = owners * size + np.searchsorted(moments, starts)
    stops = owners * size + np.searchsorted(moments, ends)
    order = np.argsort(begins, kind="stable")
    reached = np.maximum.accumulate(stops[order])
    new = np.ones(len(order), dtype=np.int64)
    new[1:] = begins[order][1:] >= reached[:-1]
    joined = np.empty(len(order), dtype=np.int64)
    joined[order] = np.cumsum(new) - 1
    return joined
