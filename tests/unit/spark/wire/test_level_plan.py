"""What an operator may take for complete, from what the levels before it acknowledged (DESIGN 4.3)."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.protocol.exchange.barrier import SubtaskAck
from milepost.protocol.exchange.watermarks import END_OF_TIME_US
from milepost.spark.wire.level_plan import (
    Clock,
    OperatorPlan,
    SourceClock,
    UpstreamClock,
    input_watermark_us,
    lateness_us,
)
from milepost.state.layers.key_groups import key_group_range
from milepost.state.runs.handles import StateHandle
from tests.harness.tasks.dataplane import SCHEMA, operators

SOURCE = SourceClock("clicks", 10, 5)


def ack(level: int, payload: dict[str, Any]) -> SubtaskAck:
    return SubtaskAck(1, 1, level, 0, "", payload)


def newest(time_us: int | None, name: str = "clicks") -> SubtaskAck:
    return ack(0, {"sources": {name: {"newest_event_us": time_us}}})


def fired(time_us: int | None, uid: str = "unique") -> SubtaskAck:
    return ack(1, {"operators": {uid: {"firing_us": time_us}}})


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
            ("events",),
            SCHEMA,
            operators()["unique"].state_schema,
            handles[: len(firing)],
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
    ],
)
def test_rows_of_a_source_are_late_by_its_watermark_and_never_on_time_for_what_has_fired(
    clocks: tuple[Clock, ...], firing: tuple[int | None, ...], expected: int | None
) -> None:
    assert lateness_us(clocks, firing) == expected
