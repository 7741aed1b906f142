"""Move every sink to the live timeline after a switch, before any other commit (I14).

Order of a switch:
1. The manifest transition, which lists the sinks.
2. Each table's move to the contents at the switch's checkpoint, in one commit that carries the switch's version.
3. The confirmation that the sink has followed (manifest).
After a crash the next session completes the remaining steps; until then no epoch is triggered. A delayed commit of the
old timeline can land before a sink's move, which then undoes it, but never after it. A realignment is the same for a
single sink, whatever its table shows.
"""

from __future__ import annotations

import logging

from milepost.epoch import CheckpointMetadata
from milepost.errors import CheckpointError, Fenced, InvalidRequest
from milepost.jobmaster.job.checks.store_checks import require_stores
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.table_contents import contents_at, retained_ids, sink_for
from milepost.protocol.log import event_name
from milepost.protocol.manifest.transaction import ReconcileSinkRequest, TimelineSwitched
from milepost.protocol.records import ENDED_STATUSES, MAIN_TIMELINE, ManifestState, Reconciliation
from milepost.sinks import Sink, TableTarget
from milepost.tables.records import Mark

_LOG = logging.getLogger(__name__)


class SinkReconciler:
    """Moves the sinks of one job to its live timeline."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def finish(self, session: Session, state: ManifestState | None = None) -> tuple[str, ...]:
        """Move every sink that has yet to follow. Returns their names; () if there are none.

        The others follow even if one fails.

        Args:
            state: the head, just read; None: read it.
        Raises: the first failed sink's error, with the state of the switch. Fenced: a newer switch landed concurrently.
        """
        state = self._context.head().state if state is None else state
        switch = state.reconciliation
        if switch is None:
            return ()
        target = self._context.base_metadata(state, switch.checkpoint_id)
        failed: dict[str, CheckpointError] = {}
        now = state
        for name in switch.sinks:
            try:
                now = self._follow(session, state, switch, target, name)
            except CheckpointError as error:
                failed[name] = error
                _LOG.warning("sink %s has yet to follow timeline %s: %s", name, switch.timeline, error.message)
        if failed:
            now = self._context.head().state
        if now.live != switch.timeline:
            raise Fenced(
                f"job {state.job}: while its sinks followed timeline {switch.timeline} to checkpoint "
                f"{switch.checkpoint_id}, another session switched to timeline {now.live}. That one counts, and the "
                "tables follow it.",
                hint=f"milepost history {state.job} says who, and where to",
                timeline=now.live,
            )
        if failed:
            raise _delayed(now, switch, failed)
        return switch.sinks

    def admit(self, session: Session, state: ManifestState, base: CheckpointMetadata | None) -> None:
        """Move sinks that returned to the spec past the switches that they missed, before an epoch is planned.

        A sink that is part of the head has missed none, unless the newest switch led to that head.

        Args:
            base: metadata of the head that the epoch continues.
        Raises: as the sink; no epoch was planned. InvalidRequest: its table cannot show the base.
        """
        if state.live == MAIN_TIMELINE:  # there was no switch
            return
        newest = state.head()
        has_gone_on = newest is not None and newest.timeline == state.live
        for spec in self._context.spec.sinks:
            if newest is not None and has_gone_on and spec.name in newest.sinks:
                continue
            contents = contents_at(self._context, base, spec.name)
            sink = sink_for(self._context, spec.name, contents)
            shown = sink.position()
            left = 0 if contents is None else contents.checkpoint_id
            if shown.mark is not None and shown.checkpoint_id != left:
                require_stores(self._context)  # a run without input may get here first, and this call writes
                _LOG.info("sink %s is available again: it follows timeline %s", spec.name, state.live)
                self._move(state, self._number_of_return(state, sink, shown.mark), base, spec.name)

    def _follow(
        self,
        session: Session,
        state: ManifestState,
        switch: Reconciliation,
        target: CheckpointMetadata | None,
        name: str,
    ) -> ManifestState:
        """Move one sink and confirm that. Returns the head after the confirmation."""
        if name not in {sink.name for sink in self._context.spec.sinks}:
            raise InvalidRequest(
                f"sink {name}: it has yet to follow timeline {switch.timeline} back to checkpoint "
                f"{switch.checkpoint_id}, and the spec no longer has it. Nothing of its table was changed.",
                hint="put the sink back until it has followed",
                sink=name,
            )
        self._move(state, switch.decision, target, name, realigns=name in switch.realigned)
        return self._context.transact(ReconcileSinkRequest(session.session_id, switch.decision, name)).state

    def _number_of_return(self, state: ManifestState, sink: Sink, shown: Mark) -> int:
        """Return the number of the move of a returning table: the manifest version of the newest switch.

        If a migration switched the sink to another table, that table may already have this number. Then it is the
        version of the head, which is later and is not a decision.
        """
        switch = next(
            entry.version for entry in self._context.log.entries() if event_name(entry) == TimelineSwitched.__name__
        )
        taken = any(mark.number == switch and mark.table_id != shown.table_id for mark in sink.marks(above=switch - 1))
        return state.version if taken else switch

    def _move(
        self,
        state: ManifestState,
        decision: int,
        target: CheckpointMetadata | None,
        name: str,
        *,
        realigns: bool = False,
    ) -> None:
        contents = contents_at(self._context, target, name)
        sink = sink_for(self._context, name, contents)
        retained = retained_ids(state)
        moved = sink.move(TableTarget(decision, state.live, contents, realigns=realigns, retained=retained))
        shown = 0 if contents is None else contents.checkpoint_id
        _LOG.info("sink %s: timeline %s, checkpoint %s%s", name, state.live, shown, "" if moved else ", already")


def _delayed(state: ManifestState, switch: Reconciliation, failed: dict[str, CheckpointError]) -> CheckpointError:
    job, first = state.job, next(iter(failed.values()))
    again = f"milepost {'start' if state.status in ENDED_STATUSES else 'run'} {job}"
    return type(first)(
        f"job {job} is at checkpoint {switch.checkpoint_id} of timeline {switch.timeline}; sinks that have yet to "
        f"follow: {', '.join(failed)}. {first.message} Nothing is lost: no epoch is triggered until they have "
        "followed, and the next run, start or rollback lets them follow first.",
        hint=first.hint or f"bring the sinks back, then: {again}",
        **first.details | {"reconciling": list(failed), "checkpoint_id": int(switch.checkpoint_id)},
    )
