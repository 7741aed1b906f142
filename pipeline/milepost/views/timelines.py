"""Name timelines by the acts that began them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.jobmaster import TimelineOrigin

_ACTS: Mapping[str, str] = {
    "rollback": "after the rollback",
    "backfill": "after the backfill",
    "start": "after the start at an older checkpoint",
    "restore": "after the restore of a savepoint",
    "bootstrap": "after the bootstrap",
    "migration": "after the move of a table",
    "import": "after an import",
}
"""Act that began a timeline -> how the name of the timeline begins."""


class TimelineNames:
    """Names of timelines, by their ids. A timeline without a known origin has its id as its name."""

    def __init__(self, origins: Iterable[TimelineOrigin] = ()) -> None:
        self._origins = {origin.timeline: origin for origin in origins}

    def name(self, timeline: str) -> str:
        """Return the name: "after the rollback by admin, 07:01"."""
        origin = self._origins.get(timeline)
        if origin is None:
            return timeline
        by = f" by {origin.who}" if origin.who else ""
        return f"{_ACTS.get(origin.act, 'after an act')}{by}, {_moment(origin.time)}"

    def with_id(self, timeline: str) -> str:
        """Return the name and the id, which commands need: "after the rollback by admin, 07:01 (t109)"."""
        return f"{self.name(timeline)} ({timeline})" if timeline in self._origins else timeline

    def short(self, timeline: str) -> str:
        """Return a name for a narrow column: "rollback 07:01"."""
        origin = self._origins.get(timeline)
        return timeline if origin is None else f"{origin.act} {_moment(origin.time)[-5:]}"


def _moment(time: str) -> str:
    """Return the UTC time of an ISO text, with its day unless that is today."""
    moment = datetime.fromisoformat(time).astimezone(UTC)
    return moment.strftime("%H:%M" if moment.date() == datetime.now(UTC).date() else "%Y-%m-%d %H:%M")
