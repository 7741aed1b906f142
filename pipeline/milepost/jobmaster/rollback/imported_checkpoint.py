"""A checkpoint that no epoch made becomes the job's head: copied from a savepoint, built from tables, or migrated.

Order: fork at the empty state, or at the head that it continues (manifest) -> trigger on the fork (manifest): an id and
a token -> everything of the checkpoint below that token's prefix, `_metadata` last -> complete (manifest) -> rollback
to it, or fast-forward (manifest): from here on it is the head -> each sink follows. Up to there the live timeline does
not notice, and a failure gives the fork up. Stopped in the middle, the fork is left open; the next import gives up
what is left of dead ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from milepost.epoch.answers import EpochReport
from milepost.epoch.metadata import AcknowledgedSubtask, CheckpointMetadata
from milepost.epoch.plan import InputRecord, encode_input_record
from milepost.errors import CheckpointError, CommitOutcomeUnknown, Fenced
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.fork_event import fork_event
from milepost.jobmaster.job.session import Session, is_provably_dead
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.retention.discard import discard
from milepost.protocol.manifest.transaction.answers import Transition
from milepost.protocol.manifest.transaction.events import ForkDisposed, TimelineForked
from milepost.protocol.manifest.transaction.requests import DisposeForkRequest, ForkRequest, TriggerRequest
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle, PendingCheckpoint, SubtaskKey
from milepost.protocol.records.ids import IMPORT_SESSION_PREFIX, NO_CHECKPOINT, CheckpointId, SessionId, TimelineId
from milepost.protocol.records.layout import INPUTS_PREFIX
from milepost.protocol.records.manifest_state import Timeline
from milepost.protocol.retention.ancestry import open_forks
from milepost.storage.object_handles import write_content_addressed

_LOG = logging.getLogger(__name__)

_LEASE_MS = 6 * 3_600_000
"""How long one import may take before another one gives its fork up."""

_WRITER = SubtaskKey(0, 0)
"""The one that must acknowledge: this process."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What made the content of the checkpoint: its input record, and the hashes of code and spec.

    Attributes:
        above: the checkpoint that it is a copy of; the new id is greater. base: the checkpoint that it continues.
    """

    plan: ObjectHandle
    code_hash: str
    spec_hash: str
    above: CheckpointId = NO_CHECKPOINT
    base: CheckpointId = NO_CHECKPOINT


Write = Callable[[PendingCheckpoint, TimelineId], CheckpointMetadata]
"""Writes everything of a pending checkpoint below its token but `_metadata`, which it returns."""


def importing_session() -> Session:
    """Return a session of this process, recognised as one that imports a checkpoint."""
    session = Session.cli()
    return Session(SessionId(f"{IMPORT_SESSION_PREFIX}{uuid4()}"), session.holder, session.run)


def write_empty_input(context: JobContext) -> ObjectHandle:
    """Write the input record of a checkpoint that reads nothing."""
    return write_content_addressed(context.store, INPUTS_PREFIX, ".json", encode_input_record(InputRecord(())))


def as_imported(metadata: CheckpointMetadata, pending: PendingCheckpoint, timeline: TimelineId) -> CheckpointMetadata:
    """Return another checkpoint's metadata as that of a pending one, which no epoch's tasks made."""
    return replace(
        metadata,
        checkpoint_id=pending.checkpoint_id,
        epoch=pending.epoch,
        timeline=timeline,
        token=pending.token,
        base=pending.base,
        plan=pending.plan,
        started_ms=None,
        tasks=(),
        shares=(),
    )


def acknowledged_by_writer(digest: str) -> tuple[AcknowledgedSubtask, ...]:
    """Return what the metadata of an imported checkpoint says of its subtasks.

    Args:
        digest: of what it was made from.
    """
    return (AcknowledgedSubtask(_WRITER.level, _WRITER.subtask, digest, {}),)


@contextmanager
def imported(
    context: JobContext, leadership: Leadership, session: Session, made: Provenance, write: Write
) -> Iterator[CompletedCheckpoint]:
    """Complete a checkpoint on a fork of its own; the block makes it the head, and its failure gives the fork up.

    Raises: what `write` and the block raise; the live timeline is as it was. Fenced: another session gave the fork up.
    """
    leadership.head_or_create()
    _give_up_dead(context, session)
    timeline = _fork(context, session, made.base)
    try:
        pending = _trigger(context, session, timeline, made)
        metadata = write(pending, timeline)
        yield leadership.complete(session, pending, EpochReport(metadata, context.write_metadata(metadata))).checkpoint
    except CommitOutcomeUnknown:  # what nobody knows is kept
        raise
    except BaseException:
        give_up_import(context, session, timeline)
        raise


def _fork(context: JobContext, session: Session, at: CheckpointId) -> TimelineId:
    decided = context.transact(ForkRequest(session.session_id, at))
    assert isinstance(decided.outcome, Transition) and isinstance(decided.outcome.event, TimelineForked)
    return decided.outcome.event.timeline.timeline_id


def _trigger(context: JobContext, session: Session, timeline: TimelineId, made: Provenance) -> PendingCheckpoint:
    request = TriggerRequest(
        session_id=session.session_id,
        holder=session.holder,
        run=session.run,
        base=made.base,
        plan=made.plan,
        expected=(_WRITER,),
        timeout_ms=_LEASE_MS,
        code_hash=made.code_hash,
        spec_hash=made.spec_hash,
        timeline=timeline,
        imports=True,
        above=made.above,
    )
    state = context.transact(request).state
    found = next((one for one in state.timelines if one.timeline_id == timeline), None)
    if found is None or found.pending is None or found.leader is None or found.leader.session_id != session.session_id:
        raise Fenced(f"job {state.job}: another session gave up fork {timeline} at once. Nothing was copied.")
    return found.pending


def give_up_import(context: JobContext, session: Session, timeline: TimelineId) -> None:
    """Dispose of the fork and of what was staged; what cannot be done now is garbage or done by the next one.

    Staged files go only with the transition that aborts their checkpoint: one that completed may be the head by now.
    """
    request = DisposeForkRequest(session.session_id, timeline)
    try:
        outcome = context.transact(request).outcome
    except CheckpointError as error:
        _LOG.warning("fork %s stays open: %s", timeline, error.message)
        return
    if (
        isinstance(outcome, Transition)
        and isinstance(outcome.event, ForkDisposed)
        and outcome.event.aborted is not None
    ):
        aborted = outcome.event.aborted.pending
        discard(context, aborted.checkpoint_id, aborted.token)


def _give_up_dead(context: JobContext, session: Session) -> None:
    """Dispose of forks that imports left open whose process is gone, or that took far too long."""
    for fork in open_forks(context.head().state):
        opened = fork_event(context, fork)
        if opened.session_id.startswith(IMPORT_SESSION_PREFIX) and _is_dead(
            fork, opened.at_ms, context.store.clock_ms()
        ):
            _LOG.info("fork %s was left open by %s: giving it up", fork.timeline_id, opened.session_id)
            give_up_import(context, session, fork.timeline_id)


def _is_dead(fork: Timeline, forked_ms: int, now_ms: int) -> bool:
    if now_ms - forked_ms > _LEASE_MS:
        return True
    return fork.leader is not None and is_provably_dead(fork.leader.holder)
