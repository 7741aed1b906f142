"""Make a checkpoint that no epoch produced the job's head.

Such a checkpoint is copied from a savepoint, built from tables, or made by a migration.

Order of writes:
1. Fork at the empty state, or at the head that the checkpoint continues (manifest).
2. Trigger on the fork (manifest), which assigns an id and a token.
3. All objects of the checkpoint below that token's prefix, `_metadata` last.
4. Complete (manifest).
5. Rollback to it, or fast-forward (manifest). From here on it is the head.
6. Each sink follows.
Before step 5 the live timeline is unaffected, and a failure disposes of the fork. A crash leaves the fork open; the
next import disposes of forks of dead processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from milepost.epoch import AcknowledgedSubtask, CheckpointMetadata, EpochReport, InputRecord, encode_input_record
from milepost.errors import CheckpointError, CommitOutcomeUnknown, Fenced
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.fork_event import fork_event
from milepost.jobmaster.job.session import Session, is_provably_dead
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.retention.discard import discard
from milepost.protocol.manifest.transaction import (
    DisposeForkRequest,
    ForkDisposed,
    ForkRequest,
    TimelineForked,
    Transition,
    TriggerRequest,
)
from milepost.protocol.records import (
    IMPORT_SESSION_PREFIX,
    INPUTS_PREFIX,
    NO_CHECKPOINT,
    CheckpointId,
    CompletedCheckpoint,
    ObjectHandle,
    PendingCheckpoint,
    SessionId,
    SubtaskKey,
    Timeline,
    TimelineId,
)
from milepost.protocol.retention import open_forks
from milepost.storage import write_content_addressed

_LOG = logging.getLogger(__name__)

_LEASE_MS = 6 * 3_600_000
"""An import that takes longer than this counts as dead; the next import disposes of its fork."""

_WRITER = SubtaskKey(0, 0)
"""The single subtask that must acknowledge: this process."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a checkpoint's content: its input record, and the hashes of code and spec.

    Attributes:
        above: the checkpoint that it copies; the new id is greater. base: the checkpoint that it continues.
    """

    plan: ObjectHandle
    code_hash: str
    spec_hash: str
    above: CheckpointId = NO_CHECKPOINT
    base: CheckpointId = NO_CHECKPOINT


WriteCheckpoint = Callable[[PendingCheckpoint, TimelineId], CheckpointMetadata]
"""Writes all objects of a pending checkpoint below its token, except `_metadata`, which it returns."""


def new_import_session() -> Session:
    """Return a new session of this process with an id that marks it as an import."""
    session = Session.cli()
    return Session(SessionId(f"{IMPORT_SESSION_PREFIX}{uuid4()}"), session.holder, session.run, session.person)


def write_empty_input(context: JobContext) -> ObjectHandle:
    """Write the input record of a checkpoint that reads nothing."""
    return write_content_addressed(context.store, INPUTS_PREFIX, ".json", encode_input_record(InputRecord(())))


def imported_metadata(
    metadata: CheckpointMetadata, pending: PendingCheckpoint, timeline: TimelineId
) -> CheckpointMetadata:
    """Return another checkpoint's metadata with the identity of a pending one, and without task measurements."""
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
    """Return the acknowledgements of an imported checkpoint: one, by the process that wrote it.

    Args:
        digest: of the content that the checkpoint was made from.
    """
    return (AcknowledgedSubtask(_WRITER.level, _WRITER.subtask, digest, {}),)


@contextmanager
def import_checkpoint(
    context: JobContext, leadership: Leadership, session: Session, provenance: Provenance, write: WriteCheckpoint
) -> Iterator[CompletedCheckpoint]:
    """Complete a checkpoint on its own fork. The block then makes it the head; if it fails, the fork is disposed of.

    Raises: what `write` and the block raise; the live timeline is unchanged. Fenced: another session disposed of the
        fork.
    """
    leadership.head_or_create()
    _abort_dead_imports(context, session)
    timeline = _fork(context, session, provenance.base)
    try:
        pending = _trigger(context, session, timeline, provenance)
        metadata = write(pending, timeline)
        yield leadership.complete(session, pending, EpochReport(metadata, context.write_metadata(metadata))).checkpoint
    except CommitOutcomeUnknown:  # the transition may have landed, so nothing is deleted
        raise
    except BaseException:
        abort_import(context, session, timeline)
        raise


def _fork(context: JobContext, session: Session, at: CheckpointId) -> TimelineId:
    decided = context.transact(ForkRequest(session.session_id, at))
    assert isinstance(decided.outcome, Transition) and isinstance(decided.outcome.event, TimelineForked)
    return decided.outcome.event.timeline.timeline_id


def _trigger(context: JobContext, session: Session, timeline: TimelineId, provenance: Provenance) -> PendingCheckpoint:
    request = TriggerRequest(
        session_id=session.session_id,
        holder=session.holder,
        run=session.run,
        base=provenance.base,
        plan=provenance.plan,
        expected=(_WRITER,),
        timeout_ms=_LEASE_MS,
        code_hash=provenance.code_hash,
        spec_hash=provenance.spec_hash,
        timeline=timeline,
        imports=True,
        above=provenance.above,
    )
    state = context.transact(request).state
    fork = next((item for item in state.timelines if item.timeline_id == timeline), None)
    if fork is None or fork.pending is None or fork.leader is None or fork.leader.session_id != session.session_id:
        raise Fenced(f"job {state.job}: another session disposed of fork {timeline}. Nothing was copied.")
    return fork.pending


def abort_import(context: JobContext, session: Session, timeline: TimelineId) -> None:
    """Dispose of the fork and delete what was staged. If that fails now, the next import or `gc` does it.

    Staged files are deleted only after the transition that aborts their checkpoint, because a checkpoint that completed
    may be the head now.
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


def _abort_dead_imports(context: JobContext, session: Session) -> None:
    """Dispose of forks of imports with a dead process or an expired lease."""
    for fork in open_forks(context.head().state):
        opened = fork_event(context, fork)
        if opened.session_id.startswith(IMPORT_SESSION_PREFIX) and _is_dead(
            fork, opened.at_ms, context.store.clock_ms()
        ):
            _LOG.info("fork %s was left open by %s: giving it up", fork.timeline_id, opened.session_id)
            abort_import(context, session, fork.timeline_id)


def _is_dead(fork: Timeline, forked_ms: int, now_ms: int) -> bool:
    if now_ms - forked_ms > _LEASE_MS:
        return True
    return fork.leader is not None and is_provably_dead(fork.leader.holder)
