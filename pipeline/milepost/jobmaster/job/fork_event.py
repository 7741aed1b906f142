"""The fork opening is read from the manifest log: who opened a fork, and when."""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.transaction.events import TimelineForked
from milepost.protocol.records.manifest_state import Timeline


def fork_event(context: JobContext, fork: Timeline) -> TimelineForked:
    """Return how an open fork was opened: it is named by the manifest version that did it, which is kept meanwhile."""
    entry = context.log.entry(int(fork.timeline_id.removeprefix("t")))
    assert isinstance(entry, LogEntry)
    assert isinstance(entry.event, TimelineForked)
    return entry.event
