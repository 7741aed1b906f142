"""The history is folded from the manifest log, as people read it (I6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from milepost.epoch.iso_times import iso_ms
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster.compatibility.preflight import mismatches, preflight
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import provably_dead
from milepost.jobmaster.reports.checkpoint_details import details_of
from milepost.jobmaster.reports.checkpoint_document import (
    aborted_document,
    compacted_document,
    completed_document,
    leader_document,
    pending_document,
)
from milepost.jobmaster.reports.job_result import ended_step, job_document
from milepost.jobmaster.reports.log_search import confirmed_after, end_of, leads_to
from milepost.jobmaster.reports.source_health import backlog, stale
from milepost.jobmaster.reports.timings import AfterCommit
from milepost.jobmaster.reports.unfinished_backfills import unfinished_backfills
from milepost.jobmaster.retention.vetoes import read_veto
from milepost.protocol.codec.log_entries import LogEntry, Tombstone, aborted_by, completion_of
from milepost.protocol.codec.records import to_json
from milepost.protocol.manifest.transaction.events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobCanceled,
    SinkConfirmed,
    TimelineSwitched,
    aborts_of,
)
from milepost.protocol.manifest.transaction.lease import LeaseFacts, LeaseStatus, lease_status
from milepost.protocol.manifest.transaction.preconditions import frozen_by
from milepost.protocol.records.checkpoints import CheckpointKind, CheckpointStatus, CompletedCheckpoint
from milepost.protocol.records.errors import NotFound
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.manifest_state import JobStatus, ManifestState
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.lineage import continues, lineage


class History:
    """Read models of one job."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def checkpoints(self, status: str | None, limit: int | None) -> list[dict[str, Any]]:
        """Checkpoint documents, newest first; [] for a job that has never run."""
        wanted = (document for document in self._documents() if status in (None, document["status"]))
        return list(islice(wanted, self._bound(status, limit)))

    def _bound(self, status: str | None, limit: int | None) -> int | None:
        """How many checkpoints to look for: no more than the head says that there are, so that the walk ends."""
        head = self._context.log.head()
        known = [limit] if limit is not None else []
        if head is not None and status == CheckpointStatus.PENDING.value:
            known.append(sum(timeline.pending is not None for timeline in head.state.timelines))
        if head is not None and status == CheckpointStatus.COMPLETED.value:
            known.append(len(head.state.checkpoints))
        return min(known, default=None)

    def show(self, checkpoint_id: int, after: Sequence[AfterCommit] | None = None) -> dict[str, Any]:
        """One checkpoint with its sources, operators, sinks, acknowledgements, tasks, phases, spec and code.

        Args:
            after: what was measured from its commit on, when the caller knows it.
        """
        state = self._context.head().state
        document = self._one(state, CheckpointId(checkpoint_id))
        if document is None:
            raise NotFound(
                f"job {state.job} has no checkpoint {checkpoint_id}; the next one is {state.next_checkpoint_id}",
                checkpoint_id=checkpoint_id,
            )
        document["savepoints"] = [one.name for one in state.savepoints if one.checkpoint_id == checkpoint_id]
        if document["veto"] is not None:
            document["veto"] = read_veto(self._context, document["veto"])
        kept = state.checkpoint(CheckpointId(checkpoint_id))
        return document if kept is None else document | details_of(self._context, kept, after)

    def _one(self, state: ManifestState, checkpoint_id: CheckpointId) -> dict[str, Any] | None:
        """The document of a checkpoint: of what is pending or retained the head tells all, else the entry of its end.

        `live` is None where that is not known any more: compacted, or long ago on a timeline that is not listed.
        """
        kept = state.checkpoint(checkpoint_id)
        if kept is not None:
            return _retained(state, kept)
        pending = next((one for one in _pending(state) if one["checkpoint_id"] == checkpoint_id), None)
        if pending is not None or not 0 < checkpoint_id < state.next_checkpoint_id:
            return pending
        log = self._context.log
        entry = end_of(log, state.version, checkpoint_id)
        if entry is None:
            return None
        if checkpoint_id in aborted_by(entry):
            return _aborted(entry, checkpoint_id)
        if isinstance(entry, Tombstone):
            return compacted_document(entry, checkpoint_id) | {"live": None}
        assert isinstance(entry.event, CheckpointCompleted)
        done = entry.event.checkpoint
        live = continues(state, done.timeline, done.checkpoint_id)
        if live is None:
            oldest = min((one.checkpoint_id for one in lineage(state, state.timeline())), default=NO_CHECKPOINT)
            live = leads_to(log, state.version, oldest, checkpoint_id)
        shown = done.sinks if live else confirmed_after(log, entry, state.version)
        return completed_document(done, CheckpointStatus.SUBSUMED, shown) | {"live": live}

    def log(self, limit: int | None) -> list[dict[str, Any]]:
        """Manifest entries, newest first: version, time, event and its fields."""
        return [_entry(entry) for entry in self._context.log.entries(limit)]

    def status(self, max_lag_ms: int | None) -> dict[str, Any]:
        """Health in one document; `healthy`, and `exit_code` as INTERFACE section 2 says.

        What is unread and how far behind the job is, is None while an object keeps it from being planned.

        Args:
            max_lag_ms: bound on the age of unread objects, of the newest object and of the newest event time.
        """
        head = self._context.log.head()
        now_ms = self._context.store.clock_ms()
        state = head.state if head is not None else None
        base = self._context.base_metadata(state, state.timeline().head) if state is not None else None
        newest = state.head() if state is not None else None
        document = {
            "job": self._context.spec.name,
            **job_document(state),
            "head": newest.checkpoint_id if newest is not None else None,
            "last_success": iso_ms(newest.completed_time_ms) if newest is not None else None,
            "pending": _pending_id(state),
            "lease_over": self._lease_over(state, now_ms),
            **backlog(self._context, base, now_ms),
            "spec_refused": self._spec_refused(base),
            "in_flight_bytes": base.in_flight_bytes if base is not None else 0,
            "last_failure": state.failures.last_reason if state is not None else None,
            "last_failure_detail": state.failures.last_detail if state is not None else None,
            "unconfirmed": sorted({sink for item in state.unconfirmed() for sink in item.unconfirmed}) if state else [],
            "frozen": _frozen(state, now_ms),
            "unfinished_backfills": unfinished_backfills(self._context, state) if state is not None else [],
        }
        exit_code, step = _judge(document, max_lag_ms)
        return document | {"exit_code": exit_code, "healthy": exit_code == 0, "next_step": step}

    def _spec_refused(self, base: CheckpointMetadata | None) -> str | None:
        """Why the next epoch would be refused: what of the spec does not continue the head; None when all does."""
        refused = mismatches(preflight(self._context, base, None))
        if base is None or not refused:
            return None
        return f"the spec does not fit checkpoint {base.checkpoint_id}: {'; '.join(refused)}"

    def _lease_over(self, state: ManifestState | None, now_ms: int) -> str | None:
        """Why nobody works on the pending checkpoint any more, in words; None when somebody may, or none is pending."""
        timeline = state.timeline() if state is not None else None
        if timeline is None or timeline.pending is None or timeline.leader is None:
            return None
        facts = LeaseFacts(
            heartbeat_ms=self._context.heartbeat_ms(timeline.pending), holder_dead=provably_dead(timeline.leader.holder)
        )
        status = lease_status(timeline.pending, facts, now_ms)
        return None if status is LeaseStatus.HELD else status.value

    def _documents(self) -> Iterator[dict[str, Any]]:
        """Every checkpoint that was ever triggered, newest first: each is told by its newest event.

        `live`: the live head continues it, or it is pending on the live timeline. One that a rollback has discarded, or
        that is of a fork, is not.
        """
        head = self._context.log.head()
        if head is None:
            return
        state = head.state
        seen: set[int] = set()
        continued = state.timeline().head  # newest checkpoint of the live lineage that is still to come
        confirmed: set[tuple[int, str]] = set()
        for pending in _pending(state):
            seen.add(pending["checkpoint_id"])
            yield pending
        for entry in self._context.log.entries():
            done = completion_of(entry)
            if done is not None and done.checkpoint_id not in seen:
                seen.add(done.checkpoint_id)
                kept = state.checkpoint(done.checkpoint_id)
                on_live = done.checkpoint_id == continued
                continued = done.parent if on_live else continued
                if kept is not None:
                    yield _retained(state, kept)
                elif isinstance(entry, LogEntry) and isinstance(entry.event, CheckpointCompleted):
                    sinks = entry.event.checkpoint.sinks
                    shown = {sink for sink in sinks if on_live or (done.checkpoint_id, sink) in confirmed}
                    document = completed_document(entry.event.checkpoint, CheckpointStatus.SUBSUMED, shown)
                    yield document | {"live": on_live}
                elif isinstance(entry, Tombstone):
                    yield compacted_document(entry, done.checkpoint_id) | {"live": on_live}
            if isinstance(entry, LogEntry) and isinstance(entry.event, SinkConfirmed):
                confirmed.add((entry.event.checkpoint_id, entry.event.sink))
            for checkpoint_id in aborted_by(entry):
                if checkpoint_id not in seen:
                    seen.add(checkpoint_id)
                    yield _aborted(entry, checkpoint_id)


