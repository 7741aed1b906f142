"""An opened epoch: the input, base checkpoint and code that one token runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata, InputRecord, decode_input_record
from milepost.errors import NEW_RUN, NEWER_TRY, Fenced
from milepost.jobmaster.compatibility.tables import filled_sinks
from milepost.jobmaster.job.code import JobCode, LoadedCode, check_recorded_spec, read_recorded_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.transactions import BegunTransaction
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.protocol.manifest.transaction import CheckpointTriggered, Transition, find_pending
from milepost.protocol.records import FencingToken, ManifestState, PendingCheckpoint, Timeline
from milepost.storage import read_handle
from milepost.storage.concurrency import prefetch


@dataclass(frozen=True, slots=True)
class OpenedEpoch:
    """A pending checkpoint under one token, with everything that its run needs. It never outlives its process.

    The process that triggered the checkpoint runs it under the trigger's token. A later attempt rebinds the checkpoint
    to a new token and opens it again.

    Attributes:
        state: the manifest version that granted the token.
        record: the input of the epoch. base: the checkpoint that it continues; None for the first epoch.
        code, loaded: the job's code, as the trigger recorded it (I13).
        assert_still_leader: reads the head after the grant, and raises Fenced if another session or attempt has taken
            the checkpoint. Called before any write outside the token's own prefix (I1).
    """

    state: ManifestState
    pending: PendingCheckpoint
    record: InputRecord
    base: CheckpointMetadata | None
    code: JobCode
    loaded: LoadedCode
    assert_still_leader: Callable[[], None]

    @property
    def timeline(self) -> Timeline:
        """The timeline that the checkpoint is pending on. Raises Fenced: the checkpoint has been aborted."""
        match = find_pending(self.state, self.pending.checkpoint_id)
        if match is None:
            raise Fenced(
                f"checkpoint {self.pending.checkpoint_id}: it is no longer pending. Nothing was run.",
                hint=NEW_RUN,
                checkpoint_id=self.pending.checkpoint_id,
            )
        return match[0]

    @property
    def filled(self) -> frozenset[str]:
        """The sinks that receive all rows of an operator's state, not only the changes of this epoch."""
        return filled_sinks(self.base, self.loaded.graph)

    def waits(self, sink: str) -> bool:
        """Return whether older checkpoints are not yet committed to a sink's table."""
        return any(sink in checkpoint.unconfirmed for checkpoint in self.state.checkpoints)


@dataclass(frozen=True, slots=True)
class Grant:
    """A session's pending checkpoint.

    Attributes:
        assert_still_leader: as in `OpenedEpoch`; None if an earlier trigger opened the checkpoint.
    """

    pending: PendingCheckpoint
    assert_still_leader: Callable[[], None] | None


def granted_checkpoint(leadership: Leadership, claim: BegunTransaction, session: Session) -> Grant:
    """Return the session's pending checkpoint after a claim.

    Raises: Fenced: another session took the checkpoint, or another attempt of this session rebound it. That one runs.
    """
    event = claim.outcome.event if isinstance(claim.outcome, Transition) else None
    pending = leadership.require_own_pending(claim.state, session)
    if not isinstance(event, CheckpointTriggered):
        return Grant(pending, None)
    require_token(pending, event.pending.token)
    return Grant(pending, lambda: require_token(leadership.require_own_pending(claim.head(), session), pending.token))


def assert_leads_after_rebind(
    leadership: Leadership, rebound: BegunTransaction, session: Session, mine: PendingCheckpoint
) -> None:
    """Read the head after a rebind. Raises Fenced: another attempt or session has the checkpoint."""
    require_token(leadership.require_own(rebound.head(), session, mine.checkpoint_id), mine.token)


def require_token(pending: PendingCheckpoint, mine: FencingToken) -> None:
    """Raise Fenced unless this token is the one in force."""
    if pending.token != mine:
        raise Fenced(
            f"checkpoint {pending.checkpoint_id}: token {mine} was superseded by {pending.token}. Nothing of this "
            "attempt is visible. Another attempt of the same epoch is running.",
            hint=NEWER_TRY,
            checkpoint_id=pending.checkpoint_id,
        )


def reopen_epoch(
    context: JobContext, state: ManifestState, pending: PendingCheckpoint, assert_still_leader: Callable[[], None]
) -> OpenedEpoch:
    """Open the epoch of a rebound checkpoint from the records of its trigger.

    Raises: SubtaskDeclined: code or spec differs from what the trigger recorded (I13). StateCorrupt: a record is
        damaged.
    """
    check_recorded_spec(context, pending)
    wait_for_identity = prefetch(context.store, lambda: context.identity, "identity")
    read_base = prefetch(context.store, lambda: context.base_metadata(state, pending.base), "base")
    record = decode_input_record(read_handle(context.store, pending.plan))
    base = read_base()
    wait_for_identity()
    code = read_recorded_code(context, pending)
    return OpenedEpoch(state, pending, record, base, code, code.load(context), assert_still_leader)
