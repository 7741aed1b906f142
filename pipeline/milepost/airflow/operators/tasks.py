"""The Airflow operators of an epoch: each does its own part of the protocol, through the job master.

Order: trigger_checkpoint, run_epoch, validate, complete_checkpoint (the commit point), notify_complete per sink,
subsume; abort_checkpoint when one of the first four failed. Stopped before any of them, the store is in exactly the
state which that position means. XComs carry ids and measured times, never data; everything heavy is imported while a
task runs.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTerminated,
    DagRunTriggerException,
    DownstreamTasksSkipped,
)

from milepost.airflow.operators.base import RETURN_VALUE, TRIGGER, JobOperator, in_words
from milepost.airflow.operators.checkpoint_link import CheckpointLink
from milepost.airflow.operators.forms import TAKE_OVER, UNTIL_CAUGHT_UP
from milepost.airflow.operators.handed_on import (
    EpochTry,
    HandedOn,
    TriggeredCheckpoint,
    UnpublishedSink,
    ValidatedCheckpoint,
    left_by,
)
from milepost.airflow.operators.job_specs import operate_dag_id
from milepost.airflow.operators.other_leaf import skip_of
from milepost.airflow.task_output.outcome import FAILURE_KEY, Aborted, Failure
from milepost.codec.records import to_json
from milepost.epoch.quantities import lasting
from milepost.epoch.timing.step_clock import StepClock, Unrecorded
from milepost.protocol.records.reasons import CheckpointFailureReason

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.epoch.metadata import CheckpointMetadata
    from milepost.jobmaster.jobmaster import JobMaster

log = logging.getLogger(__name__)

RUN = "run_epoch"
VALIDATE = "validate"
COMPLETE = "complete_checkpoint"
NOTIFY = "notify_complete"
SUBSUME = "subsume"
ABORT = "abort_checkpoint"
BEFORE_THE_COMMIT_POINT = (TRIGGER, RUN, VALIDATE, COMPLETE)

_TOLD = ("rows_in", "rows_out", "late_rows", "bad_records", "full_bytes", "checkpointed_bytes", "in_flight_bytes",
         "watermark", "sync_ms", "async_ms", "alignment_ms")  # fmt: skip
"""What the log of an epoch says of the checkpoint that it has completed."""


class EpochOperator(JobOperator):
    """Base of the Airflow operators of an epoch."""

    def execute(self, context: Context) -> Any:
        """As `JobOperator` does; a later try says first what it means for the earlier ones."""
        if (number := context["ti"].try_number) > 1:
            log.info(
                "try %d of %s goes on from what is stored: what an earlier try has done, or may still write, counts "
                "once or not at all",
                number,
                self.task_id,
            )
        return super().execute(context)

    def triggered(self, context: Context) -> TriggeredCheckpoint:
        """Return what `trigger_checkpoint` of this run left.

        Raises: AirflowFailException: it left no checkpoint. StateCorrupt: what was left is something else.
        """
        ti = context["ti"]
        triggered: dict[str, Any] | None = ti.xcom_pull(task_ids=self.beside(TRIGGER))
        if not triggered or "checkpoint_id" not in triggered:
            raise AirflowFailException(
                f"{ti.task_id}: this run has no checkpoint: {TRIGGER} left no id, expected one. "
                f"Nothing was done. Clear the run from {TRIGGER} on, or trigger a new run."
            )
        return left_by(TRIGGER, TriggeredCheckpoint, triggered)

    def pending(self, context: Context) -> TriggeredCheckpoint | EpochTry:
        """Return whom the newest try of `run_epoch` acted for; where it left nothing, what `triggered` returns.

        One request of Airflow where two would say the same. Raises: as `triggered`.
        """
        ran = context["ti"].xcom_pull(task_ids=self.beside(RUN))
        return left_by(RUN, EpochTry, ran) if ran else self.triggered(context)

    def say_for(self, acting: HandedOn) -> int:
        """Log the first line of a task, see `say_for_whom`. Returns the checkpoint id."""
        self.say_for_whom(acting.checkpoint_id, acting.timeline, acting.token)
        return acting.checkpoint_id

    @contextmanager
    def timed(self, step: str) -> Iterator[tuple[JobMaster, StepClock]]:
        """Give a job master, and a clock that measures the block as this step of the epoch."""
        master, clock = self.jobmaster(), StepClock()
        clock(step)
        yield master, clock
        clock.end()


class TriggerCheckpointOperator(EpochOperator):
    """Claims the timeline, sweeps, plans, and records the pending checkpoint; or finds that there is nothing to do."""

    def act(self, context: Context) -> Any:
        from milepost.jobmaster.jobmaster import NothingToDo, report_lines

        def tell(report: list[dict[str, str]]) -> None:
            for line in report_lines(report):
                log.info("%s", line)

        take_over = bool(context["params"].get(TAKE_OVER, False))
        master, session = self.jobmaster(), self.session(context)
        triggered = master.trigger(session, take_over=take_over, tell=tell)
        if isinstance(triggered, NothingToDo):
            log.info("%s", triggered.message)
            if triggered.status == "covered" and session.run.run_type == "backfill":
                log.info("to process past input again, trigger %s: backfill", operate_dag_id(master.job.spec.name))
            # Skipping by exception returns no value: the reason is left for `subsume` by hand.
            context["ti"].xcom_push(key=RETURN_VALUE, value={"nothing_to_do": triggered.status})
            raise DownstreamTasksSkipped(tasks=[self.beside(RUN)])
        acting = TriggeredCheckpoint(
            triggered.checkpoint_id, triggered.timeline, triggered.token, triggered.epoch, triggered.times
        )
        self.say_for(acting)
        if triggered.summary:
            log.info("epoch %d is planned: %s", acting.epoch, in_words(triggered.summary))
        else:
            log.info("epoch %d was planned by an earlier try of this task", acting.epoch)
        return to_json(acting)


class CheckpointOperator(EpochOperator):
    """Base of the operators that link to the page of their checkpoint: a person looks there first."""

    operator_extra_links = (CheckpointLink(),)


class RunEpochOperator(CheckpointOperator):
    """Runs the epoch's Spark job under a token of this try (I3), up to acknowledgements, verdict and `_metadata`."""

    def act(self, context: Context) -> Any:
        from milepost.spark.driver.open_runner import open_runner

        acting = self.triggered(context)
        checkpoint_id = self.say_for(acting)
        session, runner = self.session(context), open_runner()
        report = self.jobmaster().run_epoch(session, checkpoint_id, runner, planned=acting.times)
        done = {"rows_in": report.rows_in, "rows_out": report.rows_out, "quality": report.verdict.status.value}
        token = report.metadata.token
        log.info("every subtask has acknowledged checkpoint %d, token %d: %s", checkpoint_id, token, in_words(done))
        figures = figures_of(report.metadata)
        return to_json(EpochTry(checkpoint_id, acting.timeline, token, figures, Unrecorded(report.unrecorded)))

    def on_kill(self) -> None:
        """Airflow asked the task to stop: unwind, so that the runner stops its Spark session on the way out."""
        raise AirflowTaskTerminated(
            f"{self.task_id} was told to stop: its worker goes down, Airflow has begun another try, or somebody marked "
            f"it. Nothing of this try is visible. The checkpoint stays pending: the next try goes on with it; where "
            f"there is none, {ABORT} or the next run gives it up."
        )


