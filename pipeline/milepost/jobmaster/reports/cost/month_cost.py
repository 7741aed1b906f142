"""Estimate the cost of a month from the newest epochs, the job's pace and its stored bytes."""

from __future__ import annotations

from collections.abc import Callable

from milepost.jobmaster.figures.timings import requests_of
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.measurements import read_post_commit_times
from milepost.jobmaster.reports.cost.epoch_cost import GB, EpochCost, MonthCost, epoch_cost, total
from milepost.jobmaster.reports.cost.pace import MEASURED_EPOCHS, pace_of
from milepost.language.times import DAYS_OF_MONTH
from milepost.protocol.records import CompletedCheckpoint
from milepost.protocol.retention import timeline_ancestry
from milepost.storage.concurrency import parallel_map


def month_cost(context: JobContext) -> MonthCost | None:
    """Return the cost per month as of the head; None without prices, or before the first epoch.

    Raises: StateCorrupt: a retained checkpoint is unreadable. Store errors.
    """
    prices = context.spec.prices
    head = context.log.head() if prices is not None else None
    if prices is None or head is None:
        return None
    live = timeline_ancestry(head.state, head.state.timeline())
    newest = sorted(live, key=lambda checkpoint: checkpoint.checkpoint_id)[-MEASURED_EPOCHS:]
    if not newest:
        return None
    measured = [cost for cost in parallel_map(context.store, _epoch_cost_of(context), newest) if cost is not None]
    pace = pace_of(context, newest)
    epochs = None if pace.per_day is None else pace.per_day * DAYS_OF_MONTH

    def per_month(part: Callable[[EpochCost], float | None]) -> float | None:
        spent = total(map(part, measured))
        return None if spent is None or epochs is None else spent / len(measured) * epochs

    stored = stored_bytes(context, head.state.checkpoints)
    price = prices.storage_per_gb_month
    parts = {
        "requests": per_month(lambda cost: cost.requests),
        "transfer": per_month(lambda cost: cost.transfer),
        "compute": per_month(lambda cost: cost.compute),
        "storage": None if price is None else price * stored / GB,
    }
    return MonthCost(
        currency=prices.currency,
        epochs=epochs,
        by_schedule=pace.by_schedule,
        measured=len(measured),
        stored_bytes=stored,
        total=total(parts.values()) or 0.0,
        **parts,
    )


def stored_bytes(context: JobContext, retained: tuple[CompletedCheckpoint, ...]) -> int:
    """Return the bytes of state and tables that these checkpoints refer to, each object once."""
    sizes: dict[tuple[str, str], int] = {}
    all_metadata = parallel_map(context.store, context.metadata, retained)
    context.table_records.read_all(table for metadata in all_metadata for table in metadata.tables.values())
    for metadata in all_metadata:
        sizes |= {("", handle.key): handle.size for handle in metadata.handles()}
        for name, table in metadata.tables.items():
            sizes |= {(name, file.key): file.size for file in context.table_records.files(table)}
    return sum(sizes.values())


def _epoch_cost_of(context: JobContext) -> Callable[[CompletedCheckpoint], EpochCost | None]:
    def cost(checkpoint: CompletedCheckpoint) -> EpochCost | None:
        metadata, after = (
            context.metadata(checkpoint),
            read_post_commit_times(context, checkpoint.checkpoint_id, checkpoint.token),
        )
        return epoch_cost(context.spec.prices, requests_of(metadata, after), metadata.tasks)

    return cost
