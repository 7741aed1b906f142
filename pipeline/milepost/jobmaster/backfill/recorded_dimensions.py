"""Find the dimension snapshots that the epochs replayed by a backfill looked rows up in."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.epoch import CheckpointMetadata, DimensionInput, DimensionSnapshot
from milepost.jobmaster.backfill.replay import RecordedRange
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.next_dimensions import dimension_inputs, plan_dimensions
from milepost.protocol.records import ManifestState


def replayed_dimensions(
    context: JobContext,
    state: ManifestState,
    replayed: Sequence[RecordedRange],
    lineage: Sequence[RecordedRange],
    tip: CheckpointMetadata | None,
) -> dict[str, DimensionInput]:
    """Return, by static source, the dimension snapshot of one epoch of a fork.

    That is the snapshot of the last epoch that it replays. If that checkpoint is subsumed, and its copy deleted, it is
    the snapshot of the next retained checkpoint of the live ancestry. A source without a recorded snapshot is read as
    it is now.

    Args:
        replayed: the ranges that the epoch replays. If empty, the epoch processes rows in flight with the tip's
            snapshots.
        lineage: every range up to the live head. tip: the fork's newest checkpoint.
    """
    if not context.spec.dimensions:
        return {}
    inputs: dict[str, DimensionInput] = {}
    for name in sorted(context.spec.dimensions):
        from_tip = tip.dimensions.get(name) if tip is not None else None
        recorded = recorded_dimension(context, state, replayed, lineage, name) if replayed else from_tip
        if recorded is not None:
            inputs[name] = DimensionInput(recorded.objects, recorded)
    if inputs.keys() == context.spec.dimensions.keys():
        return inputs
    return dimension_inputs(plan_dimensions(context)) | inputs


def recorded_dimension(
    context: JobContext,
    state: ManifestState,
    replayed: Sequence[RecordedRange],
    lineage: Sequence[RecordedRange],
    name: str,
) -> DimensionSnapshot | None:
    """Return the snapshot of a static source, as of the last replayed range or the next retained checkpoint."""
    for range_ in lineage:
        checkpoint = (
            state.checkpoint(range_.checkpoint_id) if range_.checkpoint_id >= replayed[-1].checkpoint_id else None
        )
        if checkpoint is not None and name in (dimensions := context.metadata(checkpoint).dimensions):
            return dimensions[name]
    return None
