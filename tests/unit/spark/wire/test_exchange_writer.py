"""The exchange's rows are a pure function of the rows put in: no attempt, time or metric is in them (I12)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import StoreUnavailable
from milepost.language.aggregates import parse_aggregate
from milepost.operators.aggregate.run import AggregateByKey
from milepost.protocol.exchange.acknowledgements import decode_answer
from milepost.protocol.exchange.barrier import AckEvent, Barrier, BufferHeader, EventKind, SubtaskIdentity
from milepost.protocol.exchange.channel_check import ChannelCheck
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.spark.driver.sql_projection import decode_output, encode_output
from milepost.spark.task.output_stage import OutputPlan, run_output_stage
from milepost.spark.wire import combine_buffer
from milepost.spark.wire.exchange import BufferLimits, Edge, ExchangeWriter, OwnStamp, Stamp
from milepost.spark.wire.task_output import (
    Declined,
    Forward,
    OperatorStageEnd,
    Rows,
    RowsDone,
    SnapshotStarted,
    Stamped,
    TaskOutput,
    decode_control,
    encode_control,
)
from milepost.spark.worker.task_memory import Memory
from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget
from milepost.state.buffers.buffers import Buffer, are_partials, decode_rows, oldest
from milepost.state.buffers.spill import SpillFile
from milepost.state.layers.key_groups import key_group, subtask_of_key_group
from milepost.tables.records.committables import RowsPiece, StagedFile, StagedRows, StagingContext
from milepost_testkit.rows.key_hashes import KEYED

EDGE = Edge("clean", "carriers", ("k",), ("k", "v"), None, Stamp(7))
MAX_PARALLELISM = 16
MEMORY = Memory(UNLIMITED, SpillFile("never-made"))


def _plan(receivers: int = 2, buffer_bytes: int = 64, sinks: dict[str, tuple[str, ...]] | None = None) -> OutputPlan:
    edges = (EDGE,) if receivers else ()
    return OutputPlan(
        checkpoint_id=CheckpointId(1),
        token=FencingToken(3),
        level=0,
        receivers=receivers,
        max_parallelism=MAX_PARALLELISM,
        hasher=KEYED,
        limits=BufferLimits(buffer_bytes),
        edges=edges,
        sinks=sinks or {},
    )


def _table(keys: list[int]) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "unused": ["x"] * len(keys), "v": list(range(len(keys)))})


def _items(keys: list[int], cut: int) -> Iterator[TaskOutput]:
    table = _table(keys)
    for start in range(0, table.num_rows, cut):
        yield Rows("clean", table.slice(start, cut))
    yield RowsDone()
    yield SnapshotStarted()
    yield OperatorStageEnd(
        {"sources": {"flights": {"rows": table.num_rows, "newest_event_us": None, "partitions": {}}}}
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


@dataclass
class StagingSink:
    """Stands for a sink's first half: collects what it is to stage, or fails as a store does."""

    name: str = "out"
    fails: bool = False
    staged: list[pa.Table] = field(default_factory=list)
    distinct: list[bool] = field(default_factory=list)

    def stage_pieces(self, pieces: Iterable[RowsPiece], context: StagingContext) -> StagedRows:
        if self.fails:
            raise StoreUnavailable("the lake did not answer")
        found = list(pieces)
        if not found:
            return StagedRows()
        rows = pa.concat_tables([piece.rows for piece in found])
        self.staged.append(rows)
        self.distinct.append(len(found) == 1 and found[0].distinct)
        file = StagedFile(
            f"_milepost/data/{context.checkpoint_id}-{context.token}-{context.subtask}", rows.num_rows, 1, "ab"
        )
        return StagedRows(rows.num_rows, (file,))


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 7), st.integers(1, 3), st.sampled_from([1, 64, 10**6]))
def test_every_row_reaches_the_owner_of_its_key_group_once_and_in_order(
    keys: list[int], cut: int, receivers: int, buffer_bytes: int
) -> None:
    rows = _rows(run_output_stage(_plan(receivers, buffer_bytes), 0, _items(keys, cut), {}, MEMORY))
    received: dict[int, list[tuple[int, int]]] = {target: [] for target in range(receivers)}
    for target in range(receivers):
        check = ChannelCheck(SubtaskIdentity(CheckpointId(1), FencingToken(3), 1, target), 1)
        for row in rows:
            if row["subtask"] != target:
                continue
            if row["kind"] == EventKind.BUFFER.value:
                header = BufferHeader("carriers", "clean", 7, None)
                assert check.buffer(0, row["sequence"], header, row["payload"])  # type: ignore[arg-type]
                table = decode_rows(row["payload"])  # type: ignore[arg-type]
                assert table.column_names == ["k", "v"]
                received[target] += zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True)
            elif row["kind"] == EventKind.BARRIER.value:
                check.barrier(0, Barrier.decode(row["payload"]))  # type: ignore[arg-type]
            else:
                check.ack(0, AckEvent.decode(row["payload"]))  # type: ignore[arg-type]
        assert not isinstance(check.close(), Decline)
    assert sorted(v for pairs in received.values() for _, v in pairs) == list(range(len(keys)))
    for target, pairs in received.items():
        assert [v for _, v in pairs] == sorted(v for _, v in pairs)
        for key, _ in pairs:
            groups = key_group(KEYED(pa.table({"k": [key]}), ("k",)), MAX_PARALLELISM)
            assert subtask_of_key_group(groups, MAX_PARALLELISM, receivers)[0] == target


