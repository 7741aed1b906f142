"""List the checkpoints that a job can go back to, with what each rollback would change.

The list is cheap: it reads the metadata of each checkpoint, in parallel, and the head's runs of consumed objects once.
These record the checkpoint that consumed each object, so they tell what every point would read again. Points off the
head's ancestry need their own runs too. No table and no source is read; the plan for a chosen point does that
(`plan.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from milepost.epoch import CheckpointMetadata, iso_ms
from milepost.errors import Busy, CheckpointError, StateCorrupt
from milepost.jobmaster.compatibility.preflight import preflight
from milepost.jobmaster.compatibility.spec_check import mismatches
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import contents_at
from milepost.jobmaster.leadership.table_previews import fate_of_dropped
from milepost.jobmaster.rollback.inputs import (
    InputSize,
    deleted_records,
    forgotten_input,
    landed_between,
    skip_reason,
)
from milepost.jobmaster.rollback.plan import StateRows, state_rows
from milepost.jobmaster.rollback.switched_tables import SwitchedTable, find_switched_tables
from milepost.protocol.records import (
    NO_CHECKPOINT,
    CheckpointId,
    CompletedCheckpoint,
    ManifestState,
    ObjectHandle,
    TimelineRole,
    cached_property,
)
from milepost.protocol.retention import checkpoint_ancestry, timeline_ancestry
from milepost.sources.planning import ConsumedSet, read_run
from milepost.storage.concurrency import parallel_map

_VERSION = ["key", "etag"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error that a rollback to a point would raise."""

    error: str
    message: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table now and at a point. rows_now: None if the head cannot be read.

    Attributes:
        exact: False for an upsert table, where the numbers are upper bounds because they include replaced rows.
    """

    rows_now: int | None
    rows_then: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPoint:
    """A checkpoint that the job can go back to; 0 is the empty state.

    Attributes:
        live: the head continues it. head: it is the head, so a rollback to it changes nothing.
        savepoints: names of its savepoints.
        epochs: number of epochs from the common ancestor to the head; None if that is no longer known.
        discarded: retained checkpoints that would no longer be live, oldest first.
        runs_again: per source, input that the next epochs read again. counts_as_read: per source, input that the point
            has consumed and the head has not. Both are None if the head or the point cannot be read.
        tables, operators: rows now and at the point, by sink and by uid.
        other_tables: the point's table of each sink that a migration has moved to another table.
        not_undone: what a rollback does not undo, as text. spec: where the spec does not fit the point.
        refused: why it cannot be used. If None, only a plan can tell whether every object and table is intact.
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
    other_tables: Mapping[str, SwitchedTable]
    not_undone: tuple[str, ...] = ()
    spec: tuple[str, ...] = ()
    refused: Refusal | None = None


def rewind_points(context: JobContext, limit: int | None = None) -> list[RewindPoint]:
    """Return the points of a job, newest first, the empty state last; [] for a job that has never run.

    Args:
        limit: maximum number of points; None for all retained checkpoints.
    """
    head = context.log.head()
    if head is None:
        return []
    newest = list(reversed(head.state.checkpoints))[:limit]
    reader = _PointReader(context, head.state, newest)
    points = [reader.point(checkpoint) for checkpoint in newest]
    return points if limit is not None and len(newest) == limit else [*points, reader.point(None)]


