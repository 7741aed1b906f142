"""The Airflow operators of an epoch: each does one step of the protocol.

Order: trigger_checkpoint, run_epoch, validate, complete_checkpoint (the commit point), notify_complete per sink,
subsume; abort_checkpoint if one of the first four failed. If the run stops between two tasks, the store is in the state
that the protocol defines for that point, and a retry continues from it:

    stopped after    the store has                                   visible
    run_epoch        a pending checkpoint with all acknowledgements  nothing
    complete         a completed checkpoint, unconfirmed sinks       what sinks have published
    notify_complete  a completed checkpoint, confirmed sinks         everything

Tasks exchange ids and measured times, never rows. Heavy modules are imported while a task runs.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from milepost.acts import TAKE_OVER
from milepost.airflow.compat import (
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTerminated,
    DownstreamTasksSkipped,
    trigger_run,
)
from milepost.airflow.operators.base import RETURN_VALUE, TRIGGER, JobOperator, format_facts
from milepost.airflow.operators.checkpoint_link import CheckpointLink
from milepost.airflow.operators.dag_ids import operate_dag_id
from milepost.airflow.operators.forms import UNTIL_CAUGHT_UP, UP_TO
from milepost.airflow.operators.skip_leaf import skip_request
from milepost.airflow.operators.xcom import (
    CheckpointXCom,
    RanEpoch,
    TriggeredCheckpoint,
    UnpublishedSink,
    ValidatedCheckpoint,
    decode_xcom,
)
from milepost.airflow.task_output.outcome import FAILURE_KEY, Aborted, Failure
from milepost.codec import to_json
from milepost.epoch import iso_ms, lasting
from milepost.epoch.timing import StepClock, Unrecorded
from milepost.protocol.records import CheckpointFailureReason

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.epoch import CheckpointMetadata
    from milepost.jobmaster import JobMaster

log = logging.getLogger(__name__)

RUN = "run_epoch"
VALIDATE = "validate"
COMPLETE = "complete_checkpoint"
NOTIFY = "notify_complete"
SUBSUME = "subsume"
ABORT = "abort_checkpoint"
BEFORE_THE_COMMIT_POINT = (TRIGGER, RUN, VALIDATE, COMPLETE)

_LOGGED_FIGURES = (
    "rows_in", "rows_out", "late_rows", "dropped_rows", "bad_records", "full_bytes", "checkpointed_bytes",
    "in_flight_bytes", "watermark", "sync_ms", "async_ms", "alignment_ms",
)  # fmt: skip
"""The figures of a completed checkpoint that the task logs."""


class EpochOperator(JobOperator):
    """Base of the Airflow operators of an epoch."""

    def execute(self, context: Context) -> Any:
        """Run the task as `JobOperator` does. A retry first logs what it means for earlier tries."""
        if (number := context["ti"].try_number) > 1:
            log.info(
                "try %d of %s continues from the stored state: what an earlier try did, or may still write, counts "
                "once or not at all",
                number,
                self.task_id,
            )
        return super().execute(context)

    def triggered_checkpoint(self, context: Context) -> TriggeredCheckpoint:
        """Return the result of this run's `trigger_checkpoint`.

        Raises: AirflowFailException: it has no checkpoint. StateCorrupt: the XCom has another shape.
        """
        ti = context["ti"]
        triggered: dict[str, Any] | None = ti.xcom_pull(task_ids=self.sibling_id(TRIGGER))
        if not triggered or "checkpoint_id" not in triggered:
            raise AirflowFailException(
                f"{ti.task_id}: this run has no checkpoint: {TRIGGER} returned no id, expected one. "
                f"Nothing was done. Clear the run from {TRIGGER} on, or trigger a new run."
            )
        return decode_xcom(TRIGGER, TriggeredCheckpoint, triggered)

    def pending_checkpoint(self, context: Context) -> TriggeredCheckpoint | RanEpoch:
        """Return the result of `run_epoch`, or that of `trigger_checkpoint` if `run_epoch` has none.

        Both identify the checkpoint, so one XCom request is usually enough. Raises: as `triggered_checkpoint`.
        """
        ran = context["ti"].xcom_pull(task_ids=self.sibling_id(RUN))
        return decode_xcom(RUN, RanEpoch, ran) if ran else self.triggered_checkpoint(context)

    def log_checkpoint(self, acting: CheckpointXCom) -> int:
        """Log the first line of a task, see `log_identity`. Returns the checkpoint id."""
        self.log_identity(acting.checkpoint_id, acting.timeline, acting.token)
        return acting.checkpoint_id

    @contextmanager
    def timed_step(self, step: str) -> Iterator[tuple[JobMaster, StepClock]]:
        """Yield a job master, and a clock that measures the block as this step of the epoch."""
        master, clock = self.jobmaster(), StepClock()
        clock(step)
        yield master, clock
        clock.end()


class TriggerCheckpointOperator(EpochOperator):
    """Claims the timeline, sweeps, plans, and records the pending checkpoint. Skips if there is nothing to do."""

    def act(self, context: Context) -> Any:
        from milepost.jobmaster import NothingToDo, report_lines

        def log_report(report: list[dict[str, str]]) -> None:
            for line in report_lines(report):
                log.info("%s", line)

        take_over = bool(context["params"].get(TAKE_OVER.name, False))
        master, session = self.jobmaster(), self.session(context)
        up_to = self.log_bounds(context, master)
        triggered = master.triggers.trigger(session, take_over=take_over, up_to=up_to, tell=log_report)
        if isinstance(triggered, NothingToDo):
            log.info("%s", triggered.message)
            if triggered.status == "covered" and session.run.run_type == "backfill":
                log.info("to process past input again, trigger %s: backfill", operate_dag_id(master.job.spec.name))
            # Skipping by exception returns no value, so the reason for `subsume` is pushed explicitly.
            context["ti"].xcom_push(key=RETURN_VALUE, value={"nothing_to_do": triggered.status})
            raise DownstreamTasksSkipped(tasks=[self.sibling_id(RUN)])
        acting = TriggeredCheckpoint(
            triggered.checkpoint_id, triggered.timeline, triggered.token, triggered.epoch, triggered.times
        )
        self.log_checkpoint(acting)
        if triggered.summary:
            log.info("epoch %d is planned: %s", acting.epoch, format_facts(triggered.summary))
        else:
            log.info("epoch %d was planned by an earlier try of this task", acting.epoch)
        return to_json(acting)

    def log_bounds(self, context: Context, master: JobMaster) -> dict[str, int] | None:
        """Return the records up to which runs "until caught up" read the logs of landed sources; None: all of them.

        The first of these runs fixes them. `subsume` passes them to the next one.
        """
        if not context["params"].get(UNTIL_CAUGHT_UP, False) or not master.job.spec.landed:
            return None
        passed = (context["dag_run"].conf or {}).get(UP_TO)
        bounds: dict[str, int] = master.landings.newest_records() if passed is None else dict(passed)
        context["ti"].xcom_push(key=UP_TO, value=bounds)
        return bounds


class CheckpointOperator(EpochOperator):
    """Base of the operators that link to the page of their checkpoint."""

    operator_extra_links = (CheckpointLink(),)


class RunEpochOperator(CheckpointOperator):
    """Runs the epoch's Spark job under this try's token (I3), up to acknowledgements, verdict and `_metadata`."""

    def act(self, context: Context) -> Any:
        from milepost.spark.driver import spark_runner

        acting = self.triggered_checkpoint(context)
        checkpoint_id = self.log_checkpoint(acting)
        session, runner = self.session(context), spark_runner()
        report = self.jobmaster().epochs.run_epoch(session, checkpoint_id, runner, planned=acting.times)
        done = {"rows_in": report.rows_in, "rows_out": report.rows_out, "quality": report.verdict.status.value}
        token = report.metadata.token
        what = f"every subtask has acknowledged checkpoint {checkpoint_id}, token {token}"
        if report.completed_ms is not None:
            what = f"checkpoint {checkpoint_id} was completed at {iso_ms(report.completed_ms)}; nothing was done again"
        log.info("%s: %s", what, format_facts(done))
        figures = epoch_figures(report.metadata)
        return to_json(RanEpoch(checkpoint_id, acting.timeline, token, figures, Unrecorded(report.unrecorded)))

    def on_kill(self) -> None:
        """Raise when Airflow stops the task, so that the stack unwinds and the runner stops its Spark session."""
        raise AirflowTaskTerminated(
            f"{self.task_id} was stopped: its worker is shutting down, Airflow has started another try, or a user "
            "changed its state. None of its rows are visible. The checkpoint stays pending: the next try continues it; "
            f"without one, {ABORT} or the next run aborts it."
        )


def epoch_figures(metadata: CheckpointMetadata) -> str:
    """Return the figures of an epoch on one line: `1,200 rows in, 40 out, 3 late (1 dropped), 0 bad, lag 5 min`."""
    from milepost.epoch import summary_of, watermark_of

    of = summary_of(metadata)
    counts = f"{of['rows_in']:,} rows in, {of['rows_out']:,} out, {of['late_rows']:,} late"
    dropped = f" ({of['dropped_rows']:,} dropped)" if of["dropped_rows"] else ""
    rejected = f", {of['rejected_rows']:,} rejected" if of.get("rejected_rows") else ""
    counts += f"{dropped}, {of['bad_records']:,} bad{rejected}"
    watermark_us = watermark_of(metadata)
    if watermark_us is None or metadata.final or metadata.started_ms is None:
        return counts
    return f"{counts}, lag {lasting(max(0, metadata.started_ms - watermark_us // 1000))}"


class ValidateOperator(EpochOperator):
    """Reads the quality verdict that `run_epoch` stored, and vetoes the checkpoint if it failed."""

    def act(self, context: Context) -> Any:
        acting = self.pending_checkpoint(context)
        checkpoint_id = self.log_checkpoint(acting)
        with self.timed_step("validate") as (master, clock):
            verdict = master.epochs.validate(self.session(context), checkpoint_id)
        log.info("quality verdict of checkpoint %d: %s", checkpoint_id, verdict.summary())
        for sink in verdict.verdicts:
            counts = {"rows": sink.rows, "expectations": len(sink.expectations)}
            log.info("sink %s: %s, %s", sink.sink, sink.status.value, format_facts(counts))
        unrecorded = Unrecorded(acting.unrecorded.requests + clock.requests("validate"))
        return to_json(ValidatedCheckpoint(checkpoint_id, acting.timeline, acting.token, unrecorded))


class CompleteCheckpointOperator(CheckpointOperator):
    """The commit point: after this transition the checkpoint is the head.

    Returns one entry per sink that must publish it. With several sinks, `notify_complete` is mapped over the entries.
    """

    def act(self, context: Context) -> Any:
        value = context["ti"].xcom_pull(task_ids=self.sibling_id(VALIDATE))
        validated = decode_xcom(VALIDATE, ValidatedCheckpoint, value) if value else self.pending_checkpoint(context)
        checkpoint_id = self.log_checkpoint(validated)
        with self.timed_step("complete") as (master, clock):
            completed = master.epochs.complete(self.session(context), checkpoint_id)
        master.epochs.keep_times(checkpoint_id, completed.token, clock, validated.unrecorded.requests)
        sinks = sorted(completed.unconfirmed)
        log.info("checkpoint %d is completed; sinks to publish: %s", checkpoint_id, ", ".join(sinks) or "none")
        log.info("%s", format_facts({name: completed.summary.get(name) for name in _LOGGED_FIGURES}))
        return to_json([UnpublishedSink(checkpoint_id, validated.timeline, completed.token, sink) for sink in sinks])


class NotifyCompleteOperator(EpochOperator):
    """Publishes a sink's part of a completed checkpoint, confirms it, and emits the asset event.

    Args:
        sink_assets: asset URI of every sink of the job.
        committed: one entry of the result of `complete_checkpoint`, for a mapped task; None: the task is not mapped and
            processes all entries.
    """

    def __init__(self, *, sink_assets: dict[str, str], committed: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sink_assets = sink_assets
        self.committed = committed

    def act(self, context: Context) -> Any:
        if self.committed is not None:
            return self._publish(context, decode_xcom(COMPLETE, UnpublishedSink, self.committed))
        value = context["ti"].xcom_pull(task_ids=self.sibling_id(COMPLETE))
        committed = decode_xcom(COMPLETE, tuple[UnpublishedSink, ...], value)
        if not committed:
            raise AirflowSkipException(f"{COMPLETE} returned no sink to publish")
        return [self._publish(context, sink) for sink in committed]

    def _publish(self, context: Context, committed: UnpublishedSink) -> dict[str, Any]:
        checkpoint_id, sink = self.log_checkpoint(committed), committed.sink
        with self.timed_step(f"notify {sink}") as (master, clock):
            published = master.epochs.notify_complete(self.session(context), checkpoint_id, sink)
        master.epochs.keep_times(checkpoint_id, committed.token, clock)
        log.info("sink %s is at checkpoint %d: %s", sink, checkpoint_id, format_facts(to_json(published)))
        extra = {name: getattr(published, name) for name in ("checkpoint_id", "timeline", "watermark", "rows")}
        for alias in self.outlets:
            if isinstance(alias, AssetAlias):
                context["outlet_events"][alias].add(Asset(self.sink_assets[sink]), extra=extra)
        return extra | {"sink": sink}


class SubsumeOperator(EpochOperator):
    """Subsumes checkpoints beyond the retention, then triggers the next run if the form has `until_caught_up`."""

    def act(self, context: Context) -> None:
        triggered: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=self.sibling_id(TRIGGER))
        if not triggered:
            raise AirflowSkipException(f"{TRIGGER} was skipped: another session holds the lease")
        nothing_to_do = triggered.get("nothing_to_do")
        if nothing_to_do == "covered":
            raise AirflowSkipException("a later epoch already covers this run: nothing to do")
        acting = self.pending_checkpoint(context) if nothing_to_do is None else None
        if acting is not None:
            self.log_checkpoint(acting)
        else:
            log.info("no checkpoint in this run (%s): subsuming older checkpoints", nothing_to_do)
        with self.timed_step("subsume") as (master, clock):
            log.info("subsumed: %s", format_facts(to_json(master.epochs.subsume(self.session(context)))))
        if acting is not None:
            master.epochs.keep_times(acting.checkpoint_id, acting.token, clock)
            telemetry = master.telemetry()
            if telemetry is not None:
                telemetry.completed(master.job.spec.name, master.reports.show(acting.checkpoint_id))
        if nothing_to_do is None and context["params"].get(UNTIL_CAUGHT_UP, False):
            raise self.next_run_request(context)

    def next_run_request(self, context: Context) -> Exception:
        """Return the exception that triggers the next run.

        The next run's id is a hash of this run's id, so a cleared task requests the same run, which Airflow skips.
        """
        run = context["dag_run"]
        origin = hashlib.sha256(run.run_id.encode()).hexdigest()[:16]
        conf: dict[str, Any] = {UNTIL_CAUGHT_UP: True}
        up_to = context["ti"].xcom_pull(task_ids=self.sibling_id(TRIGGER), key=UP_TO)
        if up_to:
            conf[UP_TO] = up_to
        log.info("until caught up: triggering the next epoch")
        return trigger_run(
            trigger_dag_id=run.dag_id,
            dag_run_id=f"until_caught_up__{origin}",
            conf=conf,
            reset_dag_run=False,
            skip_when_already_exists=True,
            wait_for_completion=False,
            allowed_states=[],
            failed_states=[],
            poke_interval=0,
            deferrable=False,
            note=f"successor of {run.run_id}",
        )


class AbortCheckpointOperator(CheckpointOperator):
    """Aborts the pending checkpoint of a failed run, discards its files, then fails unless the failure is tolerated."""

    ui_color = "#f7e8e8"

    def act(self, context: Context) -> None:
        from milepost.jobmaster import AbortedCheckpoint

        ti = context["ti"]
        triggered: dict[str, Any] | None = ti.xcom_pull(task_ids=self.sibling_id(TRIGGER))
        failure = self.failure(ti)
        checkpoint_id: int | None = None
        if triggered and "checkpoint_id" in triggered:
            checkpoint_id = self.log_checkpoint(self.pending_checkpoint(context))
        # If trigger_checkpoint died between its transition and its XCom, only the manifest has the checkpoint.
        master = self.jobmaster()
        outcome = master.epochs.abort(self.session(context), checkpoint_id, failure.reason, failure.detail)
        if checkpoint_id is None and outcome.outcome == "nothing_pending":
            raise AirflowFailException(
                f"{TRIGGER} failed before it recorded a checkpoint: {failure.detail}. There was nothing to discard."
            )
        checkpoint_id = outcome.checkpoint_id if isinstance(outcome, AbortedCheckpoint) else checkpoint_id
        log.info("checkpoint %s: %s (%s: %s)", checkpoint_id, outcome.outcome, failure.reason, failure.detail)
        if not isinstance(outcome, AbortedCheckpoint):
            raise AirflowFailException(
                f"checkpoint {checkpoint_id} was not aborted ({outcome.outcome}): it is not pending in this run. "
                f"Nothing was discarded. Failed: {failure.reason}: {failure.detail}"
            )
        # A failure that does not count (a lost task, a bug) does not fail the job, but `tolerable_failures` does not
        # cover it either, so the run fails.
        if not (outcome.counted and outcome.tolerated):
            operate = operate_dag_id(master.job.spec.name)
            failed = outcome.job_status == "failed"
            step = (
                f". The job is FAILED now. What to do: fix the cause, then trigger {operate}: resume" if failed else ""
            )
            raise Aborted(
                f"checkpoint {checkpoint_id} is aborted: {failure.reason}: {failure.detail}{step}",
                hint=f"the job is FAILED now: once that is done, milepost resume {master.job.spec.name}"
                if failed
                else "",
            )
        log.warning("the failure is tolerated (`tolerable_failures`): the run counts as successful")
        raise skip_request(self.sibling_id(SUBSUME), context)

    def failure(self, ti: Any) -> Failure:
        """Return the failure of the last failed task, or a lost task if none recorded a failure.

        A lost task is the first one without a result: trigger_checkpoint and run_epoch returned, validate did not ->
        validate was lost.
        """
        for task_id in reversed(BEFORE_THE_COMMIT_POINT):
            value = ti.xcom_pull(task_ids=self.sibling_id(task_id), key=FAILURE_KEY)
            if value is not None:
                return Failure.from_xcom(value, task_id)
        done = [name for name in BEFORE_THE_COMMIT_POINT if ti.xcom_pull(task_ids=self.sibling_id(name)) is not None]
        following = BEFORE_THE_COMMIT_POINT[len(done) : len(done) + 1]
        if following == (TRIGGER,):
            return Failure.from_xcom(None, TRIGGER, CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE)
        return Failure.from_xcom(None, following[0] if following else None)
