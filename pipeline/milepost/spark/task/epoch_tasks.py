"""The two stages of a level's tasks: the operator stage, then the output stage.

Spark pickles these classes into its Python workers, so they list explicitly what a task needs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from milepost.codec import to_json
from milepost.epoch import EpochPlan, code_hash_of
from milepost.epoch.timing import COMPLETE, INCOMPLETE
from milepost.errors import CheckpointError, EnvironmentUnusable
from milepost.jobspec.graph import Node, SinkInput
from milepost.jobspec.job import SinkSpec
from milepost.operators.process import UserFunction
from milepost.protocol.exchange import (
    AckEvent,
    EventKind,
    SubtaskAnswer,
    SubtaskIdentity,
    acknowledgement,
    decode_answer,
    distinct_acknowledgements,
)
from milepost.protocol.records import CheckpointFailureReason, CheckpointId, FencingToken, ObjectStore, StoreConfig
from milepost.sinks import StagingSink, build_staging
from milepost.sinks.buckets import BucketPlan, OwnedKeys
from milepost.sinks.staging import JoinPlan, MaintenancePlan
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
from milepost.storage import metrics_prefix, own_put

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
    """The operator stage of one level in a task: a source split, or the level's stateful operators.

    Attributes:
        metrics_prefix: key prefix of the attempts' metrics, relative to the job's root.
        is_last: whether this is the last level. Its acknowledgements go to the driver and carry the metrics. Those of
            other levels cross an exchange, whose rows must be the same in every attempt (I12): Spark fails the job
            when a repeated task sends different rows.
        functions: code of every process operator of the job, by uid.
        code_hash: hash of the package and these functions, as planned.
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
        """Yield the output of one attempt. The last item acknowledges or declines."""
        identity = SubtaskIdentity(self.checkpoint_id, self.token, self.level, attempt.subtask)
        running = code_hash_of({uid: function.running_digest() for uid, function in self.functions.items()})
        if self.code_hash != running:
            _drain(batches)
            detail = f"worker runs code {running[:12]}, the epoch was planned by code {self.code_hash[:12]}"
            yield Declined(identity.decline(CheckpointFailureReason.CODE_MISMATCH, detail))
            return
        metrics = TaskMetrics(self.level, attempt.subtask, attempt.number)
        store = attempt.open_store(self.job_store)
        if attempt.number and self.stateful is None:  # if this worker dies as well, the object shows what it was doing
            self._store_incomplete_metrics(store, metrics)
        output = self._produce(attempt, batches, store, metrics)
        for item in self._decline_out_of_memory(identity, output, attempt.memory.budget):
            if isinstance(item, OperatorStageEnd):
                if self.is_last:
                    item = replace(item, measured=to_json(metrics.times()))
                else:
                    try:
                        self._store_metrics(store, metrics, COMPLETE)
                    except CheckpointError as error:
                        yield Declined(identity.decline_for(error, "metrics", CheckpointFailureReason.IO_EXCEPTION))
                        return
            elif metrics.incomplete:
                self._store_incomplete_metrics(store, metrics)
            yielded_at = time.monotonic()
            yield item
            # While the generator was suspended, the output stage and Spark downstream of it did their work.
            part = "stage_ms" if isinstance(item, SnapshotStarted) else "emit_ms"
            metrics.attribute(part, time.monotonic() - yielded_at)

    def _store_incomplete_metrics(self, store: ObjectStore, metrics: TaskMetrics) -> None:
        """Store the metrics so far of an attempt that may never acknowledge."""
        with contextlib.suppress(CheckpointError):  # never hide the error that is about to be reported
            self._store_metrics(store, metrics, INCOMPLETE)

    def _store_metrics(self, store: ObjectStore, metrics: TaskMetrics, ended: str) -> None:
        store.put(self.metrics_prefix + metrics.file_name(ended), metrics.encode(own_put(store)))

    def _decline_out_of_memory(
        self, identity: SubtaskIdentity, items: Iterator[TaskOutput], budget: MemoryBudget
    ) -> Iterator[TaskOutput]:
        """Yield the items. A task that runs out of memory declines, and names the setting to raise."""
        who = self._description(identity.subtask)
        try:
            with explain_out_of_memory(who, budget):
                yield from items
        except EnvironmentUnusable as error:
            yield Declined(identity.decline_for(error, who, CheckpointFailureReason.ENVIRONMENT_UNUSABLE))

    def _description(self, subtask: int) -> str:
        """Return the name of the task's source or operators, for messages."""
        if self.stateful is None:
            work = f"source {self.splits[subtask].source}"
        else:
            work = f"operator {' and '.join(item.operator.uid for item in self.stateful.operators)}"
        return f"{work} (level {self.level}, subtask {subtask})"

    def _produce(
        self, attempt: Attempt, batches: Batches, store: ObjectStore, metrics: TaskMetrics
    ) -> Iterator[TaskOutput]:
        if self.stateful is not None:
            return run_subtask(self.stateful, attempt, batches, store, metrics)
        _drain(batches)
        split = self.splits[attempt.subtask]
        return run_source(split, attempt.open_store(split.store), metrics, attempt.memory, attempt.open_store)


