"""Run a backfill: replay recorded input with the current code on a fork, then switch to the fork.

Order of writes:
1. The fork (manifest).
2. The fork's epochs, each in the order of `run/epochs.py` up to complete. Their sinks stage rows but commit nothing.
3. The freeze of the live timeline (manifest), then the rest of the replay.
4. Fast-forward (manifest): the one transition that makes the fork the live timeline.
5. Each sink follows (`leadership/reconciliation.py`).
Before step 4 only the freeze affects the live timeline, and it expires by itself. After a crash before step 4 the fork
stays, and the same backfill continues it. After step 4 the next epoch first makes the sinks follow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep

from milepost.epoch import CheckpointMetadata, EpochRunner
from milepost.errors import (
    Busy,
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    Fenced,
    ProtocolViolation,
    SourceChanged,
)
from milepost.jobmaster.backfill.consumed_input import check_equal, consumed_by
from milepost.jobmaster.backfill.forks import (
    backfill_fingerprint,
    check_idle,
    dispose_left_behind,
    fork_to_continue,
    open_fork,
    thaw_for,
)
from milepost.jobmaster.backfill.plan import BackfillPlan, is_judged
from milepost.jobmaster.backfill.recorded_dimensions import replayed_dimensions
from milepost.jobmaster.backfill.replay import (
    RecordedRange,
    left_to_replay,
    replay_record,
)
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.next_input import over_max_in_flight
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.switch_acts import SwitchAct, switch_decision
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.table_previews import check_tables_can_follow
from milepost.jobmaster.run.epochs import Epochs
from milepost.jobmaster.run.opened_epoch import OpenedEpoch, granted_checkpoint
from milepost.protocol.manifest.transaction import FastForwardRequest, FreezeRequest, ThawRequest, active_freeze
from milepost.protocol.records import CheckpointId, Decision, ManifestState, Timeline, TimelineId

_LOG = logging.getLogger(__name__)

Progress = Callable[[str], None]
"""Called with a text for people when a step begins."""

_WAIT_S = 1.0
_MAX_STALLED_EPOCHS = 3
"""After this many epochs that did not bring the fork closer to the live head, the live timeline is frozen."""


@dataclass(frozen=True, slots=True)
class _Position:
    """The progress of a fork.

    Attributes:
        state: the head that it was read from. fork: the timeline in that state.
        tip: metadata of the fork's newest checkpoint; None for the empty state.
        replayed: number of ranges replayed. left: the remaining ranges, in order.
    """

    state: ManifestState
    fork: Timeline
    tip: CheckpointMetadata | None
    replayed: int
    left: tuple[RecordedRange, ...]


class Backfill:
    """One backfill of one session, up to the fast-forward."""

    def __init__(
        self,
        context: JobContext,
        epochs: Epochs,
        leadership: Leadership,
        session: Session,
        runner: EpochRunner,
        progress: Progress,
        decision: Decision,
    ) -> None:
        self._context, self._epochs, self._leadership = context, epochs, leadership
        self._session, self._runner, self._say, self._decision = session, runner, progress, decision

    def replay(self, plan: BackfillPlan) -> tuple[TimelineId, CheckpointId]:
        """Fork, or continue the fork of an interrupted backfill; replay; fast-forward. The caller moves the sinks.

        Returns: the fork, which is the live timeline now, and its newest checkpoint, which the job continues.
        Raises:
            Busy: another session works on the fork, or has frozen the live timeline.
            CommitConflict: the live timeline was rolled back concurrently. Fenced: the fork was disposed of.
            SourceChanged, QualityGateFailed, SubtaskDeclined, …: an epoch of the fork failed.
            The live timeline is unchanged.
        """
        context = self._context
        dispose_left_behind(context, self._session, backfill_fingerprint(context, plan))
        own = fork_to_continue(context, plan)
        if own is None:
            self._say(f"fork at checkpoint {plan.fork_point}")
            fork = open_fork(context, self._session, plan)
        else:
            check_idle(context, self._session, own)
            thaw_for(context, own)
            fork = own.timeline_id
            self._say(f"continuing with fork {fork}")
        try:
            with self._thawed_at_the_end():
                tip = self._replay_on(plan, fork)
        except CheckpointError as error:
            self._explain(error, fork)
            raise
        return fork, tip

    def _replay_on(self, plan: BackfillPlan, fork: TimelineId) -> CheckpointId:
        """Replay up to the live head and switch. Returns the fork's newest checkpoint.

        The loop terminates: each epoch replays a range or processes rows in flight, and once the live timeline is
        frozen there are no new ones.
        """
        leadership = self._leadership.on_fork(fork)
        fewest, stalled = len(plan.ranges) + 1, 0
        before: _Position | None = None
        while True:
            leadership.sweep(self._session, take_over=False)
            at = self._position(plan, leadership)
            if before is not None:
                _require_progress(before, at)
            before = None
            fewest, stalled = (len(at.left), 0) if len(at.left) < fewest else (fewest, stalled + 1)
            last_stretch = len(at.left) <= plan.request.ranges_per_epoch or stalled >= _MAX_STALLED_EPOCHS
            if (last_stretch or self._has_frozen(at.state)) and self._freeze(at.state):
                at = self._position(plan, leadership)  # also replay what the live timeline ran before it
            if at.left:
                self._epoch(plan, leadership, at)
                before = at
            elif not self._is_busy(at.state) and self._fast_forward(plan, at):
                return at.fork.head

    def _position(self, plan: BackfillPlan, leadership: Leadership) -> _Position:
        """Return the progress of the fork. Raises CommitConflict: the live timeline is no longer the plan's."""
        context = self._context
        state = context.head().state
        ranges = plan.live.up_to_head(state)
        fork = leadership.timeline(state)
        tip = context.base_metadata(state, fork.head)
        left = left_to_replay(ranges, plan.base_consumed, consumed_by(context, tip))
        replayed = sum(not item.is_empty for item in ranges) - len(left)
        return _Position(state, fork, tip, replayed, left)

    def _has_frozen(self, state: ManifestState) -> bool:
        frozen = state.timeline().frozen
        return frozen is not None and frozen.session_id == self._session.session_id

    def _freeze(self, state: ManifestState) -> bool:
        """Block triggers on the live timeline for the duration of one epoch, from about now.

        Returns: whether it was not frozen before, so that the live timeline may have advanced.
        Raises: Busy: another session has frozen it.
        """
        context, hold_ms = self._context, self._context.timeout_ms
        now_ms = context.store.clock_ms()
        frozen = active_freeze(state.timeline(), now_ms) if self._has_frozen(state) else None
        if frozen is not None and frozen.until_ms - now_ms > hold_ms // 2:
            return False
        self._say("freezing the live timeline for the last stretch")
        context.transact(FreezeRequest(self._session.session_id, hold_ms))
        return frozen is None

    def _is_busy(self, state: ManifestState) -> bool:
        """Return whether an epoch of the live timeline is running, after a short wait. A dead one is swept."""
        pending = state.timeline().pending
        if pending is None:
            return False
        self._say(f"waiting for checkpoint {pending.checkpoint_id} of the live timeline")
        try:
            self._leadership.sweep(self._session, take_over=False)
        except Busy:
            sleep(_WAIT_S)
        return True

    def _epoch(self, plan: BackfillPlan, leadership: Leadership, at: _Position) -> None:
        """Run one epoch of the fork on the next ranges; on none of them while too many rows are in flight."""
        context, session = self._context, self._session
        full = over_max_in_flight(context, at.tip)
        count = 0 if full else plan.request.ranges_per_epoch
        now, later = at.left[:count], at.left[count:]
        pending, opened = leadership.own_pending(at.state, session), None
        if pending is None:
            names = {name for item in at.left for name in item.objects}.union(at.tip.sources if at.tip else ())
            lineage = plan.live.up_to_head(at.state)
            dimensions = replayed_dimensions(context, at.state, now, lineage, at.tip)
            record = replay_record(now, later, names & set(context.spec.streams), full, dimensions, at.tip)
            claim = leadership.claim(session, at.state, record, plan.code.hash)
            grant = granted_checkpoint(leadership, claim, session)
            pending = grant.pending
            if grant.assert_still_leader is not None:
                opened = OpenedEpoch(
                    claim.state, pending, record, at.tip, plan.code, plan.loaded, grant.assert_still_leader
                )
        what = f"what {_span(now)} read" if now else "rows in flight"
        self._say(f"checkpoint {pending.checkpoint_id} replays {what} and leaves {len(later)} for later")
        try:
            judged = is_judged(plan.request, at.tip)
            report = self._epochs.run_epoch(session, pending.checkpoint_id, self._runner, opened=opened, judged=judged)
            report.verdict.raise_if_vetoed(context.spec.name, pending.checkpoint_id)
            _check_read(report.metadata)
            self._epochs.complete(session, pending.checkpoint_id, report)
        except BaseException as error:
            token = None if opened is None else opened.pending.token
            leadership.give_up(session, pending.checkpoint_id, error, None, token)
            raise

    def _fast_forward(self, plan: BackfillPlan, at: _Position) -> bool:
        """Make the fork the live timeline. Returns False if a head has moved since `at` was read."""
        context = self._context
        head = at.state.timeline().head
        check_equal(plan.live.consumed(context.base_metadata(at.state, head)), consumed_by(context, at.tip))
        check_tables_can_follow(context, at.tip)
        self._say("fast-forward")
        decision = switch_decision(SwitchAct.BACKFILL, f"from checkpoint {plan.fork_point}", self._decision)
        request = FastForwardRequest(
            self._session.session_id,
            at.fork.timeline_id,
            expected_main_head=head,
            expected_fork_head=at.fork.head,
            sinks=tuple(sorted(sink.name for sink in context.spec.sinks)),
            decided_by=decision,
        )
        try:
            context.transact(request)
        except (CommitConflict, Busy) as moved:  # the freeze had expired, so the live timeline advanced
            if context.head().state.version == at.state.version:
                raise  # no head moved, so another attempt would fail in the same way
            _LOG.info("%s; replaying what it did", moved.message)
            return False
        return True

    @contextmanager
    def _thawed_at_the_end(self) -> Iterator[None]:
        """Release the freeze when the block ends. After a fast-forward there is none."""
        try:
            yield
        finally:
            request = ThawRequest(self._session.session_id)
            try:
                self._context.transact(request)
            except CheckpointError as error:  # the freeze expires by itself
                _LOG.warning("the live timeline was not thawed now: %s", error.message)

    def _explain(self, error: CheckpointError, fork: TimelineId) -> None:
        error.details.setdefault("fork", fork)
        if isinstance(error, Fenced | CommitOutcomeUnknown):
            return  # the fork was disposed of, or the outcome is unknown
        hint = f"The live timeline is unchanged; the same backfill, with the same code and spec, continues fork {fork}"
        error.add_hint(hint)


