"""Run one attempt of an epoch: from a granted token to a durable `_metadata`.

Everything here happens before the commit point and is written below the token's own prefix. A fenced attempt that
still runs therefore writes objects that are never read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from milepost.codec import from_json
from milepost.epoch import (
    CheckpointMetadata,
    EpochAlignment,
    EpochAnswers,
    EpochPlan,
    EpochReport,
    EpochRunner,
    InputRecord,
    counted,
    recorded_by,
    signed,
)
from milepost.epoch.timing import PlanTimes, StepClock
from milepost.errors import CheckpointError, InvalidRequest
from milepost.jobmaster.compatibility.edits import with_incomplete, without_refilled
from milepost.jobmaster.compatibility.rows_in_flight import restored_firing
from milepost.jobmaster.compatibility.tables import check_locations, seeded_operators
from milepost.jobmaster.compatibility.watermark_reset import reset_watermarks
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.table_files import files_of
from milepost.jobmaster.job.measurements import store_task_times, store_task_times_on_error, task_times
from milepost.jobmaster.leadership.heartbeat import Heartbeat
from milepost.jobmaster.run.bad_input import check_bad_input
from milepost.jobmaster.run.checkpoint_metadata import PendingResults, build_metadata
from milepost.jobmaster.run.dimensions import snapshot_dimensions
from milepost.jobmaster.run.expected_time import expected_job_ms, source_bytes
from milepost.jobmaster.run.judgement import judge, rejected_rows, vetoed_input
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.jobmaster.run.tables.bucket_plans import plan_buckets
from milepost.jobmaster.run.tables.maintenance_plans import plan_maintenance
from milepost.jobmaster.run.tables.table_preparation import Preparation
from milepost.jobspec.graph import input_signatures
from milepost.language.times import in_ms
from milepost.protocol.exchange import VerifiedAnswers, verify
from milepost.protocol.failure import UNCONFIRMED_WRITE_ERRORS, with_reason
from milepost.protocol.landed import is_reference
from milepost.protocol.records import (
    NO_CHECKPOINT,
    CheckpointFailureReason,
    CheckpointId,
    ManifestState,
    ObjectStore,
    PendingCheckpoint,
    Timeline,
)
from milepost.protocol.subtask import Notifications
from milepost.quality import GateVerdict, start_loading
from milepost.sinks.buckets import BucketPlan
from milepost.sources.planning import ReferencedFiles
from milepost.state.layers import KeyHash
from milepost.storage import NO_REQUESTS, own_put
from milepost.storage.concurrency import parallel_map, prefetch
from milepost.tables.records import Committable, StagedRows, TableContents

_LOG = logging.getLogger(__name__)


def run_opened_epoch(
    context: JobContext,
    opened: OpenedEpoch,
    runner: EpochRunner,
    clock: StepClock,
    planned: PlanTimes | None,
    *,
    judged: bool,
) -> EpochReport:
    """Run an opened epoch under its token and write its `_metadata`.

    On a fork the sinks stage rows and the gate judges as usual. The positions of the tables do not matter there:
    nothing is committed to a table until the fork becomes the live timeline, and then the tables follow as a whole.

    Args:
        clock: of this attempt. It is at step ``begin`` on entry and at ``write`` on return.
        planned: what the trigger measured; None if it ran in another process.
        judged: False skips the quality gate, for epochs that a backfill replays beyond its range.
    Raises:
        SubtaskDeclined: a subtask declined, or the acknowledgements do not fit together (I7).
        InvalidRequest: the spec does not fit the state it would restore, or a sink refuses the rows.
        StateCorrupt: the base checkpoint cannot be read.
    """
    spec, graph = context.job.spec, opened.loaded.graph
    edited = opened.base is not None and opened.base.spec_hash != context.job.spec_hash
    if opened.base is not None:
        base = with_incomplete(spec, graph, opened.base, opened.pending.checkpoint_id)
        base = without_refilled(spec, graph, reset_watermarks(spec, graph, base))
        opened = replace(opened, base=base)
    attempt = _Attempt(context, opened, runner, clock, judged, edited)
    plan = attempt.plan()
    clock("session")
    runner.prepare(plan)
    start_loading(context.spec.quality if judged else ())
    with Heartbeat(context, opened.pending, runner.stop):
        clock("data plane", _planned_text(opened.record))
        clock.expect(partial(expected_job_ms, context, opened))
        preparation = Preparation(context, opened)
        answers = runner.run(plan)
        verified = _verify(context, opened.pending, answers)
        with store_task_times_on_error(context, opened.pending, verified.acknowledgements):
            metadata = attempt.results(plan, answers, verified, preparation)
            metadata = replace(metadata, **_times(context.store, clock, answers, planned))
            with with_reason(CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE, *UNCONFIRMED_WRITE_ERRORS):
                handle = context.write_metadata(metadata)
    clock.end()
    return EpochReport(metadata, handle, clock.ms("write"), clock.requests("write") - own_put(context.store))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The steps of one attempt. Fields as the arguments of `run_opened_epoch`.

    Attributes:
        edited: whether the spec or its SQL has changed since the base checkpoint.
    """

    context: JobContext
    opened: OpenedEpoch
    runner: EpochRunner
    clock: StepClock
    judged: bool
    edited: bool

    def plan(self) -> EpochPlan:
        """Reserve the tables that are not reserved yet, and return the plan for the data plane."""
        context, opened = self.context, self.opened
        check_locations(context, opened.base)
        wait_for_contents = prefetch(context.store, lambda: _read_contents(context, opened.base), "contents")
        with with_reason(CheckpointFailureReason.SINK_PREPARE_FAILED, InvalidRequest):
            new_sinks = [sink.name for sink in context.spec.sinks if not context.is_reserved(sink.name)]
            parallel_map(context.store, partial(context.reserve, before_create=opened.assert_still_leader), new_sinks)
            wait_for_contents()
            buckets = plan_buckets(context, opened)
        plan = _epoch_plan(context, opened, buckets, self.clock.started_ms)
        return replace(plan, dimensions=snapshot_dimensions(context, opened), referenced=_referenced(context, opened))

    def results(
        self, plan: EpochPlan, answers: EpochAnswers, verified: VerifiedAnswers, preparation: Preparation
    ) -> CheckpointMetadata:
        """Return `_metadata` with verdict and tables; the caller adds the measured times and writes it."""
        context, opened = self.context, self.opened
        check_bad_input(context, opened.pending, verified)
        results = PendingResults.begin(context, plan, opened, verified)
        self.clock("gate")
        committables = _committables(context, answers, verified, plan.filled)
        rows_out = counted(sum(committable.rows for committable in committables.values()), "row")
        with preparation.begin(committables) as pass_gate:
            verdict, rejected = GateVerdict.of(()), rejected_rows(verified, committables)
            if self.judged:
                read = partial(vetoed_input, opened.record, results.sources)
                in_tasks = partial(self.runner.judge, plan)
                verdict = judge(context, opened.pending, committables, rejected, in_tasks, read)
            self.clock("prepare", f"{rows_out} out")
            tables = self._tables(verdict, verified, pass_gate)
        metadata = build_metadata(
            context, plan, opened, answers.operators, results, committables, tables, rejected, verdict
        )
        rows_in = counted(sum(source.rows for source in metadata.sources.values()), "row")
        self.clock("write", f"{rows_in} in, {rows_out} out")
        return replace(metadata, signatures=signed(metadata.signatures, answers.spark))

    def _tables(
        self, verdict: GateVerdict, verified: VerifiedAnswers, pass_gate: Callable[[], dict[str, TableContents]]
    ) -> dict[str, TableContents]:
        """Return the contents of the tables after the epoch; {} if the gate vetoes it.

        The task times of a vetoed epoch are stored here, since no `_metadata` will record them.
        """
        self.opened.assert_still_leader()
        if verdict.vetoes:
            store_task_times(self.context, self.opened.pending, verified.acknowledgements)
            return {}
        # Types that only Spark knows may not fit the table. The edit is refused then, and the job has not failed.
        reason = CheckpointFailureReason.SPEC_REFUSED if self.edited else CheckpointFailureReason.SINK_PREPARE_FAILED
        with with_reason(reason, InvalidRequest):
            return pass_gate()


