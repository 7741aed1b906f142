"""Medians, quartiles and paired ratios."""

from __future__ import annotations

import pytest

from bench.reports.statistics import Spread, ratio
from milepost_testkit import wording


def test_a_spread_is_the_median_between_the_quartiles() -> None:
    assert Spread.of([4.0, 1.0, 3.0, 2.0, 5.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([1.0, 2.0]) == Spread(1.5, 1.25, 1.75, 2)


def test_a_ratio_is_taken_round_by_round() -> None:
    """A round in which both were slow does not move it, as it would move a ratio of medians."""
    assert ratio([2.0, 20.0, 4.0], [1.0, 10.0, 1.0]) == Spread(2.0, 2.0, 3.0, 3)


def test_there_is_no_median_of_nothing() -> None:
    with wording.raises(ValueError):
        Spread.of([])


def test_a_ratio_of_other_rounds_is_refused() -> None:
    with pytest.raises(ValueError):
        ratio([1.0, 2.0], [1.0])
