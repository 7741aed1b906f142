"""Claim, sweep, complete and abort checkpoints of one timeline.

The pure protocol makes every decision. This module collects the facts and makes the transition. A checkpoint with an id
is looked up on all timelines; a trigger or sweep, which has no id yet, names its timeline.
"""

from __future__ import annotations

import logging

from milepost.epoch import (
    CheckpointMetadata,
    EpochReport,
    InputRecord,
    decode_metadata,
    encode_input_record,
    expected_subtasks,
    split_inputs,
    summary_of,
)
from milepost.errors import (
    NEW_RUN,
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    Fenced,
    NotFound,
    StateCorrupt,
    Subsumed,
)
from milepost.jobmaster.figures.update import store_aborted
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session, is_provably_dead
from milepost.jobmaster.job.transactions import BegunTransaction
from milepost.jobmaster.leadership.outcomes import AbortedCheckpoint, NothingAborted
from milepost.jobmaster.leadership.sink_commits import Completion, SinkCommits
from milepost.jobmaster.retention.discard import OwnTables, discard, discard_staged
from milepost.jobmaster.retention.vetoes import vetoing_rules, with_veto
from milepost.language.times import in_ms
from milepost.protocol.failure import UNCONFIRMED_WRITE_ERRORS, detail_for, reason_for, with_reason
from milepost.protocol.manifest import decide
from milepost.protocol.manifest.transaction import (
    Abandon,
    AbortRequest,
    Adopt,
    AlreadyDone,
    CheckpointAborted,
    CompleteRequest,
    CreateRequest,
    LeaseFacts,
    Outcome,
    TriggerRequest,
    find_completion,
    find_pending,
    open_timeline,
    sweep_decision,
)
from milepost.protocol.records import (
    INPUTS_PREFIX,
    CheckpointFailureReason,
    CheckpointId,
    CompletedCheckpoint,
    FencingToken,
    Leader,
    ManifestState,
    ObjectHandle,
    PendingCheckpoint,
    SubtaskKey,
    Timeline,
    TimelineId,
    TimelineRole,
    metadata_key,
)
from milepost.state.layers import new_secret
from milepost.storage import AbortNotice, handle_of, write_content_addressed

_LOG = logging.getLogger(__name__)
_SWEEPS = 3


