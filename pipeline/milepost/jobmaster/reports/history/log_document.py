"""Entries of the manifest log as documents, for `milepost history` and the log's page."""

from __future__ import annotations

from typing import Any

from milepost.codec import to_json
from milepost.epoch import iso_ms
from milepost.jobmaster.reports.history.acts import act_of_event
from milepost.jobmaster.reports.history.verbs import described_tombstone
from milepost.protocol.log import LoggedEvent, Tombstone
from milepost.protocol.manifest.transaction import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobCanceled,
    SinksConfirmed,
    TimelineSwitched,
    confirmation_of,
)


def log_document(entry: LoggedEvent | Tombstone, *, returns: bool = False) -> dict[str, Any]:
    """Return a log entry as a document. Most events contribute their fields unchanged.

    `what` happened, `who` did it, in which Airflow `run`, and `why` are for people.

    Args:
        returns: as in `described_switch`.
    """
    if isinstance(entry, Tombstone):
        return {
            "version": entry.version,
            "event": entry.event,
            "time": iso_ms(entry.at_ms),
            "compacted": True,
            "checkpoint_id": int(entry.checkpoint_ids[0]) if len(entry.checkpoint_ids) == 1 else None,
            "reason": entry.reason,
            "what": described_tombstone(entry),
            **dict.fromkeys(("who", "run", "why")),
        }
    event = entry.event
    document: dict[str, Any] = {"version": entry.version, "event": type(event).__name__, "time": iso_ms(event.at_ms)}
    act = act_of_event(entry.version, event, returns=returns)
    run = None if act.who.run_id is None else {"dag_id": act.who.dag_id, "run_id": act.who.run_id}
    document |= {"what": act.what, "who": act.who.name or None, "run": run, "why": act.why}
    if isinstance(event, CheckpointTriggered):
        pending = event.pending
        return document | {
            "checkpoint_id": int(pending.checkpoint_id),
            "timeline": event.timeline,
            "session_id": event.leader.session_id,
            "token": int(pending.token),
            "expected": len(pending.expected),
        }
    if isinstance(event, CheckpointCompleted):
        checkpoint = event.checkpoint
        return document | {
            "checkpoint_id": int(checkpoint.checkpoint_id),
            "timeline": checkpoint.timeline,
            "session_id": checkpoint.session_id,
            "token": int(checkpoint.token),
            "adopted_by": event.adopted_by,
            **checkpoint.summary,
        }
    if isinstance(event, CheckpointAborted):
        return document | {
            "checkpoint_id": int(event.pending.checkpoint_id),
            "timeline": event.timeline,
            "session_id": event.leader.session_id,
            "aborted_by": event.aborted_by,
            "reason": event.reason.value,
            "detail": event.detail,
            "tolerated": event.tolerated,
        }
    if isinstance(event, TimelineSwitched):
        return document | {
            "checkpoint_id": int(event.to),
            "kind": event.kind.value,
            "from_timeline": event.from_timeline,
            "from_head": int(event.from_head),
            "timeline": event.timeline,
            "discarded": [int(checkpoint_id) for checkpoint_id in event.discarded],
            "sinks": list(event.sinks),
            "session_id": event.session_id,
            "reason": event.kind.value,
            "detail": _switched(event),
        }
    if isinstance(event, JobCanceled):
        return document | {
            "aborted": [int(aborted.pending.checkpoint_id) for aborted in event.aborted],
            "incarnation": event.result.incarnation,
            "session_id": event.session_id,
            "detail": event.result.detail,
        }
    fields = to_json(event)
    assert isinstance(fields, dict)
    if (confirmed := confirmation_of(event)) is not None:
        sinks = f"sink{'s' * (len(confirmed.sinks) > 1)} {', '.join(confirmed.sinks)}"
        alone = isinstance(event, SinksConfirmed)
        document["detail"] = sinks if alone else f"checkpoint {confirmed.checkpoint_id} confirmed by {sinks}"
        if not alone:
            fields["confirmed"] = {"checkpoint_id": int(confirmed.checkpoint_id), "sinks": list(confirmed.sinks)}
    return document | {name: value for name, value in fields.items() if name not in _SHOWN_OTHERWISE}


_SHOWN_OTHERWISE = {"at_ms", "decided_by"}
"""Fields of events that documents have under other names: `time`, `who`, `run` and `why`."""


def _switched(event: TimelineSwitched) -> str:
    left = f"timeline {event.timeline} from checkpoint {event.to}; left {event.from_timeline} at {event.from_head}"
    return f"{left}: {event.detail}" if event.detail else left
