"""Report the size of each state table at the head, and its growth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata, with_names_of
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.retention import timeline_ancestry

MIN_SPAN_MS = 3_600_000
"""Checkpoints within a shorter span do not show the growth of a day."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class StateSize:
    """Size of one table of an operator's state.

    Attributes:
        checkpoint_id: the head. rows: live rows. bytes: of its files.
        rows_per_day: growth since the oldest retained checkpoint of the lineage; None: unknown, because that one does
            not have the table, or is less than an hour older. Example: 1,000 rows at 06:00 and 1,500 at 18:00 are
            1,000 rows per day.
    """

    checkpoint_id: int
    rows: int
    bytes: int
    rows_per_day: int | None


def state_sizes(context: JobContext) -> Mapping[str, StateSize]:
    """Return the size of each state table, by `uid` or `uid.table` of the spec; {} before the first epoch.

    Raises: StateCorrupt: metadata of a retained checkpoint is unreadable. Store errors.
    """
    head = context.log.head()
    live = (
        []
        if head is None
        else sorted(
            timeline_ancestry(head.state, head.state.timeline()), key=lambda checkpoint: checkpoint.checkpoint_id
        )
    )
    if not live:
        return {}
    newest, oldest = (
        with_names_of(context.job.spec, context.metadata(checkpoint)) for checkpoint in (live[-1], live[0])
    )
    spent_ms = live[-1].trigger_time_ms - live[0].trigger_time_ms
    before = _rows(oldest)
    sizes = {}
    for name, rows in _rows(newest).items():
        handles = newest.state_tables[name].state.handles
        has_growth = name in before and spent_ms >= MIN_SPAN_MS
        grown = round((rows - before[name]) * _DAY_MS / spent_ms) if has_growth else None
        sizes[name] = StateSize(int(live[-1].checkpoint_id), rows, sum(handle.full_bytes for handle in handles), grown)
    return sizes


def _rows(metadata: CheckpointMetadata) -> dict[str, int]:
    return {
        name: sum(handle.live_rows for handle in table.state.handles) for name, table in metadata.state_tables.items()
    }
