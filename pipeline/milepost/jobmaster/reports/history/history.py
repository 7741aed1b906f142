"""The history is folded from the manifest log, as people read it (I6)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from milepost.codec.records import to_json
from milepost.epoch.iso_times import iso_ms
from milepost.errors import NotFound, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.checkpoint.document import (
    CheckpointReport,
    aborted_report,
    compacted_report,
    completed_report,
    pending_report,
)
from milepost.jobmaster.reports.checkpoint.log_search import confirmations_after, descends_from, ending_entry
from milepost.jobmaster.reports.history.page import ALL, HistoryFilter, HistoryPage, LogPosition, TimelineSwitch
from milepost.protocol.log.log_entries import LoggedEvent, Tombstone, aborted_by, completion_of
from milepost.protocol.manifest.transaction.events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobCanceled,
    SinksConfirmed,
    TimelineSwitched,
    aborts_of,
    confirmation_of,
)
from milepost.protocol.records.checkpoints import CheckpointKind, CheckpointStatus, CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.ancestry import continues, timeline_ancestry

if TYPE_CHECKING:
    from milepost.jobmaster.job.measurements import PostCommitTimes


_PASSED = 200
"""Entries that a page reads at most for checkpoints that are not wanted: a person can wait for as many."""


@dataclass(slots=True)
class _Walk:
    """A walk from the newest entry to the oldest: where it is, and what it has passed.

    Attributes:
        version: of the entry that was read last. continued: newest checkpoint of the live lineage that is to come.
    """

    version: int
    continued: CheckpointId
    switches: list[TimelineSwitch] = field(default_factory=list)


class History:
    """Read models of one job."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def checkpoints(self, status: str | None, limit: int | None) -> list[CheckpointReport]:
        """Return checkpoints, newest first; [] for a job that has never run."""
        wanted = (report for report in self._reports() if status in (None, report.status))
        return list(islice(wanted, self._bound(status, limit)))

    def live(self, limit: int) -> list[CheckpointReport]:
        """Return the newest completed checkpoints that the live head continues, newest first, itself among them.

        The head tells of those that it retains one after another, the log of what is older, as far as it is whole: of
        what is compacted nothing was kept that could be shown.
        """
        head = self._context.log.head()
        if head is None:
            return []
        state, found = head.state, list[CheckpointReport]()
        retained = {one.checkpoint_id: one for one in state.checkpoints}
        walk = _Walk(state.version + 1, state.timeline().head)
        while len(found) < limit and walk.continued in retained:
            newest = retained[walk.continued]
            found.append(_retained(state, newest, ()))
            walk = _Walk(newest.version, newest.parent)
        if len(found) < limit and walk.continued != NO_CHECKPOINT:
            done = (CheckpointStatus.COMPLETED.value, CheckpointStatus.SUBSUMED.value)
            whole = takewhile(lambda report: not report.compacted, self._reports(walk))
            older = (report for report in whole if report.live and report.status in done)
            found += islice(older, limit - len(found))
        return found

    def page(self, limit: int, following: str | None = None, wanted: HistoryFilter = ALL) -> HistoryPage:
        """Return at least `limit` checkpoints, newest first, if there are so many; an entry is never divided.

        A damaged entry ends it: whether the head continues what is older would be told wrongly.

        Args:
            following: of the page before; None: from the newest one on.
            wanted: of what is left out, no more than `_PASSED` entries are read for one page: it may have fewer.
        Raises: InvalidRequest: that is no position.
        """
        head = self._context.log.head()
        if head is None:
            return HistoryPage((), (), None)
        begin = _newest(head.state) if following is None else LogPosition.parse(following)
        if wanted.retained:
            return _retained_page(head.state, begin, limit, wanted)
        walk = _Walk(begin.before, begin.live)
        found: list[CheckpointReport] = []
        last = begin
        unreadable = None
        try:
            for report in self._reports(walk):
                full = len(found) >= limit or (not wanted.all and begin.before - last.before >= _PASSED)
                if full and walk.version < last.before:
                    switches = tuple(one for one in walk.switches if one.version >= last.before)
                    return HistoryPage(tuple(found), switches, str(last))
                if report in wanted:
                    found.append(report)
                last = LogPosition(walk.version, walk.continued)
        except StateCorrupt as error:
            unreadable = error.message
        return HistoryPage(tuple(found), tuple(walk.switches), None, unreadable)

    def _bound(self, status: str | None, limit: int | None) -> int | None:
        """Return how many checkpoints to look for: no more than the head says that there are, so that the walk ends."""
        head = self._context.log.head()
        known = [limit] if limit is not None else []
        if head is not None and status == CheckpointStatus.PENDING.value:
            known.append(sum(timeline.pending is not None for timeline in head.state.timelines))
        if head is not None and status == CheckpointStatus.COMPLETED.value:
            known.append(len(head.state.checkpoints))
        return min(known, default=None)

    def head(self, state: ManifestState) -> CheckpointId:
        """Return the newest completed checkpoint of the live timeline. Raises NotFound: there is none."""
        found = state.timeline().head
        if found == NO_CHECKPOINT:
            raise NotFound(
                f"job {state.job} has no completed checkpoint: its head is the empty state",
                hint=f"milepost list {state.job} shows what was tried",
            )
        return found

    def show(
        self,
        checkpoint_id: int,
        after: Sequence[PostCommitTimes] | None = None,
        state: ManifestState | None = None,
        *,
        details: bool = True,
    ) -> CheckpointReport:
        """Return one checkpoint; a retained one with its details (`CheckpointDetails`).

        Args:
            after: what was measured from its commit on, when the caller knows it. state: the head, when it knows that.
            details: False: only what the log says of it.
        """
        state = self._context.head().state if state is None else state
        report = self._one(state, CheckpointId(checkpoint_id))
        if report is None:
            raise NotFound(
                f"job {state.job} has no checkpoint {checkpoint_id}; the next one is {state.next_checkpoint_id}",
                checkpoint_id=checkpoint_id,
            )
        named = tuple(one.name for one in state.savepoints if one.checkpoint_id == checkpoint_id)
        veto = report.veto
        shown = self._veto(veto) if isinstance(veto, ObjectHandle) else veto
        report = replace(report, savepoints=named, veto=shown)
        retained = state.checkpoint(CheckpointId(checkpoint_id))
        if retained is None or not details:
            return report
        from milepost.jobmaster.reports.checkpoint.details import checkpoint_details

        return checkpoint_details(self._context, report, retained, after, state.version)

    def _veto(self, handle: ObjectHandle) -> Any:
        from milepost.jobmaster.retention.vetoes import read_veto

        return read_veto(self._context, handle)

    def _one(self, state: ManifestState, checkpoint_id: CheckpointId) -> CheckpointReport | None:
        """The report of a checkpoint: of what is pending or retained the head tells all, else the entry of its end.

        `live` is None where that is not known any more: compacted, or long ago on a timeline that is not listed.
        """
        kept = state.checkpoint(checkpoint_id)
        if kept is not None:
            confirmed: frozenset[str] = frozenset()
            if kept not in timeline_ancestry(state, state.timeline()):
                confirmed = frozenset(confirmations_after(self._context.log, kept, state.version))
            return _retained(state, kept, confirmed)
        pending = next((one for one in _pending(state) if one.checkpoint_id == checkpoint_id), None)
        if pending is not None or not 0 < checkpoint_id < state.next_checkpoint_id:
            return pending
        log = self._context.log
        entry = ending_entry(log, state.version, checkpoint_id, state.checkpoints)
        if entry is None:
            return None
        if checkpoint_id in aborted_by(entry):
            return _aborted(entry, checkpoint_id)
        if isinstance(entry, Tombstone):
            return replace(compacted_report(entry, checkpoint_id), live=None)
        assert isinstance(entry.event, CheckpointCompleted)
        done = entry.event.checkpoint
        live = continues(state, done.timeline, done.checkpoint_id)
        if live is None:
            oldest = min(
                (one.checkpoint_id for one in timeline_ancestry(state, state.timeline())), default=NO_CHECKPOINT
            )
            live = descends_from(log, state.version, oldest, checkpoint_id)
        shown = done.sinks if live else confirmations_after(log, done, state.version)
        return replace(completed_report(done, CheckpointStatus.SUBSUMED, shown), live=live)

    def log(self, limit: int | None) -> list[dict[str, Any]]:
        """Return manifest entries, newest first: version, time, event, and whatever fields an event of its kind has."""
        return [_entry(entry) for entry in self._context.log.events(limit)]

    def _reports(self, walk: _Walk | None = None) -> Iterator[CheckpointReport]:
        """Every checkpoint that was ever triggered, newest first: each is told by its newest event.

        `live`: the live head continues it, or it is pending on the live timeline. One that a rollback has discarded, or
        that is of a fork, is not.

        Args:
            walk: where to begin, and then where the walk is; None: at the head.
        """
        head = self._context.log.head()
        if head is None:
            return
        state = head.state
        seen: set[int] = set()
        begin = _newest(state)
        walk = walk or _Walk(begin.before, begin.live)
        confirmed: set[tuple[int, str]] = set()
        if walk.version >= begin.before:
            walk.version = state.version + 1
            for pending in _pending(state):
                seen.add(pending.checkpoint_id)
                yield pending
        for entry in self._context.log.events(before=walk.version):
            walk.version = entry.version
            done = completion_of(entry)
            if done is not None and done.checkpoint_id not in seen:
                seen.add(done.checkpoint_id)
                kept = state.checkpoint(done.checkpoint_id)
                on_live = done.checkpoint_id == walk.continued
                walk.continued = done.parent if on_live else walk.continued
                if kept is not None:
                    yield _retained(state, kept, {sink for one, sink in confirmed if one == kept.checkpoint_id})
                elif isinstance(entry, LoggedEvent) and isinstance(entry.event, CheckpointCompleted):
                    sinks = entry.event.checkpoint.sinks
                    shown = {sink for sink in sinks if on_live or (done.checkpoint_id, sink) in confirmed}
                    report = completed_report(entry.event.checkpoint, CheckpointStatus.SUBSUMED, shown)
                    yield replace(report, live=on_live)
                elif isinstance(entry, Tombstone):
                    yield replace(compacted_report(entry, done.checkpoint_id), live=on_live)
            if isinstance(entry, LoggedEvent) and (shown_by := confirmation_of(entry.event)) is not None:
                confirmed |= {(shown_by.checkpoint_id, sink) for sink in shown_by.sinks}
            if isinstance(entry, LoggedEvent) and isinstance(entry.event, TimelineSwitched):
                confirmed |= {(entry.event.to, sink) for sink in entry.event.sinks}
                walk.switches.append(TimelineSwitch.of(entry.version, entry.event))
            for checkpoint_id in aborted_by(entry):
                if checkpoint_id not in seen:
                    seen.add(checkpoint_id)
                    yield _aborted(entry, checkpoint_id)


