"""Collect what the live timeline has consumed since a fork point, while it may advance."""

from __future__ import annotations

from milepost.epoch import CheckpointMetadata, watermark_of, watermark_text
from milepost.errors import CommitConflict
from milepost.jobmaster.backfill.consumed_input import Consumed, consumed_by, without_quarantined
from milepost.jobmaster.backfill.replay import RecordedRange, lineage_since, recorded_ranges
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records import CheckpointId, ManifestState


class LiveRanges:
    """The ranges that the live timeline has consumed since a checkpoint, extended as it advances.

    Args:
        state: of the plan. Its quarantined objects are left out, unless they are released and read
            after the plan. point: the checkpoint, 0 for
            the empty state. base: its metadata.
    """

    def __init__(
        self, context: JobContext, state: ManifestState, point: CheckpointId, base: CheckpointMetadata | None
    ) -> None:
        self.live = state.live
        self.base_consumed = consumed_by(context, base)
        self._quarantined, self._planned = state.quarantined, state.timeline().head
        self._context = context
        self._head, self._consumed = point, self.base_consumed
        self._ends = watermark_text(watermark_of(base)) if base is not None else None
        self._ranges: tuple[RecordedRange, ...] = ()

    def up_to_head(self, state: ManifestState) -> tuple[RecordedRange, ...]:
        """Return the ranges up to the live head of `state`, in order, empty ones included.

        Raises:
            CommitConflict: another timeline is live now. Also as `recorded_ranges`.
        """
        if state.live != self.live:
            raise CommitConflict(
                f"job {state.job}: the live timeline is now {state.live}, not {self.live}, because of a rollback or "
                "the fast-forward of another fork. It was not changed.",
                hint="review the plan again, then run the backfill again",
                live=state.live,
                planned=self.live,
            )
        head = state.timeline().head
        if head != self._head:
            passed = lineage_since(self._context, head, self._head)
            consumed = self.consumed(self._context.base_metadata(state, head))
            ranges = recorded_ranges(self._context, passed, self._ends, self._consumed, consumed)
            self._ranges, self._head, self._consumed = (*self._ranges, *ranges), head, consumed
            self._ends = passed[-1].watermark or self._ends
        return self._ranges

    def consumed(self, head: CheckpointMetadata | None) -> Consumed:
        """Return what a replay up to this checkpoint of the live timeline consumes."""
        consumed = consumed_by(self._context, head)
        return without_quarantined(consumed, self._quarantined, self.base_consumed, self._planned)

    def has_left_out(self, head: CheckpointMetadata | None) -> bool:
        """Return whether this checkpoint of the live timeline has read objects that a replay leaves out."""
        read, replayed = consumed_by(self._context, head), self.consumed(head)
        return any(item.by.keys() != replayed[name].by.keys() for name, item in read.items())
