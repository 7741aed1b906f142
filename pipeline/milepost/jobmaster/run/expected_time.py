"""Estimate the duration of an epoch's Spark job from the previous epoch."""

from __future__ import annotations

from milepost.epoch import InputRecord, decode_input_record
from milepost.epoch.timing import divided
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.storage import read_handle

_PHASES_BY_INPUT = ("read", "exchange", "process", "stage")
"""Phases of a Spark job that take longer the more bytes it reads. The other phases have a fixed cost."""

_MIN_BYTES_FOR_PACE = 1_000_000
"""An epoch that reads fewer bytes is too short to estimate bytes per second from."""


def expected_job_ms(context: JobContext, opened: OpenedEpoch) -> int | None:
    """Return the estimate in ms; None if there is no previous epoch, or it read too little.

    Costs one request, for the input record of the previous epoch.
    """
    previous = opened.state.checkpoint(opened.timeline.head)
    job_ms = opened.base.timings.get("job_ms") if opened.base is not None else None
    if previous is None or opened.base is None or job_ms is None:
        return None
    previous_bytes = source_bytes(decode_input_record(read_handle(context.store, previous.plan)))
    current_bytes = source_bytes(opened.record)
    if previous_bytes < _MIN_BYTES_FOR_PACE and current_bytes >= _MIN_BYTES_FOR_PACE:
        return None
    phases = divided(opened.base.tasks, job_ms)
    variable_ms = sum(phases[name] or 0 for name in _PHASES_BY_INPUT)
    growth = current_bytes / previous_bytes if previous_bytes >= _MIN_BYTES_FOR_PACE else 1
    # A job of 10,000 ms, 8,000 of them in phases that grow, for 2 MB: expect 2,000 + 8,000 * 1.5 = 14,000 ms for 3 MB.
    return round(job_ms - variable_ms + variable_ms * growth)


def source_bytes(record: InputRecord) -> int:
    """Return the bytes of all objects that an epoch reads."""
    return sum(obj.size for source in record.sources for obj in source.objects)