def figures_of(metadata: CheckpointMetadata) -> str:
    """Return what an epoch did, in one line: rows in, out, late and bad, and how far its watermark was behind."""
    from milepost.epoch.summary import summary_of, watermark_of

    of = summary_of(metadata)
    counts = f"{of['rows_in']:,} rows in, {of['rows_out']:,} out, {of['late_rows']:,} late, {of['bad_records']:,} bad"
    watermark_us = watermark_of(metadata)
    if watermark_us is None or metadata.final or metadata.started_ms is None:
        return counts
    return f"{counts}, lag {lasting(max(0, metadata.started_ms - watermark_us // 1000))}"


class ValidateOperator(EpochOperator):
    """Reads the quality verdict that `run_epoch` stored beside the acknowledgements, and decides."""

    def act(self, context: Context) -> Any:
        acting = self.pending(context)
        checkpoint_id = self.say_for(acting)
        with self.timed("validate") as (master, clock):
            verdict = master.validate(self.session(context), checkpoint_id)
        log.info("quality verdict of checkpoint %d: %s", checkpoint_id, verdict.summary())
        for sink in verdict.verdicts:
            judged = {"rows": sink.rows, "expectations": len(sink.expectations)}
            log.info("sink %s: %s, %s", sink.sink, sink.status.value, in_words(judged))
        unrecorded = Unrecorded(acting.unrecorded.requests + clock.requests("validate"))
        return to_json(ValidatedCheckpoint(checkpoint_id, acting.timeline, acting.token, unrecorded))


