"""An opened epoch holds what one token runs: its input, what it continues, and its code, each read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.plan import InputRecord, decode_input_record
from milepost.errors import NEW_RUN, NEWER_TRY, Fenced
from milepost.jobmaster.compatibility.filled_sinks import filled_sinks
from milepost.jobmaster.job.code import JobCode, LoadedCode, check_recorded_spec, read_recorded_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.transactions import BegunTransaction
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.protocol.manifest.transaction.answers import Transition
from milepost.protocol.manifest.transaction.events import CheckpointTriggered
from milepost.protocol.manifest.transaction.preconditions import find_pending
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.ids import FencingToken
from milepost.protocol.records.manifest_state import ManifestState, Timeline
from milepost.storage.concurrency.background import prefetch
from milepost.storage.object_handles import read_handle


@dataclass(frozen=True, slots=True)
class OpenedEpoch:
    """A pending checkpoint under one token, and all that its run needs; it never outlives its process.

    Who triggers has it in hand and runs it under the token of the trigger. A later try rebinds, and opens it anew.

    Attributes:
        state: the version that granted the token. record: what the epoch reads. base: what it continues; None: nothing.
        code, loaded: what runs, as the trigger recorded it (I13).
        leads: reads the head after the grant; raises Fenced if somebody took the checkpoint at once. Asked
            before anything is done that is not below the token's own prefix (I1).
    """

    state: ManifestState
    pending: PendingCheckpoint
    record: InputRecord
    base: CheckpointMetadata | None
    code: JobCode
    loaded: LoadedCode
    leads: Callable[[], None]

    @property
    def timeline(self) -> Timeline:
        """The timeline that the checkpoint is pending on. Raises Fenced: it was given up at once."""
        found = find_pending(self.state, self.pending.checkpoint_id)
        if found is None:
            raise Fenced(
                f"checkpoint {self.pending.checkpoint_id}: it is no longer pending. Nothing was run.",
                hint=NEW_RUN,
                checkpoint_id=self.pending.checkpoint_id,
            )
        return found[0]

    @property
    def filled(self) -> frozenset[str]:
        """The sinks that take all rows of an operator's state."""
        return filled_sinks(self.base, self.loaded.graph)

    def waits(self, sink: str) -> bool:
        """Return whether older checkpoints have yet to move a sink's table."""
        return any(sink in checkpoint.unconfirmed for checkpoint in self.state.checkpoints)


@dataclass(frozen=True, slots=True)
class Grant:
    """A session's pending checkpoint. leads: as `OpenedEpoch` has it; None: an earlier trigger has opened it."""

    pending: PendingCheckpoint
    leads: Callable[[], None] | None


def granted(leadership: Leadership, claim: BegunTransaction, session: Session) -> Grant:
    """Return the session's pending checkpoint, and whether this very claim has opened it.

    Raises: Fenced: another session took it at once, or another try of this one rebound it: that one runs, not this.
    """
    event = claim.outcome.event if isinstance(claim.outcome, Transition) else None
    pending = leadership.require_own_pending(claim.state, session)
    if not isinstance(event, CheckpointTriggered):
        return Grant(pending, None)
    require_token(pending, event.pending.token)
    return Grant(pending, lambda: require_token(leadership.require_own_pending(claim.head(), session), pending.token))


def leads_after(leadership: Leadership, rebound: BegunTransaction, session: Session, mine: PendingCheckpoint) -> None:
    """Read the head after a rebind. Raises Fenced: another try, or session, has the checkpoint."""
    require_token(leadership.require_own(rebound.head(), session, mine.checkpoint_id), mine.token)


def require_token(pending: PendingCheckpoint, mine: FencingToken) -> None:
    """Raise Fenced unless this token is the one in force."""
    if pending.token != mine:
        raise Fenced(
            f"checkpoint {pending.checkpoint_id}: token {mine} was superseded by {pending.token} at once. Nothing of "
            "this try is visible. Another try of the same epoch is running.",
            hint=NEWER_TRY,
            checkpoint_id=pending.checkpoint_id,
        )


def open_again(
    context: JobContext, state: ManifestState, pending: PendingCheckpoint, leads: Callable[[], None]
) -> OpenedEpoch:
    """Open the epoch of a rebound checkpoint from what its trigger recorded.

    Raises: SubtaskDeclined: code or spec is not what the trigger recorded (I13). StateCorrupt: a record is broken.
    """
    check_recorded_spec(context, pending)
    life = prefetch(context.store, lambda: context.identity, "identity")
    continued = prefetch(context.store, lambda: context.base_metadata(state, pending.base), "base")
    record = decode_input_record(read_handle(context.store, pending.plan))
    base = continued()
    life()
    code = read_recorded_code(context, pending)
    return OpenedEpoch(state, pending, record, base, code, code.load(context), leads)
