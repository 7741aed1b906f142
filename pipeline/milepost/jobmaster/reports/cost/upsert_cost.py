"""The price of upsert is said: what a table of buckets writes a day, and what retention keeps of it.

A bucket in which one row changed is written again as a whole, and what it replaces stays while a retained checkpoint
shows it. Both are reckoned from what the newest epochs did, not measured at the store: of a table of 64 files of 1 MB,
of which every epoch touches each, 144 epochs a day write 9 GB, and 10 retained checkpoints keep 10 times the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.cost.pace import MEASURED_EPOCHS, pace_of
from milepost.jobmaster.reports.cost.upsert_price import UpsertPrice
from milepost.jobspec.job.checkpointing_spec import Retained
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.retention.ancestry import timeline_ancestry
from milepost.sinks.records.committables import StagedFile

AMPLIFIED = 10
MUCH_BYTES = 10 * 10**9
"""Where a table writes or keeps more than this, and writes `AMPLIFIED` times the bytes of the rows that changed,
`changelog` is named. Below it the store costs a few dollars a month, less than what each reader pays for a view that
looks for the last row of a key."""

_HOURS = 24


def upsert_prices(context: JobContext) -> tuple[UpsertPrice, ...]:
    """Return the price of each table that is written by buckets, as of the head; () before the first epoch.

    Raises: StateCorrupt: contents or metadata of a retained checkpoint cannot be read. What the store raises.
    """
    names = [sink.name for sink in context.spec.sinks if sink.by_buckets]
    head = context.log.head() if names else None
    if head is None:
        return ()
    live = timeline_ancestry(head.state, head.state.timeline())
    newest = sorted(live, key=lambda one: one.checkpoint_id)[-MEASURED_EPOCHS - 1 :]
    found = (_price(context, name, newest) for name in names)
    return tuple(price for price in found if price is not None)


def _price(context: JobContext, sink: str, newest: Sequence[CompletedCheckpoint]) -> UpsertPrice | None:
    tables = [context.metadata(one).tables.get(sink) for one in newest]
    if not tables or tables[-1] is None:
        return None
    records = context.table_records
    files = [() if table is None else records.files(table) for table in tables]
    table_bytes, rows = _bytes(files[-1]), sum(file.rows for file in files[-1])
    written, changed = list[list[StagedFile]](), 0
    for (before, _, old), (after, shown, now) in pairwise(zip(newest, tables, files, strict=True)):
        epoch = context.metadata(after).sinks.get(sink)  # None: the sink was out of the spec, its table is as it was
        if after.parent == before.checkpoint_id and shown is not None and old and epoch is not None:
            known = {file.key for file in old}
            written.append([file for file in now if file.key not in known])
            changed += epoch.rows
    epochs = len(written)
    per_epoch = sum(map(_bytes, written)) // max(1, epochs)
    changed_bytes = changed * table_bytes // max(1, rows) // max(1, epochs)
    pace = pace_of(context, newest)
    per_day = pace.per_day
    a_day = None if per_day is None or not epochs else round(per_epoch * per_day)
    kept = table_bytes + _replaced_bytes(context.spec.checkpointing.retained, table_bytes, per_epoch, per_day)
    much = max(a_day or 0, kept) > MUCH_BYTES and per_epoch > AMPLIFIED * changed_bytes
    advice = None
    if much:
        times = per_epoch // max(1, changed_bytes)
        advice = (
            f"each epoch writes {times} times the bytes of the rows that changed: mode: changelog writes those alone, "
            "and a view takes the last row of each key; or retain fewer checkpoints, or let epochs be larger"
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
        written_bytes_per_day=a_day,
        kept_bytes=kept,
        advice=advice,
    )


def _bytes(files: Sequence[StagedFile]) -> int:
    return sum(file.size for file in files)


def _replaced_bytes(retained: Retained, table_bytes: int, per_epoch: int, per_day: float | None) -> int:
    """Return what checkpoints beside the head keep, at most the whole table each: what was written again since.

    Where the pace is not known, one of an hour or a day counts as the whole table.
    """

    def between(epochs: float) -> int:
        return min(table_bytes, round(per_epoch * max(1.0, epochs)))

    of_an_hour, of_a_day = (
        (table_bytes, table_bytes) if per_day is None else (between(per_day / _HOURS), between(per_day))
    )
    return (retained.last - 1) * between(1) + retained.hourly * of_an_hour + retained.daily * of_a_day
