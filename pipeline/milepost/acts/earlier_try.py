"""Detect that an earlier try of the same task already switched the timeline."""

from __future__ import annotations

from milepost.acts.act import ActContext, ActResult

_RECENT = 200
"""Number of manifest entries that a retried task searches for the switch of an earlier try."""


def find_earlier_switch(context: ActContext) -> ActResult | None:
    """Return the result of an earlier try of this task that already switched the timeline; None if no try did.

    If a try loses its worker after the switch, the next one would be refused as outdated, or would repeat the work.
    Session ids are per DAG run, so a switch that is newer than the plan and has this session's id is the earlier try's:
    plan made at manifest version 40 -> entry 42, TimelineSwitched, same session -> the act is already done.
    """
    if not context.retried:
        return None
    for entry in context.master.reports.history(limit=_RECENT):
        if entry["version"] <= context.plan.manifest_version:
            return None
        if entry["event"] == "TimelineSwitched" and entry["session_id"] == context.session.session_id:
            head, timeline = entry["checkpoint_id"], entry["timeline"]
            text = f"already done by an earlier try: checkpoint {head} became the head of timeline {timeline}"
            return ActResult(entry["kind"], (text,), head, timeline, follows=True, previous_head=entry["from_head"])
    return None
