"""The job document tells of a whole job: before its first epoch, while it runs, how it ended (I4)."""

from __future__ import annotations

from typing import Any

from milepost.epoch.iso_times import iso_ms
from milepost.protocol.codec.records import to_json
from milepost.protocol.manifest.timelines.incarnation import JobPhase, job_phase, result_of
from milepost.protocol.records.manifest_state import CleanUp, ManifestState, Timeline


def job_document(state: ManifestState | None) -> dict[str, Any]:
    """Return {job_status, waits_for, incarnation, result, leader, timeline, timelines, realigning} of a head; None:
    never run.

    `waits_for` says in words what an initializing job waits for; None when it is another one.
    `result` is None until the incarnation has ended; `leader` is None before a session claimed the timeline in this
    incarnation, and after its end. `timeline` is the live one; `realigning` are the sinks that have yet to follow it.
    """
    result = result_of(state.results, state.incarnation) if state is not None else None
    leader = state.timeline().leader if state is not None else None
    return {
        "job_status": job_phase(state).value,
        "waits_for": _waits_for(state),
        "incarnation": state.incarnation if state is not None else None,
        "result": None
        if result is None
        else {
            "incarnation": result.incarnation,
            "status": result.status.value,
            "clean_up": result.clean_up.value,
            "at": iso_ms(result.at_ms),
            "head": int(result.head) or None,
            "detail": result.detail,
        },
        "leader": None
        if leader is None
        else {"session_id": leader.session_id, "token": int(leader.token), "holder": to_json(leader.holder)},
        "timeline": state.live if state is not None else None,
        "timelines": [_timeline(one) for one in state.timelines] if state is not None else [],
        "realigning": list(state.realignment.sinks) if state is not None and state.realignment is not None else [],
    }


def _waits_for(state: ManifestState | None) -> str | None:
    if job_phase(state) is not JobPhase.INITIALIZING:
        return None
    return "its first epoch" if state is None else f"an epoch to claim timeline {state.live}"


def _timeline(timeline: Timeline) -> dict[str, Any]:
    parent = timeline.parent
    return {
        "timeline": timeline.timeline_id,
        "role": timeline.role.value,
        "parent": None if parent is None else {"timeline": parent[0], "checkpoint_id": int(parent[1])},
        "head": int(timeline.head) or None,
        "pending": None if timeline.pending is None else int(timeline.pending.checkpoint_id),
    }


def ended_step(job: str, result: dict[str, Any]) -> str:
    """Return what to do about a job whose document has this result."""
    end = f"incarnation {result['incarnation']} was {result['status']} at {result['at']}"
    if result["clean_up"] == CleanUp.DIRTY.value:
        return f"{end}, its clean-up is not over: milepost cancel {job} finishes it"
    return f"{end}: milepost start {job} opens the next one"