def _read_contents(context: JobContext, base: CheckpointMetadata | None) -> None:
    """Read the contents records of the tables that the epoch writes into the cache of the context."""
    tables = base.tables if base is not None else {}
    context.table_records.read_all(tables[sink.name] for sink in context.spec.sinks if sink.name in tables)


def _planned_text(record: InputRecord) -> str:
    """Return what an epoch will read and what it leaves for later, as text."""
    objects = [obj for source in record.sources for obj in source.objects]
    pending = sum(source.pending_objects for source in record.sources)
    later = f"; {counted(pending, 'object')} left for a later epoch" if pending else ""
    return f"{counted(len(objects), 'object')}, {counted(source_bytes(record), 'byte')}{later}"


def _verify(context: JobContext, pending: PendingCheckpoint, answers: EpochAnswers) -> VerifiedAnswers:
    """Return the acknowledgements if they fit together. Otherwise log what each task had measured, and raise."""
    try:
        return verify(pending.checkpoint_id, pending.token, pending.expected, answers.answers)
    except CheckpointError:
        store_task_times(context, pending, answers.answers)
        with suppress(CheckpointError):  # the decline is the error to report
            for task in task_times(context, pending):
                _LOG.info("checkpoint %s: a task had measured %s", pending.checkpoint_id, task)
        raise