@dataclass(frozen=True, slots=True)
class OutputStage:
    """The output stage of one level in a task.

    Attributes:
        owned: keys of each subtask; () at the source level, whose subtasks own no keys.
        subtasks: number of subtasks of the level.
    """

    plan: OutputPlan
    sinks: tuple[SinkPlan, ...]
    owned: tuple[OwnedKeys, ...]
    subtasks: int

    def run(self, attempt: Attempt, items: Iterable[TaskOutput]) -> Batches:
        """Yield the rows that one attempt sends to the next level, or to the driver."""
        owned = self.owned[attempt.subtask] if self.owned else None
        sinks = {sink.spec.name: sink.open(attempt, owned, self.subtasks) for sink in self.sinks}
        return run_output_stage(self.plan, attempt.subtask, items, sinks, attempt.memory, attempt.executor)


def epoch_tasks(plan: EpochPlan, epoch: EpochLevels) -> Iterator[tuple[Level, OperatorStage, OutputStage]]:
    """Yield the stages of each level's tasks, in order."""
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
        owned = _owned_keys(plan, level.stateful)
        yield level, operators, OutputStage(level.output, _sinks(plan, level), owned, operators.subtasks)


def subtask_answers(rows: Iterable[tuple[str, bytes]]) -> tuple[SubtaskAnswer, ...]:
    """Return every distinct acknowledgement and every decline in the last level's rows.

    Args:
        rows: (kind, payload) pairs.
    """
    answers = [(EventKind(kind), payload) for kind, payload in rows]
    events = [AckEvent.decode(payload) for kind, payload in answers if kind is EventKind.ACK]
    declines = [decode_answer(payload.decode()) for kind, payload in answers if kind is EventKind.CANCEL]
    return (*(acknowledgement(ack) for ack in distinct_acknowledgements(events)), *declines)


def _sinks(plan: EpochPlan, level: Level) -> tuple[SinkPlan, ...]:
    names = sorted({name for sinks in level.output.sinks.values() for name in sinks})
    return tuple(
        SinkPlan(
            plan.job.spec.sink(name),
            plan.graph.sink_inputs[name],
            plan.sinks[name],
            plan.buckets.get(name),
            plan.maintenance.get(name) if level.output.level == _sink_node(plan, name).level else None,
        )
        for name in names
    )


def _sink_node(plan: EpochPlan, sink: str) -> Node:
    """Return the node that feeds a sink. The sink's files are maintained at the highest level of that node."""
    return plan.graph.nodes[plan.graph.sink_inputs[sink].uid]


def _owned_keys(plan: EpochPlan, level: LevelPlan | None) -> tuple[OwnedKeys, ...]:
    if level is None:
        return ()
    return tuple(
        OwnedKeys(level.key_groups(subtask), level.max_parallelism, plan.hasher.key_groups)
        for subtask in range(level.parallelism)
    )


def _drain(batches: Batches) -> None:
    for _ in batches:
        pass
