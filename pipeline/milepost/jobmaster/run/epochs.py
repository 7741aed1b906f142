"""The epochs of a job run one after another, from a granted token to what is subsumed.

Order of writes of an epoch (DESIGN 3): input record -> trigger (manifest) -> rebind (manifest), but for the
trigger's own process -> heartbeat, state runs, staged sink files, consumed runs, `_metadata` with acks and verdict, all
below `chk-<id>/t<token>/` -> complete (manifest) = the commit point -> sink commits -> confirmation and subsumption
(manifest) -> deletion. Publish before delete, always. What a start finds undone after the commit point, it
does first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from milepost.epoch.answers import EpochReport, EpochRunner
from milepost.epoch.timing.step_clock import PlanTimes, StepClock
from milepost.errors import CheckpointError
from milepost.jobmaster.compatibility.preflight import Tell
from milepost.jobmaster.job.broken_head import suggest_rollback
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.measurements import post_commit_times, store_post_commit_times
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.leadership.fork_sweep import sweep_forks
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.lifecycle import Lifecycle
from milepost.jobmaster.leadership.outcomes import AbortedCheckpoint, NothingAborted
from milepost.jobmaster.leadership.sink_commits import Completion, Published, waits_for
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.jobmaster.reports.history.history import History
from milepost.jobmaster.retention.discard import OwnTables, find_own_tables
from milepost.jobmaster.retention.subsumption import (
    SubsumptionPlan,
    confirm_and_subsume,
    delete_garbage,
    plan_beside_commits,
    plan_subsumption,
    subsume_old,
)
from milepost.jobmaster.retention.table_pruning import prune_tables
from milepost.jobmaster.retention.vetoes import collect_vetoes
from milepost.jobmaster.run.attempt import run_opened_epoch
from milepost.jobmaster.run.opened_epoch import OpenedEpoch, leads_after, open_again, require_token
from milepost.jobmaster.run.trigger import Trigger
from milepost.jobmaster.run.triggered import NothingToDo, Triggered
from milepost.protocol.manifest.transaction.answers import AlreadyDone
from milepost.protocol.manifest.transaction.requests import AbortRequest, RebindRequest
from milepost.protocol.records.checkpoints import CompletedCheckpoint, PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.records.reasons import parse_reason
from milepost.quality.verdict import GateVerdict
from milepost.storage.concurrency.background import prefetch
from milepost.storage.requests import NO_REQUESTS, StoreRequests

_LOG = logging.getLogger(__name__)

Progress = Callable[[str], None]
"""Told the step that begins: trigger, run, validate, complete, notify: <sinks>, subsume."""


@dataclass(frozen=True, slots=True)
class Notified:
    """A sink that has what a checkpoint committed. published: False when it had it already."""

    checkpoint_id: int
    timeline: str
    watermark: object
    rows: int
    published: bool


@dataclass(frozen=True, slots=True)
class Subsumption:
    """The checkpoints that retention has taken, and how much was deleted."""

    subsumed: tuple[int, ...]
    deleted_objects: int
    pruned_files: int


class Epochs:
    """The use cases of one job's epochs: step by step, as Airflow's tasks take them, and whole."""

    def __init__(self, context: JobContext, leadership: Leadership, lifecycle: Lifecycle, trigger: Trigger) -> None:
        self._context, self._leadership, self._lifecycle = context, leadership, lifecycle
        self._trigger = trigger

    @suggest_rollback
    def run_epoch(
        self,
        session: Session,
        checkpoint_id: int,
        runner: EpochRunner,
        progress: Progress | None = None,
        *,
        opened: OpenedEpoch | None = None,
        planned: PlanTimes | None = None,
        judged: bool = True,
    ) -> EpochReport:
        """Run the session's pending epoch, up to a durable `_metadata`.

        Args:
            opened: by a trigger of this process, under whose token it runs; None: a new token is granted (I3).
            planned: what its trigger measured, to be recorded with the rest. judged: as `run_opened_epoch` has it.
        Raises: Fenced, SubtaskDeclined, InvalidRequest, StateCorrupt, StoreUnavailable.
        """
        context, clock = self._context, StepClock(progress)
        clock("begin")
        if opened is not None:
            opened = replace(opened, leads=prefetch(context.store, opened.leads, "head-afterwards"))
            return run_opened_epoch(context, opened, runner, clock, planned, judged=judged)
        request = RebindRequest(session.session_id, session.holder, CheckpointId(checkpoint_id), context.timeout_ms)
        rebound = context.begin(request)
        if isinstance(rebound.outcome, AlreadyDone):
            completed = self._leadership.completed(rebound.state, checkpoint_id)
            return EpochReport(context.metadata(completed), completed.metadata)
        pending = self._leadership.require_own(rebound.state, session, checkpoint_id)
        require_token(pending, rebound.outcome.token)
        leads = partial(leads_after, self._leadership, rebound, session, pending)
        after = prefetch(context.store, leads, "head-afterwards")
        opened = open_again(context, rebound.state, pending, after)
        return run_opened_epoch(context, opened, runner, clock, planned, judged=judged)

    def validate(self, session: Session, checkpoint_id: int) -> GateVerdict:
        """Read the verdict that `run_epoch` stored, and decide. Raises QualityGateFailed; nothing was published."""
        state = self._context.head().state
        completed = self._leadership.find_completion(state, session, checkpoint_id)
        if completed is not None:
            return self._context.metadata(completed).verdict
        metadata, _ = self._leadership.pending_metadata(self._leadership.require_own(state, session, checkpoint_id))
        metadata.verdict.raise_if_vetoed(state.job, checkpoint_id)
        return metadata.verdict

    def complete(self, session: Session, checkpoint_id: int, report: EpochReport | None = None) -> CompletedCheckpoint:
        """The commit point: after this transition the checkpoint is the head (I7, I9).

        Args:
            report: of the try that ran in this process; None: what is stored under the pending token is read.
        """
        state = self._context.head().state
        completed = self._leadership.find_completion(state, session, checkpoint_id)
        if completed is not None:
            return completed
        pending = self._leadership.require_own(state, session, checkpoint_id)
        tables = find_own_tables(self._context) if len(pending.prefixes) > 1 else None
        if report is None:
            report = EpochReport(*self._leadership.pending_metadata(pending))
        return self._complete(session, pending, report, tables).checkpoint

    def _complete(
        self, session: Session, pending: PendingCheckpoint, report: EpochReport, tables: OwnTables | None = None
    ) -> Completion:
        """Complete a checkpoint whose try is reported."""
        report.verdict.raise_if_vetoed(self._context.spec.name, pending.checkpoint_id)
        completion = self._leadership.complete(session, pending, report, tables=tables)
        self._context.cache_metadata(report.handle, report.metadata)
        return completion

    def notify_complete(self, session: Session, checkpoint_id: int, sink: str) -> Notified:
        """Publish one sink's part of a completed checkpoint, and of every older one it has not confirmed, in order."""
        context = self._context
        seen = self._leadership.commits.look_ahead(sink)  # beside the head, before which nothing is done by it
        state = context.head().state
        target = self._leadership.completed(state, checkpoint_id)
        metadata = context.metadata(target)
        seen()
        published = self._leadership.commits.commit_up_to(session, state, target, sink)
        return Notified(
            checkpoint_id=target.checkpoint_id,
            timeline=target.timeline,
            watermark=target.summary.get("watermark"),
            rows=metadata.sinks[sink].rows,
            published=published,
        )

    def subsume(self, session: Session, plan: SubsumptionPlan | None = None) -> Subsumption:
        """Drop checkpoints beyond the retention, then delete what an earlier leader listed as garbage (I8).

        What a backfill that is gone left pending on its fork is given up first: it would hold all that is newer. Once
        per grace period the tables, and failing rows of vetoed epochs, are looked at too.

        Args:
            plan: what was done for it beside the sinks' commits; None: nothing.
        """
        context, timeout_ms = self._context, self._context.timeout_ms
        sweep_forks(context, session)
        if plan is None:
            plan = plan_subsumption(context, session.session_id)
        subsumed = subsume_old(context, session.session_id, plan)
        deleted = delete_garbage(context, session.session_id, timeout_ms)
        pruned = prune_tables(context, session.session_id, timeout_ms) if plan.look_due else 0
        deleted += collect_vetoes(context) if plan.look_due else 0
        return Subsumption(tuple(subsumed), deleted, pruned)

    def abort(
        self, session: Session, checkpoint_id: int | None, reason: str, detail: str
    ) -> AbortedCheckpoint | NothingAborted:
        """Give up the session's pending checkpoint (I9); one that is completed stays, and the answer says so.

        Args:
            checkpoint_id: None: whatever checkpoint of the session is pending, if any (its trigger died before it
                could tell the id).
            reason: name of a CheckpointFailureReason. detail: one sentence for people.
        """
        if checkpoint_id is None:
            head = self._context.log.head()
            pending = self._leadership.own_pending(head.state, session) if head is not None else None
            if pending is None:
                return NothingAborted(
                    "nothing_pending", f"session {session.session_id} has no pending checkpoint", True
                )
            checkpoint_id = pending.checkpoint_id
        request = AbortRequest(
            session.session_id,
            CheckpointId(checkpoint_id),
            parse_reason(reason),
            detail,
            self._context.spec.checkpointing.tolerable_failures,
        )
        return self._leadership.abort(request)

    def run(
        self,
        session: Session,
        runner: EpochRunner,
        *,
        take_over: bool = False,
        allow_non_restored_state: bool = False,
        drain: bool = False,
        tell: Tell | None = None,
        progress: Progress | None = None,
        restarts: Callable[[BaseException], bool] | None = None,
    ) -> CheckpointReport | NothingToDo:
        """Run one whole epoch here and now. Returns the checkpoint, or why there was nothing to do.

        A failure before the commit point aborts the checkpoint with its reason; after it nothing is ever aborted: the
        next start publishes what is left. With `drain` the last epoch finishes the job.

        Args:
            restarts: whether the caller runs the epoch again after this error, which then leaves the job RUNNING.
        """
        clock = StepClock(progress)
        clock("trigger")
        triggered = self._trigger.trigger(
            session, take_over=take_over, allow_non_restored_state=allow_non_restored_state, drain=drain, tell=tell
        )
        if isinstance(triggered, NothingToDo):
            return triggered
        checkpoint_id = triggered.checkpoint_id
        self._context.clocks.clear()
        self._context.clocks[checkpoint_id] = clock
        try:
            completion, report = self._run_to_commit(session, triggered, runner, clock)
        except BaseException as error:
            again = restarts is not None and restarts(error)
            self._abort_for(session, triggered, error, again=again)
            raise
        completed = completion.checkpoint
        clock("notify", ", ".join(completed.unconfirmed))
        planned = prefetch(
            self._context.store,
            partial(plan_beside_commits, self._context, session.session_id, completion.state, completed),
            "subsumption",
        )
        published = self._leadership.commits.publish(
            session, completion, lambda sink, seconds: clock.spent(f"notify {sink}", seconds)
        )
        clock("subsume")
        plan = self._confirmed(session, published, planned)
        try:
            self.subsume(session, plan)
        except CheckpointError as error:  # the epoch is complete and published; the next run subsumes
            _LOG.warning("checkpoint %s: nothing was subsumed: %s", checkpoint_id, error.message)
        measured = post_commit_times(clock, report.write_ms, report.unrecorded)
        times = store_post_commit_times(self._context, completed.checkpoint_id, completed.token, "run", measured)
        if self._context.metadata(completed).final:
            clock("finish")
            self._lifecycle.finish(session, completed.checkpoint_id)
        return History(self._context).show(checkpoint_id, (times,), self._context.recent_state())

    def _run_to_commit(
        self, session: Session, triggered: Triggered, runner: EpochRunner, clock: StepClock
    ) -> tuple[Completion, EpochReport]:
        """Run a triggered epoch, under the trigger's token if this process has it, and complete its checkpoint."""
        checkpoint_id, opened = triggered.checkpoint_id, triggered.opened
        report = self.run_epoch(session, checkpoint_id, runner, clock, opened=opened, planned=triggered.times)
        clock("validate")
        report.verdict.raise_if_vetoed(self._context.spec.name, checkpoint_id)
        clock("complete")
        if opened is not None:
            return self._complete(session, opened.pending, report), report
        completed = self.complete(session, checkpoint_id, report)
        state = self._context.head().state
        return Completion(completed, state, lambda: state), report

    def _confirmed(
        self, session: Session, published: Published, planned: Callable[[], SubsumptionPlan]
    ) -> SubsumptionPlan | None:
        """Record that the sinks have committed, with what is subsumed then. Returns what is done of the subsumption."""
        plan = None
        try:
            plan = planned()
        except CheckpointError as error:  # met again by who subsumes; the confirmation does not wait for it
            _LOG.info("nothing was planned beside the sinks: %s", error.message)
        if not published.sinks:
            return plan
        try:
            plan = confirm_and_subsume(self._context, published.confirmation(session), plan)
        except CheckpointError as error:
            raise waits_for(published.checkpoint, published.sinks, error) from error
        published.maintain()
        return plan

    def keep_times(
        self, checkpoint_id: int, token: int, clock: StepClock, unrecorded: StoreRequests = NO_REQUESTS
    ) -> None:
        """Store what a task measured of an epoch's steps from its commit on, for `show`. Never fails.

        Args:
            token: of the checkpoint. clock: was told its steps, as `run` names them. unrecorded: requests of the tasks
                before it that nothing has recorded.
        """
        times = post_commit_times(clock, unrecorded=unrecorded)
        by = "-".join(clock.steps).replace(" ", "-")
        store_post_commit_times(self._context, CheckpointId(checkpoint_id), FencingToken(token), by, times)

    def _abort_for(self, session: Session, triggered: Triggered, error: BaseException, *, again: bool) -> None:
        """Abort after a failed step, and say so in the error when that made the job FAILED."""
        tolerable = None if again else self._context.spec.checkpointing.tolerable_failures
        token = None if triggered.opened is None else triggered.token
        aborted = self._leadership.give_up(session, triggered.checkpoint_id, error, tolerable, token)
        failed = isinstance(aborted, AbortedCheckpoint) and aborted.job_status == JobStatus.FAILED.value
        if failed and isinstance(error, CheckpointError) and "rollback_to" not in error.details:  # which clears FAILED
            resume = f"The job is FAILED now: before it runs again, milepost resume {self._context.spec.name}"
            error.add_hint(resume)
