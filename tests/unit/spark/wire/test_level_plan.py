"""What an operator may take for complete, from what the levels before it acknowledged (DESIGN 4.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milepost.epoch.metadata import StateTableSnapshot
from milepost.operators.base.edges import edge_names
from milepost.protocol.exchange.barrier import SubtaskAck
from milepost.protocol.exchange.watermarks import BEGINNING_OF_TIME_US, END_OF_TIME_US, latest
from milepost.spark.wire.exchange import OwnStamp, Stamp
from milepost.spark.wire.level_plan import (
    Clock,
    OperatorPlan,
    SourceClock,
    UpstreamClock,
    fired_us,
    input_plans,
    input_watermark_us,
    start_watermark_us,
)
from milepost.state.layers.key_groups import key_group_range
from milepost.state.runs.handles import StateHandle
from milepost_testkit.tasks.dataplane import SCHEMA, operators

SOURCE = SourceClock("clicks", 10, 5)
IDLE = SourceClock("other", 4, 5, idle_before=True, idle=True)


def ack(level: int, payload: dict[str, Any]) -> SubtaskAck:
    return SubtaskAck(1, 1, level, 0, "", payload)


def newest(time_us: int | None, name: str = "clicks", **partitions: int) -> SubtaskAck:
    return ack(0, {"sources": {name: {"newest_event_us": time_us, "partitions": partitions}}})


def fired(time_us: int | None, uid: str = "unique", *, in_flight: bool = False) -> SubtaskAck:
    return ack(1, {"operators": {uid: {"firing_us": time_us, "channel": {} if in_flight else None}}})


@pytest.mark.parametrize(
    ("clocks", "acks", "expected"),
    [
        ((), [newest(100)], None),
        ((SOURCE,), [newest(None), newest(40), newest(30)], 35),
        ((SOURCE,), [newest(12)], 10),
        ((SOURCE,), [newest(40, "others")], 10),
        ((SourceClock("clicks", None, 5),), [newest(None)], None),
        ((UpstreamClock("unique"),), [newest(90), fired(7), fired(9), fired(1, "other")], 7),
        ((UpstreamClock("unique"),), [fired(7), fired(None)], None),
        ((SOURCE, UpstreamClock("unique")), [newest(40), fired(20)], 20),
        ((SOURCE, IDLE), [newest(40)], 35),
        ((SOURCE, replace(IDLE, idle=False)), [newest(40)], 10),
        ((SOURCE, replace(IDLE, idle_before=False, idle=False)), [newest(40)], 4),
        ((SOURCE, UpstreamClock("unique", 0, 3, idle_before=True)), [newest(40), fired(3)], 10),
        ((SOURCE, UpstreamClock("unique", 0, 3, idle_before=True)), [newest(40), fired(3, in_flight=True)], 3),
        ((IDLE, UpstreamClock("unique")), [fired(20)], 20),
        ((SOURCE, UpstreamClock("unique", idle=True)), [newest(40), fired(20)], 35),
        ((IDLE, UpstreamClock("unique", idle=True)), [fired(20)], 4),
        ((SOURCE, UpstreamClock("unique", idle=True)), [newest(40), fired(20, in_flight=True)], 20),
        (
            (SOURCE, UpstreamClock("unique", idle=True, ancestors=("first",))),
            [newest(40), fired(7, "first", in_flight=True), fired(7, "first"), fired(20)],
            20,
        ),
        ((SOURCE, UpstreamClock("unique", idle=True)), [newest(40), fired(9, "others", in_flight=True), fired(20)], 35),
        ((IDLE,), [], 4),
        ((replace(SOURCE, behind=("p1",)),), [newest(40, p0=40), newest(30, p1=30)], 25),
        ((replace(SOURCE, behind=("p1",)),), [newest(40, p0=40)], 10),
        ((replace(SOURCE, partitions=(("p0", 40), ("p1", 20))),), [newest(30, p1=30)], 35),
        ((replace(SOURCE, partitions=(("p0", 40), ("p1", 20)), behind=("p1",)),), [newest(30, p1=30)], 25),
        ((replace(SOURCE, partitions=(("p0", 40), ("p1", 20))),), [], 35),
        ((replace(SOURCE, partitions=(("p0", 40), ("p1", 20)), behind=None),), [], 10),
    ],
)
def test_an_input_is_complete_as_far_as_all_of_its_senders_are(
    clocks: tuple[Clock, ...], acks: list[SubtaskAck], expected: int | None
) -> None:
    assert input_watermark_us(clocks, acks, final=False) == expected


def test_in_the_last_epoch_sources_have_ended() -> None:
    assert input_watermark_us((SOURCE,), [newest(None)], final=True) == END_OF_TIME_US
    assert input_watermark_us((UpstreamClock("unique"),), [fired(END_OF_TIME_US)], final=True) == END_OF_TIME_US
    assert input_watermark_us((), [], final=True) is None


def test_a_subtask_goes_on_from_the_least_firing_watermark_of_those_whose_rows_it_gets() -> None:
    handles = tuple(StateHandle("unique", key_group_range(16, 2, subtask), 16) for subtask in range(2))

    def plan(*firing: int | None) -> OperatorPlan:
        return OperatorPlan(
            operators()["unique"],
            input_plans("unique", ("events",), [SCHEMA], [("id",)]),
            {"": StateTableSnapshot(("k",), ("k",), SCHEMA, handles[: len(firing)])},
            firing,
            (None,) * len(firing),
            "",
            "",
            (),
        )

    assert plan(50, 20).previous_firing_us(range(16)) == 20
    assert plan(50, 20).previous_firing_us(range(3)) == 50
    assert plan(50, None).previous_firing_us(range(7, 9)) is None
    assert plan().previous_firing_us(range(16)) is None


@pytest.mark.parametrize(
    ("clocks", "firing", "expected"),
    [
        ((SOURCE,), (), 10),
        ((SOURCE,), (None, 7), 10),
        ((SOURCE,), (12, None, 11), 12),
        ((SourceClock("new", None, 5),), (12,), 12),
        ((SOURCE, SourceClock("other", 4, 5)), (), 4),
        ((UpstreamClock("unique"),), (None,), None),
        ((SOURCE, UpstreamClock("unique", 0, 8)), (), 8),
        ((SOURCE, UpstreamClock("unique", 3, 12)), (), 9),
        ((SOURCE, UpstreamClock("unique", 3, None)), (), None),
        ((SOURCE, IDLE), (), 10),
        ((SOURCE, replace(IDLE, idle_before=False)), (), 4),
        ((SOURCE, replace(IDLE, idle_before=False)), (10,), 10),
        ((SOURCE, UpstreamClock("unique", 0, 8, idle_before=True)), (), 10),
        ((IDLE,), (), 4),
    ],
)
def test_rows_of_a_source_are_late_by_the_least_watermark_of_all_inputs_and_never_on_time_for_what_has_fired(
    clocks: tuple[Clock, ...], firing: tuple[int | None, ...], expected: int | None
) -> None:
    assert latest(start_watermark_us(clocks), fired_us(firing)) == expected


@pytest.mark.parametrize(
    ("stamp", "own", "expected"),
    [
        (OwnStamp(), 5, 5),
        (OwnStamp(holdback_us=2), 5, 3),
        (OwnStamp(holdback_us=2), END_OF_TIME_US, END_OF_TIME_US),
        (OwnStamp(holdback_us=2), BEGINNING_OF_TIME_US + 1, BEGINNING_OF_TIME_US),
        (OwnStamp(upper_bound=Stamp(4)), 5, 4),
        (OwnStamp(upper_bound=Stamp(6)), 5, 5),
        (OwnStamp(upper_bound=Stamp(None)), 5, None),
        (OwnStamp(upper_bound=Stamp(4), fired_us=7), 5, 7),
        (OwnStamp(fired_us=7), None, 7),
        (Stamp(3), 5, 3),
    ],
)
def test_rows_of_an_operator_keep_their_stamp_within_what_their_receiver_holds_for_complete(
    stamp: Stamp | OwnStamp, own: int | None, expected: int | None
) -> None:
    """Less what they may be older; no more than its other inputs are; no less than what it has fired."""
    assert stamp.of(own) == expected


def test_what_an_operator_holds_back_is_taken_from_the_watermark_of_who_reads_it() -> None:
    clock = UpstreamClock("unique", holdback_us=4)
    assert input_watermark_us((clock,), [fired(9), fired(7)], final=False) == 3
    assert input_watermark_us((clock,), [fired(END_OF_TIME_US)], final=True) == END_OF_TIME_US


def test_an_input_that_is_read_twice_has_two_names_on_the_wire_and_late_rows_of_each() -> None:
    plans = input_plans("pairs", edge_names(("events", "events")), [SCHEMA, SCHEMA], [("id",), ("k",)])
    assert [(one.edge, one.late) for one in plans] == [
        ("events", "pairs.late.events"),
        ("events.2", "pairs.late.events.2"),
    ]
