"""One operator's input in its canonical order, cut where the time is up (DESIGN 4.3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milepost.epoch.plan import EpochAlignment
from milepost.errors import ProtocolViolation
from milepost.spark.task.input_gate import InputGate
from milepost.spark.wire.epoch_clock import LevelShare, Pacer, task_deadline_ms
from milepost.state.buffers.buffers import Buffer
from milepost_testkit import wording


def buffer(name: str, stamp: int | None = 1, size: int = 10) -> Buffer:
    return Buffer("op", name, stamp, None, b"x" * size)


def names(buffers: object) -> list[str]:
    return [one.producer for one in buffers]  # type: ignore[attr-defined]


def test_everything_of_one_stamp_is_one_chunk_when_nothing_limits_it() -> None:
    """An epoch without a budget costs one call per operator."""
    gate = InputGate([buffer("r")], [[buffer("a"), buffer("b")], [], [buffer("c")]])
    chunk = gate.take(None)
    assert names(chunk.buffers) == ["r", "a", "b", "c"] and chunk.ended_channels == (0, 1, 2)
    assert not gate.in_flight


def test_stamps_come_in_order_and_replayed_buffers_first_within_one() -> None:
    gate = InputGate([buffer("r2", 2), buffer("r1", 1)], [[buffer("a3", 3), buffer("a2", 2)], [buffer("b", None)]])
    chunks = [gate.take(None) for _ in range(4)]
    assert [names(chunk.buffers) for chunk in chunks] == [["b"], ["r1"], ["r2", "a2"], ["a3"]]
    assert [chunk.ended_channels for chunk in chunks] == [(1,), (), (), (0,)]


@given(
    st.lists(st.lists(st.sampled_from([None, 1, 2]), max_size=4), min_size=1, max_size=4),
    st.lists(st.sampled_from([None, 1]), max_size=3),
    st.sampled_from([None, 0, 15, 40]),
)
def test_every_buffer_is_handed_out_once_and_every_channel_ends_once(
    channels: list[list[int | None]], replayed: list[int | None], limit: int | None
) -> None:
    queues = [
        [buffer(f"{index}.{at}", stamp) for at, stamp in enumerate(queue)] for index, queue in enumerate(channels)
    ]
    first = [buffer(f"r{at}", stamp) for at, stamp in enumerate(replayed)]
    gate = InputGate(first, queues)
    positions = dict(gate.barrier_positions())
    assert positions[0] == len(first) + len(queues[0])
    taken: list[Buffer] = []
    ended_channels: list[int] = []
    while len(ended_channels) < len(channels):
        unread = [one for queue in gate.unread().values() for one in queue]
        assert sorted(names(unread)) == sorted(names(gate.in_flight))
        chunk = gate.take(limit)
        assert len({one.lateness_us for one in chunk.buffers}) <= 1
        assert limit is None or len(chunk.buffers) <= 1 or chunk.size <= limit
        taken += chunk.buffers
        ended_channels += chunk.ended_channels
        for channel in chunk.ended_channels:
            gate.block(channel)
    assert sorted(ended_channels) == list(range(len(channels)))
    assert sorted(names(taken)) == sorted(names(first) + [name for queue in queues for name in names(queue)])
    stamps = [(one.lateness_us is not None, one.lateness_us or 0) for one in taken]
    assert stamps == sorted(stamps)


def test_a_blocked_channel_is_not_read_until_it_is_free() -> None:
    gate = InputGate([], [[buffer("a")]])
    gate.block(0)
    with wording.raises(ProtocolViolation):
        gate.take(None)
    gate.unblock(0)
    assert names(gate.take(None).buffers) == ["a"]


def alignment(timeout_ms: int | None, budget_ms: int | None, *, final: bool = False) -> EpochAlignment:
    return EpochAlignment(timeout_ms, budget_ms, 1_000, final)


def test_a_task_stops_at_the_earlier_of_timeout_and_its_share_of_the_budget() -> None:
    assert task_deadline_ms(alignment(None, None), 5_000, 1) is None
    assert task_deadline_ms(alignment(300, None), 5_000, 1) == 5_300
    # 80 % of 10 s, begun at 1 s: 4 s are left at 5 s.
    assert task_deadline_ms(alignment(None, 10_000), 5_000, 1) == 9_000
    assert task_deadline_ms(alignment(None, 10_000), 5_000, 2) == 7_000
    assert task_deadline_ms(alignment(300, 10_000), 5_000, 2) == 5_300
    assert task_deadline_ms(alignment(None, 10_000), 60_000, 2) == 60_000
    assert task_deadline_ms(alignment(300, 10_000, final=True), 5_000, 2) is None


def test_the_budget_is_divided_over_the_waves_of_tasks_that_are_still_to_run() -> None:
    share = LevelShare(parallelism=5, slots=2, levels=2)
    assert [share.waves(subtask) for subtask in range(5)] == [6, 6, 5, 5, 4]
    assert LevelShare(parallelism=2, slots=8, levels=1).waves(1) == 1


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_chunks_grow_with_the_measured_rate_and_take_a_tenth_of_what_is_left() -> None:
    clock = Ticks()
    pacer = Pacer(10_000, clock)
    assert pacer.limit_bytes() == 0, "first one buffer"
    clock.now_ms = 10
    pacer.record_chunk(100, 0)
    assert pacer.limit_bytes() == 400, "at most four times the largest so far"
    clock.now_ms = 9_000
    pacer.record_chunk(40_000, 1_000)
    assert pacer.limit_bytes() == 40_100 * 1_000 // (8_010 * 10)
    clock.now_ms = 11_000
    assert pacer.limit_bytes() == 0
    assert pacer.processed_bytes == 40_100


def test_a_pacer_without_deadline_takes_everything() -> None:
    assert Pacer(None, Ticks()).limit_bytes() is None


def test_the_deadline_is_not_seen_before_the_first_buffer_was_processed() -> None:
    """Every epoch makes progress."""
    clock = Ticks()
    pacer = Pacer(100, clock)
    clock.now_ms = 5_000
    assert pacer.now_ms() == 99
    pacer.record_chunk(1, 100)
    assert pacer.now_ms() == 5_000
