"""Estimate how long an epoch's Spark job takes, from the epoch before it."""

from __future__ import annotations

from milepost.epoch.plan import InputRecord, decode_input_record
from milepost.epoch.timing.task_times import divided
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.storage.object_handles import read_handle

_GROWS = ("read", "exchange", "process", "stage")
"""Phases of a Spark job whose time grows with the bytes that it reads; the others cost the same each time."""

_SHOWS_PACE_BYTES = 1_000_000
"""An epoch that read fewer bytes says nothing of the pace of one that reads more."""


def expected_job_ms(context: JobContext, opened: OpenedEpoch) -> int | None:
    """Return the estimate, in ms; None: there is no epoch before it, or that one says too little.

    Reads the input record of the epoch before: one request.
    """
    before = opened.state.checkpoint(opened.timeline.head)
    job_ms = opened.base.timings.get("job_ms") if opened.base is not None else None
    if before is None or opened.base is None or job_ms is None:
        return None
    then = source_bytes(decode_input_record(read_handle(context.store, before.plan)))
    now = source_bytes(opened.record)
    if then < _SHOWS_PACE_BYTES and now >= _SHOWS_PACE_BYTES:
        return None
    phases = divided(opened.base.tasks, job_ms)
    grows_ms = sum(phases[name] or 0 for name in _GROWS)
    return round(job_ms - grows_ms + grows_ms * (now / then if then >= _SHOWS_PACE_BYTES else 1))


def source_bytes(record: InputRecord) -> int:
    """Return the bytes of all objects that an epoch reads."""
    return sum(one.size for source in record.sources for one in source.objects)