def _times(store: ObjectStore, clock: StepClock, answers: EpochAnswers, planned: PlanTimes | None) -> dict[str, Any]:
    """Return `started_ms`, `timings` and `requests`.

    Time that the data plane spent around its Spark job counts as `job_ms`, except for starting the session. If the
    step took 10,000 ms, of which the session took 3,000 and the job itself 6,500, then `job_ms` is 7,000.
    """
    timings = {
        "began_ms": clock.started_ms,
        "begin_ms": clock.ms("begin"),
        "session_ms": clock.ms("session") + answers.session_ms,
        "job_ms": max(answers.job_ms, clock.ms("data plane") - answers.session_ms),
        "gate_ms": clock.ms("gate"),
        "prepare_ms": clock.ms("prepare"),
    }
    steps = {"begin": "begin", "session": "session", "job": "data plane", "gate": "gate", "prepare": "prepare"}
    requests = {name: clock.requests(step) for name, step in steps.items()} | {"write": own_put(store)}
    if planned is not None:
        timings, requests = {"plan_ms": planned.plan_ms, **timings}, {"plan": planned.requests, **requests}
    return {
        "started_ms": None if planned is None else planned.started_ms,
        "timings": timings,
        "requests": {step: count for step, count in requests.items() if count != NO_REQUESTS},
    }


