"""What the next epoch of a job would read: each source's listing against what it has consumed."""

from __future__ import annotations

from pipeline.job_context import JobContext
from pipeline.metadata import CheckpointMetadata
from pipeline.planning import SourceInput, source_input
from pipeline.sources.consumed import ConsumedSet, load
from pipeline.sources.objects import list_objects
from pipeline.sources.plan import plan_source
from pipeline.storage.open import open_store


def plan_inputs(context: JobContext, base: CheckpointMetadata | None) -> tuple[SourceInput, ...]:
    """Plan every source, in name order. Reads listings only, never data.

    Raises:
        SourceChanged: a consumed object has another version now, and the source says `on_change: fail`.
        StateCorrupt: the set of consumed objects cannot be read.
        EnvironmentUnusable: a bucket is missing, or access is denied.
    """
    inputs = []
    for name in sorted(context.spec.sources):
        spec = context.spec.sources[name]
        store, pattern = context.source(name)
        snapshot = base.sources.get(name) if base is not None else None
        consumed = load(context.store, snapshot.consumed) if snapshot is not None else ConsumedSet.empty()
        start = spec.start if spec.start_time_ms is None else spec.start_time_ms
        plan = plan_source(
            name,
            list_objects(open_store(store), pattern),
            consumed,
            max_files=spec.limits_per_epoch.max_files,
            max_bytes=spec.limits_per_epoch.max_bytes,
            start=start,
            on_change=spec.on_change,
            first_epoch=snapshot is None,
        )
        inputs.append(source_input(name, plan))
    return tuple(inputs)


def has_unrecorded_start(context: JobContext, base: CheckpointMetadata | None) -> bool:
    """Whether a source with `start: latest` still has to record where it starts.

    Its first epoch runs even when it finds nothing: else what lands before the second trigger would pass for old.
    """
    known = base.sources if base is not None else {}
    return any(spec.start == "latest" and name not in known for name, spec in context.spec.sources.items())