def _retained_page(state: ManifestState, begin: LogPosition, limit: int, wanted: HistoryFilter) -> HistoryPage:
    """Return a page of retained checkpoints, for which nothing of the log is read: it may keep them for months."""
    older = (one for one in reversed(state.checkpoints) if one.version < begin.before)
    reports = ((one, _retained(state, one, ())) for one in older)
    found = list(islice(((one, report) for one, report in reports if report in wanted), limit + 1))
    more = len(found) > limit
    following = str(LogPosition(found[limit - 1][0].version, begin.live)) if more else None
    return HistoryPage(tuple(report for _, report in found[:limit]), (), following)


def _newest(state: ManifestState) -> LogPosition:
    """Return where a walk begins: what is pending has a place of its own, between it and the head's entry."""
    return LogPosition(state.version + 2, state.timeline().head)


def _aborted(entry: LoggedEvent | Tombstone, checkpoint_id: CheckpointId) -> CheckpointReport:
    """Return the report of a checkpoint that an entry gave up."""
    if isinstance(entry, Tombstone):
        return compacted_report(entry, checkpoint_id)
    aborts = aborts_of(entry.event)
    return next(aborted_report(one) for one in aborts if one.pending.checkpoint_id == checkpoint_id)


def _retained(state: ManifestState, checkpoint: CompletedCheckpoint, confirmed: Collection[str]) -> CheckpointReport:
    """Return the report of a retained checkpoint; of the live lineage its tables are what its sinks show.

    Args:
        confirmed: sinks whose tables have shown it.
    """
    live = continues(state, checkpoint.timeline, checkpoint.checkpoint_id) is True
    shown = [sink for sink in checkpoint.sinks if live or sink in confirmed]
    saved = any(one.checkpoint_id == checkpoint.checkpoint_id for one in state.savepoints)
    kind = CheckpointKind.SAVEPOINT if saved else CheckpointKind.CHECKPOINT
    report = completed_report(checkpoint, CheckpointStatus.COMPLETED, shown)
    return replace(report, live=live, kind=kind.value)


