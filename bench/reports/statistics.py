"""Medians, spreads and ratios of repeated measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing.

    Attributes:
        median, low, high: 50th, 25th and 75th percentile, linearly interpolated. count: of measurements.
    """

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError for no values at all: there is no median of nothing."""
        if not values:
            raise ValueError("expected at least one measurement, got none")
        low, median, high = np.percentile(np.asarray(values, dtype=np.float64), (25, 50, 75))
        return cls(float(median), float(low), float(high), len(values))


def ratio(slower: Sequence[float], faster: Sequence[float]) -> Spread:
    """How many times the first takes as long as the second, round by round.

    The rounds are interleaved, so the two values of one round met the same machine.

    Raises: ValueError: the numbers of rounds differ.
    """
    return Spread.of([one / other for one, other in zip(slower, faster, strict=True)])
