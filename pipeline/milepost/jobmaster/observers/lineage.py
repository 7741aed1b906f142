"""Send an OpenLineage event for each transition that begins or ends a run.

The observer runs in its own thread and rereads records from the store, so it shares no state with the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from milepost.epoch import CheckpointMetadata, InputRecord, decode_input_record, decode_metadata
from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.language import SINK_FORMATS
from milepost.openlineage import LineageSettings, TableVersions
from milepost.protocol.log import LogEntry
from milepost.protocol.manifest.transaction import (
    CheckpointAborted,
    CheckpointTriggered,
    Event,
    RealignmentDecided,
    TimelineSwitched,
    aborts_of,
)
from milepost.protocol.records import CompletedCheckpoint, ManifestState, ObjectHandle, Reconciliation, cached_property
from milepost.quality import ExpectationResult, Verdict, VerdictStatus
from milepost.storage import read_handle
from milepost.storage.log import LandedTransition

if TYPE_CHECKING:
    from milepost.openlineage import LineageEvents, OpenLineageClient, RunEvent


class LineageObserver:
    """Sends the events of one job. Called on a background thread."""

    def __init__(self, context: JobContext, settings: LineageSettings) -> None:
        self._context, self._settings = context, settings

    def __call__(self, landed: LandedTransition) -> None:
        """Send events for the runs that a transition starts or ends. Raises the transport's and the store's errors."""
        before, event, after = landed.before, landed.transition.event, landed.transition.state
        if before is not None:
            for run_event in self._events(landed.version, before, event, after):
                self._client.emit(run_event)

    @cached_property
    def _client(self) -> OpenLineageClient:
        from milepost.openlineage import open_client

        return open_client(self._settings)

    @cached_property
    def _builder(self) -> LineageEvents:
        from milepost.openlineage import JobDatasets, LineageEvents

        job = self._context.job
        return LineageEvents(job, JobDatasets(job, job.graph()), self._settings.parent())

    def _events(self, version: int, before: ManifestState, event: Event, after: ManifestState) -> Iterator[RunEvent]:
        if isinstance(event, CheckpointTriggered):
            record = self._record(event.pending.plan)
            yield self._builder.started(event, record, live=event.timeline == after.live)
        yield from map(self._aborted, aborts_of(event))
        for checkpoint in _settled(before, after):
            yield self._ended(checkpoint, event, after)
        yield from self._decisions(version, before, event, after)

    def _ended(self, checkpoint: CompletedCheckpoint, event: Event, after: ManifestState) -> RunEvent:
        read = checkpoint, self._metadata(checkpoint), self._record(checkpoint.plan), event.at_ms
        if isinstance(event, TimelineSwitched) and checkpoint.checkpoint_id in event.discarded:
            return self._builder.discarded(*read)
        if checkpoint.timeline != after.live or isinstance(event, TimelineSwitched | RealignmentDecided):
            return self._builder.completed_on_fork(*read)
        return self._builder.completed(*read, self._versions(checkpoint.sinks, checkpoint.version))

    def _versions(self, sinks: Iterable[str], number: int) -> dict[str, str]:
        """Return the table versions that this transition published, where they are known."""
        versions: dict[str, str] = {}
        open_sinks = {sink.name for sink in self._context.spec.sinks if SINK_FORMATS[sink.format].is_open}
        for sink in open_sinks.intersection(sinks):
            with suppress(CheckpointError):  # the event omits the version
                shown = self._context.sink(sink).position()
                if shown.number == number and shown.readers_version is not None:
                    versions[sink] = shown.readers_version
        return versions

    def _aborted(self, event: CheckpointAborted) -> RunEvent:
        from milepost.openlineage import assertions_of

        refusals = [] if event.veto is None else self._refusals(event.veto)
        return self._builder.aborted(event, refusals, assertions_of(_verdicts(refusals)))

    def _decisions(self, version: int, before: ManifestState, event: Event, after: ManifestState) -> Iterator[RunEvent]:
        """Yield the end of a decision that all tables follow or a newer one replaces, then the start of a new one."""
        due, now = before.reconciliation, after.reconciliation
        decided = isinstance(event, TimelineSwitched | RealignmentDecided)
        if due is not None and (now is None or now.decision != due.decision):
            yield from self._decision_over(due, event, superseded=decided)
        if isinstance(event, TimelineSwitched | RealignmentDecided):
            yield self._builder.decided(event, version)
            if now is None:  # a job without sinks
                yield self._builder.followed(event, version, event.at_ms, None, TableVersions(after.live, {}))

    def _decision_over(self, due: Reconciliation, event: Event, *, superseded: bool) -> Iterator[RunEvent]:
        entry = self._context.log.entry(due.decision)
        if not isinstance(entry, LogEntry) or not isinstance(entry.event, TimelineSwitched | RealignmentDecided):
            return  # the entry is compacted, so the decision is unknown
        decision = entry.event
        if superseded:
            yield self._builder.superseded(decision, due.decision, event.at_ms)
            return
        checkpoint = entry.state.checkpoint(due.checkpoint_id)
        shown = None if checkpoint is None else self._metadata(checkpoint)
        sinks = decision.sinks if isinstance(decision, TimelineSwitched) else (decision.sink,)
        version = TableVersions(due.timeline, self._versions(sinks, due.decision))
        yield self._builder.followed(decision, due.decision, event.at_ms, shown, version)

    def _record(self, handle: ObjectHandle) -> InputRecord:
        return decode_input_record(read_handle(self._context.store, handle))

    def _metadata(self, checkpoint: CompletedCheckpoint) -> CheckpointMetadata:
        return decode_metadata(read_handle(self._context.store, checkpoint.metadata), checkpoint.metadata.key)

    def _refusals(self, veto: ObjectHandle) -> list[dict[str, Any]]:
        """Return the refused expectations: sink, type, column and severity, but no values."""
        from milepost.quality import decode_veto

        document = decode_veto(read_handle(self._context.store, veto), veto.key)
        names = ("sink", "type", "column", "severity")
        return [{name: refusal[name] for name in names} for refusal in document["refusals"]]


def _settled(before: ManifestState, after: ManifestState) -> Iterator[CompletedCheckpoint]:
    """Yield the checkpoints that all sinks have confirmed after a transition, but not before it."""
    for checkpoint in after.checkpoints:
        earlier = before.checkpoint(checkpoint.checkpoint_id)
        if not checkpoint.unconfirmed and (earlier is None or earlier.unconfirmed):
            yield checkpoint


def _verdicts(refusals: list[dict[str, Any]]) -> list[Verdict]:
    results: dict[str, list[ExpectationResult]] = {}
    for refusal in refusals:
        result = ExpectationResult(refusal["type"], refusal["column"], refusal["severity"], False, {}, None)
        results.setdefault(refusal["sink"], []).append(result)
    return [Verdict(sink, VerdictStatus.FAILED, 0, tuple(results[sink])) for sink in sorted(results)]
