"""Read from the manifest log who opened a fork, and when."""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.log import LogEntry
from milepost.protocol.manifest.transaction import TimelineForked
from milepost.protocol.records import Timeline


def fork_event(context: JobContext, fork: Timeline) -> TimelineForked:
    """Return the event that opened a fork.

    A fork's id is the manifest version of its event, and that log entry is retained while the fork is open: fork `t12`
    was opened by version 12.
    """
    entry = context.log.entry(int(fork.timeline_id.removeprefix("t")))
    assert isinstance(entry, LogEntry)
    assert isinstance(entry.event, TimelineForked)
    return entry.event