def _span(ranges: Sequence[RecordedRange]) -> str:
    first, last = ranges[0].checkpoint_id, ranges[-1].checkpoint_id
    return f"checkpoint {first}" if first == last else f"checkpoints {first} to {last}"


def _require_progress(before: _Position, at: _Position) -> None:
    """Raise ProtocolViolation if an epoch made no progress, so that the replay would never end."""
    processed = at.tip is not None and any(sum(item.processed_bytes) for item in at.tip.operators.values())
    if at.replayed == before.replayed and not processed:
        raise ProtocolViolation(
            f"checkpoint {at.fork.head} of fork {at.fork.timeline_id} replayed none of the {len(before.left)} ranges "
            "that are left, and processed no row in flight. The live timeline is unchanged.",
            hint=f"milepost backfill {at.state.job} --dispose disposes of the fork",
        )


def _check_read(metadata: CheckpointMetadata) -> None:
    """Refuse an epoch that skipped an object (`on_missing: skip`), since it does not replay the recorded input."""
    gone = {name: list(source.missing) for name, source in metadata.sources.items() if source.missing}
    if gone:
        names = ", ".join(f"{name}: {key}" for name, keys in gone.items() for key in keys)
        raise SourceChanged(
            f"checkpoint {metadata.checkpoint_id}: missing objects to replay: {names}. Nothing of it is published.",
            hint="put the recorded versions back and run the same backfill again",
            missing=gone,
        )
