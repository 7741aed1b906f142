"""A switch of the live timeline that an earlier try of a task has already made."""

from __future__ import annotations

from milepost.airflow.operate.act import Doing, Done

_RECENT = 200
"""Manifest entries among which a retried task looks for what its first try did."""


def switched_before(doing: Doing) -> Done | None:
    """Return the switch by which an earlier try of this task carried the plan out; None when none did.

    Without it a try whose answer was lost would be refused as outdated, or do the work once more.
    """
    if not doing.retried:
        return None
    for entry in doing.master.history(limit=_RECENT):
        if entry["version"] <= doing.plan.manifest_version:
            return None
        if entry["event"] == "TimelineSwitched" and entry["session_id"] == doing.session.session_id:
            head, timeline = entry["checkpoint_id"], entry["timeline"]
            said = f"an earlier try did it: checkpoint {head} became the head of timeline {timeline}"
            return Done(entry["kind"], (said,), head, timeline, follows=True)
    return None
