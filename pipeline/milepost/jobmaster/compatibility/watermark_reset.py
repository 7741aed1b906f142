"""Reset the watermark of a source after its event time is parsed differently."""

from __future__ import annotations

from dataclasses import replace

from milepost.epoch import CheckpointMetadata, SourceSnapshot
from milepost.jobspec.graph import JobGraph, retimed_sources, state_signatures
from milepost.jobspec.job import JobSpec


def reset_watermarks(spec: JobSpec, graph: JobGraph, base: CheckpointMetadata) -> CheckpointMetadata:
    """Return the checkpoint to continue, without watermarks of sources that now parse their event time differently.

    Example: a source read 1_700_000_000 as seconds, so its watermark is in 2023. If the spec now reads the column as
    milliseconds, the same number is in January 1970 and every row would be late. The firing watermarks of operators
    downstream of such a source are reset as well.
    """
    retimed = retimed_sources(base.signatures, state_signatures(spec, graph))
    if not retimed:
        return base
    downstream = {node.uid for node in graph.stateful if retimed.keys() & {*node.sources}}
    return replace(
        base,
        sources={
            name: _without_event_times(source) if name in retimed else source for name, source in base.sources.items()
        },
        operators={
            uid: replace(snapshot, firing=(None,) * len(snapshot.firing)) if uid in downstream else snapshot
            for uid, snapshot in base.operators.items()
        },
    )


def _without_event_times(source: SourceSnapshot) -> SourceSnapshot:
    return replace(source, watermark_us=None, newest_event_us=None, furthest_us=None, ahead_since=None, partitions={})
