"""Find the act that began each timeline, by which people know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from milepost.epoch import iso_ms
from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.switch_acts import act_of
from milepost.jobmaster.reports.history.acts import act_of_event
from milepost.jobmaster.reports.history.page import TimelineOrigin
from milepost.protocol.log import LoggedEvent, Tombstone
from milepost.protocol.manifest.transaction import Event, TimelineForked, TimelineSwitched
from milepost.protocol.records import IMPORT_SESSION_PREFIX
from milepost.storage.concurrency import parallel_map

_MAX_READ = 20
"""Timelines whose origin is read, the newest ones. Pages name older ones by their ids."""


def timeline_origins(
    context: JobContext, timelines: Iterable[str], events: Mapping[int, Event]
) -> tuple[TimelineOrigin, ...]:
    """Return the origins of timelines, without those that the log does not have.

    A timeline's id is the manifest version of the event that began it: `t12` was begun by version 12.

    Args:
        events: that the caller has read, by version.
    """
    begun = sorted((name for name in timelines if name[:1] == "t" and name[1:].isdecimal()), key=_version)
    found = parallel_map(context.store, partial(_origin, context, events), begun[-_MAX_READ:])
    return tuple(origin for origin in found if origin is not None)


def _version(timeline: str) -> int:
    return int(timeline[1:])


def _origin(context: JobContext, events: Mapping[int, Event], timeline: str) -> TimelineOrigin | None:
    version = _version(timeline)
    try:
        entry = LoggedEvent(version, events[version]) if version in events else context.log.event(version)
    except CheckpointError:  # damaged or deleted: its id is its name
        return None
    if isinstance(entry, Tombstone):
        act = {"TimelineSwitched": "rollback", "TimelineForked": "backfill"}.get(entry.event)
        return None if act is None else TimelineOrigin(timeline, act, None, iso_ms(entry.at_ms))
    event = entry.event
    if isinstance(event, TimelineSwitched):
        act = act_of(event).value
    elif isinstance(event, TimelineForked):
        act = "import" if event.session_id.startswith(IMPORT_SESSION_PREFIX) else "backfill"
    else:
        return None
    return TimelineOrigin(timeline, act, act_of_event(entry.version, event).who.name or None, iso_ms(event.at_ms))
