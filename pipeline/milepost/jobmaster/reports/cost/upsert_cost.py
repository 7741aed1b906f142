"""Estimate what an upsert table of buckets writes per day and what retention stores of it.

A changed row rewrites its whole bucket, and the replaced file is stored while a retained checkpoint shows it. Both
volumes are computed from the newest epochs, not measured at the store. Example: a table of 64 files of 1 MB. If every
epoch changes every bucket, 144 epochs per day write 9 GB, and 10 retained checkpoints store 10 times the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.cost.pace import MEASURED_EPOCHS, pace_of
from milepost.jobmaster.reports.cost.upsert_price import UpsertPrice
from milepost.jobspec.job import Retained
from milepost.protocol.records import CompletedCheckpoint
from milepost.protocol.retention import timeline_ancestry
from milepost.tables.records import StagedFile

AMPLIFIED = 10
MUCH_BYTES = 10 * 10**9
"""If a table writes or stores more than this, and writes `AMPLIFIED` times the bytes of the changed rows, the advice
is `changelog`. Below it, the store costs a few dollars a month. That is less than each reader pays for a view that
finds the last row of a key."""

_HOURS = 24


def upsert_prices(context: JobContext) -> tuple[UpsertPrice, ...]:
    """Return the cost of each table that is written by buckets, as of the head; () before the first epoch.

    Raises: StateCorrupt: contents or metadata of a retained checkpoint are unreadable. Store errors.
    """
    names = [sink.name for sink in context.spec.sinks if sink.by_buckets]
    head = context.log.head() if names else None
    if head is None:
        return ()
    live = timeline_ancestry(head.state, head.state.timeline())
    newest = sorted(live, key=lambda checkpoint: checkpoint.checkpoint_id)[-MEASURED_EPOCHS - 1 :]
    prices = (_price(context, name, newest) for name in names)
    return tuple(price for price in prices if price is not None)


def _price(context: JobContext, sink: str, newest: Sequence[CompletedCheckpoint]) -> UpsertPrice | None:
    tables = [context.metadata(checkpoint).tables.get(sink) for checkpoint in newest]
    if not tables or tables[-1] is None:
        return None
    records = context.table_records
    files = [() if table is None else records.files(table) for table in tables]
    table_bytes, rows = _bytes(files[-1]), sum(file.rows for file in files[-1])
    written, changed = list[list[StagedFile]](), 0
    for (before, _, old_files), (after, table, new_files) in pairwise(zip(newest, tables, files, strict=True)):
        epoch = context.metadata(after).sinks.get(
            sink
        )  # None: the spec did not have the sink, and its table is unchanged
        if after.parent == before.checkpoint_id and table is not None and old_files and epoch is not None:
            old_keys = {file.key for file in old_files}
            written.append([file for file in new_files if file.key not in old_keys])
            changed += epoch.rows
    epochs = len(written)
    per_epoch = sum(map(_bytes, written)) // max(1, epochs)
    changed_bytes = changed * table_bytes // max(1, rows) // max(1, epochs)
    pace = pace_of(context, newest)
    per_day = pace.per_day
    bytes_per_day = None if per_day is None or not epochs else round(per_epoch * per_day)
    stored = table_bytes + _replaced_bytes(context.spec.checkpointing.retained, table_bytes, per_epoch, per_day)
    is_expensive = max(bytes_per_day or 0, stored) > MUCH_BYTES and per_epoch > AMPLIFIED * changed_bytes
    advice = None
    if is_expensive:
        factor = per_epoch // max(1, changed_bytes)
        advice = (
            f"each epoch writes {factor} times the bytes of the rows that changed: mode: changelog writes only those, "
            "and a view takes the last row of each key; or retain fewer checkpoints, or run larger epochs"
        )
    return UpsertPrice(
        sink=sink,
        files=len(files[-1]),
        table_bytes=table_bytes,
        epochs=epochs,
        files_per_epoch=round(sum(map(len, written)) / max(1, epochs)),
        written_bytes_per_epoch=per_epoch,
        changed_bytes_per_epoch=changed_bytes,
        epochs_per_day=per_day,
        by_schedule=pace.by_schedule,
        written_bytes_per_day=bytes_per_day,
        kept_bytes=stored,
        advice=advice,
    )


def _bytes(files: Sequence[StagedFile]) -> int:
    return sum(file.size for file in files)


def _replaced_bytes(retained: Retained, table_bytes: int, per_epoch: int, per_day: float | None) -> int:
    """Return the bytes that only checkpoints other than the head need.

    Each one needs the files that were rewritten until the next retained one, at most the whole table. If the pace is
    unknown, an hourly or daily checkpoint counts as the whole table. Example: a table of 100 MB, 30 MB written per
    epoch, 96 epochs per day. With `last: 3` and `daily: 7`, that is 2 * 30 MB + 7 * 100 MB = 760 MB.
    """

    def rewritten_in(epochs: float) -> int:
        return min(table_bytes, round(per_epoch * max(1.0, epochs)))

    per_hour, per_day_bytes = (
        (table_bytes, table_bytes) if per_day is None else (rewritten_in(per_day / _HOURS), rewritten_in(per_day))
    )
    return (retained.last - 1) * rewritten_in(1) + retained.hourly * per_hour + retained.daily * per_day_bytes
