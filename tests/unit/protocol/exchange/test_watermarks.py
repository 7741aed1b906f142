"""Watermarks (DESIGN 8.1): never decrease, minimum over inputs; a source without one delays nobody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milepost.protocol.exchange.watermarks import (
    firing_watermark,
    latest,
    operator_watermark,
    source_watermark,
)

MAYBE = st.none() | st.integers(-(10**9), 10**9)


@given(MAYBE, MAYBE, st.integers(0, 10**6))
def test_a_source_watermark_never_decreases(previous: int | None, newest: int | None, delay: int) -> None:
    after = source_watermark(previous, newest, delay)
    assert after == latest(previous, after)
    if newest is not None:
        assert after is not None and after >= newest - delay


def test_a_source_watermark_stays_within_what_an_event_time_can_be() -> None:
    """Below the end of time, which only an ended source reaches, and never before the least timestamp."""
    assert source_watermark(None, 2**63 - 1, 0) == 2**63 - 2
    assert source_watermark(None, -(2**63), 10) == -(2**63)


@given(st.lists(MAYBE, max_size=5))
def test_an_operator_waits_for_its_slowest_input(inputs: list[int | None]) -> None:
    watermark = operator_watermark(inputs)
    if inputs and None not in inputs:
        assert watermark == min(value for value in inputs if value is not None)
    else:
        assert watermark is None


@given(MAYBE, MAYBE, st.lists(MAYBE, max_size=4))
def test_a_firing_watermark_never_decreases_and_never_passes_a_row_in_flight(
    previous: int | None, reached: int | None, in_flight: list[int | None]
) -> None:
    """DESIGN 4.3: windows and timers wait for rows in flight; what has fired stays fired."""
    firing = firing_watermark(previous, reached, in_flight)
    assert firing == latest(previous, firing)
    for limit in (reached, *in_flight):
        if firing != previous:
            assert limit is not None and firing is not None and firing <= limit
    if not in_flight:
        assert firing == latest(previous, reached)
