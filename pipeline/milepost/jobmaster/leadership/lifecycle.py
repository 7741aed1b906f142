"""Change the status of a job: abort its epoch, finish, resume.

The end of an incarnation, and the clean-up after it, are in `incarnations.py`.
"""

from __future__ import annotations

from milepost.errors import CommitConflict, Fenced
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.incarnations import Incarnations
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.outcomes import AbortedCheckpoint, EndedJob, NothingAborted, Resumed
from milepost.protocol.manifest.transaction import AbortRequest, FinishRequest, ResumeRequest, Transition
from milepost.protocol.records import CheckpointFailureReason, CheckpointId, Decision, PendingCheckpoint, session_digest

_TRIES = 5


class Lifecycle:
    """The use cases of one job that change its status.

    Each finishes the clean-up of an ended incarnation first, and raises NotFound for a job that has never run.
    """

    def __init__(self, context: JobContext, leadership: Leadership, incarnations: Incarnations) -> None:
        self._context, self._leadership, self._incarnations = context, leadership, incarnations

    @use_case
    def abort_running(
        self,
        *,
        expected: int | None = None,
        session: Session | None = None,
        decision: Decision | None = None,
    ) -> AbortedCheckpoint | NothingAborted:
        """Abort the pending checkpoint of any session. That session is fenced, and its run ends as fenced.

        Args:
            expected: abort only this checkpoint; None for any. session: None for a new one of the command line.
            decision: who decided and why, for the history.
        Raises: Fenced: the epoch's driver took a new token during each of several attempts.
        """
        session = session or Session.cli()
        decision = decision or session.decision()
        state = self._incarnations.finish_clean_up(session)
        for _ in range(_TRIES):
            pending = state.timeline().pending
            if pending is None:
                return NothingAborted("nothing_pending", f"job {state.job} has no pending checkpoint")
            if expected is not None and pending.checkpoint_id != expected:
                other = f"job {state.job} runs checkpoint {pending.checkpoint_id}, expected {expected}"
                return NothingAborted("another_pending", other)
            try:
                return self._leadership.abort(self._abort_request(session, pending, decision))
            except CommitConflict:  # its driver has just started another attempt, which is to be aborted too
                state = self._context.head().state
        raise Fenced(
            f"job {state.job}: its checkpoint took a new token during each of {_TRIES} tries to give it up. "
            "Nothing was changed. Try again."
        )

    def _abort_request(self, session: Session, pending: PendingCheckpoint, decision: Decision) -> AbortRequest:
        return AbortRequest(
            session.session_id,
            pending.checkpoint_id,
            CheckpointFailureReason.ABORTED_BY_USER,
            decision.text,
            self._context.spec.checkpointing.tolerable_failures,
            pending.token,
            swept=True,
            decided_by=decision,
        )

    @use_case
    def finish(self, session: Session, final: CheckpointId | None = None) -> EndedJob:
        """End the incarnation as FINISHED after its final checkpoint is completed and confirmed; then clean up.

        Args:
            final: the final checkpoint; None for the last one that the session completed.
        Raises: Fenced: it is not the head. Busy: another epoch runs. JobNotRunnable: FAILED, canceled, unconfirmed.
        """
        final = self._last_completed(session) if final is None else final
        request = FinishRequest(session.session_id, final, f"checkpoint {final} was the final one")
        decided = self._context.transact(request)
        return self._incarnations.cleaned_up(session, decided, "finished")

    @use_case
    def resume(self, session: Session | None = None, *, decision: Decision | None = None) -> Resumed:
        """Clear FAILED after its cause is fixed.

        Args:
            session: None for a new one of the command line. decision: who decided and why, for the history.
        Raises: JobNotRunnable: the job has ended.
        """
        session = session or Session.cli()
        self._incarnations.finish_clean_up(session)
        decision = decision or session.decision()
        decided = self._context.transact(ResumeRequest(session.session_id, decision))
        return Resumed(isinstance(decided.outcome, Transition), decided.state.status.value)

    def _last_completed(self, session: Session) -> CheckpointId:
        own = session_digest(session.session_id)
        done = [item for who, item in self._context.head().state.completed_sessions if who == own]
        if not done:
            raise Fenced(
                f"job {self._context.spec.name}: finish refused: session {session.session_id} has completed no "
                "checkpoint. Nothing was changed."
            )
        return done[-1]
