"""The role of each timeline of a page of the history: live, continued by another one, or how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from milepost.jobmaster import CheckpointReport, TimelineReport, TimelineSwitch
from milepost.views import TimelineNames


@dataclass(frozen=True, slots=True)
class TimelineHistory:
    """Checkpoints and switches, newest first, and the known timelines."""

    checkpoints: Sequence[CheckpointReport]
    switches: Sequence[TimelineSwitch]
    timelines: Sequence[TimelineReport]
    live: str | None
    names: TimelineNames = field(default_factory=TimelineNames)

    def role(self, timeline: str) -> str:
        """Return the role of a timeline: live, continued by another one, the fork of a backfill, or how it ended."""
        if timeline == self.live:
            return "live"
        following = self.continued_by(timeline)
        if following is not None:
            return f"continued by {following}"
        if any(known.timeline == timeline and known.role == "fork" for known in self.timelines):
            return "not live yet"
        ending = self.ending(timeline)
        return "not live" if ending is None else _ENDINGS.get(ending.act, "not live")

    def continued_by(self, timeline: str) -> str | None:
        """Return the timeline on which the job continues live checkpoints of this one; None: none of them is live."""
        live = sorted(
            (report for report in self.checkpoints if report.live and report.timeline is not None),
            key=lambda report: report.checkpoint_id,
        )
        own = [at for at, report in enumerate(live) if report.timeline == timeline]
        if not own:
            return None
        following = next((report.timeline for report in live[own[-1] + 1 :]), None)
        return following or self.live

    def ending(self, timeline: str) -> TimelineSwitch | None:
        """Return the newest switch that left a checkpoint of this timeline which is not live; None: unknown."""
        dead = {report.checkpoint_id for report in self.checkpoints if report.timeline == timeline and not report.live}
        left = (switch for switch in self.switches if not dead.isdisjoint(switch.discarded))
        return next(left, None) or next((switch for switch in self.switches if switch.left == timeline), None)


_ENDINGS = {"rollback": "rolled back", "backfill": "replaced"}
"""Act that left a timeline -> the role of the timeline."""
