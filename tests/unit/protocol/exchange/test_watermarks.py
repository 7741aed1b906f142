"""Watermarks (DESIGN 8.1) never decrease, and are the minimum over inputs. A source without one delays no other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milepost.protocol.exchange.watermarks import (
    delivered_event_time,
    firing_watermark,
    latest,
    newest_by_partition,
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


def test_a_source_watermark_stays_in_the_range_of_event_times() -> None:
    """It stays below the end of time, which only a finished source reaches, and at or above the smallest timestamp."""
    assert source_watermark(None, 2**63 - 1, 0) == 2**63 - 2
    assert source_watermark(None, -(2**63), 10) == -(2**63)


def test_a_source_without_partitions_has_delivered_up_to_its_newest_row() -> None:
    assert delivered_event_time(7, {}, ()) == 7
    assert delivered_event_time(None, {}, ()) is None


def test_lagging_partitions_hold_the_watermark_back() -> None:
    newest = {"p0": 1200, "p1": 1130, "p2": 1100}
    assert delivered_event_time(1130, newest, ("p1",)) == 1130
    assert delivered_event_time(1130, newest, ("p1", "p2")) == 1100
    assert delivered_event_time(1130, newest, ()) == 1200
    assert delivered_event_time(1130, newest, ("p3",)) is None, "no event time of its rows is known"


def test_an_epoch_that_reads_none_of_a_log_does_not_move_its_watermark() -> None:
    """Only another source had input. Partition 1 still lags: its next row is from 11:01."""
    assert delivered_event_time(None, {"p0": 1200, "p1": 1100}, None) is None


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 50), max_size=12)), st.data())
def test_no_row_of_an_ordered_partition_is_late_while_a_log_catches_up(
    rows: dict[str, list[int]], data: st.DataObject
) -> None:
    """Each partition is sorted by time, and is read in arbitrary chunks, independently of the others."""
    left = {name: sorted(times) for name, times in rows.items()}
    watermark, newest = None, dict[str, int]()
    while any(left.values()):
        shares = {name: data.draw(st.integers(0, len(times)), name) for name, times in left.items()}
        read = {name: times[: shares[name]] for name, times in left.items()}
        for times in read.values():
            assert all(watermark is None or time >= watermark for time in times)
        left = {name: times[shares[name] :] for name, times in left.items()}
        newest = newest_by_partition(newest, [{name: times[-1]} for name, times in read.items() if times])
        behind = [name for name, times in left.items() if times] if any(read.values()) else None
        newest_us = max((times[-1] for times in read.values() if times), default=None)
        watermark = source_watermark(watermark, delivered_event_time(newest_us, newest, behind), 0)
    if newest:
        assert watermark == max(newest.values())


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
    """DESIGN 4.3: windows and timers wait for rows in flight, and those that have fired stay fired."""
    firing = firing_watermark(previous, reached, in_flight)
    assert firing == latest(previous, firing)
    for limit in (reached, *in_flight):
        if firing != previous:
            assert limit is not None and firing is not None and firing <= limit
    if not in_flight:
        assert firing == latest(previous, reached)
