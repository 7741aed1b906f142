"""The data plane of one job in this process: real tasks, level by level, with the shuffle as a list of rows.

What Spark adds is left out (processes, retries, the JVM); everything that decides what a row becomes is the product's.
The job: `unique` and `hourly` read the source; `totals`, `steady` and `twice`, which keeps two tables, read `unique`,
`longer` reads the windows of `hourly`; late rows of all windows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from milepost.codec.records import from_json
from milepost.epoch.metadata import StateTableSnapshot
from milepost.epoch.plan import EpochAlignment
from milepost.jobmaster.run.checkpoint_metadata import newest_event_us
from milepost.jobmaster.run.payloads import payloads_of
from milepost.language.aggregates import parse_aggregate
from milepost.operators.aggregate.run import AggregateByKey
from milepost.operators.contract import OperatorInput, StatefulOperator
from milepost.operators.deduplicate.run import DeduplicateByKey
from milepost.operators.window.spec import LAST_MOMENT_US
from milepost.operators.window.tumbling import TumblingWindowByKey
from milepost.operators.window.window_bounds import FixedWindows
from milepost.operators.window.windowed import Emission
from milepost.protocol.exchange.acknowledgements import SubtaskAnswer, verify
from milepost.protocol.exchange.barrier import SubtaskIdentity
from milepost.protocol.exchange.watermarks import latest, source_watermark
from milepost.protocol.records.checkpoints import SubtaskKey
from milepost.protocol.records.ids import CheckpointId, FencingToken, OperatorUid
from milepost.protocol.records.layout import token_prefix
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.subtask.task_lifecycle import Notifications
from milepost.sources.contract import ObjectPart, SourceObject, whole_object
from milepost.spark.local.local_levels import rows_for
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.epoch_tasks import subtask_answers
from milepost.spark.task.level_task import run_subtask
from milepost.spark.task.output_stage import OutputPlan, run_output_stage
from milepost.spark.task.source_task import SourceSplit, run_source
from milepost.spark.wire.epoch_clock import LevelShare
from milepost.spark.wire.exchange import BufferLimits, Edge, OwnStamp, Stamp
from milepost.spark.wire.level_plan import (
    LevelPlan,
    OperatorPlan,
    SourceClock,
    UpstreamClock,
    fired_us,
    input_plans,
    start_watermark_us,
)
from milepost.spark.wire.task_output import Rows, TaskOutput
from milepost.spark.worker.task_memory import Memory
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget
from milepost.state.buffers.channel_state import ChannelStateHandle
from milepost.state.buffers.spill import SpillFile
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.layout import channel_prefix, state_prefix
from milepost.tables.records.committables import RowsPiece, StagedFile, StagedRows, StagingContext
from milepost_testkit.rows.key_hashes import KEYED
from milepost_testkit.tasks.operators.two_tables import CountTwice

MAX_PARALLELISM = 16
MINUTE_US = 60_000_000
DELAY_US = 5 * MINUTE_US
SCHEMA = pa.schema([("k", pa.string()), ("id", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
LEVELS = 2
FIRST = token_prefix(CheckpointId(1), FencingToken(1))
"""Where the first epoch writes."""


def operators() -> dict[str, StatefulOperator]:
    count = {"n": parse_aggregate("count(*)"), "sum": parse_aggregate("sum(id)")}
    input_ = OperatorInput(SCHEMA, "t")
    ttl = timedelta(minutes=30)
    hourly = TumblingWindowByKey("hourly", ("k",), FixedWindows(60 * MINUTE_US), Emission(), count, input_)
    windows = OperatorInput(hourly.output_schema, "window_end", LAST_MOMENT_US)
    sums = {"windows": parse_aggregate("count(*)"), "n": parse_aggregate("sum(n)")}
    return {
        "unique": DeduplicateByKey("unique", ("id",), ttl, input_),
        "hourly": hourly,
        "totals": AggregateByKey("totals", ("k",), count, SCHEMA),
        "steady": TumblingWindowByKey("steady", ("k",), FixedWindows(30 * MINUTE_US), Emission(), count, input_),
        "longer": TumblingWindowByKey("longer", ("k",), FixedWindows(120 * MINUTE_US), Emission(), sums, windows),
        "twice": CountTwice(
            AggregateByKey("twice", ("k",), count, SCHEMA), AggregateByKey("twice", ("k", "t"), count, SCHEMA)
        ),
    }


INPUTS = {
    "unique": "events",
    "hourly": "events",
    "totals": "unique",
    "steady": "unique",
    "longer": "hourly",
    "twice": "unique",
}
HOSTED = {1: ("unique", "hourly"), 2: ("totals", "steady", "longer", "twice")}


def input_schema(uid: str) -> pa.Schema:
    """The rows that an operator reads."""
    return operators()["hourly"].output_schema if uid == "longer" else SCHEMA


@dataclass
class KeepingSink:
    """A sink that only stages: it collects the staged rows and publishes nothing."""

    name: str
    staged: list[pa.Table]

    def stage_pieces(self, pieces: Iterable[RowsPiece], context: StagingContext) -> StagedRows:
        tables = [piece.rows for piece in pieces]
        if not tables:
            return StagedRows()
        rows = pa.concat_tables(tables)
        self.staged.append(rows)
        file = StagedFile(f"{self.name}-{context.checkpoint_id}-{context.subtask}", rows.num_rows, 1, "ab")
        return StagedRows(rows.num_rows, (file,))


@dataclass(frozen=True)
class TableReader:
    """Reads a table in place of every object."""

    table: pa.Table
    schema: pa.Schema = SCHEMA

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=7)


@dataclass(frozen=True)
class OperatorState:
    """What one operator's subtasks left in a checkpoint, as `_metadata` keeps it."""

    tables: Mapping[str, tuple[StateHandle, ...]] = field(default_factory=dict)
    firing: tuple[int | None, ...] = ()
    channels: tuple[ChannelStateHandle | None, ...] = ()

    @property
    def handles(self) -> tuple[StateHandle, ...]:
        return tuple(handle for handles in self.tables.values() for handle in handles)


