"""Run the epochs of a job, from trigger to subsumption.

Order of writes of an epoch (DESIGN 3):
1. Input record.
2. Trigger (manifest). A later attempt in another process adds a rebind (manifest).
3. Below `chk-<id>/t<token>/`: heartbeat, state runs, staged sink files, consumed runs, then `_metadata` with the
   acknowledgements and the verdict.
4. Complete (manifest). This is the commit point.
5. Sink commits.
6. Confirmation and subsumption (manifest).
7. Deletion. Publish before delete, always.
8. Measurements of these steps, and the row of figures that stays.
The next start first finishes whatever an earlier run left incomplete after the commit point.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from milepost.epoch import EpochReport, EpochRunner
from milepost.epoch.timing import PlanTimes, StepClock
from milepost.errors import CheckpointError
from milepost.jobmaster.compatibility.spec_check import OnReport
from milepost.jobmaster.figures.update import FiguresUpdate
from milepost.jobmaster.job.broken_head import suggest_rollback
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.next_input import LogBounds
from milepost.jobmaster.job.measurements import (
    PostCommitTimes,
    post_commit_times,
    store_post_commit_times,
    with_own_requests,
)
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.fork_sweep import sweep_forks
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.lifecycle import Lifecycle
from milepost.jobmaster.leadership.outcomes import AbortedCheckpoint, NothingAborted
from milepost.jobmaster.leadership.sink_commits import Completion, Published, waits_for
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.jobmaster.reports.history.history import History
from milepost.jobmaster.retention.discard import OwnTables, prefetch_own_tables
from milepost.jobmaster.retention.subsumption import (
    SubsumptionPlan,
    confirm_and_subsume,
    delete_garbage,
    plan_during_commits,
    plan_subsumption,
    subsume_old,
)
from milepost.jobmaster.retention.tables import prune_tables
from milepost.jobmaster.retention.vetoes import collect_vetoes
from milepost.jobmaster.run.attempt import run_opened_epoch
from milepost.jobmaster.run.opened_epoch import OpenedEpoch, assert_leads_after_rebind, reopen_epoch, require_token
from milepost.jobmaster.run.trigger import Trigger
from milepost.jobmaster.run.trigger_result import NothingToDo, Triggered
from milepost.protocol.manifest.transaction import AbortRequest, AlreadyDone, RebindRequest
from milepost.protocol.records import (
    CheckpointId,
    CompletedCheckpoint,
    FencingToken,
    JobStatus,
    PendingCheckpoint,
    parse_reason,
)
from milepost.quality import GateVerdict
from milepost.storage import NO_REQUESTS, StoreRequests
from milepost.storage.concurrency import parallel_map, prefetch

_LOG = logging.getLogger(__name__)

Progress = Callable[[str], None]
"""Called with the step that begins: trigger, run, validate, complete, notify: <sinks>, subsume."""


@dataclass(frozen=True, slots=True)
class SinkNotification:
    """A sink whose table shows a checkpoint. published: False if it did so before this call."""

    checkpoint_id: int
    timeline: str
    watermark: object
    rows: int
    published: bool


@dataclass(frozen=True, slots=True)
class Subsumption:
    """The checkpoints that retention dropped, and how much was deleted."""

    subsumed: tuple[int, ...]
    deleted_objects: int
    pruned_files: int


class Epochs:
    """The use cases of one job's epochs: as single steps for Airflow's tasks, and as a whole."""

    def __init__(self, context: JobContext, leadership: Leadership, lifecycle: Lifecycle, trigger: Trigger) -> None:
        self._context, self._leadership, self._lifecycle = context, leadership, lifecycle
        self._trigger = trigger
        self._figures: FiguresUpdate | None = None  # of the last subsumption, stored with its measurements

    @suggest_rollback
    @use_case
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
            opened: the epoch as a trigger of this process opened it, to run under its token; None grants a new token
                (I3).
            planned: what its trigger measured, to be recorded in `_metadata`. judged: as in `run_opened_epoch`.
        Raises: Fenced, SubtaskDeclined, InvalidRequest, StateCorrupt, StoreUnavailable.
        """
        context, clock = self._context, StepClock(progress)
        clock("begin")
        if opened is not None:
            opened = replace(
                opened, assert_still_leader=prefetch(context.store, opened.assert_still_leader, "head-afterwards")
            )
            return run_opened_epoch(context, opened, runner, clock, planned, judged=judged)
        request = RebindRequest(session.session_id, session.holder, CheckpointId(checkpoint_id), context.timeout_ms)
        rebound = context.begin(request)
        if isinstance(rebound.outcome, AlreadyDone):
            completed = self._leadership.completed(rebound.state, checkpoint_id)
            done_ms = completed.completed_time_ms
            return EpochReport(context.metadata(completed), completed.metadata, completed_ms=done_ms)
        pending = self._leadership.require_own(rebound.state, session, checkpoint_id)
        require_token(pending, rebound.outcome.token)
        assert_still_leader = partial(assert_leads_after_rebind, self._leadership, rebound, session, pending)
        after = prefetch(context.store, assert_still_leader, "head-afterwards")
        opened = reopen_epoch(context, rebound.state, pending, after)
        return run_opened_epoch(context, opened, runner, clock, planned, judged=judged)

    @use_case
    def validate(self, session: Session, checkpoint_id: int) -> GateVerdict:
        """Return the verdict that `run_epoch` stored. Raises QualityGateFailed: a veto; nothing was published."""
        state = self._context.head().state
        completed = self._leadership.find_completion(state, session, checkpoint_id)
        if completed is not None:
            return self._context.metadata(completed).verdict
        metadata, _ = self._leadership.pending_metadata(self._leadership.require_own(state, session, checkpoint_id))
        metadata.verdict.raise_if_vetoed(state.job, checkpoint_id)
        return metadata.verdict

    @use_case
    def complete(self, session: Session, checkpoint_id: int, report: EpochReport | None = None) -> CompletedCheckpoint:
        """The commit point: after this transition the checkpoint is the head (I7, I9).

        Args:
            report: of the attempt that ran in this process; None reads `_metadata` below the pending token.
        """
        state = self._context.head().state
        completed = self._leadership.find_completion(state, session, checkpoint_id)
        if completed is not None:
            return completed
        pending = self._leadership.require_own(state, session, checkpoint_id)
        tables = prefetch_own_tables(self._context) if len(pending.prefixes) > 1 else None
        if report is None:
            report = EpochReport(*self._leadership.pending_metadata(pending))
        return self._complete(session, pending, report, tables).checkpoint

    def _complete(
        self, session: Session, pending: PendingCheckpoint, report: EpochReport, tables: OwnTables | None = None
    ) -> Completion:
        """Complete a checkpoint from the report of its attempt."""
        report.verdict.raise_if_vetoed(self._context.spec.name, pending.checkpoint_id)
        completion = self._leadership.complete(session, pending, report, tables=tables)
        self._context.cache_metadata(report.handle, report.metadata)
        return completion

    @use_case
    def notify_complete(self, session: Session, checkpoint_id: int, sink: str) -> SinkNotification:
        """Publish one sink's part of a completed checkpoint, after any older checkpoint that it has not confirmed."""
        context = self._context
        wait_for_table = self._leadership.commits.prefetch_table(sink)  # read-only, so it may run alongside the head
        state = context.head().state
        target = self._leadership.completed(state, checkpoint_id)
        metadata = context.metadata(target)
        wait_for_table()
        published = self._leadership.commits.commit_up_to(session, state, target, sink)
        return SinkNotification(
            checkpoint_id=target.checkpoint_id,
            timeline=target.timeline,
            watermark=target.summary.get("watermark"),
            rows=metadata.sinks[sink].rows,
            published=published,
        )

    @use_case
    def subsume(self, session: Session, plan: SubsumptionPlan | None = None) -> Subsumption:
        """Drop checkpoints beyond the retention, then delete what an earlier leader listed as garbage (I8).

        A dead backfill's pending checkpoint is aborted first, because it would retain everything newer. Once per grace
        period this also prunes the tables and deletes old failing rows of vetoed epochs.

        Args:
            plan: made while the sinks committed; None makes it now.
        """
        context, timeout_ms = self._context, self._context.timeout_ms
        sweep_forks(context, session)
        if plan is None:
            plan = plan_subsumption(context, session.session_id)
        self._figures = plan.figures
        subsumed = subsume_old(context, session.session_id, plan)
        deleted = delete_garbage(context, session.session_id, timeout_ms)
        pruned = prune_tables(context, session.session_id, timeout_ms) if plan.is_pruning_due else 0
        deleted += collect_vetoes(context) if plan.is_pruning_due else 0
        return Subsumption(tuple(subsumed), deleted, pruned)

    @use_case
    def abort(
        self, session: Session, checkpoint_id: int | None, reason: str, detail: str
    ) -> AbortedCheckpoint | NothingAborted:
        """Abort the session's pending checkpoint (I9). A completed one stays, and the result says so.

        Args:
            checkpoint_id: None means the checkpoint of the session that is pending, if any. A trigger that died before
                it could report the id leaves only that.
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

    @use_case
    def run(
        self,
        session: Session,
        runner: EpochRunner,
        *,
        take_over: bool = False,
        allow_non_restored_state: bool = False,
        from_now_on: bool = False,
        drain: bool = False,
        up_to: LogBounds | None = None,
        tell: OnReport | None = None,
        progress: Progress | None = None,
        restarts: Callable[[BaseException], bool] | None = None,
    ) -> CheckpointReport | NothingToDo:
        """Run one whole epoch in this process. Returns the checkpoint, or why there was nothing to do.

        A failure before the commit point aborts the checkpoint with its reason. After the commit point nothing is
        aborted; the next start publishes what this run did not. With `drain` the last epoch finishes the job.

        Args:
            allow_non_restored_state, from_now_on, up_to: as for `Trigger.trigger`.
            restarts: returns whether the caller will run the epoch again after this error. If so, the job stays
                RUNNING.
        """
        clock = StepClock(progress)
        clock("trigger")
        triggered = self._trigger.trigger(
            session,
            take_over=take_over,
            allow_non_restored_state=allow_non_restored_state,
            from_now_on=from_now_on,
            drain=drain,
            up_to=up_to,
            tell=tell,
        )
        if isinstance(triggered, NothingToDo):
            return triggered
        checkpoint_id = triggered.checkpoint_id
        self._context.clocks.clear()
        self._context.clocks[checkpoint_id] = clock
        try:
            completion, report = self._run_to_commit(session, triggered, runner, clock)
        except BaseException as error:
            will_restart = restarts is not None and restarts(error)
            self._abort_after(session, triggered, error, will_restart=will_restart)
            raise
        completed = completion.checkpoint
        clock("notify", ", ".join(completed.unconfirmed))
        wait_for_plan = prefetch(
            self._context.store,
            partial(plan_during_commits, self._context, session.session_id, completion.state, completed),
            "subsumption",
        )
        published = self._leadership.commits.publish(
            session, completion, lambda sink, seconds: clock.spent(f"notify {sink}", seconds)
        )
        clock("subsume")
        plan = self._confirm(session, published, wait_for_plan)
        try:
            self.subsume(session, plan)
        except CheckpointError as error:  # the epoch is complete and published; the next run subsumes
            _LOG.warning("checkpoint %s: nothing was subsumed: %s", checkpoint_id, error.message)
        measured = post_commit_times(clock, report.write_ms, report.unrecorded)
        times = self._store_times(completed.checkpoint_id, completed.token, "run", measured)
        if self._context.metadata(completed).final:
            clock("finish")
            self._lifecycle.finish(session, completed.checkpoint_id)
        return History(self._context).show(checkpoint_id, (times,), self._context.recent_state())

    def _run_to_commit(
        self, session: Session, triggered: Triggered, runner: EpochRunner, clock: StepClock
    ) -> tuple[Completion, EpochReport]:
        """Run a triggered epoch and complete its checkpoint, under the trigger's token if this process holds it."""
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

    def _confirm(
        self, session: Session, published: Published, wait_for_plan: Callable[[], SubsumptionPlan]
    ) -> SubsumptionPlan | None:
        """Record that the sinks have committed, and the subsumption if it is planned. Returns the rest of the plan."""
        plan = None
        try:
            plan = wait_for_plan()
        except CheckpointError as error:  # `subsume` meets it again; the confirmation must not wait for it
            _LOG.info("no subsumption was planned while the sinks committed: %s", error.message)
        if not published.sinks:
            return plan
        try:
            plan = confirm_and_subsume(self._context, published.confirmation(session), plan)
        except CheckpointError as error:
            raise waits_for(published.checkpoint, published.sinks, error) from error
        published.maintain()
        return plan

    @use_case
    def keep_times(
        self, checkpoint_id: int, token: int, clock: StepClock, unrecorded: StoreRequests = NO_REQUESTS
    ) -> None:
        """Store what a task measured of the steps after the commit point, for `show`. Never fails.

        After `subsume` it also stores the row of figures.

        Args:
            token: of the checkpoint. clock: its steps have the names that `run` uses.
            unrecorded: requests of earlier tasks that are not recorded yet.
        """
        times = post_commit_times(clock, unrecorded=unrecorded)
        by = "-".join(clock.steps).replace(" ", "-")
        self._store_times(CheckpointId(checkpoint_id), FencingToken(token), by, times)

    def _store_times(
        self, checkpoint_id: CheckpointId, token: FencingToken, by: str, measured: PostCommitTimes
    ) -> PostCommitTimes:
        """Store the times after the commit and, at the same time, the missing rows of figures. Never fails."""
        context, figures = self._context, self._figures
        self._figures = None
        times = with_own_requests(context, measured, NO_REQUESTS if figures is None else figures.requests)
        writes = [partial(store_post_commit_times, context, checkpoint_id, token, by, times)]
        if figures is not None:
            writes.append(partial(figures.store, {checkpoint_id: times}))
        parallel_map(context.store, lambda write: write(), writes)
        return times

    def _abort_after(self, session: Session, triggered: Triggered, error: BaseException, *, will_restart: bool) -> None:
        """Abort after a failed step. If that made the job FAILED, the error's hint says how to resume."""
        tolerable = None if will_restart else self._context.spec.checkpointing.tolerable_failures
        token = None if triggered.opened is None else triggered.token
        aborted = self._leadership.give_up(session, triggered.checkpoint_id, error, tolerable, token)
        failed = isinstance(aborted, AbortedCheckpoint) and aborted.job_status == JobStatus.FAILED.value
        if failed and isinstance(error, CheckpointError) and "rollback_to" not in error.details:  # which clears FAILED
            error.add_hint(f"The job is FAILED now: before it runs again, milepost resume {self._context.spec.name}")
