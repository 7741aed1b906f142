"""End and start incarnations of a job, and clean up after an end.

Order of an end (I4):
1. One transition ends the incarnation with a dirty result, aborts its pending checkpoint and fences its leader.
2. Staged files of that checkpoint are deleted.
3. Sinks that have yet to follow a switch of the live timeline follow it (`reconciliation.py`).
4. Completed checkpoints are published at the sinks that have not confirmed them.
5. A transition marks the result clean.
After a crash the next command that may change the job's status first completes the remaining steps. Until then nothing
is lost, and nothing new may start.
"""

from __future__ import annotations

import logging

from milepost.errors import CheckpointError, CommitConflict, StoreUnavailable
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.extend_record import extend_record
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.transactions import TransactResult
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.outcomes import CanceledJob, EndedJob, JobOutcome, outcome_of
from milepost.jobmaster.leadership.reconciliation import SinkReconciler
from milepost.jobmaster.retention.discard import discard_staged
from milepost.protocol.log import Tombstone
from milepost.protocol.manifest.timelines import dirty_results
from milepost.protocol.manifest.transaction import (
    CancelRequest,
    CheckpointAborted,
    CleanRequest,
    JobCanceled,
    StartRequest,
    Transition,
)
from milepost.protocol.records import CheckpointId, Decision, JobStatus, ManifestState
from milepost.storage import AbortNotice

_LOG = logging.getLogger(__name__)


class HeadMoved(CommitConflict):
    """The head is not the one that the caller expects."""


class Incarnations:
    """Ends and starts the incarnations of one job. Use cases are made of these steps."""

    def __init__(self, context: JobContext, leadership: Leadership, reconciler: SinkReconciler) -> None:
        self._context, self._leadership, self._reconciler = context, leadership, reconciler

    def cancel(
        self,
        *,
        expected_head: CheckpointId | None = None,
        session: Session | None,
        decision: Decision,
    ) -> CanceledJob:
        """End the incarnation as CANCELED, then clean up: publish completed checkpoints, delete staged files.

        Args:
            expected_head: cancel only at this checkpoint. session: None for a new one of the command line.
            decision: who decided and why, for the history.
        Returns: a result with the outcome ``canceled``, ``already_canceled`` or ``already_finished``.
        Raises: HeadMoved: the head is not the expected one. Also errors of the clean-up; the job is CANCELED
            nevertheless, and the message says so.
        """
        session = session or Session.cli()
        self._context.head()
        request = CancelRequest(session.session_id, decision)

        def check(state: ManifestState) -> None:
            head = state.timeline().head
            if expected_head is not None and head != expected_head:
                raise HeadMoved(f"job {state.job}: its head is checkpoint {head}, expected {expected_head}.")

        decided = self._context.transact(request, check=check)
        event = decided.outcome.event if isinstance(decided.outcome, Transition) else None
        aborted = [int(item.pending.checkpoint_id) for item in event.aborted] if isinstance(event, JobCanceled) else []
        ended = decided.state.status.value
        done = self.cleaned_up(session, decided, f"already_{ended}" if event is None else ended)
        return extend_record(CanceledJob, done, aborted_checkpoint=aborted[0] if aborted else None)

    def start(self, session: Session, decision: Decision | None = None) -> JobOutcome:
        """Open the next incarnation. The outcome is ``started`` or ``already_running``.

        Args:
            decision: who decided and why, for the history.
        Raises: JobNotRunnable: the job is FAILED. Also errors of the clean-up.
        """
        self.finish_clean_up(session)
        decided = self._context.transact(StartRequest(session.session_id, decision or session.decision()))
        started = isinstance(decided.outcome, Transition)
        return outcome_of(decided.state, "started" if started else "already_running")

    def finish_clean_up(self, session: Session) -> ManifestState:
        """Complete the clean-up of an ended incarnation. Returns the head. Raises NotFound: the job has never run."""
        return self.clean_up(session, self._context.head().state)[0]

    def cleaned_up(self, session: Session, decided: TransactResult, outcome: str) -> EndedJob:
        """Complete the clean-up after the transition that ended an incarnation, and return the result."""
        state, published = self.clean_up(session, decided.state)
        return extend_record(EndedJob, outcome_of(state, outcome), published=tuple(published))

    def clean_up(self, session: Session, state: ManifestState) -> tuple[ManifestState, list[str]]:
        """Complete the clean-up that this state still needs. Returns the head, and what was published."""
        dirty = dirty_results(state.results)
        if not dirty:
            return state, []
        result = dirty[-1]
        if result.status is JobStatus.CANCELED:
            for aborted in self._aborted_by_cancel(result.incarnation):
                notice = AbortNotice(aborted.reason, aborted.pending.base)
                discard_staged(self._context, aborted.pending, notice)
        try:
            self._reconciler.finish(session)
            published = self._leadership.commits.finish(session)
        except CheckpointError as error:
            raise type(error)(
                f"job {state.job} is {result.status.name}; its clean-up waits: {error.message}",
                hint=error.hint,
                **error.details,
            ) from error
        self._require_published(result.status)
        decided = self._context.transact(CleanRequest(session.session_id, result.incarnation))
        _LOG.info("job %s: incarnation %d is %s and clean", state.job, result.incarnation, result.status.name)
        return decided.state, published

    def _require_published(self, status: JobStatus) -> None:
        state = self._context.head().state
        waiting = state.unconfirmed()
        if waiting:
            sinks = sorted({sink for checkpoint in waiting for sink in checkpoint.unconfirmed})
            raise StoreUnavailable(
                f"job {state.job} is {status.name}; its clean-up waits for sinks {', '.join(sinks)}, which do not "
                f"answer: checkpoints {[int(item.checkpoint_id) for item in waiting]} are completed and unpublished. "
                "Nothing is lost.",
                hint=f"bring the sinks back, then: milepost cancel {state.job}",
                sinks=sinks,
            )

    def _aborted_by_cancel(self, incarnation: int) -> tuple[CheckpointAborted, ...]:
        """Return what the cancel of this incarnation aborted, from the log: another process may have canceled it."""
        for entry in self._context.log.entries():
            if isinstance(entry, Tombstone):  # the incarnation was cleaned up long ago
                break
            if isinstance(entry.event, JobCanceled) and entry.event.result.incarnation == incarnation:
                return entry.event.aborted
        return ()