def test_a_second_attempt_writes_the_same_bytes() -> None:
    once = _rows(run_output_stage(_plan(), 0, _items(list(range(40)), 5), {}, MEMORY))
    again = _rows(run_output_stage(_plan(), 0, _items(list(range(40)), 5), {}, MEMORY))
    assert once == again


def test_an_operator_that_emits_everything_in_one_batch_still_sends_buffers_of_the_set_size() -> None:
    """A buffer is one row of Spark's shuffle: a whole epoch must not become one."""
    rows = _rows(run_output_stage(_plan(buffer_bytes=1000), 0, _items(list(range(2000)), 2000), {}, MEMORY))
    buffers = [decode_rows(row["payload"]) for row in rows if row["kind"] == EventKind.BUFFER.value]  # type: ignore[arg-type]
    assert sum(table.num_rows for table in buffers) == 2000
    assert max(table.nbytes for table in buffers) < 1100 and len(buffers) >= 2000 * 16 / 1100


def test_a_declined_host_ends_in_cancel_markers_on_every_channel_with_its_input_drained() -> None:
    drained = []

    def items() -> Iterator[TaskOutput]:
        identity = SubtaskIdentity(CheckpointId(1), FencingToken(3), 0, 0)
        yield Rows("clean", _table([1, 2]))
        yield Declined(identity.decline(CheckpointFailureReason.BAD_RECORD, "line 3"))
        drained.append(True)
        yield Rows("clean", _table([3]))

    rows = _rows(run_output_stage(_plan(), 0, items(), {}, MEMORY))
    cancels = [row for row in rows if row["kind"] == EventKind.CANCEL.value]
    assert {row["subtask"] for row in cancels} == {0, 1} and drained
    assert not [row for row in rows if row["kind"] == EventKind.BARRIER.value]
    answer = decode_answer(bytes(cancels[0]["payload"]).decode())  # type: ignore[call-overload]
    assert isinstance(answer, Decline) and answer.reason is CheckpointFailureReason.BAD_RECORD


def test_a_sink_that_cannot_stage_declines_instead_of_crashing() -> None:
    plan = _plan(sinks={"clean": ("out",)})
    rows = _rows(run_output_stage(plan, 0, _items([1], 1), {"out": StagingSink(fails=True)}, MEMORY))  # type: ignore[dict-item]
    answer = decode_answer(bytes(rows[-1]["payload"]).decode())  # type: ignore[call-overload]
    assert isinstance(answer, Decline) and answer.reason is CheckpointFailureReason.IO_EXCEPTION


def test_the_acknowledgement_names_every_staged_file() -> None:
    sink = StagingSink()
    rows = _rows(
        run_output_stage(_plan(receivers=0, sinks={"clean": ("out",)}), 5, _items([1, 2], 1), {"out": sink}, MEMORY)
    )  # type: ignore[dict-item]
    event = AckEvent.decode(rows[-1]["payload"])  # type: ignore[arg-type]
    assert [row["kind"] for row in rows] == [EventKind.ACK.value] and event.own.subtask == 5
    assert event.own.ack["sinks"]["out"]["rows"] == 2 and len(sink.staged) == 1


@pytest.mark.parametrize(("parts", "distinct"), [([True], True), ([False], False), ([True, True], False)])
def test_only_rows_that_came_at_once_are_staged_as_distinct(parts: list[bool], distinct: bool) -> None:
    """Two outputs of one epoch may hold a key twice, although neither does: then the sink has to look."""
    items = [Rows("clean", _table([1, 2]), distinct=known) for known in parts]
    sink = StagingSink()
    plan = _plan(sinks={"clean": ("out",)})
    list(
        run_output_stage(plan, 0, [*items, RowsDone(), SnapshotStarted(), OperatorStageEnd({})], {"out": sink}, MEMORY)
    )  # type: ignore[dict-item]
    assert sink.distinct == [distinct] and sink.staged[0].num_rows == 2 * len(parts)