def _epoch_plan(
    context: JobContext, opened: OpenedEpoch, buckets: Mapping[str, BucketPlan], started_ms: int
) -> EpochPlan:
    state, timeline, pending = opened.state, opened.timeline, opened.pending
    base, record, loaded = opened.base, opened.record, opened.loaded
    times = context.spec.checkpointing
    stateful = [node.uid for node in loaded.graph.stateful]
    restored = base.operators if base is not None else {}
    return EpochPlan(
        job=context.job,
        spec=context.spec,
        graph=loaded.graph,
        checkpoint_id=pending.checkpoint_id,
        token=pending.token,
        timeline=timeline.timeline_id,
        epoch=pending.epoch,
        base=pending.base,
        hasher=base.hasher if base is not None else KeyHash(state.key_hash_secret),
        inputs=record.sources,
        held_back=record.held_back,
        watermarks_us={name: item.watermark_us for name, item in base.sources.items()} if base is not None else {},
        partitions={name: item.partitions for name, item in base.sources.items()} if base is not None else {},
        states={uid: restored[uid].tables for uid in stateful if uid in restored},
        firing={uid: restored_firing(base, uid) for uid in stateful if uid in restored},
        channels={uid: restored[uid].channels for uid in stateful if uid in restored},
        input_signatures=input_signatures(context.job.spec, loaded.graph),
        alignment=EpochAlignment(
            aligned_timeout_ms=None if times.aligned_timeout is None else in_ms(times.aligned_timeout),
            epoch_budget_ms=None if times.epoch_budget is None else in_ms(times.epoch_budget),
            started_ms=started_ms,
            final=record.final,
        ),
        notifications=_notifications(state, timeline, pending.checkpoint_id),
        job_store=context.store_config,
        sources={name: context.source_store(name) for name in context.spec.sources},
        sinks={sink.name: context.sink_config(sink.name) for sink in context.spec.sinks},
        buckets=buckets,
        filled=opened.filled,
        recorded_answers=recorded_by(base.signatures if base is not None else {}),
        begin=seeded_operators(base, loaded.graph),
        maintenance=plan_maintenance(context, opened),
        server=context.job.spark_server(),
        functions=loaded.functions,
        code_hash=opened.code.hash,
        cache_directory=context.cache_directory,
        timeout_ms=max(1, pending.deadline_ms - context.store.clock_ms()),
    )


def _referenced(context: JobContext, opened: OpenedEpoch) -> dict[str, ReferencedFiles]:
    """Return the data files of tables that the epoch reads where they are, from the records of each log.

    Raises StateCorrupt: a record is missing or does not follow the one before.
    """
    files = {}
    for item in opened.record.sources:
        if item.landed is None or not any(is_reference(obj.key) for obj in item.objects):
            continue
        log = context.source_log(item.name)
        position = (None if opened.base is None else opened.base.log_position(log.stored_as)) or log.floor
        first = item.landed.first if position is None else position.next  # records below the floor have no files
        records = log.records(position, first, item.landed.end.next - 1)
        files[item.name] = files_of(context, item.name, records)
    return files


def _notifications(state: ManifestState, timeline: Timeline, pending: CheckpointId) -> Notifications:
    """Return the checkpoint outcomes that subtasks have not been notified of.

    The subtasks of the head's epoch already know everything up to the head's parent. Example: head 7 with parent 6,
    8 aborted, 3 the oldest retained, 9 about to run: reported=6, completed=7, aborted=(8,), subsumed=2.
    """
    head = state.checkpoint(timeline.head)
    lowest_retained = min((item.checkpoint_id for item in state.checkpoints), default=CheckpointId(1))
    aborted = {item for _, item in state.aborted_sessions}
    return Notifications(
        reported=NO_CHECKPOINT if head is None else head.parent,
        completed=timeline.head,
        # Ids above `pending` belong to other timelines, whose epochs run concurrently.
        aborted=tuple(sorted(item for item in aborted if timeline.head < item < pending)),
        subsumed=CheckpointId(lowest_retained - 1),
    )


def _committables(
    context: JobContext, answers: EpochAnswers, verified: VerifiedAnswers, filled: frozenset[str]
) -> dict[str, Committable]:
    """Return what each sink would publish: the staged files named by the acknowledgements, in subtask order."""
    committables = {}
    for name, sink_input in context.graph.sink_inputs.items():
        parts = []
        for ack in verified.acknowledgements:
            staged = ack.payload.get("sinks")
            if isinstance(staged, dict) and name in staged:
                parts.append(from_json(StagedRows, staged[name], "staged rows"))
        committable = context.sink(name).committable(parts, answers.schemas[sink_input.output])
        committables[name] = replace(committable, whole=name in filled and sink_input.mode == "upsert")
    return committables
