"""Watermarks (INTERFACE, "Watermark"): never back, minimum over inputs, a source without one holds nobody back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.protocol.watermarks import latest, operator_watermark, source_watermark

MAYBE = st.none() | st.integers(-(10**9), 10**9)


@given(MAYBE, MAYBE, st.integers(0, 10**6))
def test_a_source_watermark_never_goes_back(previous: int | None, newest: int | None, delay: int) -> None:
    after = source_watermark(previous, newest, delay)
    assert after == latest(previous, after)
    if newest is not None:
        assert after is not None and after >= newest - delay


@given(st.lists(MAYBE, max_size=5))
def test_an_operator_waits_for_its_slowest_input(inputs: list[int | None]) -> None:
    watermark = operator_watermark(inputs)
    if inputs and None not in inputs:
        assert watermark == min(value for value in inputs if value is not None)
    else:
        assert watermark is None