def test_a_host_that_ends_without_an_answer_is_declined() -> None:
    rows = _rows(run_output_stage(_plan(), 0, iter([Rows("clean", _table([1]))]), {}, MEMORY))
    assert {row["kind"] for row in rows} == {EventKind.CANCEL.value}


@pytest.mark.parametrize(
    "item",
    [
        Forward(1, Buffer("late", "clean", None, -5, b"\x00\n\xff")),
        Stamped(None),
        RowsDone(),
        SnapshotStarted(),
        OperatorStageEnd({"operators": {}}, {0: "ab"}, ()),
        Declined(
            SubtaskIdentity(CheckpointId(1), FencingToken(3), 0, 0).decline(CheckpointFailureReason.SQL_ERROR, "é")
        ),
    ],
)
def test_control_items_survive_the_way_through_the_jvm(
    item: Stamped | Forward | RowsDone | SnapshotStarted | OperatorStageEnd | Declined,
) -> None:
    assert decode_control(encode_control(item)) == item


def _combined(
    keys: int, total: int, combine_buffer: bool = True, memory: Memory = MEMORY
) -> tuple[list[pa.Table], list[bytes]]:
    """What a sender of `total` rows over `keys` keys sends to two receivers: the tables, and their bytes."""
    operator = AggregateByKey("carriers", ("k",), {"n": parse_aggregate("count(*)")}, pa.schema([("k", pa.int64())]))
    edge = replace(EDGE, columns=("k",), combiner=operator.combiner if combine_buffer else None)
    plan = replace(_plan(buffer_bytes=100_000), edges=(edge,))
    rows = _rows(run_output_stage(plan, 0, _items([n % keys for n in range(total)], 30_000), {}, memory))
    payloads = [bytes(row["payload"]) for row in rows if row["kind"] == EventKind.BUFFER.value]  # type: ignore[call-overload]
    return [decode_rows(payload) for payload in payloads], payloads


@pytest.mark.deep
def test_rows_are_folded_before_they_are_sent_where_the_first_ones_say_that_it_pays() -> None:
    few, payloads = _combined(keys=100, total=200_000)
    assert all(are_partials(table) for table in few) and sum(table.num_rows for table in few) == 100
    assert sum(sum(table.column("__rows").to_pylist()) for table in few) == 200_000
    assert _combined(keys=100, total=200_000)[1] == payloads  # a second attempt sends the same bytes
    for keys, total in ((20_000, 200_000), (100, 60_000)):  # three rows per key in the sample; fewer rows than a sample
        assert _combined(keys, total)[1] == _combined(keys, total, combine_buffer=False)[1]


def test_a_task_of_little_memory_folds_what_it_holds_sooner() -> None:
    little = Memory(MemoryBudget(bytes=8 * 3_000_000), SpillFile("never-made"))
    few, _ = _combined(keys=100, total=400_000, memory=little)
    assert sum(table.num_rows for table in few) > 100 == sum(table.num_rows for table in _combined(100, 400_000)[0])
    assert sum(sum(table.column("__rows").to_pylist()) for table in few) == 400_000


