"""A page of the history: some checkpoints, newest first, the switches between them, and where the next page begins."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.epoch.iso_times import iso_ms
from milepost.errors import InvalidRequest
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.protocol.manifest.transaction.events import TimelineSwitched
from milepost.protocol.records.checkpoints import CheckpointStatus
from milepost.protocol.records.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where a walk from the newest entry to the oldest goes on.

    Attributes:
        before: the version whose predecessor is read next. live: the checkpoint of the live lineage that is next.
    """

    before: int
    live: CheckpointId

    def __str__(self) -> str:
        return f"{self.before}-{self.live}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """Return the position that a page gave as its `following`. Raises InvalidRequest: it is none."""
        before, dash, live = text.partition("-")
        if not (dash and before.isascii() and before.isdigit() and live.isascii() and live.isdigit()):
            raise InvalidRequest(f"{text!r} is no position in a job's history; nothing was read.")
        return cls(int(before), CheckpointId(int(live)))


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which checkpoints a page is of; None: of every status, of every timeline."""

    status: CheckpointStatus | None = None
    timeline: str | None = None

    @property
    def all(self) -> bool:
        return self.status is None and self.timeline is None

    @property
    def retained(self) -> bool:
        """Whether only retained checkpoints can be of it, all of which the head names."""
        return self.status is CheckpointStatus.COMPLETED

    def __contains__(self, report: CheckpointReport) -> bool:
        status = self.status is None or report.status == self.status.value
        return status and self.timeline in (None, report.timeline)


ALL = HistoryFilter()


def wanted(status: str | None, timeline: str | None) -> HistoryFilter:
    """Return the wish of a status by its name. Raises InvalidRequest: there is no such status."""
    names = [one.value for one in CheckpointStatus]
    if status is not None and status not in names:
        raise InvalidRequest(f"{status!r} is no status of a checkpoint: {', '.join(names)}. Nothing was read.")
    return HistoryFilter(None if status is None else CheckpointStatus(status), timeline)


@dataclass(frozen=True, slots=True)
class TimelineSwitch:
    """Another timeline became the live one.

    Attributes:
        kind: ``rollback`` or ``fast_forward``. left, left_at: what was live before, and its head.
        timeline, at_checkpoint: what is live then, and its head; 0 for the empty state.
        discarded: retained checkpoints that were live, and are not any more, ascending. detail: who, why.
    """

    version: int
    time: str
    kind: str
    left: str
    left_at: int
    timeline: str
    at_checkpoint: int
    discarded: tuple[int, ...]
    detail: str

    @classmethod
    def of(cls, version: int, event: TimelineSwitched) -> TimelineSwitch:
        return cls(
            version=version,
            time=iso_ms(event.at_ms),
            kind=event.kind.value,
            left=event.from_timeline,
            left_at=int(event.from_head),
            timeline=event.timeline,
            at_checkpoint=int(event.to),
            discarded=tuple(map(int, event.discarded)),
            detail=event.detail,
        )


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Checkpoints and switches of a stretch of the log, each newest first; following: where the next one begins.

    Of a checkpoint that is not live its sinks are told as far as their confirmations lie in the same stretch.

    Attributes:
        unreadable: why the log cannot be read any further; what is older than these is not here.
    """

    checkpoints: tuple[CheckpointReport, ...]
    switches: tuple[TimelineSwitch, ...]
    following: str | None
    unreadable: str | None = None
