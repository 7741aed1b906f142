"""The watermark of a source begins anew when its event time is read in another way."""

from __future__ import annotations

from dataclasses import replace

from milepost.epoch.metadata import CheckpointMetadata, SourceSnapshot
from milepost.jobspec.graph.compatibility import retimed_sources, state_signatures
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.job.spec import JobSpec


def reset_watermarks(spec: JobSpec, graph: JobGraph, base: CheckpointMetadata | None) -> CheckpointMetadata | None:
    """Return the checkpoint to continue, without watermarks that were made of other event times than the spec's.

    Times that were read in seconds say nothing about the same numbers in milliseconds: below the former watermark every
    row would be late. The operators that go on downstream have nothing to fire.
    """
    if base is None:
        return None
    retimed = retimed_sources(base.signatures, state_signatures(spec, graph))
    if not retimed:
        return base
    downstream = {node.uid for node in graph.stateful if retimed.keys() & {*node.sources}}
    return replace(
        base,
        sources={name: _without_times(source) if name in retimed else source for name, source in base.sources.items()},
        operators={
            uid: replace(one, firing=(None,) * len(one.firing)) if uid in downstream else one
            for uid, one in base.operators.items()
        },
    )


def _without_times(source: SourceSnapshot) -> SourceSnapshot:
    return replace(source, watermark_us=None, newest_event_us=None, furthest_us=None, ahead_since=None)