class _PointReader:
    """Reads what the points of one list share, once."""

    def __init__(self, context: JobContext, state: ManifestState, points: Sequence[CompletedCheckpoint]) -> None:
        self._context, self._state = context, state
        self._live = tuple(checkpoint.checkpoint_id for checkpoint in timeline_ancestry(state, state.timeline()))
        ids = sorted({point.checkpoint_id for point in points} | ({state.timeline().head} - {NO_CHECKPOINT}))
        self._metadata = dict(zip(ids, parallel_map(context.store, self._read, ids), strict=True))
        live = set(self._live)
        off_ancestry = [self._metadata[point.checkpoint_id] for point in points if point.checkpoint_id not in live]
        self._runs = self._read_runs([self._now, *off_ancestry])

    def point(self, checkpoint: CompletedCheckpoint | None) -> RewindPoint:
        """Return one point; None stands for the empty state."""
        state = self._state
        at = NO_CHECKPOINT if checkpoint is None else checkpoint.checkpoint_id
        live = checkpoint is None or at in self._live
        ancestry = {ancestor.checkpoint_id: ancestor for ancestor in checkpoint_ancestry(state, at)}
        fields: dict[str, Any] = {
            "checkpoint_id": int(at),
            "live": live,
            "head": at == state.timeline().head,
            "savepoints": tuple(savepoint.name for savepoint in state.savepoints if savepoint.checkpoint_id == at),
            "epochs": self._epochs(checkpoint, ancestry),
            "discarded": tuple(int(live_id) for live_id in self._live if live_id not in ancestry),
        }
        if checkpoint is not None:
            fields |= {
                "epoch": int(checkpoint.epoch),
                "timeline": checkpoint.timeline,
                "trigger_time": iso_ms(checkpoint.trigger_time_ms),
                "watermark": checkpoint.summary.get("watermark"),
            }
        try:
            return RewindPoint(**fields, **self._changes(at, live=live))
        except CheckpointError as error:
            refused = Refusal(type(error).__name__, error.message, error.hint)
            return RewindPoint(**fields, tables={}, operators={}, other_tables={}, refused=refused)

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
        readable = [item for item in metadata if isinstance(item, CheckpointMetadata)]
        handles = dict.fromkeys(run for item in readable for source in item.sources.values() for run in source.consumed)
        return dict(zip(handles, parallel_map(self._context.store, self._read_run, handles), strict=True))

    def _read_run(self, handle: ObjectHandle) -> pa.Table | StateCorrupt:
        try:
            return read_run(self._context.store, handle)
        except StateCorrupt as error:
            return error

    def _epochs(
        self, checkpoint: CompletedCheckpoint | None, ancestry: Mapping[CheckpointId, CompletedCheckpoint]
    ) -> int | None:
        """Return the number of epochs between the head and its newest common ancestor with a point."""
        head = self._state.head()
        if head is None or checkpoint is None:
            return 0 if head is None else int(head.epoch)
        common = next((ancestry[live_id] for live_id in reversed(self._live) if live_id in ancestry), None)
        return None if common is None else int(head.epoch) - int(common.epoch)

    def _changes(self, at: CheckpointId, *, live: bool) -> dict[str, Any]:
        """Return what a rollback to a point would change. Raises the error that refuses it."""
        then, now = self._metadata.get(at), self._now
        if isinstance(then, CheckpointError):
            raise then
        self._check(then, at)
        unreadable = isinstance(now, CheckpointError)
        head = None if isinstance(now, CheckpointError) else now
        runs_again, counts_as_read, lost = self._inputs(head, then, at, live=live)
        dropped = {name for item in (head, then) if item is not None for name in item.tables} - set(self._sinks)
        return {
            "runs_again": None if unreadable else runs_again,
            "counts_as_read": None if unreadable else counts_as_read,
            "tables": {name: self._table(name, head, then, unknown=unreadable) for name in self._sinks},
            "operators": state_rows(head, then, unknown=unreadable),
            "other_tables": find_switched_tables(self._context, head, then),
            "not_undone": (*map(fate_of_dropped, sorted(dropped)), *lost),
            "spec": tuple(mismatches(preflight(self._context, then, None))),
        }

    def _check(self, then: CheckpointMetadata | None, at: CheckpointId) -> None:
        """Raise what a rollback to a point would raise, as far as that is known without reading the tables."""
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
        """Return, by source, the input that runs again, the input that counts as read, and what is lost, as text.

        Example: the head has consumed a (by checkpoint 1), b (2) and c (3). For the live point 1, b and c run again.
        For a point off the ancestry that has consumed a and d, b and c run again, and d counts as read.
        """
        runs_again: dict[str, InputSize] = {}
        counts_as_read: dict[str, InputSize] = {}
        lost: list[str] = []
        for name in sorted({name for item in (now, then) if item is not None for name in item.sources}):
            consumed = self._consumed(now, name)
            if live:  # the head has consumed everything that the point had, and records by which checkpoint
                replayed, skipped = (
                    consumed.filter(pc.greater(consumed["checkpoint_id"], int(at))),
                    consumed.slice(0, 0),
                )
            else:
                consumed_then = self._consumed(then, name)
                replayed, skipped = _difference(consumed, consumed_then), _difference(consumed_then, consumed)
            if skipped.num_rows:
                counts_as_read[name] = _size(skipped)
            if replayed.num_rows:
                reason = skip_reason(self._context, then, name)
                lost += forgotten_input(now, then, name) if reason is None else (reason,)
                runs_again |= {name: _size(replayed)} if reason is None else {}
        for name, size in landed_between(self._context, then, now).items():
            reason = skip_reason(self._context, then, name)
            lost += deleted_records(self._context, then, name) if reason is None else (reason,)
            runs_again |= {name: size} if reason is None else {}
        return runs_again, counts_as_read | landed_between(self._context, now, then), lost

    def _consumed(self, metadata: CheckpointMetadata | None, source: str) -> pa.Table:
        if metadata is None or source not in metadata.sources:
            return ConsumedSet.empty().table
        runs = [self._runs[handle] for handle in metadata.sources[source].consumed]
        for run in runs:
            if isinstance(run, StateCorrupt):
                raise run
        return ConsumedSet.of(runs).table


def _difference(consumed: pa.Table, other: pa.Table) -> pa.Table:
    """Return the object versions of `consumed` that are not in `other`."""
    return consumed.join(other.select(_VERSION), _VERSION, join_type="left anti")


def _size(versions: pa.Table) -> InputSize:
    return InputSize(versions.num_rows, pc.sum(versions["size"]).as_py() or 0)
