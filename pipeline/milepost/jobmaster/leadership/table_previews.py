"""Looks at tables before a switch: what it would change, whether each can follow, whether each is where it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import (
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    PlanOutdated,
    StoreUnavailable,
)
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import contents_at, sink_for
from milepost.sinks.contract import SinkChange
from milepost.storage.concurrency.parallel_map import parallel_map

SINK_UNAVAILABLE = (StoreUnavailable, CommitOutcomeUnknown, EnvironmentUnusable)
"""What a sink raises that does not answer: it follows later, and delays the next epoch until then."""


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
class UnavailableSink:
    """A sink that does not answer now, and why."""

    problem: str


def preview_sinks(context: JobContext, target: CheckpointMetadata | None) -> dict[str, SinkPreview | UnavailableSink]:
    """Look what each table of the spec would do to show a checkpoint. Changes nothing. Raises as `contents_at`."""

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
    """Raise PlanOutdated when a table is not where it was, in words; one that does not answer is not asked.

    Args:
        target: of the checkpoint that the tables are to show. planned: position by sink.
    """
    for name, position in planned.items():
        try:
            now = str(sink_for(context, name, contents_at(context, target, name)).position())
        except SINK_UNAVAILABLE:
            continue
        if now != position:
            raise PlanOutdated(
                f"sink {name}: its table has moved since the plan: {position} then, {now} now. Nothing was changed.",
                hint="look at a new plan",
                sink=name,
            )


def check_tables_can_follow(context: JobContext, target: CheckpointMetadata | None) -> None:
    """Refuse a switch that some table could not follow, right before it. A sink that does not answer may follow later.

    Args:
        target: of the checkpoint that the job would continue; None for the empty state.
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
    """Yield what sinks cannot undo, in words, what several of them say once. Args: limits: by sink."""
    sinks: dict[str, list[str]] = {}
    for name, said in limits.items():
        for limit in said:
            sinks.setdefault(limit, []).append(name)
    for limit, names in sinks.items():
        yield f"{'sink' if len(names) == 1 else 'sinks'} {', '.join(names)}: {limit}"


def fate_of_dropped(name: str) -> str:
    """Return what becomes of the table of a sink that the spec has dropped."""
    return f"sink {name} is not in the spec any more: its table stays as it is; it follows when the sink comes back"