class Leadership:
    """The operations on one timeline of a job. timeline: an open fork; None for the live timeline."""

    def __init__(self, context: JobContext, timeline: TimelineId | None = None) -> None:
        self.context = context
        self.timeline_id = timeline

    @property
    def commits(self) -> SinkCommits:
        return SinkCommits(self.context)

    def on_fork(self, fork: TimelineId) -> Leadership:
        return Leadership(self.context, fork)

    def head_or_create(self) -> ManifestState:
        head = self.context.log.head()
        if head is not None:
            return head.state
        request = CreateRequest(self.context.spec.name, new_secret())
        self.context.log.transact(lambda state, now_ms: decide(state, request, now_ms))
        return self.context.head().state

    def timeline(self, state: ManifestState) -> Timeline:
        """Return the timeline in that state. Raises Fenced: it is no longer an open fork."""
        timeline = open_timeline(state, self.timeline_id, "work")
        if self.timeline_id is not None and timeline.role is not TimelineRole.FORK:
            raise Fenced(
                f"job {state.job}: work on fork {self.timeline_id} refused: it is now the live timeline. Nothing "
                "was written. Do not retry.",
                timeline=self.timeline_id,
            )
        return timeline

    def own_pending(self, state: ManifestState, session: Session) -> PendingCheckpoint | None:
        """Return the pending checkpoint of the timeline if this session triggered it, else None."""
        timeline = self.timeline(state)
        owns = timeline.leader is not None and timeline.leader.session_id == session.session_id
        return timeline.pending if owns else None

    def require_own(self, state: ManifestState, session: Session, checkpoint_id: int) -> PendingCheckpoint:
        """Return the session's pending checkpoint of that id, on any timeline. Raises Fenced: it has none."""
        match = find_pending(state, CheckpointId(checkpoint_id))
        if match is None or match[2].session_id != session.session_id:
            status = "is no longer pending" if match is None else f"is pending for session {match[2].session_id}"
            raise Fenced(
                f"checkpoint {checkpoint_id}: it {status}; session {session.session_id} does not lead it. Nothing was "
                "changed.",
                hint=NEW_RUN,
                checkpoint_id=checkpoint_id,
            )
        return match[1]

    def completed(self, state: ManifestState, checkpoint_id: int) -> CompletedCheckpoint:
        """Return the retained checkpoint. Raises Subsumed if it completed and was dropped since, else NotFound."""
        completed = state.checkpoint(CheckpointId(checkpoint_id))
        if completed is not None:
            return completed
        if find_completion(state, None, CheckpointId(checkpoint_id)) is not None:
            raise Subsumed(
                f"checkpoint {checkpoint_id} of job {state.job} is completed, published and subsumed by a newer one: "
                "there is nothing left to do for it.",
                checkpoint_id=checkpoint_id,
            )
        raise NotFound(f"job {state.job} retains no completed checkpoint {checkpoint_id}", checkpoint_id=checkpoint_id)

    def find_completion(self, state: ManifestState, session: Session, checkpoint_id: int) -> CompletedCheckpoint | None:
        """Return the checkpoint if this session has already completed it, else None. Raises Subsumed."""
        completion = find_completion(state, session.session_id, CheckpointId(checkpoint_id))
        return None if completion is None else self.completed(state, checkpoint_id)

    def sweep(
        self, session: Session, *, take_over: bool, adopt: bool = True, state: ManifestState | None = None
    ) -> None:
        """End another session's pending checkpoint: adopt it if its `_metadata` is written, else abort it (I10).

        If the session came back, or a third one ended the checkpoint in the meantime, the lease is judged again.

        Args:
            adopt: False aborts a finished checkpoint too, for callers that would discard it next.
            state: the head, just read, for the first attempt; None: read it.
        Raises:
            Busy: another session's lease is alive. CommitConflict, Fenced: it changed during each of several attempts.
        """
        for _ in range(_SWEEPS - 1):
            try:
                return self._sweep(session, state, take_over=take_over, adopt=adopt)
            except (CommitConflict, Fenced) as moved:
                _LOG.info("%s; judging the lease again", moved.message)
                state = None
        return self._sweep(session, None, take_over=take_over, adopt=adopt)

    def _sweep(self, session: Session, state: ManifestState | None, *, take_over: bool, adopt: bool) -> None:
        context = self.context
        state = context.head().state if state is None else state
        timeline = self.timeline(state)
        if timeline.pending is None or timeline.leader is None or timeline.leader.session_id == session.session_id:
            return
        pending = timeline.pending
        finished = self._finished_metadata(pending) if adopt else None
        gate_passed = None if finished is None else not finished[0].verdict.vetoes
        facts = self._lease_facts(pending, timeline.leader, take_over=take_over, gate_passed=gate_passed)
        now_ms = context.store.clock_ms()
        decision = sweep_decision(state, session.session_id, facts, now_ms, timeline=self.timeline_id)
        if isinstance(decision, Adopt) and finished is not None:
            _LOG.info(
                "checkpoint %s of %s was finished: adopting it", decision.checkpoint_id, timeline.leader.session_id
            )
            self.complete(session, pending, EpochReport(*finished), swept=True)
        elif isinstance(decision, Abandon):
            taken_over = decision.reason is CheckpointFailureReason.LEADER_TAKEN_OVER
            taken_by = session.decision() if taken_over else None
            detail = decision.detail if taken_by is None else f"{decision.detail} by {taken_by.text}"
            _LOG.info("checkpoint %s is aborted: %s", decision.checkpoint_id, detail)
            tolerable = context.spec.checkpointing.tolerable_failures
            self.abort(
                AbortRequest(
                    session.session_id,
                    decision.checkpoint_id,
                    decision.reason,
                    detail,
                    tolerable,
                    decision.token,
                    swept=True,
                    decided_by=taken_by,
                )
            )

    def require_free(self, session: Session, state: ManifestState, *, take_over: bool) -> None:
        """Check that a sweep of this state would not wait. Raises Busy: another session's lease is alive."""
        timeline = self.timeline(state)
        if timeline.pending is None or timeline.leader is None:
            return
        facts = self._lease_facts(timeline.pending, timeline.leader, take_over=take_over, gate_passed=None)
        sweep_decision(state, session.session_id, facts, self.context.store.clock_ms(), timeline=self.timeline_id)

    def _lease_facts(
        self, pending: PendingCheckpoint, leader: Leader, *, take_over: bool, gate_passed: bool | None
    ) -> LeaseFacts:
        return LeaseFacts(
            take_over=take_over,
            heartbeat_ms=self.context.heartbeat_ms(pending),
            holder_dead=is_provably_dead(leader.holder),
            gate_passed=gate_passed,
        )

    def _finished_metadata(self, pending: PendingCheckpoint) -> tuple[CheckpointMetadata, ObjectHandle] | None:
        try:
            return self.pending_metadata(pending)
        except NotFound:
            return None
        except StateCorrupt as error:
            # Another version wrote it, or it is damaged. It was never committed: abort the epoch, do not fail the job.
            _LOG.warning("checkpoint %s: %s; it is taken for unfinished", pending.checkpoint_id, error.message)
            return None

    def pending_metadata(self, pending: PendingCheckpoint) -> tuple[CheckpointMetadata, ObjectHandle]:
        """Return the metadata of the pending token (I7).

        Raises:
            NotFound: `run_epoch` has not finished under that token. StateCorrupt: unreadable, or of another epoch.
        """
        key = metadata_key(pending.checkpoint_id, pending.token)
        body = self.context.store.get(key)
        metadata = decode_metadata(body, key)
        expected = (self.context.spec.name, pending.checkpoint_id, pending.token)
        actual = (metadata.job, metadata.checkpoint_id, metadata.token)
        if actual != expected:
            raise StateCorrupt(
                f"{key}: says it is of (job, checkpoint, token) {actual}, expected {expected}. Nothing was completed.",
                key=key,
            )
        return metadata, handle_of(key, body)

    def claim(self, session: Session, state: ManifestState, plan: InputRecord, code_hash: str) -> BegunTransaction:
        """Make the session the timeline's leader, with a pending checkpoint that continues the head of `state`.

        The input record is written first. Raises as `coordinator.trigger`. CommitConflict: plan again.
        """
        context, spec = self.context, self.context.spec
        record = write_content_addressed(context.store, INPUTS_PREFIX, ".json", encode_input_record(plan))
        splits = split_inputs(spec.sources, plan.sources, spec.spark.parallelism)
        request = TriggerRequest(
            session_id=session.session_id,
            holder=session.holder,
            run=session.run,
            base=self.timeline(state).head,
            plan=record,
            expected=expected_subtasks(len(splits), context.graph.levels, spec.spark.parallelism),
            timeout_ms=context.timeout_ms,
            code_hash=code_hash,
            spec_hash=context.job.spec_hash,
            min_pause_ms=in_ms(spec.checkpointing.min_pause),
            timeline=self.timeline_id,
            quarantined=state.quarantined,
        )
        return context.begin(request)

    def require_own_pending(self, state: ManifestState, session: Session) -> PendingCheckpoint:
        """Return the checkpoint that the session has just triggered. Raises Fenced: another session took it over."""
        pending = self.own_pending(state, session)
        if pending is None:
            raise Fenced(
                f"job {state.job}: the checkpoint that session {session.session_id} triggered was taken over at once. "
                "Nothing was run.",
                hint="another session owns the job now: see milepost history",
            )
        return pending

    def complete(
        self,
        session: Session,
        pending: PendingCheckpoint,
        report: EpochReport,
        *,
        swept: bool = False,
        tables: OwnTables | None = None,
    ) -> Completion:
        """Make the transition that is the commit point, then delete what fenced attempts staged.

        The deletion reads the head after the transition first (I1).

        Args:
            tables: in which fenced attempts may have staged files; None looks them up if needed.
        """
        metadata, handle = report.metadata, report.handle
        request = CompleteRequest(
            session_id=session.session_id,
            checkpoint_id=pending.checkpoint_id,
            token=FencingToken(metadata.token),
            metadata=handle,
            acknowledged=tuple(SubtaskKey(ack.level, ack.subtask) for ack in metadata.acknowledged),
            gate_passed=not metadata.verdict.vetoes,
            sinks=tuple(sorted(metadata.sinks)),
            summary=summary_of(metadata),
            swept=swept,
        )
        with with_reason(CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE, *UNCONFIRMED_WRITE_ERRORS):
            begun = self.context.begin(request)
        completed = self.completed(begun.state, pending.checkpoint_id)

        def read_head() -> None:
            begun.head()

        for token in pending.prefixes:
            if token != completed.token:
                discard(self.context, pending.checkpoint_id, token, tables, read_head)
        return Completion(completed, begun.state, begun.head)

    def give_up(
        self,
        session: Session,
        checkpoint_id: CheckpointId,
        error: BaseException,
        tolerable: int | None,
        token: FencingToken | None = None,
    ) -> AbortedCheckpoint | NothingAborted | None:
        """Abort after a failed step.

        Returns: the result; None if nothing was aborted, because the session is fenced, the outcome of a commit is
            unknown, or the abort failed.
        Args:
            token: abort only under this token; None for any.
        """
        if isinstance(error, Fenced | CommitOutcomeUnknown):
            return None
        why = reason_for(error), detail_for(error)
        try:
            return self.abort(AbortRequest(session.session_id, checkpoint_id, *why, tolerable, token))
        except CheckpointError as failure:  # the first error is the one to report; the next session sweeps
            _LOG.warning("checkpoint %s could not be aborted now: %s", checkpoint_id, failure.message)
            return None

    def abort(self, request: AbortRequest) -> AbortedCheckpoint | NothingAborted:
        """Abort, then delete what the sinks staged (I9: publish or discard, never both)."""
        request = with_veto(self.context, request)
        result = self.context.transact(request)
        if isinstance(result.outcome, AlreadyDone):
            already = result.outcome.outcome is Outcome.ALREADY_COMPLETED
            return NothingAborted("already_completed" if already else "nothing_pending", result.outcome.message, True)
        event = result.outcome.event
        assert isinstance(event, CheckpointAborted)
        discard_staged(self.context, event.pending, AbortNotice(event.reason, event.pending.base))
        store_aborted(self.context, event, result.outcome.state.version, vetoing_rules(self.context, event.veto))
        return AbortedCheckpoint(
            outcome="aborted",
            checkpoint_id=int(event.pending.checkpoint_id),
            reason=event.reason.value,
            detail=event.detail,
            tolerated=event.tolerated,
            counted=event.counted,
            consecutive_failures=event.consecutive_failures,
            job_status=result.state.status.value,
        )