@dataclass
class DataPlane:
    """Runs epochs one after another, each from the checkpoint of the one before.

    Attributes:
        outputs: per node, everything that its sink staged in completed epochs.
        acks: of the last epoch: one per operator and subtask. emitted: by its operators: node, stamp and row, sorted.
    """

    store: ObjectStore
    epochs: int = 0
    watermark_us: int | None = None
    states: dict[str, OperatorState] = field(default_factory=dict)
    outputs: dict[str, list[pa.Table]] = field(default_factory=dict)
    acks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    answers: list[SubtaskAnswer] = field(default_factory=list)
    emitted: list[tuple[str, int | None, str]] = field(default_factory=list)

    def epoch(
        self,
        sources: Sequence[pa.Table],
        *,
        parallelism: int = 2,
        alignment: EpochAlignment | None = None,
        clock: Callable[[], int] = lambda: 0,
        limits: BufferLimits = BufferLimits(10**6),
        notifications: Notifications = Notifications(),
        budget: MemoryBudget = UNLIMITED,
    ) -> None:
        """Run one epoch over a table per source subtask, and move to its checkpoint. Raises what `verify` raises."""
        alignment = alignment or EpochAlignment(None, None, 0, False)
        checkpoint, staged = CheckpointId(self.epochs + 1), dict[str, list[pa.Table]]()
        self.emitted = []
        memory = Memory(budget, SpillFile(self._cache))
        rows = [
            batch for index, table in enumerate(sources) for batch in self._source(index, table, parallelism, limits)
        ]
        for level in range(1, LEVELS + 1):
            senders = len(sources) if level == 1 else parallelism
            plan = self._level(level, senders, parallelism, alignment, notifications)
            tail = self._tail(level, parallelism, limits)
            sent: list[pa.RecordBatch] = []
            for subtask in range(parallelism):
                mine = rows_for(subtask, rows)
                metrics = TaskMetrics(level, subtask, 0)
                items = self._noted(
                    run_subtask(plan, Attempt(subtask, 0, memory, clock=clock), mine, self.store, metrics)
                )
                sinks = {
                    name: KeepingSink(name, staged.setdefault(name, []))
                    for names in tail.sinks.values()
                    for name in names
                }
                sent += run_output_stage(tail, subtask, items, sinks, memory)  # type: ignore[arg-type]
            rows = sent
        self._complete(checkpoint, rows, len(sources), parallelism, staged)
        self.emitted.sort(key=repr)

    def _noted(self, items: Iterable[TaskOutput]) -> Iterator[TaskOutput]:
        for item in items:
            if isinstance(item, Rows):
                self.emitted += [(item.node, item.lateness_us, repr(row)) for row in item.rows.to_pylist()]
            yield item

    @property
    def _cache(self) -> str:
        return unquote(urlsplit(self.store.config.url).path) + "-cache"

    def _state(self, uid: str) -> OperatorState:
        return self.states.get(uid, OperatorState())

    def table(self, node: str) -> list[dict[str, Any]]:
        """All rows that a node's sink staged, in order."""
        return [row for table in self.outputs.get(node, []) for row in table.to_pylist()]

    @property
    def in_flight(self) -> int:
        """Buffers left in flight by the last epoch."""
        return sum(one.buffers for state in self.states.values() for one in state.channels if one is not None)

    def state(self, uid: str) -> list[dict[str, Any]]:
        """The live state of an operator, sorted."""
        operator, state, rows = operators()[uid], self.states[uid], []
        for name, table in operator.tables.items():
            keys = KeySpec(table.key, table.routing_key, KEYED)
            for handle, firing_us in zip(state.tables[name], state.firing, strict=True):
                own = StateIdentity.of(uid, keys, table.schema, handle.key_groups, handle.max_parallelism, table=name)
                objects = CheckpointObjects(self.store, self.epochs, "test")
                rows += restore_state(own, [handle], objects, watermark_us=firing_us).rows().to_pylist()
        return sorted(rows, key=repr)

    def _source(self, index: int, table: pa.Table, parallelism: int, limits: BufferLimits) -> Iterator[pa.RecordBatch]:
        identity = SubtaskIdentity(CheckpointId(self.epochs + 1), FencingToken(1), 0, index)
        parts = (whole_object(SourceObject("rows", "1", table.nbytes, 0)),)
        split = SourceSplit("events", identity, self.store.config, parts, TableReader(table), "t", "fail")
        memory = Memory(UNLIMITED, SpillFile(self._cache))
        items = run_source(split, self.store, TaskMetrics(0, index, 0), memory)
        return run_output_stage(self._tail(0, parallelism, limits), index, items, {}, memory)

    def _tail(self, level: int, parallelism: int, limits: BufferLimits) -> OutputPlan:
        made = operators()
        producers = ("events",) if level == 0 else HOSTED[level]
        edges = tuple(
            Edge(
                producer=producer,
                operator=uid,
                key=made[uid].routing_keys[0],
                columns=tuple(input_schema(uid).names),
                event_time="window_end" if uid == "longer" else "t",
                stamp=self._stamp(uid) if level == 0 else OwnStamp(),
            )
            for uid, producer in INPUTS.items()
            if producer in producers
        )
        names = [name for uid in producers for name in (uid, f"{uid}.late")] if level else []
        return OutputPlan(
            checkpoint_id=CheckpointId(self.epochs + 1),
            token=FencingToken(1),
            level=level,
            receivers=0 if level == LEVELS else parallelism,
            max_parallelism=MAX_PARALLELISM,
            hasher=KEYED,
            limits=limits,
            edges=edges,
            sinks={name: (name,) for name in names},
        )

    def _stamp(self, uid: str) -> Stamp:
        return Stamp(latest(start_watermark_us([self._clock]), fired_us(self._state(uid).firing)))

    @property
    def _clock(self) -> SourceClock:
        return SourceClock("events", self.watermark_us, DELAY_US)

    def _level(
        self, level: int, senders: int, parallelism: int, alignment: EpochAlignment, notifications: Notifications
    ) -> LevelPlan:
        hosted = []
        for uid in HOSTED[level]:
            state = self._state(uid)
            clock = self._clock if level == 1 else UpstreamClock(INPUTS[uid])
            hosted.append(
                OperatorPlan(
                    operator=operators()[uid],
                    inputs=input_plans(uid, (INPUTS[uid],), [input_schema(uid)], operators()[uid].routing_keys),
                    tables={
                        name: StateTableSnapshot(table.key, table.routing_key, table.schema, state.tables.get(name, ()))
                        for name, table in operators()[uid].tables.items()
                    },
                    firing=state.firing,
                    channels=state.channels,
                    directory=state_prefix(CheckpointId(self.epochs + 1), FencingToken(1), OperatorUid(uid)),
                    signature="made so",
                    clocks=(clock,),
                )
            )
        return LevelPlan(
            job="test",
            checkpoint_id=CheckpointId(self.epochs + 1),
            token=FencingToken(1),
            base=CheckpointId(self.epochs),
            level=level,
            senders=senders,
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
            hasher=KEYED,
            operators=tuple(hosted),
            channel_directory=channel_prefix(CheckpointId(self.epochs + 1), FencingToken(1)),
            cache_directory=self._cache,
            alignment=alignment,
            share=LevelShare(parallelism, parallelism, LEVELS - level + 1),
            notifications=notifications,
        )

    def _complete(
        self,
        checkpoint: CheckpointId,
        rows: list[pa.RecordBatch],
        senders: int,
        parallelism: int,
        staged: dict[str, list[pa.Table]],
    ) -> None:
        self.answers = [*subtask_answers((row["kind"], row["payload"]) for batch in rows for row in batch.to_pylist())]
        expected = [SubtaskKey(0, index) for index in range(senders)]
        expected += [SubtaskKey(level, index) for level in range(1, LEVELS + 1) for index in range(parallelism)]
        verified = verify(checkpoint, FencingToken(1), expected, self.answers)
        newest_us = newest_event_us(payloads_of(verified, "sources", "events"))
        self.watermark_us = source_watermark(self.watermark_us, newest_us, DELAY_US)
        self.acks = {uid: payloads_of(verified, "operators", uid) for uid in INPUTS}
        for uid, acks in self.acks.items():
            self.states[uid] = OperatorState(
                {
                    name: tuple(from_json(StateHandle, ack["state"][name], "state handle") for ack in acks)
                    for name in operators()[uid].tables
                },
                tuple(ack["firing_us"] for ack in acks),
                tuple(
                    None
                    if ack["channel"] is None
                    else from_json(ChannelStateHandle, ack["channel"], "channel state handle")
                    for ack in acks
                ),
            )
        for name, tables in staged.items():
            self.outputs.setdefault(name, []).extend(tables)
        self.epochs += 1
