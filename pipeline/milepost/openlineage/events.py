"""Run events of a job: one run per epoch, and one per table switch.

START is sent when a checkpoint is triggered. COMPLETE is sent when every sink has confirmed it, because at the commit
point the tables do not show it yet. ABORT means that a user, another process or the quality gate stopped it, FAIL that
it failed. An epoch of a fork publishes nothing: its run has no outputs. The run of the later switch has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from milepost.epoch import CheckpointMetadata, InputRecord, iso_ms
from milepost.jobspec.load import LoadedJob
from milepost.openlineage.checkpoint_facet import NAME, PRODUCER, MilepostCheckpointRunFacet
from milepost.openlineage.dataset_names import job_namespace
from milepost.openlineage.datasets import JobDatasets
from milepost.openlineage.run_facets import STOPPED, engine_facet, error_facet, job_facets, nominal_time, parent_facet
from milepost.openlineage.run_ids import decision_run_id, epoch_run_id
from milepost.openlineage.settings import ParentRun
from milepost.openlineage.table_versions import TableVersions
from milepost.protocol.manifest.transaction import (
    CheckpointAborted,
    CheckpointTriggered,
    RealignmentDecided,
    SwitchKind,
    TimelineSwitched,
)
from milepost.protocol.records import (
    CheckpointFailureReason,
    CheckpointKind,
    CheckpointStatus,
    CompletedCheckpoint,
    PendingCheckpoint,
)
from milepost.protocol.records import Run as DagRun

Decision = TimelineSwitched | RealignmentDecided
_DECIDED = {SwitchKind.ROLLBACK: "rollback", SwitchKind.FAST_FORWARD: "backfill"}


@dataclass(frozen=True, slots=True)
class EpochRun:
    """The run of one epoch. dag_run: Airflow DAG run that it belongs to."""

    checkpoint_id: int
    trigger_time_ms: int
    dag_run: DagRun

    @classmethod
    def of(cls, checkpoint: PendingCheckpoint | CompletedCheckpoint) -> EpochRun:
        """Return the run of a checkpoint's epoch."""
        return cls(int(checkpoint.checkpoint_id), checkpoint.trigger_time_ms, checkpoint.run)