def _aborted(entry: LogEntry | Tombstone, checkpoint_id: CheckpointId) -> dict[str, Any]:
    """The document of a checkpoint that an entry gave up."""
    if isinstance(entry, Tombstone):
        return compacted_document(entry, checkpoint_id)
    aborts = aborts_of(entry.event)
    return next(aborted_document(one) for one in aborts if one.pending.checkpoint_id == checkpoint_id)


def _retained(state: ManifestState, checkpoint: CompletedCheckpoint) -> dict[str, Any]:
    """The document of a retained checkpoint; of the live lineage its tables are what its sinks show."""
    live = checkpoint in lineage(state, state.timeline())
    shown = [sink for sink in checkpoint.sinks if live or sink not in checkpoint.unpublished]
    document = completed_document(checkpoint, CheckpointStatus.COMPLETED, shown)
    return document | {"live": live, **_saved(state).get(checkpoint.checkpoint_id, {})}


def _pending(state: ManifestState) -> Iterator[dict[str, Any]]:
    """The documents of what is pending, newest timeline first."""
    for timeline in reversed(state.timelines):
        if timeline.pending is not None and timeline.leader is not None:
            leader = leader_document(timeline.leader.session_id, timeline.pending.token, timeline.leader.holder)
            document = pending_document(timeline.pending, timeline.timeline_id, leader)
            yield document | {"live": timeline.timeline_id == state.live}


