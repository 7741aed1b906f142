"""Compare how long a table retains its files with how long the job may read them. For `milepost doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from milepost.errors import NotFound
from milepost.jobmaster.job.checks.store_checks import head_within_deadline
from milepost.jobmaster.job.context import JobContext
from milepost.language.times import format_duration, in_ms
from milepost.sources.landed import FileRetention, Note

_HINT = "lengthen it, or write `land: {by: copy}`"


def retention_notes(context: JobContext, source: str, retention: FileRetention) -> Iterator[Note]:
    """Yield how long the table retains deleted files, and a warning for each case in which that may be too short."""
    name, ms = retention.property, retention.ms
    if ms is None:
        yield Note(f"{name} of the table cannot be parsed, so files that the log refers to may be deleted", True)
        return
    yield Note(f"the table retains deleted files for {_text(ms)} ({name})")
    retain = context.spec.landed[source].land.retain
    if ms < in_ms(retain):
        yield Note(f"that is less than land.retain ({format_duration(retain)}): {_HINT}", True)
    age_ms = _needed_ms(context, source)
    if age_ms is not None and age_ms > ms:
        yield Note(f"the oldest retained checkpoint needs files that were landed {_text(age_ms)} ago: {_HINT}", True)


def _needed_ms(context: JobContext, source: str) -> int | None:
    """Return how long ago the first record after the oldest retained checkpoint was landed; None: there is none."""
    head = head_within_deadline(context)
    oldest = None if head is None else min(head.state.checkpoints, key=lambda each: each.checkpoint_id, default=None)
    log = context.source_log(source)
    position = None if oldest is None else context.metadata(oldest).log_position(log.stored_as)
    if position is None:
        return None
    try:
        record = log.record(position.next).record
    except NotFound:  # nothing is landed after it, or it was trimmed
        return None
    return context.store.clock_ms() - record.landed_at_ms


def _text(ms: int) -> str:
    """Return whole seconds as text: 90 minutes -> 90m."""
    return format_duration(timedelta(seconds=ms // 1000))
