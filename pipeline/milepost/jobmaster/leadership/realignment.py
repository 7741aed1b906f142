"""After a switch of the live timeline every sink follows it, before anything else is committed there (I14).

Order of a switch: the manifest transition, which lists the sinks -> each sink's new head: its table as of the switch's
checkpoint, under the new timeline -> the fact that it has followed (manifest). Stopped between any two, whoever comes
next does what is left; until then no epoch is triggered. A commit of the old timeline that was held up can land before
a sink has followed, which then undoes it, and never after.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from milepost.dataflow.sinks.contract import Committable, SinkMark
from milepost.dataflow.sinks.parquet import ParquetSink
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.protocol.codec.log_entries import event_name
from milepost.protocol.manifest import coordinator
from milepost.protocol.manifest.transaction.events import TimelineSwitched
from milepost.protocol.manifest.transaction.requests import RealignSinkRequest
from milepost.protocol.records.errors import CheckpointError, Fenced, InvalidRequest, StateCorrupt
from milepost.protocol.records.ids import MAIN_TIMELINE, CheckpointId
from milepost.protocol.records.manifest_state import ENDED, ManifestState, Realignment

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """How a table comes to show a checkpoint.

    Attributes:
        position: newest checkpoint of that lineage that the sink was part of; 0 for the empty table.
        base: newest mark of that lineage in the table's history; None for the empty table.
        missing: what lies between the two and was never published, in order: checkpoint and committable.
    """

    position: CheckpointId
    base: SinkMark | None
    missing: tuple[tuple[CheckpointId, Committable], ...]


def route(
    context: JobContext, state: ManifestState, target: CheckpointMetadata | None, name: str, sink: ParquetSink
) -> Route:
    """Find how a sink's table comes to show a checkpoint.

    Args:
        target: of the checkpoint; None for 0, the empty state.
    Raises:
        InvalidRequest: its path leads elsewhere than at that checkpoint, or what was to be published to it there is
            neither in its table nor retained. StoreUnavailable: the sink does not answer.
    """
    left = target.marks.get(name) if target is not None else None
    if target is None or left is None:
        return Route(CheckpointId(0), None, ())
    if left.location != context.sink_location(name):
        raise InvalidRequest(
            f"sink {name}: at checkpoint {target.checkpoint_id} its table was elsewhere; the path "
            f"{context.spec.sink(name).path} now leads to another place. Nothing of the table was changed.",
            hint="set path, environment or endpoint back, or give the sink a new name to begin a new table",
            sink=name,
        )
    missing: list[tuple[CheckpointId, Committable]] = []
    at: int | None = left.checkpoint_id
    while at:
        base = sink.find(at)
        if base is not None:
            return Route(CheckpointId(left.checkpoint_id), base, tuple(reversed(missing)))
        checkpoint = state.checkpoint(CheckpointId(at))
        if checkpoint is None:
            raise InvalidRequest(
                f"sink {name}: its table cannot show checkpoint {target.checkpoint_id}: checkpoint {at} before it was "
                "never published there and is not retained any more. Nothing of the table was changed.",
                hint="choose another checkpoint (milepost list), or give the sink a new name to begin a new table",
                sink=name,
                checkpoint_id=at,
            )
        snapshot = context.metadata(checkpoint).sinks.get(name)
        if snapshot is None:
            raise StateCorrupt(
                f"checkpoint {at} is said to be the last of sink {name}, and has nothing of it. Nothing was changed.",
                hint=f"milepost verify {state.job}",
                sink=name,
            )
        missing.append((CheckpointId(at), snapshot.committable))
        at = snapshot.predecessor
    return Route(CheckpointId(left.checkpoint_id), None, tuple(reversed(missing)))


class Realigner:
    """Lets the sinks of one job follow its live timeline."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def finish(self, session: Session) -> tuple[str, ...]:
        """Let every sink follow that has yet to. Returns their names; () when none had.

        A sink that fails does not keep the others from following.
        Raises: the first sink's error, which also says what is true. Fenced: a newer switch came meanwhile.
        """
        state = self._context.head().state
        switch = state.realignment
        if switch is None:
            return ()
        target = self._context.base_metadata(state, switch.checkpoint_id)
        failed: dict[str, CheckpointError] = {}
        for name in switch.sinks:
            try:
                self._follow(session, state, switch, target, name)
            except CheckpointError as error:
                failed[name] = error
                _LOG.warning("sink %s has yet to follow timeline %s: %s", name, switch.timeline, error.message)
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
        """Let a sink that comes back to the spec follow the switches that it has missed, before an epoch is planned.

        A sink that has shown the head, on the live timeline, missed none.

        Args:
            base: of the head that the epoch continues.
        Raises: what the sink raises; no epoch was planned. InvalidRequest: its table cannot show the base.
        """
        if state.live == MAIN_TIMELINE:  # there was no switch
            return
        newest = state.head()
        on_live = newest is not None and newest.timeline == state.live
        known = set(newest.sinks) - set(newest.unpublished) if newest is not None and on_live else set()
        for spec in self._context.spec.sinks:
            head = None if spec.name in known else self._context.sink(spec.name).head()
            if head is not None and head.timeline != state.live:
                _LOG.info("sink %s is back: it follows timeline %s", spec.name, state.live)
                self._write(state, self._newest_switch(), base, spec.name)

    def _follow(
        self,
        session: Session,
        state: ManifestState,
        switch: Realignment,
        target: CheckpointMetadata | None,
        name: str,
    ) -> None:
        if name not in {sink.name for sink in self._context.spec.sinks}:
            raise InvalidRequest(
                f"sink {name}: it has yet to follow timeline {switch.timeline} back to checkpoint "
                f"{switch.checkpoint_id}, and the spec no longer has it. Nothing of its table was changed.",
                hint="put the sink back until it has followed",
                sink=name,
            )
        self._write(state, switch.decision, target, name)
        request = RealignSinkRequest(session.session_id, switch.decision, name)
        self._context.transact(lambda now_state, now: coordinator.realign_sink(now_state, request, now))

    def _newest_switch(self) -> int:
        """The manifest version of the newest switch: what a sink follows is ordered by it."""
        return next(
            entry.version for entry in self._context.log.entries() if event_name(entry) == TimelineSwitched.__name__
        )

    def _write(self, state: ManifestState, decision: int, target: CheckpointMetadata | None, name: str) -> None:
        sink = self._context.sink(name)
        way = route(self._context, state, target, name, sink)
        mark = SinkMark(state.live, way.position, way.base.checkpoint_id if way.base is not None else None)
        written = sink.follow(base=way.base, committables=way.missing, mark=mark, decision=decision)
        _LOG.info(
            "sink %s: timeline %s, checkpoint %s%s", name, state.live, way.position, "" if written else ", already"
        )


def _delayed(state: ManifestState, switch: Realignment, failed: dict[str, CheckpointError]) -> CheckpointError:
    job, first = state.job, next(iter(failed.values()))
    again = f"milepost {'start' if state.status in ENDED else 'run'} {job}"
    return type(first)(
        f"job {job} is at checkpoint {switch.checkpoint_id} of timeline {switch.timeline}; sinks that have yet to "
        f"follow: {', '.join(failed)}. {first.message} Nothing is lost: no epoch is triggered until they have "
        "followed, and the next run, start or rollback lets them follow first.",
        hint=first.hint or f"bring the sinks back, then: {again}",
        **first.details | {"realigning": list(failed), "checkpoint_id": int(switch.checkpoint_id)},
    )
