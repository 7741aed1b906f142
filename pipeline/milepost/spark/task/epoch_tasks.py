"""Epoch tasks run level by level: an operator stage, and the output stage behind it.

They are small classes that Spark pickles into its Python workers, so what a task closes over is explicit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from milepost.codec.records import to_json
from milepost.epoch.code_hash import code_hash_of
from milepost.epoch.plan import EpochPlan
from milepost.epoch.timing.task_times import COMPLETE, INCOMPLETE
from milepost.errors import CheckpointError, EnvironmentUnusable
from milepost.jobspec.graph.graph import Node, SinkInput
from milepost.jobspec.job.spec import SinkSpec
from milepost.operators.functions.user_code import UserFunction
from milepost.protocol.exchange.acknowledgements import SubtaskAnswer, decode_answer
from milepost.protocol.exchange.barrier import (
    AckEvent,
    EventKind,
    SubtaskIdentity,
    acknowledgement,
    distinct_acknowledgements,
)
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.sinks.build import build_staging
from milepost.sinks.contract import StagingSink
from milepost.sinks.staging.compaction import MaintenancePlan
from milepost.sinks.staging.small_files import JoinPlan
from milepost.sinks.staging.table_buckets import BucketPlan, OwnedKeys
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.level_task import run_subtask
from milepost.spark.task.output_stage import OutputPlan, run_output_stage
from milepost.spark.task.planning.levels import EpochLevels, Level
from milepost.spark.task.source_task import SourceSplit, run_source
from milepost.spark.wire.level_plan import LevelPlan
from milepost.spark.wire.task_output import Declined, OperatorStageEnd, SnapshotStarted, TaskOutput
from milepost.spark.worker.task_memory import explain_out_of_memory
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.spark.worker.worker_memory import MemoryBudget
from milepost.storage.layout import metrics_prefix
from milepost.storage.requests import own_put

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """How a task opens one sink."""

    spec: SinkSpec
    rows: SinkInput
    store: StoreConfig
    buckets: BucketPlan | None
    maintenance: MaintenancePlan | None

    def open(self, attempt: Attempt, owned: OwnedKeys | None, subtasks: int) -> StagingSink:
        maintenance = self.maintenance
        if isinstance(maintenance, JoinPlan):
            maintenance = maintenance.share(attempt.subtask, subtasks)
        return build_staging(self.spec, self.rows, attempt.open_store(self.store), self.buckets, owned, maintenance)


@dataclass(frozen=True, slots=True)
class OperatorStage:
    """Runs the operator stage of one level in a task: a source split, or the level's stateful operators.

    Attributes:
        metrics_prefix: where attempts leave what they measured, relative to the job's root.
        is_last: whether its acknowledgements go to the driver, and carry what was measured. Others cross an exchange,
            whose rows are equal of equal attempts (I12): Spark fails the job when a lost task repeats other ones.
        functions: code of every process operator of the job. code_hash: of the package and them, as recorded.
    """

    checkpoint_id: CheckpointId
    token: FencingToken
    splits: tuple[SourceSplit, ...]
    stateful: LevelPlan | None
    job_store: StoreConfig
    metrics_prefix: str
    is_last: bool
    functions: Mapping[str, UserFunction]
    code_hash: str

    @property
    def level(self) -> int:
        return self.stateful.level if self.stateful is not None else 0

    @property
    def subtasks(self) -> int:
        return self.stateful.parallelism if self.stateful is not None else len(self.splits)

    def run(self, attempt: Attempt, batches: Batches) -> Iterator[TaskOutput]:
        """Yield what one attempt puts out; the last item acknowledges or declines."""
        identity = SubtaskIdentity(self.checkpoint_id, self.token, self.level, attempt.subtask)
        running = code_hash_of({uid: function.running_digest() for uid, function in self.functions.items()})
        if self.code_hash != running:
            _drain(batches)
            detail = f"worker runs code {running[:12]}, the epoch was planned by code {self.code_hash[:12]}"
            yield Declined(identity.decline(CheckpointFailureReason.CODE_MISMATCH, detail))
            return
        metrics = TaskMetrics(self.level, attempt.subtask, attempt.number)
        store = attempt.open_store(self.job_store)
        if attempt.number and self.stateful is None:  # should its worker die as well, this says what it was at
            self._leave_incomplete(store, metrics)
        for item in self._bounded(identity, self._produce(attempt, batches, store, metrics), attempt.memory.budget):
            if isinstance(item, OperatorStageEnd):
                if self.is_last:
                    item = replace(item, measured=to_json(metrics.times()))
                else:
                    try:
                        self._leave(store, metrics, COMPLETE)
                    except CheckpointError as error:
                        yield Declined(identity.decline_for(error, "metrics", CheckpointFailureReason.IO_EXCEPTION))
                        return
            elif metrics.incomplete:
                self._leave_incomplete(store, metrics)
            handed = time.monotonic()
            yield item
            # The output stage, and Spark behind it, do their part before this goes on.
            part = "stage_ms" if isinstance(item, SnapshotStarted) else "emit_ms"
            metrics.apart(part, time.monotonic() - handed)

    def _leave_incomplete(self, store: ObjectStore, metrics: TaskMetrics) -> None:
        """Store what was measured so far of an attempt that may not come to acknowledge."""
        with contextlib.suppress(CheckpointError):  # there is something else that has to be told
            self._leave(store, metrics, INCOMPLETE)

    def _leave(self, store: ObjectStore, metrics: TaskMetrics, ended: str) -> None:
        store.put(self.metrics_prefix + metrics.file_name(ended), metrics.encode(own_put(store)))

    def _bounded(
        self, identity: SubtaskIdentity, items: Iterator[TaskOutput], budget: MemoryBudget
    ) -> Iterator[TaskOutput]:
        """The items; a task that needs more memory than its worker has declines, and says what to set."""
        who = self._who(identity.subtask)
        try:
            with explain_out_of_memory(who, budget):
                yield from items
        except EnvironmentUnusable as error:
            yield Declined(identity.decline_for(error, who, CheckpointFailureReason.ENVIRONMENT_UNUSABLE))

    def _who(self, subtask: int) -> str:
        """Return what a task works on, by the names of the spec."""
        if self.stateful is None:
            work = f"source {self.splits[subtask].source}"
        else:
            work = f"operator {' and '.join(one.operator.uid for one in self.stateful.operators)}"
        return f"{work} (level {self.level}, subtask {subtask})"

    def _produce(
        self, attempt: Attempt, batches: Batches, store: ObjectStore, metrics: TaskMetrics
    ) -> Iterator[TaskOutput]:
        if self.stateful is not None:
            return run_subtask(self.stateful, attempt, batches, store, metrics)
        _drain(batches)
        split = self.splits[attempt.subtask]
        return run_source(split, attempt.open_store(split.store), metrics, attempt.memory)


@dataclass(frozen=True, slots=True)
class OutputStage:
    """Runs the output stage of one level in a task.

    Attributes:
        owned: keys of each subtask; () where none has any (a source). subtasks: of the level.
    """

    plan: OutputPlan
    sinks: tuple[SinkPlan, ...]
    owned: tuple[OwnedKeys, ...]
    subtasks: int

    def run(self, attempt: Attempt, items: Iterable[TaskOutput]) -> Batches:
        """Yield what one attempt sends to the next level, or to the driver."""
        owned = self.owned[attempt.subtask] if self.owned else None
        sinks = {sink.spec.name: sink.open(attempt, owned, self.subtasks) for sink in self.sinks}
        return run_output_stage(self.plan, attempt.subtask, items, sinks, attempt.memory, attempt.executor)


def epoch_tasks(plan: EpochPlan, epoch: EpochLevels) -> Iterator[tuple[Level, OperatorStage, OutputStage]]:
    """Yield what the tasks of each level run, in order."""
    for level in epoch.levels:
        operators = OperatorStage(
            checkpoint_id=plan.checkpoint_id,
            token=plan.token,
            splits=epoch.splits if level.stateful is None else (),
            stateful=level.stateful,
            job_store=plan.job_store,
            metrics_prefix=metrics_prefix(plan.checkpoint_id, plan.token),
            is_last=not level.output.receivers,
            functions={uid: function.code for uid, function in plan.functions.items()},
            code_hash=plan.code_hash,
        )
        owned = _owned(plan, level.stateful)
        yield level, operators, OutputStage(level.output, _sinks(plan, level), owned, operators.subtasks)


def subtask_answers(rows: Iterable[tuple[str, bytes]]) -> tuple[SubtaskAnswer, ...]:
    """Return what the last level's rows say: every distinct acknowledgement, and every decline.

    Args:
        rows: kind and payload of each.
    """
    found = [(EventKind(kind), payload) for kind, payload in rows]
    events = [AckEvent.decode(payload) for kind, payload in found if kind is EventKind.ACK]
    declines = [decode_answer(payload.decode()) for kind, payload in found if kind is EventKind.CANCEL]
    return (*(acknowledgement(ack) for ack in distinct_acknowledgements(events)), *declines)


def _sinks(plan: EpochPlan, level: Level) -> tuple[SinkPlan, ...]:
    names = sorted({name for sinks in level.output.sinks.values() for name in sinks})
    return tuple(
        SinkPlan(
            plan.job.spec.sink(name),
            plan.graph.sink_inputs[name],
            plan.sinks[name],
            plan.buckets.get(name),
            plan.maintenance.get(name) if level.output.level == _node(plan, name).level else None,
        )
        for name in names
    )


def _node(plan: EpochPlan, sink: str) -> Node:
    """Return what a sink shows: at the highest of its levels its table's files are maintained."""
    return plan.graph.nodes[plan.graph.sink_inputs[sink].uid]


def _owned(plan: EpochPlan, level: LevelPlan | None) -> tuple[OwnedKeys, ...]:
    if level is None:
        return ()
    return tuple(
        OwnedKeys(level.key_groups(subtask), level.max_parallelism, plan.hasher.key_groups)
        for subtask in range(level.parallelism)
    )


def _drain(batches: Batches) -> None:
    for _ in batches:
        pass