class CompleteCheckpointOperator(CheckpointOperator):
    """The commit point: after this transition the checkpoint is the head.

    Returns: one entry per sink that must be told; `notify_complete` of a job with several is mapped over it.
    """

    def act(self, context: Context) -> Any:
        left = context["ti"].xcom_pull(task_ids=self.beside(VALIDATE))
        judged = left_by(VALIDATE, ValidatedCheckpoint, left) if left else self.pending(context)
        checkpoint_id = self.say_for(judged)
        with self.timed("complete") as (master, clock):
            completed = master.complete(self.session(context), checkpoint_id)
        master.keep_times(checkpoint_id, completed.token, clock, judged.unrecorded.requests)
        sinks = sorted(completed.unconfirmed)
        log.info("checkpoint %d is completed; sinks to publish: %s", checkpoint_id, ", ".join(sinks) or "none")
        log.info("%s", in_words({name: completed.summary.get(name) for name in _TOLD}))
        return to_json([UnpublishedSink(checkpoint_id, judged.timeline, completed.token, sink) for sink in sinks])


class NotifyCompleteOperator(EpochOperator):
    """Publishes a sink's part of a completed checkpoint, confirms it, and emits the asset event.

    Args:
        sink_assets: asset URI of every sink of the job.
        committed: one entry of what `complete_checkpoint` returned, of a task that is mapped over it; None: the task
            is the only one, and takes all that was returned.
    """

    def __init__(self, *, sink_assets: dict[str, str], committed: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sink_assets = sink_assets
        self.committed = committed

    def act(self, context: Context) -> Any:
        if self.committed is not None:
            return self._publish(context, left_by(COMPLETE, UnpublishedSink, self.committed))
        left = context["ti"].xcom_pull(task_ids=self.beside(COMPLETE))
        committed = left_by(COMPLETE, tuple[UnpublishedSink, ...], left)
        if not committed:
            raise AirflowSkipException(f"{COMPLETE} left no sink to publish")
        return [self._publish(context, one) for one in committed]

    def _publish(self, context: Context, committed: UnpublishedSink) -> dict[str, Any]:
        checkpoint_id, sink = self.say_for(committed), committed.sink
        with self.timed(f"notify {sink}") as (master, clock):
            published = master.notify_complete(self.session(context), checkpoint_id, sink)
        master.keep_times(checkpoint_id, committed.token, clock)
        log.info("sink %s stands at checkpoint %d: %s", sink, checkpoint_id, in_words(to_json(published)))
        about = {name: getattr(published, name) for name in ("checkpoint_id", "timeline", "watermark", "rows")}
        for alias in self.outlets:
            if isinstance(alias, AssetAlias):
                context["outlet_events"][alias].add(Asset(self.sink_assets[sink]), extra=about)
        return about | {"sink": sink}


class SubsumeOperator(EpochOperator):
    """Drops checkpoints beyond the retention; then, when the form asked for it, triggers the successor of this run."""

    def act(self, context: Context) -> None:
        triggered: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=self.beside(TRIGGER))
        if not triggered:
            raise AirflowSkipException(f"{TRIGGER} left this run nothing to do: another session holds the lease")
        nothing_to_do = triggered.get("nothing_to_do")
        if nothing_to_do == "covered":
            raise AirflowSkipException("this run is already covered: nothing to do")
        acting = self.pending(context) if nothing_to_do is None else None
        if acting is not None:
            self.say_for(acting)
        else:
            log.info("no checkpoint in this run (%s): subsuming what older ones left", nothing_to_do)
        with self.timed("subsume") as (master, clock):
            log.info("subsumed: %s", in_words(to_json(master.subsume(self.session(context)))))
        if acting is not None:
            master.keep_times(acting.checkpoint_id, acting.token, clock)
            telemetry = master.telemetry()
            if telemetry is not None:
                telemetry.completed(master.job.spec.name, master.show(acting.checkpoint_id))
        if nothing_to_do is None and context["params"].get(UNTIL_CAUGHT_UP, False):
            raise self.successor(context)

    def successor(self, context: Context) -> DagRunTriggerException:
        """The request for the next run. Its id follows from this run's: a cleared task asks for the same one again."""
        run = context["dag_run"]
        origin = hashlib.sha256(run.run_id.encode()).hexdigest()[:16]
        conf = {UNTIL_CAUGHT_UP: True}
        log.info("until caught up: triggering the next epoch")
        return DagRunTriggerException(
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
    """Gives up the pending checkpoint of a failed run, discards its files, and ends by failing unless tolerated."""

    ui_color = "#f7e8e8"

    def act(self, context: Context) -> None:
        from milepost.jobmaster.jobmaster import AbortedCheckpoint

        ti = context["ti"]
        triggered: dict[str, Any] | None = ti.xcom_pull(task_ids=self.beside(TRIGGER))
        failure = self.failure(ti)
        checkpoint_id: int | None = None
        if triggered and "checkpoint_id" in triggered:
            checkpoint_id = self.say_for(self.pending(context))
        # A trigger that died between its transition and its XCom left a checkpoint that only the manifest knows.
        master = self.jobmaster()
        outcome = master.abort(self.session(context), checkpoint_id, failure.reason, failure.detail)
        if checkpoint_id is None and outcome.outcome == "nothing_pending":
            raise AirflowFailException(
                f"{TRIGGER} failed before it recorded a checkpoint of this run: {failure.detail}. Nothing is discarded."
            )
        checkpoint_id = outcome.checkpoint_id if isinstance(outcome, AbortedCheckpoint) else checkpoint_id
        log.info("checkpoint %s: %s (%s: %s)", checkpoint_id, outcome.outcome, failure.reason, failure.detail)
        if not isinstance(outcome, AbortedCheckpoint):
            raise AirflowFailException(
                f"checkpoint {checkpoint_id} is not this run's to abort ({outcome.outcome}), nothing was discarded. "
                f"Failed: {failure.reason}: {failure.detail}"
            )
        # What does not count (a lost task, a bug) does not fail the job, but nobody has agreed to tolerate it either.
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
        raise skip_of(self.beside(SUBSUME), context)

    def failure(self, ti: Any) -> Failure:
        """Return why the run failed: what the last task that failed left behind."""
        for task_id in reversed(BEFORE_THE_COMMIT_POINT):
            left = ti.xcom_pull(task_ids=self.beside(task_id), key=FAILURE_KEY)
            if left is not None:
                return Failure.from_xcom(left, task_id)
        done = [name for name in BEFORE_THE_COMMIT_POINT if ti.xcom_pull(task_ids=self.beside(name)) is not None]
        following = BEFORE_THE_COMMIT_POINT[len(done) : len(done) + 1]
        if following == (TRIGGER,):
            return Failure.from_xcom(None, TRIGGER, CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE)
        return Failure.from_xcom(None, following[0] if following else None)
