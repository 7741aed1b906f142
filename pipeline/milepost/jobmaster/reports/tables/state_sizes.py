"""State sizes tell how large each table of a job's state is at the head, and how fast it grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.renames import with_names_of
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.retention.ancestry import timeline_ancestry

LEAST_SPAN_MS = 3_600_000
"""Checkpoints that lie within less than this say nothing of a day."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class StateSize:
    """How large one table of an operator's state is.

    Attributes:
        checkpoint_id: the head, of which the figures are. rows: alive there. bytes: of its files.
        rows_per_day: how many more each day, since the oldest retained checkpoint of the lineage; None: not known, that
            one does not have the table, or is less than an hour older.
    """

    checkpoint_id: int
    rows: int
    bytes: int
    rows_per_day: int | None


def state_sizes(context: JobContext) -> Mapping[str, StateSize]:
    """Return the size of each table of state, by its name under the uids of the spec; {} before the first epoch.

    Raises: StateCorrupt: metadata of a retained checkpoint cannot be read. What the store raises.
    """
    head = context.log.head()
    live = (
        []
        if head is None
        else sorted(timeline_ancestry(head.state, head.state.timeline()), key=lambda one: one.checkpoint_id)
    )
    if not live:
        return {}
    newest, oldest = (with_names_of(context.job.spec, context.metadata(one)) for one in (live[-1], live[0]))
    spent_ms = live[-1].trigger_time_ms - live[0].trigger_time_ms
    before = _rows(oldest)
    found = {}
    for name, rows in _rows(newest).items():
        handles = newest.state_tables[name].state.handles
        known = name in before and spent_ms >= LEAST_SPAN_MS
        grown = round((rows - before[name]) * _DAY_MS / spent_ms) if known else None
        found[name] = StateSize(int(live[-1].checkpoint_id), rows, sum(one.full_bytes for one in handles), grown)
    return found


def _rows(metadata: CheckpointMetadata) -> dict[str, int]:
    return {
        name: sum(handle.live_rows for handle in table.state.handles) for name, table in metadata.state_tables.items()
    }