class LineageEvents:
    """Makes the events of one job.

    Args:
        parent: parent of the runs that this process starts or ends. None: they have no parent.
    """

    def __init__(self, job: LoadedJob, datasets: JobDatasets, parent: ParentRun | None) -> None:
        self._job, self._datasets, self._parent = job, datasets, parent

    def started(self, event: CheckpointTriggered, record: InputRecord, *, live: bool) -> RunEvent:
        """Return START of an epoch. live: the tables show its timeline."""
        run = EpochRun.of(event.pending)
        outputs = [self._datasets.planned_output(sink.name) for sink in self._job.spec.sinks] if live else []
        facet = _pending_facet(event, CheckpointStatus.PENDING)
        return self._of_epoch(RunState.START, event.at_ms, run, {NAME: facet}, self._datasets.inputs(record), outputs)

    def completed(
        self,
        checkpoint: CompletedCheckpoint,
        metadata: CheckpointMetadata,
        record: InputRecord,
        at_ms: int,
        of_format: Mapping[str, str],
    ) -> RunEvent:
        """Return COMPLETE of an epoch that all of its sinks have confirmed. of_format: as in `TableVersions`."""
        sinks = {sink.name for sink in self._job.spec.sinks}
        versions = TableVersions(checkpoint.timeline, of_format)
        outputs = [self._datasets.published(name, metadata, versions) for name in checkpoint.sinks if name in sinks]
        return self._ended(RunState.COMPLETE, checkpoint, metadata, record, at_ms, outputs)

    def completed_on_fork(
        self, checkpoint: CompletedCheckpoint, metadata: CheckpointMetadata, record: InputRecord, at_ms: int
    ) -> RunEvent:
        """Return COMPLETE of an epoch that publishes nothing."""
        return self._ended(RunState.COMPLETE, checkpoint, metadata, record, at_ms, [])

    def discarded(
        self, checkpoint: CompletedCheckpoint, metadata: CheckpointMetadata, record: InputRecord, at_ms: int
    ) -> RunEvent:
        """Return ABORT of an epoch that was discarded before every sink had confirmed it."""
        return self._ended(RunState.ABORT, checkpoint, metadata, record, at_ms, [])

    def aborted(
        self, event: CheckpointAborted, refusals: Sequence[Mapping[str, Any]], assertions: Mapping[str, Any]
    ) -> RunEvent:
        """Return ABORT or FAIL of an aborted epoch.

        Args:
            refusals: refusals of the quality gate, each with sink, type and column.
            assertions: facets of the refusals, by sink.
        """
        facet = _pending_facet(event, CheckpointStatus.ABORTED, event.reason.value)
        vetoes = [f"sink {one['sink']}: {one['type']}({one['column'] or ''})" for one in refusals]
        state = RunState.ABORT if event.reason in STOPPED else RunState.FAIL
        about = {NAME: facet, "errorMessage": error_facet(event.reason, vetoes)}
        outputs = [self._datasets.refused(sink, assertions[sink]) for sink in sorted(assertions)]
        return self._of_epoch(state, event.at_ms, EpochRun.of(event.pending), about, [], outputs)

    def decided(self, event: Decision, version: int) -> RunEvent:
        """Return START of the run in which tables follow a decision: a rollback, a backfill or a realignment."""
        return self._of_decision(RunState.START, event, version, event.at_ms, [])

    def followed(
        self, event: Decision, version: int, at_ms: int, target: CheckpointMetadata | None, versions: TableVersions
    ) -> RunEvent:
        """Return COMPLETE of a decision's run, after all of its tables have followed."""
        sinks = {sink.name for sink in self._job.spec.sinks}
        outputs = [self._datasets.followed(name, target, versions) for name in sorted(sinks & set(_sinks(event)))]
        return self._of_decision(RunState.COMPLETE, event, version, at_ms, outputs)

    def superseded(self, event: Decision, version: int, at_ms: int) -> RunEvent:
        """Return ABORT of a decision's run: a newer decision was made before all tables had followed this one."""
        return self._of_decision(RunState.ABORT, event, version, at_ms, [])

    def _ended(
        self,
        state: RunState,
        checkpoint: CompletedCheckpoint,
        metadata: CheckpointMetadata,
        record: InputRecord,
        at_ms: int,
        outputs: list[OutputDataset],
    ) -> RunEvent:
        watermark = checkpoint.summary.get("watermark")
        facet = MilepostCheckpointRunFacet(
            int(checkpoint.checkpoint_id),
            int(checkpoint.epoch),
            checkpoint.timeline,
            CheckpointKind.CHECKPOINT.value,
            CheckpointStatus.COMPLETED.value,
            int(checkpoint.token),
            int(checkpoint.parent),
            watermark=None if watermark is None else str(watermark),
            gaps={item.name: item.gaps for item in record.sources if item.gaps} or None,
            voids={item.name: item.skipped_records for item in record.sources if item.skipped_records} or None,
        )
        inputs = self._datasets.inputs(record, metadata)
        return self._of_epoch(state, at_ms, EpochRun.of(checkpoint), {NAME: facet}, inputs, outputs)

    def _of_epoch(
        self,
        state: RunState,
        at_ms: int,
        run: EpochRun,
        about: dict[str, Any],
        inputs: list[InputDataset],
        outputs: list[OutputDataset],
    ) -> RunEvent:
        spec, namespace = self._job.spec, job_namespace(self._job)
        run_id = epoch_run_id(namespace, spec.name, run.checkpoint_id, run.trigger_time_ms)
        about = {
            **about,
            "nominalTime": nominal_time(run.dag_run, run.trigger_time_ms),
            "processing_engine": engine_facet(),
            **parent_facet(self._parent, run.dag_run),
        }
        job = Job(namespace, spec.name, facets=job_facets(spec))
        return _event(state, at_ms, Run(run_id, facets=about), job, inputs, outputs)

    def _of_decision(
        self, state: RunState, event: Decision, version: int, at_ms: int, outputs: list[OutputDataset]
    ) -> RunEvent:
        spec, namespace = self._job.spec, job_namespace(self._job)
        what = _DECIDED[event.kind] if isinstance(event, TimelineSwitched) else "realign"
        run_id = decision_run_id(namespace, spec.name, version, event.at_ms)
        about: dict[str, Any] = {"processing_engine": engine_facet(), **parent_facet(self._parent, None)}
        if state is RunState.ABORT:
            about["errorMessage"] = error_facet(CheckpointFailureReason.LEADER_TAKEN_OVER, ["a newer decision"])
        job = Job(namespace, f"{spec.name}.{what}", facets=job_facets(spec, what.upper()))
        return _event(state, at_ms, Run(run_id, facets=about), job, [], outputs)


def _pending_facet(
    event: CheckpointTriggered | CheckpointAborted, status: CheckpointStatus, reason: str | None = None
) -> MilepostCheckpointRunFacet:
    """Return the facet of a checkpoint that is not completed."""
    pending = event.pending
    return MilepostCheckpointRunFacet(
        int(pending.checkpoint_id),
        int(pending.epoch),
        event.timeline,
        CheckpointKind.CHECKPOINT.value,
        status.value,
        int(pending.token),
        int(pending.base),
        reason=reason,
    )


def _event(
    state: RunState, at_ms: int, run: Run, job: Job, inputs: list[InputDataset], outputs: list[OutputDataset]
) -> RunEvent:
    """Return the event, with Milepost as the producer of each facet."""
    of_inputs = [facets for one in inputs for facets in (one.facets, one.inputFacets)]
    of_outputs = [facets for one in outputs for facets in (one.facets, one.outputFacets)]
    for facets in (run.facets, job.facets, *of_inputs, *of_outputs):
        for facet in (facets or {}).values():
            facet._producer = PRODUCER
    return RunEvent(
        eventType=state,
        eventTime=iso_ms(at_ms),
        run=run,
        job=job,
        producer=PRODUCER,
        inputs=inputs,
        outputs=outputs,
    )


def _sinks(event: Decision) -> tuple[str, ...]:
    return event.sinks if isinstance(event, TimelineSwitched) else (event.sink,)
