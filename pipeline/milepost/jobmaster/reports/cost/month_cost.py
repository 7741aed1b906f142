"""The cost of a month is reckoned from the newest epochs, the job's pace, and what its retained checkpoints keep."""

from __future__ import annotations

from collections.abc import Callable

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.measurements import read_post_commit_times
from milepost.jobmaster.reports.cost.epoch_cost import GB, EpochCost, MonthCost, epoch_cost, total
from milepost.jobmaster.reports.cost.pace import MEASURED_EPOCHS, pace_of
from milepost.jobmaster.reports.timings import requests_of
from milepost.jobspec.values.times.cron import DAYS_OF_MONTH
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.retention.ancestry import timeline_ancestry
from milepost.storage.concurrency.parallel_map import parallel_map


def month_cost(context: JobContext) -> MonthCost | None:
    """Return what a month costs, as of the head; None without prices, or before the first epoch.

    Raises: StateCorrupt: a retained checkpoint cannot be read. What the store raises.
    """
    prices = context.spec.prices
    head = context.log.head() if prices is not None else None
    if prices is None or head is None:
        return None
    live = timeline_ancestry(head.state, head.state.timeline())
    newest = sorted(live, key=lambda one: one.checkpoint_id)[-MEASURED_EPOCHS:]
    if not newest:
        return None
    measured = [cost for cost in parallel_map(context.store, _cost_in(context), newest) if cost is not None]
    pace = pace_of(context, newest)
    epochs = None if pace.per_day is None else pace.per_day * DAYS_OF_MONTH

    def in_a_month(of_epoch: Callable[[EpochCost], float | None]) -> float | None:
        spent = total(map(of_epoch, measured))
        return None if spent is None or epochs is None else spent / len(measured) * epochs

    stored = stored_bytes(context, head.state.checkpoints)
    price = prices.storage_per_gb_month
    parts = {
        "requests": in_a_month(lambda one: one.requests),
        "transfer": in_a_month(lambda one: one.transfer),
        "compute": in_a_month(lambda one: one.compute),
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
    """Return the bytes of what these checkpoints refer to, state and tables, each object once."""
    sizes: dict[tuple[str, str], int] = {}
    known = parallel_map(context.store, context.metadata, retained)
    context.table_records.read_all(table for metadata in known for table in metadata.tables.values())
    for metadata in known:
        sizes |= {("", handle.key): handle.size for handle in metadata.handles()}
        for name, table in metadata.tables.items():
            sizes |= {(name, file.key): file.size for file in context.table_records.files(table)}
    return sum(sizes.values())


def _cost_in(context: JobContext) -> Callable[[CompletedCheckpoint], EpochCost | None]:
    def cost(one: CompletedCheckpoint) -> EpochCost | None:
        metadata, after = context.metadata(one), read_post_commit_times(context, one.checkpoint_id, one.token)
        return epoch_cost(context.spec.prices, requests_of(metadata, after), metadata.tasks)

    return cost
