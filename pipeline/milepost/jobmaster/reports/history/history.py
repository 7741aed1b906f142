"""Fold a job's history from the manifest log, for display (I6)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

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
from milepost.jobmaster.reports.history.acts import acts_of_people, find_returns
from milepost.jobmaster.reports.history.log_document import log_document
from milepost.jobmaster.reports.history.page import ALL, HistoryFilter, HistoryPage, LogPosition, TimelineSwitch
from milepost.jobmaster.reports.history.timeline_origins import timeline_origins
from milepost.protocol.log import LoggedEvent, Tombstone, aborted_by, completion_of
from milepost.protocol.manifest.transaction import (
    CheckpointCompleted,
    Event,
    TimelineSwitched,
    aborts_of,
    confirmation_of,
)
from milepost.protocol.records import (
    NO_CHECKPOINT,
    CheckpointId,
    CheckpointKind,
    CheckpointStatus,
    CompletedCheckpoint,
    ManifestState,
    ObjectHandle,
)
from milepost.protocol.retention import continues, timeline_ancestry

if TYPE_CHECKING:
    from milepost.jobmaster.job.measurements import PostCommitTimes


_MAX_SKIPPED = 200
"""Maximum number of entries that a page reads for checkpoints that its filter excludes."""


@dataclass(slots=True)
class _Walk:
    """A walk from the newest entry to the oldest: its position, and the events that it passed.

    Attributes:
        version: of the entry read last. continued: the next checkpoint of the live lineage.
    """

    version: int
    continued: CheckpointId
    switches: list[TimelineSwitch] = field(default_factory=list)
    events: list[tuple[int, Event]] = field(default_factory=list)


class History:
    """Read models of one job."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def checkpoints(self, status: str | None, limit: int | None) -> list[CheckpointReport]:
        """Return checkpoints, newest first; [] for a job that has never run."""
        matching = (report for report in self._reports() if status in (None, report.status))
        return list(islice(matching, self._bound(status, limit)))

    def live(self, limit: int) -> list[CheckpointReport]:
        """Return the newest completed checkpoints of the live lineage, newest first, starting with the head.

        The head has the retained ones. Older ones are read from the log, up to the first compacted entry, which has
        no figures to show.
        """
        head = self._context.log.head()
        if head is None:
            return []
        state, reports = head.state, list[CheckpointReport]()
        retained = {checkpoint.checkpoint_id: checkpoint for checkpoint in state.checkpoints}
        walk = _Walk(state.version + 1, state.timeline().head)
        while len(reports) < limit and walk.continued in retained:
            newest = retained[walk.continued]
            reports.append(_retained(state, newest, ()))
            walk = _Walk(newest.version, newest.parent)
        if len(reports) < limit and walk.continued != NO_CHECKPOINT:
            done = (CheckpointStatus.COMPLETED.value, CheckpointStatus.SUBSUMED.value)
            readable = takewhile(lambda report: not report.compacted, self._reports(walk))
            older = (report for report in readable if report.live and report.status in done)
            reports += islice(older, limit - len(reports))
        return reports

    def page(self, limit: int, following: str | None = None, selected: HistoryFilter = ALL) -> HistoryPage:
        """Return at least `limit` checkpoints, newest first, if there are that many. Entries are never split.

        A damaged entry ends the page, because the lineage of older checkpoints is then unknown.

        Args:
            following: from the previous page; None: start at the newest entry.
            selected: excluded checkpoints count: after `_MAX_SKIPPED` entries a page may end with fewer.
        Raises: InvalidRequest: `following` is not a position.
        """
        head = self._context.log.head()
        if head is None:
            return HistoryPage((), (), None)
        begin = _newest(head.state) if following is None else LogPosition.parse(following)
        if selected.retained:
            return _retained_page(head.state, begin, limit, selected)
        walk = _Walk(begin.before, begin.live)
        found: list[CheckpointReport] = []
        last = begin
        unreadable = None
        try:
            for report in self._reports(walk):
                full = len(found) >= limit or (not selected.all and begin.before - last.before >= _MAX_SKIPPED)
                if full and walk.version < last.before:
                    return self._page(head.state, found, walk, last)
                if report in selected:
                    found.append(report)
                last = LogPosition(walk.version, walk.continued)
        except StateCorrupt as error:
            unreadable = error.message
        return replace(self._page(head.state, found, walk, None), unreadable=unreadable)

    def newest(self, limit: int) -> HistoryPage:
        """Return the newest checkpoints of the live timeline, with the acts of people since then.

        After a return to an older checkpoint, those that the job no longer continues are not among them. Aborted and
        pending checkpoints of the live timeline are.
        """
        page = self.page(limit)
        if all(report.live or report.status == CheckpointStatus.ABORTED.value for report in page.checkpoints):
            return page
        live = self._context.head().state.live
        try:
            lineage = {report.checkpoint_id: report for report in self.live(limit)}
        except StateCorrupt as error:
            return replace(page, unreadable=error.message)
        for report in page.checkpoints:
            if report.live or (report.status == CheckpointStatus.ABORTED.value and report.timeline == live):
                lineage.setdefault(report.checkpoint_id, report)
        shown = sorted(lineage.values(), key=lambda report: report.checkpoint_id, reverse=True)
        return replace(page, checkpoints=tuple(shown[:limit]))

    def _page(
        self, state: ManifestState, found: Sequence[CheckpointReport], walk: _Walk, last: LogPosition | None
    ) -> HistoryPage:
        """Return the page of a walk, up to the last position whose checkpoints are all in it; None: the whole walk."""
        first = 0 if last is None else last.before
        timelines = {state.live, *(report.timeline for report in found if report.timeline is not None)}
        returns = find_returns(walk.events)
        switches = tuple(
            replace(switch, returns=switch.version in returns) for switch in walk.switches if switch.version >= first
        )
        timelines |= {name for switch in switches for name in (switch.left, switch.timeline)}
        return HistoryPage(
            tuple(found),
            switches,
            None if last is None else str(last),
            acts=acts_of_people([item for item in walk.events if item[0] >= first], returns),
            origins=timeline_origins(self._context, timelines, dict(walk.events)),
        )

    def _bound(self, status: str | None, limit: int | None) -> int | None:
        """Return how many checkpoints to search for: at most as many as the head has, so that the walk ends."""
        head = self._context.log.head()
        bounds = [limit] if limit is not None else []
        if head is not None and status == CheckpointStatus.PENDING.value:
            bounds.append(sum(timeline.pending is not None for timeline in head.state.timelines))
        if head is not None and status == CheckpointStatus.COMPLETED.value:
            bounds.append(len(head.state.checkpoints))
        return min(bounds, default=None)

    def head(self, state: ManifestState) -> CheckpointId:
        """Return the newest completed checkpoint of the live timeline. Raises NotFound: there is none."""
        checkpoint_id = state.timeline().head
        if checkpoint_id == NO_CHECKPOINT:
            raise NotFound(
                f"job {state.job} has no completed checkpoint: its head is the empty state",
                hint=f"milepost list {state.job} shows what was tried",
            )
        return checkpoint_id

    def show(
        self,
        checkpoint_id: int,
        after: Sequence[PostCommitTimes] | None = None,
        state: ManifestState | None = None,
        *,
        details: bool = True,
    ) -> CheckpointReport:
        """Return one checkpoint; a retained one as `CheckpointDetails`.

        Args:
            after: times after the commit, if the caller has them. state: the head, if the caller has it.
            details: False: only what the log has.
        """
        state = self._context.head().state if state is None else state
        report = self._report(state, CheckpointId(checkpoint_id))
        if report is None:
            raise NotFound(
                f"job {state.job} has no checkpoint {checkpoint_id}; the next one is {state.next_checkpoint_id}",
                checkpoint_id=checkpoint_id,
            )
        named = tuple(savepoint.name for savepoint in state.savepoints if savepoint.checkpoint_id == checkpoint_id)
        report = replace(report, savepoints=named, veto=self._veto(report))
        retained = state.checkpoint(CheckpointId(checkpoint_id))
        if retained is None or not details:
            return report
        from milepost.jobmaster.reports.checkpoint.details import checkpoint_details

        return checkpoint_details(self._context, report, retained, after, state.version)

    def _veto(self, report: CheckpointReport) -> Any:
        """Return what the gate refused, with the bounds of its rules unless the spec has changed since."""
        if not isinstance(report.veto, ObjectHandle):
            return report.veto
        from milepost.jobmaster.reports.history.refused_bounds import with_bounds
        from milepost.jobmaster.retention.vetoes import read_veto

        veto, job = read_veto(self._context, report.veto), self._context.job
        return with_bounds(veto, job.spec.quality) if report.spec_hash == job.spec_hash else veto

    def _report(self, state: ManifestState, checkpoint_id: CheckpointId) -> CheckpointReport | None:
        """Return the report of a checkpoint: from the head if it is pending or retained, else from its last log entry.

        `live` is None if that is no longer known: the entry is compacted, or the timeline is no longer listed.
        """
        retained = state.checkpoint(checkpoint_id)
        if retained is not None:
            confirmed: frozenset[str] = frozenset()
            if retained not in timeline_ancestry(state, state.timeline()):
                confirmed = frozenset(confirmations_after(self._context.log, retained, state.version).sinks)
            return _retained(state, retained, confirmed)
        pending = next((report for report in _pending(state) if report.checkpoint_id == checkpoint_id), None)
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
                (ancestor.checkpoint_id for ancestor in timeline_ancestry(state, state.timeline())),
                default=NO_CHECKPOINT,
            )
            live = descends_from(log, state.version, oldest, checkpoint_id)
        confirmations = confirmations_after(log, done, state.version)
        report = completed_report(done, CheckpointStatus.SUBSUMED, done.sinks if live else confirmations.sinks)
        took = report.duration_ms if confirmations.duration_ms is None else confirmations.duration_ms
        return replace(report, live=live, duration_ms=took)

    def log(self, limit: int | None) -> list[dict[str, Any]]:
        """Return manifest entries, newest first: version, time, event, and the fields of its kind of event."""
        entries = list(self._context.log.events(limit))
        returns = find_returns([(entry.version, entry.event) for entry in entries if isinstance(entry, LoggedEvent)])
        return [log_document(entry, returns=entry.version in returns) for entry in entries]

    def _reports(self, walk: _Walk | None = None) -> Iterator[CheckpointReport]:
        """Yield every checkpoint that was ever triggered, newest first, as of its newest event.

        `live` is True if the live head continues it, or if it is pending on the live timeline. It is False for one that
        a rollback has discarded, or that is on a fork. The walk follows parents: with 5 -> 4 -> 2 as the live lineage,
        checkpoint 3 was discarded.

        Args:
            walk: start position, which is advanced; None: the head.
        """
        head = self._context.log.head()
        if head is None:
            return
        state = head.state
        seen: set[int] = set()
        begin = _newest(state)
        walk = walk or _Walk(begin.before, begin.live)
        confirmed: set[tuple[int, str]] = set()
        durations: dict[int, int] = {}
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
                retained = state.checkpoint(done.checkpoint_id)
                on_live = done.checkpoint_id == walk.continued
                walk.continued = done.parent if on_live else walk.continued
                if retained is not None:
                    sinks = {sink for checkpoint_id, sink in confirmed if checkpoint_id == retained.checkpoint_id}
                    yield _retained(state, retained, sinks)
                elif isinstance(entry, LoggedEvent) and isinstance(entry.event, CheckpointCompleted):
                    all_sinks = entry.event.checkpoint.sinks
                    shown = {sink for sink in all_sinks if on_live or (done.checkpoint_id, sink) in confirmed}
                    report = completed_report(entry.event.checkpoint, CheckpointStatus.SUBSUMED, shown)
                    took = durations.get(report.checkpoint_id, report.duration_ms)
                    yield replace(report, live=on_live, duration_ms=took)
                elif isinstance(entry, Tombstone):
                    yield replace(compacted_report(entry, done.checkpoint_id), live=on_live)
            if isinstance(entry, LoggedEvent):
                walk.events.append((entry.version, entry.event))
            if isinstance(entry, LoggedEvent) and (shown_by := confirmation_of(entry.event)) is not None:
                confirmed |= {(shown_by.checkpoint_id, sink) for sink in shown_by.sinks}
                if shown_by.duration_ms is not None:
                    durations[int(shown_by.checkpoint_id)] = shown_by.duration_ms
            if isinstance(entry, LoggedEvent) and isinstance(entry.event, TimelineSwitched):
                confirmed |= {(entry.event.to, sink) for sink in entry.event.sinks}
                walk.switches.append(TimelineSwitch.of(entry.version, entry.event))
            for checkpoint_id in aborted_by(entry):
                if checkpoint_id not in seen:
                    seen.add(checkpoint_id)
                    yield _aborted(entry, checkpoint_id)


