"""Pages of the history: checkpoints and timeline switches, newest first."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.epoch import iso_ms
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.switch_acts import SwitchAct, act_of
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.jobmaster.reports.history.acts import HistoryAct
from milepost.protocol.manifest.transaction import TimelineSwitched
from milepost.protocol.records import CheckpointId, CheckpointStatus


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where a walk from the newest entry to the oldest continues.

    Example: `42-17` continues with version 41, and the next checkpoint of the live lineage is 17.

    Attributes:
        before: the version whose predecessor is read next. live: the next checkpoint of the live lineage.
    """

    before: int
    live: CheckpointId

    def __str__(self) -> str:
        return f"{self.before}-{self.live}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """Parse the `following` of a page. Raises InvalidRequest: not a position."""
        before, dash, live = text.partition("-")
        if not (dash and before.isascii() and before.isdigit() and live.isascii() and live.isdigit()):
            raise InvalidRequest(f"{text!r} is not a position in a job's history. Nothing was read.")
        return cls(int(before), CheckpointId(int(live)))


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Selects checkpoints for a page; None: every status, every timeline."""

    status: CheckpointStatus | None = None
    timeline: str | None = None

    @property
    def all(self) -> bool:
        return self.status is None and self.timeline is None

    @property
    def retained(self) -> bool:
        """Whether it selects only retained checkpoints, all of which are in the head."""
        return self.status is CheckpointStatus.COMPLETED

    def __contains__(self, report: CheckpointReport) -> bool:
        has_status = self.status is None or report.status == self.status.value
        return has_status and self.timeline in (None, report.timeline)


ALL = HistoryFilter()


def history_filter(status: str | None, timeline: str | None) -> HistoryFilter:
    """Return the filter for a status name and a timeline. Raises InvalidRequest: unknown status."""
    names = [status.value for status in CheckpointStatus]
    if status is not None and status not in names:
        raise InvalidRequest(f"{status!r} is not a status of a checkpoint: {', '.join(names)}. Nothing was read.")
    return HistoryFilter(None if status is None else CheckpointStatus(status), timeline)


@dataclass(frozen=True, slots=True)
class TimelineOrigin:
    """The act that began a timeline: its name for people. who: None if the log no longer has it."""

    timeline: str
    act: str
    who: str | None
    time: str


@dataclass(frozen=True, slots=True)
class TimelineSwitch:
    """A switch of the live timeline.

    Attributes:
        kind: ``rollback`` or ``fast_forward``. act: what did it, a `SwitchAct`.
        returns: whether an earlier switch of the same page had left the new head.
        left, left_at: the former live timeline and its head.
        timeline, at_checkpoint: the new live timeline and its head; 0 for the empty state.
        discarded: retained checkpoints that were live before the switch only, ascending. detail: who and why.
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
    act: str = SwitchAct.ROLLBACK.value
    returns: bool = False

    @property
    def is_back(self) -> bool:
        """Whether it took the job back, and not to a checkpoint that an earlier switch had left."""
        return self.act == SwitchAct.ROLLBACK.value and not self.returns and self.at_checkpoint < self.left_at

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
            act=act_of(event).value,
        )


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Checkpoints and switches of a range of the log, newest first. following: position of the next page.

    For a checkpoint that is not live, only sink confirmations within the same range are known.

    Attributes:
        unreadable: why older entries cannot be read; None: they can.
        acts: of people, in the range. origins: of timelines, as far as the log has them.
    """

    checkpoints: tuple[CheckpointReport, ...]
    switches: tuple[TimelineSwitch, ...]
    following: str | None
    unreadable: str | None = None
    acts: tuple[HistoryAct, ...] = ()
    origins: tuple[TimelineOrigin, ...] = ()