def _pending(state: ManifestState) -> Iterator[CheckpointReport]:
    """The reports of what is pending, newest timeline first."""
    for timeline in reversed(state.timelines):
        if timeline.pending is not None and timeline.leader is not None:
            report = pending_report(timeline.pending, timeline.timeline_id, timeline.leader)
            yield replace(report, live=timeline.timeline_id == state.live)


def _entry(entry: LoggedEvent | Tombstone) -> dict[str, Any]:
    """Return one entry of the log as a document: of most events their fields as they are."""
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
    if (confirmed := confirmation_of(event)) is not None:
        sinks = f"sink{'s' * (len(confirmed.sinks) > 1)} {', '.join(confirmed.sinks)}"
        alone = isinstance(event, SinksConfirmed)
        document["detail"] = sinks if alone else f"checkpoint {confirmed.checkpoint_id} confirmed by {sinks}"
        if not alone:
            fields["confirmed"] = {"checkpoint_id": int(confirmed.checkpoint_id), "sinks": list(confirmed.sinks)}
    return document | {name: value for name, value in fields.items() if name != "at_ms"}


def _switched(event: TimelineSwitched) -> str:
    left = f"timeline {event.timeline} from checkpoint {event.to}; left {event.from_timeline} at {event.from_head}"
    return f"{left}: {event.detail}" if event.detail else left
