"""How much input fits: the slowest subtask of each level decides, level after level."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.codec.records import from_json, to_json
from milepost.epoch.timing.throughput import PROCESSING_SHARE, ThroughputEstimate, Work, measure
from milepost.errors import StateCorrupt

AMOUNT = st.integers(0, 10**9)
WORK = st.builds(Work, st.integers(1, 3), AMOUNT, AMOUNT, AMOUNT, st.integers(0, 10**6))


def test_the_hottest_subtask_of_each_level_counts_and_levels_add_up() -> None:
    """Level 1: subtask 0 takes 2 ms a byte and got 300; level 2: 1 ms a byte and 50. 100 source bytes: 6.5 ms each."""
    work = [Work(1, 300, 200, 100, 400), Work(1, 300, 300, 0, 300), Work(2, 50, 50, 0, 50), Work(2, 0, 0, 0, 9)]
    assert measure(work, 100, ThroughputEstimate()) == ThroughputEstimate(6.5, 200.0)


def test_an_epoch_that_read_nothing_keeps_the_record_of_new_input() -> None:
    """It has shown how fast the rows in flight go, not what a source byte leads to."""
    assert measure([Work(1, 0, 100, 50, 200)], 0, ThroughputEstimate(3.0, 999.0)) == ThroughputEstimate(3.0, 100.0)
    assert measure([], 0, ThroughputEstimate()) == ThroughputEstimate(None, 0.0)


def test_a_subtask_that_processed_nothing_is_taken_for_as_fast_as_its_level() -> None:
    work = [Work(1, 100, 100, 0, 500), Work(1, 80, 0, 80, 0)]
    assert measure(work, 10, ThroughputEstimate()) == ThroughputEstimate(50.0, 400.0)


@given(st.lists(WORK, max_size=6), AMOUNT, st.integers(1, 10**6))
def test_what_fits_is_never_more_than_the_budget_allows(work: list[Work], source_bytes: int, budget_ms: int) -> None:
    """And the measured throughput passes through JSON unchanged."""
    throughput = measure(work, source_bytes, ThroughputEstimate())
    fits = throughput.source_bytes_within(budget_ms)
    if throughput.ms_per_source_byte is None:
        assert fits is None
    else:
        assert fits is not None and fits >= 0
        if fits:
            needed = fits * throughput.ms_per_source_byte + throughput.in_flight_ms
            assert needed <= budget_ms * PROCESSING_SHARE * (1 + 1e-9)
    assert from_json(ThroughputEstimate, to_json(throughput), "throughput") == throughput


@pytest.mark.parametrize(
    "document", [{}, {"ms_per_source_byte": "1", "in_flight_ms": 0}, {"ms_per_source_byte": 1, "in_flight_ms": True}]
)
def test_a_pace_that_does_not_fit_is_corrupt(document: dict[str, object]) -> None:
    with pytest.raises(StateCorrupt):
        from_json(ThroughputEstimate, document, "estimate")