def _saved(state: ManifestState) -> dict[CheckpointId, dict[str, str]]:
    return {one.checkpoint_id: {"kind": CheckpointKind.SAVEPOINT.value} for one in state.savepoints}


def _judge(document: dict[str, Any], max_lag_ms: int | None) -> tuple[int, str]:
    job = document["job"]
    if document["job_status"] == JobStatus.FAILED.value:
        cause = str(document["last_failure"])
        if cause == CheckpointFailureReason.STATE_CORRUPT.value:
            cause = f"{cause}: milepost verify {job} says what is broken, and the rollback to type"
        return 1, f"fix the cause ({cause}), then: milepost resume {job}"
    if document["result"] is not None:
        return 4, ended_step(job, document["result"])
    if document["realigning"]:
        waiting = ", ".join(document["realigning"])
        return 1, f"sinks {waiting} have yet to follow timeline {document['timeline']}: milepost run {job} lets them"
    if document["last_failure"] is not None and document["leader"] is not None:  # else of a timeline that was left
        return 1, f"the last epoch failed ({document['last_failure']}): milepost run {job}"
    if document["spec_refused"] is not None:
        return 1, f"{document['spec_refused']}: milepost lint {job} says the way out"
    stopped = document["source_changed"] or document["bad_name"]
    if stopped is not None:
        return 1, stopped
    if document["unconfirmed"]:
        waiting = ", ".join(document["unconfirmed"])
        return 1, f"completed checkpoints wait for sinks {waiting}: milepost run {job} publishes them"
    if document["lease_over"] is not None:
        pending = document["pending"]
        return 1, f"checkpoint {pending} is pending, its lease is over ({document['lease_over']}): milepost run {job}"
    beyond = stale(document, max_lag_ms) if max_lag_ms is not None else None
    if beyond is not None:
        return 6, beyond
    # Before its first success nobody knows whether the job can succeed.
    return 1 if document["head"] is None else 0, _waiting(document)


def _waiting(document: dict[str, Any]) -> str:
    """What a job waits for that nothing is wrong with."""
    job = document["job"]
    if document["pending"] is not None:
        return f"checkpoint {document['pending']} is running: wait for it (milepost abort {job} gives it up)"
    if document["unread_objects"]:
        unread = document["unread_objects"]
        return f"{unread} unread object{'' if unread == 1 else 's'}: milepost run {job}"
    if document["in_flight_bytes"]:
        return f"{document['in_flight_bytes']} bytes in flight: milepost run {job}"
    return "nothing to do"


def _frozen(state: ManifestState | None, now_ms: int) -> dict[str, str] | None:
    """Who keeps others from triggering on the live timeline, and until when; None: nobody."""
    frozen = frozen_by(state.timeline(), now_ms) if state is not None else None
    return None if frozen is None else {"session_id": frozen.session_id, "until": iso_ms(frozen.until_ms)}


def _pending_id(state: ManifestState | None) -> int | None:
    pending = state.timeline().pending if state is not None else None
    return None if pending is None else int(pending.checkpoint_id)


def _entry(entry: LogEntry | Tombstone) -> dict[str, Any]:
    if isinstance(entry, Tombstone):
        return {
            "version": entry.version,
            "event": entry.event,
            "time": iso_ms(entry.at_ms),
            "compacted": True,
            "checkpoint_id": int(entry.checkpoint_ids[0]) if len(entry.checkpoint_ids) == 1 else None,
            "reason": entry.reason,
        }
    event = entry.event
    document: dict[str, Any] = {"version": entry.version, "event": type(event).__name__, "time": iso_ms(event.at_ms)}
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
            "discarded": [int(one) for one in event.discarded],
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
    if isinstance(event, SinkConfirmed):
        document["detail"] = f"sink {event.sink}"
    return document | {name: value for name, value in fields.items() if name != "at_ms"}


def _switched(event: TimelineSwitched) -> str:
    left = f"timeline {event.timeline} from checkpoint {event.to}; left {event.from_timeline} at {event.from_head}"
    return f"{left}: {event.detail}" if event.detail else left