def test_what_no_longer_pays_is_sent_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows may mislead: every part that was folded is looked at again."""
    monkeypatch.setattr(combine_buffer, "PART_BYTES", 400_000)
    combiner = AggregateByKey("a", ("k",), {"n": parse_aggregate("count(*)")}, pa.schema([("k", pa.int64())])).combiner
    assert combiner is not None
    one = combine_buffer.CombineBuffer(combiner, 10**9)
    repeated, unique = pa.table({"k": [n % 10 for n in range(70_000)]}), pa.table({"k": list(range(70_000))})
    sent = [len(list(one.add(rows))) for rows in (repeated, unique)]
    assert sent == [1, 1]  # both folded: of the second part it is seen too late
    assert [(rows.num_rows, partial) for rows, partial in one.add(unique)] == [(70_000, False)]
    assert list(one.flush()) == []


def test_a_forwarded_buffer_counts_in_the_channel_like_any_other() -> None:
    writer = ExchangeWriter(
        channel=0, receivers=2, max_parallelism=MAX_PARALLELISM, hasher=KEYED, edges=(), limits=BufferLimits(bytes=1)
    )
    row = writer.forward(1, Buffer("later", "flights", 3, 4, b"payload")).to_pylist()[0]
    assert (row["lateness_us"], row["oldest_us"], row["payload"]) == (3, 4, b"payload")
    assert {target: total.count for target, total in writer.channel_sums().items()} == {0: 0, 1: 1}


def test_a_decline_after_the_barrier_sends_the_cancel_marker_instead_of_the_acknowledgement() -> None:
    plan = _plan(sinks={"clean": ("out",)})
    rows = _rows(run_output_stage(plan, 0, _items([1, 2], 1), {"out": StagingSink(fails=True)}, MEMORY))  # type: ignore[dict-item]
    kinds = [row["kind"] for row in rows if row["subtask"] == 0]
    assert kinds[-2:] == [EventKind.BARRIER.value, EventKind.CANCEL.value] and EventKind.ACK.value not in kinds


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from([None, 1, 2])), min_size=1, max_size=8))
def test_a_buffer_never_mixes_stamps_and_names_its_oldest_row(parts: list[tuple[int, int | None]]) -> None:
    """DESIGN 4.3: the lateness watermark of a row is fixed when it is read, so a buffer has one."""
    edge = Edge("up", "down", ("k",), ("k",), "at", OwnStamp())
    writer = ExchangeWriter(
        channel=0, receivers=1, max_parallelism=16, hasher=KEYED, edges=(edge,), limits=BufferLimits(10**6)
    )
    start, batches, expected = 0, [], []
    for count, stamp in parts:
        times = list(range(start, start + count))
        table = pa.table({"k": times, "at": pa.array(times[::-1], pa.timestamp("us", "UTC"))})
        batches += list(writer.rows("up", table, stamp))
        expected += [(stamp, time) for time in times]
        start += count
    rows = _rows([*batches, *writer.flush()])
    found = [(row["lateness_us"], key) for row in rows for key in decode_rows(row["payload"])["k"].to_pylist()]  # type: ignore[arg-type]
    assert found == expected
    for row in rows:
        assert row["oldest_us"] == min(decode_rows(row["payload"])["k"].to_pylist())  # type: ignore[arg-type]


def test_the_oldest_row_of_a_buffer_may_be_of_any_unit_of_time() -> None:
    """Nanoseconds that are no whole microseconds belong to the microsecond that has begun."""
    times = pa.chunked_array([pa.array([5_000, 2_999, None], pa.timestamp("ns", "UTC"))])
    assert oldest(times) == 2


def test_a_buffer_has_at_most_the_rows_it_may_have() -> None:
    """A buffer is processed whole, so it bounds how long a subtask may be late for its deadline."""
    limits = BufferLimits(bytes=10**6, rows=4)
    writer = ExchangeWriter(channel=0, receivers=1, max_parallelism=16, hasher=KEYED, edges=(EDGE,), limits=limits)
    rows = _rows([*writer.rows("clean", _table(list(range(10))), None), *writer.flush()])
    assert [decode_rows(row["payload"]).num_rows for row in rows] == [4, 4, 2]  # type: ignore[arg-type]


def test_stamps_survive_the_way_through_the_projection() -> None:
    schema = pa.schema([("k", pa.int64())])
    items: list[TaskOutput] = [
        Rows("n", schema.empty_table().from_pydict({"k": [k]}), s) for k, s in ((1, None), (2, 9), (3, 9))
    ]
    back = list(decode_output(encode_output([*items, RowsDone()], {"n": schema}), {"n": schema}, {"n": ("n_n",)}))
    assert [(i.rows["k"].to_pylist(), i.lateness_us) for i in back if isinstance(i, Rows)] == [
        ([1], None),
        ([2], 9),
        ([3], 9),
    ]
    assert back[-1] == RowsDone()


def test_held_rows_are_folded_before_they_exceed_the_limit_of_a_task() -> None:
    """Regardless of the statistics of the first rows, and before there are enough rows for statistics."""
    combiner = AggregateByKey("a", ("k",), {"n": parse_aggregate("count(*)")}, pa.schema([("k", pa.int64())])).combiner
    assert combiner is not None
    rows = pa.table({"k": list(range(100))})
    one = combine_buffer.CombineBuffer(combiner, held_bytes=3 * rows.nbytes)
    assert [sum(1 for _ in one.add(rows)) for _ in range(6)] == [0, 0, 3, 0, 0, 3]


@pytest.mark.parametrize("declined", ["by the host", "by a sink"])
def test_the_input_is_drained_when_the_epoch_is_declined(declined: str) -> None:
    """Spark takes an early return for success, and the host's own clean-up is at its end."""
    decline = SubtaskIdentity(CheckpointId(1), FencingToken(3), 0, 0).decline(CheckpointFailureReason.SQL_ERROR, "x")
    ended = []

    def items() -> Iterator[TaskOutput]:
        if declined == "by the host":
            yield Declined(decline)
        yield from _items([1, 2], 1)
        ended.append(True)

    plan = _plan(sinks={"clean": ("out",)})
    rows = _rows(run_output_stage(plan, 0, items(), {"out": StagingSink(fails=True)}, MEMORY))  # type: ignore[dict-item]
    assert ended == [True]
    assert [row["kind"] for row in rows if row["subtask"] == 0][-1] == EventKind.CANCEL.value
