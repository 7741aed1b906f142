"""A sink's route says how its table comes to show a checkpoint: what is there already, and what was never published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.dataflow.sinks.committables import Committable, SinkChange, SinkMark
from milepost.dataflow.sinks.contract import CommittingSink
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.errors import (
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    PlanOutdated,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.storage.at_once import at_once

SINK_UNAVAILABLE = (StoreUnavailable, CommitOutcomeUnknown, EnvironmentUnusable)
"""What a sink raises that does not answer: it follows later, and delays the next epoch until then."""


@dataclass(frozen=True, slots=True)
class SinkRoute:
    """How a table comes to show a checkpoint.

    Attributes:
        position: newest checkpoint of that lineage that the sink was part of; 0 for the empty table.
        base: newest mark of that lineage in the table's history; None for the empty table.
        missing: what lies between the two and was never published, in order: checkpoint and committable.
    """

    position: CheckpointId
    base: SinkMark | None
    missing: tuple[tuple[CheckpointId, Committable], ...]


def find_route(
    context: JobContext, state: ManifestState, target: CheckpointMetadata | None, name: str, sink: CommittingSink
) -> SinkRoute:
    """Find how a sink's table comes to show a checkpoint.

    Args:
        target: of the checkpoint; None for 0, the empty state.
    Raises:
        InvalidRequest: its path leads elsewhere than at that checkpoint, or what was to be published to it there is
            neither in its table nor retained. StoreUnavailable: the sink does not answer.
    """
    left = target.marks.get(name) if target is not None else None
    if target is None or left is None:
        return SinkRoute(CheckpointId(0), None, ())
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
            return SinkRoute(CheckpointId(left.checkpoint_id), base, tuple(reversed(missing)))
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
    return SinkRoute(CheckpointId(left.checkpoint_id), None, tuple(reversed(missing)))


@dataclass(frozen=True, slots=True)
class SinkPreview:
    """What a table would do to show a checkpoint.

    Attributes:
        publishes: checkpoints that it publishes on the way. position: where it is now, by `position_of`.
        undo_limits: what following cannot undo, for people.
    """

    change: SinkChange
    publishes: tuple[int, ...]
    position: str
    undo_limits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SilentSink:
    """A sink that does not answer now, and why."""

    problem: str


def preview_sinks(
    context: JobContext, state: ManifestState, target: CheckpointMetadata | None
) -> dict[str, SinkPreview | SilentSink]:
    """Look what each table of the spec would do to show a checkpoint. Changes nothing. Raises as `find_route`."""

    def preview(name: str) -> SinkPreview | SilentSink:
        try:
            sink = context.sink(name).as_it_stands()
            route = find_route(context, state, target, name, sink)
            change = sink.compare(route.base, route.missing)
            publishes = tuple(int(checkpoint_id) for checkpoint_id, _ in route.missing)
            return SinkPreview(change, publishes, position_of(sink), tuple(sink.undo_limits()))
        except SINK_UNAVAILABLE as error:
            return SilentSink(error.message)

    names = [spec.name for spec in context.spec.sinks]
    return dict(zip(names, at_once(context.store, preview, names), strict=True))


def position_of(sink: CommittingSink) -> str:
    """Return where a sink's table is now, in words that can be compared."""
    head = sink.head()
    return "nothing was published" if head is None else f"checkpoint {head.checkpoint_id} of timeline {head.timeline}"


def check_positions(context: JobContext, planned: Mapping[str, str]) -> None:
    """Raise PlanOutdated when a table is not where it was, by `position_of`; one that does not answer is not asked."""
    for name, position in planned.items():
        try:
            now = position_of(context.sink(name))
        except SINK_UNAVAILABLE:
            continue
        if now != position:
            raise PlanOutdated(
                f"sink {name}: its table has moved since the plan: {position} then, {now} now. Nothing was changed.",
                hint="look at a new plan",
                sink=name,
            )


def check_routes(context: JobContext, state: ManifestState, target: CheckpointMetadata | None) -> None:
    """Refuse a switch that some table could not follow, right before it. A sink that does not answer may follow later.

    Args:
        target: of the checkpoint that the job would continue; None for the empty state.
    Raises:
        InvalidRequest, StateCorrupt: a table cannot show the target.
    """
    for spec in context.spec.sinks:
        try:
            sink = context.sink(spec.name).as_it_stands()
            route = find_route(context, state, target, spec.name, sink)
            sink.check_follow(route.base, route.missing)
        except SINK_UNAVAILABLE:
            continue