def _retained_page(state: ManifestState, begin: LogPosition, limit: int, selected: HistoryFilter) -> HistoryPage:
    """Return a page of retained checkpoints from the head alone. In the log they may be months back."""
    older = (checkpoint for checkpoint in reversed(state.checkpoints) if checkpoint.version < begin.before)
    reports = ((checkpoint, _retained(state, checkpoint, ())) for checkpoint in older)
    found = list(islice(((checkpoint, report) for checkpoint, report in reports if report in selected), limit + 1))
    more = len(found) > limit
    following = str(LogPosition(found[limit - 1][0].version, begin.live)) if more else None
    return HistoryPage(tuple(report for _, report in found[:limit]), (), following)


def _newest(state: ManifestState) -> LogPosition:
    """Return the start position of a walk. Pending checkpoints have a position before the head's entry."""
    return LogPosition(state.version + 2, state.timeline().head)


def _aborted(entry: LoggedEvent | Tombstone, checkpoint_id: CheckpointId) -> CheckpointReport:
    """Return the report of a checkpoint that an entry aborted."""
    if isinstance(entry, Tombstone):
        return compacted_report(entry, checkpoint_id)
    aborts = aborts_of(entry.event)
    return next(aborted_report(abort) for abort in aborts if abort.pending.checkpoint_id == checkpoint_id)


def _retained(state: ManifestState, checkpoint: CompletedCheckpoint, confirmed: Collection[str]) -> CheckpointReport:
    """Return the report of a retained checkpoint. On the live lineage all its sinks have published it.

    Args:
        confirmed: sinks that have confirmed it.
    """
    live = continues(state, checkpoint.timeline, checkpoint.checkpoint_id) is True
    shown = [sink for sink in checkpoint.sinks if live or sink in confirmed]
    saved = any(savepoint.checkpoint_id == checkpoint.checkpoint_id for savepoint in state.savepoints)
    kind = CheckpointKind.SAVEPOINT if saved else CheckpointKind.CHECKPOINT
    report = completed_report(checkpoint, CheckpointStatus.COMPLETED, shown)
    return replace(report, live=live, kind=kind.value)


def _pending(state: ManifestState) -> Iterator[CheckpointReport]:
    """Yield the reports of pending checkpoints, newest timeline first."""
    for timeline in reversed(state.timelines):
        if timeline.pending is not None and timeline.leader is not None:
            report = pending_report(timeline.pending, timeline.timeline_id, timeline.leader)
            yield replace(report, live=timeline.timeline_id == state.live)
