"""A table goes wherever a checkpoint's contents say: what that would change, and whether it can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.dataflow.sinks.contents import TableContents
from milepost.dataflow.sinks.contract import SinkChange
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.errors import (
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    PlanOutdated,
    StoreUnavailable,
)
from milepost.storage.at_once import at_once

SINK_UNAVAILABLE = (StoreUnavailable, CommitOutcomeUnknown, EnvironmentUnusable)
"""What a sink raises that does not answer: it follows later, and delays the next epoch until then."""


def contents_at(context: JobContext, target: CheckpointMetadata | None, name: str) -> TableContents | None:
    """Return what a sink's table consists of at a checkpoint; None: nothing.

    Args:
        target: of the checkpoint; None for 0, the empty state.
    Raises:
        InvalidRequest: its path leads elsewhere than at that checkpoint.
    """
    contents = target.tables.get(name) if target is not None else None
    if target is None or contents is None:
        return None
    if contents.location != context.sink_location(name):
        raise InvalidRequest(
            f"sink {name}: at checkpoint {target.checkpoint_id} its table was elsewhere; the path "
            f"{context.spec.sink(name).path} now leads to another place. Nothing of the table was changed.",
            hint="set path, environment or endpoint back, or give the sink a new name to begin a new table",
            sink=name,
        )
    return contents


@dataclass(frozen=True, slots=True)
class SinkPreview:
    """What a table would do to show a checkpoint.

    Attributes:
        position: where it is now, in words.
        undo_limits: what a move cannot undo, for people.
    """

    change: SinkChange
    position: str
    undo_limits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SilentSink:
    """A sink that does not answer now, and why."""

    problem: str


def preview_sinks(context: JobContext, target: CheckpointMetadata | None) -> dict[str, SinkPreview | SilentSink]:
    """Look what each table of the spec would do to show a checkpoint. Changes nothing. Raises as `contents_at`."""

    def preview(name: str) -> SinkPreview | SilentSink:
        try:
            sink = context.sink(name)
            change = sink.compare(contents_at(context, target, name))
            return SinkPreview(change, str(change.position), tuple(sink.undo_limits()))
        except SINK_UNAVAILABLE as error:
            return SilentSink(error.message)

    names = [spec.name for spec in context.spec.sinks]
    return dict(zip(names, at_once(context.store, preview, names), strict=True))


def check_positions(context: JobContext, planned: Mapping[str, str]) -> None:
    """Raise PlanOutdated when a table is not where it was, in words; one that does not answer is not asked."""
    for name, position in planned.items():
        try:
            now = str(context.sink(name).position())
        except SINK_UNAVAILABLE:
            continue
        if now != position:
            raise PlanOutdated(
                f"sink {name}: its table has moved since the plan: {position} then, {now} now. Nothing was changed.",
                hint="look at a new plan",
                sink=name,
            )


def check_routes(context: JobContext, target: CheckpointMetadata | None) -> None:
    """Refuse a switch that some table could not follow, right before it. A sink that does not answer may follow later.

    Args:
        target: of the checkpoint that the job would continue; None for the empty state.
    Raises:
        InvalidRequest, StateCorrupt: a table cannot show the target.
    """
    for spec in context.spec.sinks:
        try:
            context.sink(spec.name).check(contents_at(context, target, spec.name))
        except SINK_UNAVAILABLE:
            continue
