"""Read tables before a switch: what it changes, whether each table can follow, and its position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata
from milepost.errors import (
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    PlanOutdated,
    StoreUnavailable,
)
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import contents_at, sink_for
from milepost.sinks import SinkChange
from milepost.storage.concurrency import parallel_map

SINK_UNAVAILABLE = (StoreUnavailable, CommitOutcomeUnknown, EnvironmentUnusable)
"""Errors of a sink that does not answer. It follows later, and the next epoch waits for it."""


@dataclass(frozen=True, slots=True)
class SinkPreview:
    """What changes in a table that is moved to a checkpoint.

    Attributes:
        position: its current position, as text.
        undo_limits: what a move cannot undo, for people.
    """

    change: SinkChange
    position: str
    undo_limits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnavailableSink:
    """A sink that does not answer now, and why."""

    problem: str


def preview_sinks(context: JobContext, target: CheckpointMetadata | None) -> dict[str, SinkPreview | UnavailableSink]:
    """Return what a move to a checkpoint changes in each table of the spec. Read-only. Raises as `contents_at`."""

    def preview(name: str) -> SinkPreview | UnavailableSink:
        try:
            contents = contents_at(context, target, name)
            sink = sink_for(context, name, contents)
            change = sink.compare(contents)
            return SinkPreview(change, str(change.position), tuple(sink.undo_limits()))
        except SINK_UNAVAILABLE as error:
            return UnavailableSink(error.message)

    names = [spec.name for spec in context.spec.sinks]
    return dict(zip(names, parallel_map(context.store, preview, names), strict=True))


def check_positions(context: JobContext, target: CheckpointMetadata | None, planned: Mapping[str, str]) -> None:
    """Raise PlanOutdated if a table's position is not the planned one. A sink that does not answer is skipped.

    Args:
        target: metadata of the checkpoint that the tables should show. planned: position by sink, as text.
    """
    for name, position in planned.items():
        try:
            now = str(sink_for(context, name, contents_at(context, target, name)).position())
        except SINK_UNAVAILABLE:
            continue
        if now != position:
            raise PlanOutdated(
                f"sink {name}: its table has moved since the plan: {position} then, {now} now. Nothing was changed.",
                hint="review a new plan",
                sink=name,
            )


def check_tables_can_follow(context: JobContext, target: CheckpointMetadata | None) -> None:
    """Refuse a switch that a table could not follow, right before it. A sink that does not answer is skipped.

    Args:
        target: metadata of the checkpoint that the job would continue; None for the empty state.
    Raises:
        InvalidRequest, StateCorrupt: a table cannot show the target.
    """
    for spec in context.spec.sinks:
        try:
            contents = contents_at(context, target, spec.name)
            sink_for(context, spec.name, contents).check(contents)
        except SINK_UNAVAILABLE:
            continue


def undo_limits(limits: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what sinks cannot undo, as text, with equal limits of several sinks merged. Args: limits: by sink."""
    sinks: dict[str, list[str]] = {}
    for name, sink_limits in limits.items():
        for limit in sink_limits:
            sinks.setdefault(limit, []).append(name)
    for limit, names in sinks.items():
        yield f"{'sink' if len(names) == 1 else 'sinks'} {', '.join(names)}: {limit}"


def fate_of_dropped(name: str) -> str:
    """Describe the effect on the table of a sink that the spec no longer has."""
    return f"sink {name} is no longer in the spec: its table is not changed. It follows once the spec has it again"
