"""Rewind points are the checkpoints that a job can go back to, each with what going back would change.

What a list of them costs does not grow with what each would need: the metadata of each is read, all side by side; what
the head has consumed is read once, and says by checkpoint what would run again; of points that the head does not
continue, what they had consumed is read too. No table, and no object of a source, is looked at: that is the plan's
(`plan.py`), for the one that somebody chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from milepost.epoch.iso_times import iso_ms
from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import Busy, CheckpointError, StateCorrupt
from milepost.jobmaster.compatibility.preflight import mismatches, preflight
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import contents_at
from milepost.jobmaster.leadership.table_previews import fate_of_dropped
from milepost.jobmaster.rollback.inputs import InputSize, forgotten, passed_over
from milepost.jobmaster.rollback.other_tables import OtherTable, other_tables
from milepost.jobmaster.rollback.plan import StateRows, state_rows
from milepost.protocol.records.cached_property import cached_property
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.manifest_state import ManifestState, TimelineRole
from milepost.protocol.retention.ancestry import checkpoint_ancestry, timeline_ancestry
from milepost.sources.planning.consumed import ConsumedSet, read_run
from milepost.storage.concurrency.parallel_map import parallel_map

_VERSION = ["key", "etag"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a point cannot be used: the error that a rollback to it would raise."""

    error: str
    message: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table now and at a point; None: the head cannot be read.

    Attributes:
        exact: False for a table of the latest rows: those that were replaced since count as well, so it has no more.
    """

    rows_now: int | None
    rows_then: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPoint:
    """A checkpoint that the job can go back to; 0 is the empty state.

    Attributes:
        live: the head continues it. head: it is the head: nothing would change.
        savepoints: made of it.
        epochs: how many the head is ahead of what both have in common; None: not known any more.
        discarded: retained checkpoints that would not be live any more, oldest first.
        runs_again: input of each source that the next epochs read once more. counts_as_read: what they pass over though
            it is read again. Both are None where head or point cannot be read.
        tables, operators: rows now and then, by sink and by uid.
        other_tables: of sinks that a migration took from one table to another.
        not_undone: in words. spec: where it does not fit the point.
        refused: why it cannot be used; None: a plan of it says whether every object and table is there.
    """

    checkpoint_id: int
    epoch: int | None = None
    timeline: str | None = None
    trigger_time: str | None = None
    watermark: object = None
    live: bool
    head: bool
    savepoints: tuple[str, ...] = ()
    epochs: int | None = None
    discarded: tuple[int, ...] = ()
    runs_again: Mapping[str, InputSize] | None = None
    counts_as_read: Mapping[str, InputSize] | None = None
    tables: Mapping[str, TableRows]
    operators: Mapping[str, StateRows]
    other_tables: Mapping[str, OtherTable]
    not_undone: tuple[str, ...] = ()
    spec: tuple[str, ...] = ()
    refused: Refusal | None = None


def rewind_points(context: JobContext, limit: int | None = None) -> list[RewindPoint]:
    """Return the points of a job, newest first, the empty state last; [] for a job that has never run.

    Args:
        limit: so many of the newest; None: all that are retained.
    """
    head = context.log.head()
    if head is None:
        return []
    newest = list(reversed(head.state.checkpoints))[:limit]
    points = _Points(context, head.state, newest)
    found = [points.of(checkpoint) for checkpoint in newest]
    return found if limit is not None and len(newest) == limit else [*found, points.of(None)]


class _Points:
    """What the points of one list have in common, read once."""

    def __init__(self, context: JobContext, state: ManifestState, points: Sequence[CompletedCheckpoint]) -> None:
        self._context, self._state = context, state
        self._live = tuple(one.checkpoint_id for one in timeline_ancestry(state, state.timeline()))
        wanted = {one.checkpoint_id for one in points} | ({state.timeline().head} - {NO_CHECKPOINT})
        read = parallel_map(context.store, self._read, sorted(wanted))
        self._metadata = dict(zip(sorted(wanted), read, strict=True))
        live = set(self._live)
        beside = [self._metadata[one.checkpoint_id] for one in points if one.checkpoint_id not in live]
        self._runs = self._read_runs([self._now, *beside])

    def of(self, checkpoint: CompletedCheckpoint | None) -> RewindPoint:
        """Return one point; of None the empty state."""
        state = self._state
        at = NO_CHECKPOINT if checkpoint is None else checkpoint.checkpoint_id
        live = checkpoint is None or at in self._live
        kept = {one.checkpoint_id: one for one in checkpoint_ancestry(state, at)}
        known: dict[str, Any] = {
            "checkpoint_id": int(at),
            "live": live,
            "head": at == state.timeline().head,
            "savepoints": tuple(one.name for one in state.savepoints if one.checkpoint_id == at),
            "epochs": self._epochs(checkpoint, kept),
            "discarded": tuple(int(one) for one in self._live if one not in kept),
        }
        if checkpoint is not None:
            known |= {
                "epoch": int(checkpoint.epoch),
                "timeline": checkpoint.timeline,
                "trigger_time": iso_ms(checkpoint.trigger_time_ms),
                "watermark": checkpoint.summary.get("watermark"),
            }
        try:
            return RewindPoint(**known, **self._changes(at, live=live))
        except CheckpointError as error:
            refused = Refusal(type(error).__name__, error.message, error.hint)
            return RewindPoint(**known, tables={}, operators={}, other_tables={}, refused=refused)

    @property
    def _now(self) -> CheckpointMetadata | CheckpointError | None:
        return self._metadata.get(self._state.timeline().head)

    def _read(self, checkpoint_id: CheckpointId) -> CheckpointMetadata | CheckpointError | None:
        try:
            return self._context.base_metadata(self._state, checkpoint_id)
        except StateCorrupt as error:
            return error

    def _read_runs(
        self, metadata: Iterable[CheckpointMetadata | CheckpointError | None]
    ) -> dict[ObjectHandle, pa.Table | StateCorrupt]:
        """Return the runs of consumed objects of these checkpoints, each read once."""
        known = [one for one in metadata if isinstance(one, CheckpointMetadata)]
        handles = dict.fromkeys(run for one in known for source in one.sources.values() for run in source.consumed)
        return dict(zip(handles, parallel_map(self._context.store, self._read_run, handles), strict=True))

    def _read_run(self, handle: ObjectHandle) -> pa.Table | StateCorrupt:
        try:
            return read_run(self._context.store, handle)
        except StateCorrupt as error:
            return error

    def _epochs(
        self, checkpoint: CompletedCheckpoint | None, kept: Mapping[CheckpointId, CompletedCheckpoint]
    ) -> int | None:
        """Return how many epochs the head is ahead of what it has in common with a point."""
        head = self._state.head()
        if head is None or checkpoint is None:
            return 0 if head is None else int(head.epoch)
        common = next((kept[one] for one in reversed(self._live) if one in kept), None)
        return None if common is None else int(head.epoch) - int(common.epoch)

    def _changes(self, at: CheckpointId, *, live: bool) -> dict[str, Any]:
        """Return what going back to a point would change. Raises what refuses it."""
        then, now = self._metadata.get(at), self._now
        if isinstance(then, CheckpointError):
            raise then
        self._check(then, at)
        unreadable = isinstance(now, CheckpointError)
        head = None if isinstance(now, CheckpointError) else now
        runs_again, counts_as_read, lost = self._inputs(head, then, at, live=live)
        dropped = {name for one in (head, then) if one is not None for name in one.tables} - set(self._sinks)
        return {
            "runs_again": None if unreadable else runs_again,
            "counts_as_read": None if unreadable else counts_as_read,
            "tables": {name: self._table(name, head, then, unknown=unreadable) for name in self._sinks},
            "operators": state_rows(head, then, unknown=unreadable),
            "other_tables": other_tables(self._context, head, then),
            "not_undone": (*map(fate_of_dropped, sorted(dropped)), *lost),
            "spec": tuple(mismatches(preflight(self._context, then, None))),
        }

    def _check(self, then: CheckpointMetadata | None, at: CheckpointId) -> None:
        """Raise what a rollback to a point would raise, as far as it costs no look at each table."""
        for name in self._sinks:
            contents_at(self._context, then, name)
        checkpoint = self._state.checkpoint(at)
        owner = None if checkpoint is None else checkpoint.timeline
        for timeline in self._state.timelines:
            if timeline.timeline_id == owner and timeline.role is TimelineRole.FORK and timeline.pending is not None:
                raise Busy(
                    f"checkpoint {timeline.pending.checkpoint_id} is pending on the timeline {owner} that it is of",
                    hint="wait for it, or take it over with --take-over",
                )

    @cached_property
    def _sinks(self) -> list[str]:
        return [sink.name for sink in self._context.spec.sinks]

    def _table(
        self, name: str, now: CheckpointMetadata | None, then: CheckpointMetadata | None, *, unknown: bool
    ) -> TableRows:
        def rows(metadata: CheckpointMetadata | None) -> int:
            contents = metadata.tables.get(name) if metadata is not None else None
            return 0 if contents is None else contents.rows

        exact = self._context.spec.sink(name).mode != "upsert"
        return TableRows(None if unknown else rows(now), rows(then), exact)

    def _inputs(
        self, now: CheckpointMetadata | None, then: CheckpointMetadata | None, at: CheckpointId, *, live: bool
    ) -> tuple[dict[str, InputSize], dict[str, InputSize], list[str]]:
        """Return by source what is new input again at a point, and what counts as read there; and what is lost."""
        again: dict[str, InputSize] = {}
        read: dict[str, InputSize] = {}
        lost: list[str] = []
        for name in sorted({name for one in (now, then) if one is not None for name in one.sources}):
            consumed = self._consumed(now, name)
            if live:  # the head has consumed all that the point had, and says of each when
                fresh, passed = consumed.filter(pc.greater(consumed["checkpoint_id"], int(at))), consumed.slice(0, 0)
            else:
                had = self._consumed(then, name)
                fresh, passed = _without(consumed, had), _without(had, consumed)
            if passed.num_rows:
                read[name] = _size(passed)
            if fresh.num_rows:
                why = passed_over(self._context, then, name)
                lost += forgotten(now, then, name) if why is None else (why,)
                again |= {name: _size(fresh)} if why is None else {}
        return again, read, lost

    def _consumed(self, metadata: CheckpointMetadata | None, source: str) -> pa.Table:
        if metadata is None or source not in metadata.sources:
            return ConsumedSet.empty().table
        runs = [self._runs[handle] for handle in metadata.sources[source].consumed]
        for run in runs:
            if isinstance(run, StateCorrupt):
                raise run
        return ConsumedSet.of(runs).table


def _without(consumed: pa.Table, other: pa.Table) -> pa.Table:
    """Return the object versions that are not among others."""
    return consumed.join(other.select(_VERSION), _VERSION, join_type="left anti")


def _size(versions: pa.Table) -> InputSize:
    return InputSize(versions.num_rows, pc.sum(versions["size"]).as_py() or 0)
