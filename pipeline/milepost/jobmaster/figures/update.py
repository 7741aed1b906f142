"""Store one row of figures per completed epoch, permanently, without overwriting the rows of another writer.

Every object is written once under its own key. A writer reads the day's objects that are not full, writes a new one
with their rows and the missing ones, and deletes what it has merged. So after a crash at any request, and with any
number of writers, each row is in at least one object:

    figures/2026-11-30/…17-a.parquet   rows 1 2 3        a writer reads this, writes
    figures/2026-11-30/…22-b.parquet   rows 1 2 3 4      this, and deletes the first one

The version in a key means that every checkpoint that completed up to it has a row, so a listing shows which rows are
missing. Nothing depends on the rows. Errors are logged and never fail an epoch.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from milepost.errors import CheckpointError, NotFound, StateCorrupt, StoreUnavailable
from milepost.jobmaster.figures.days import MAX_LISTINGS, FiguresObject, by_day, list_objects, read_objects
from milepost.jobmaster.figures.row import Row, aborted_row, completed_row, day_of
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.measurements import PostCommitTimes, read_post_commit_times
from milepost.protocol.manifest.transaction import CheckpointAborted
from milepost.protocol.records import (
    CheckpointId,
    CompletedCheckpoint,
    ManifestState,
    SessionId,
    cached_property,
    figures_key,
)
from milepost.storage import NO_REQUESTS, StoreRequests
from milepost.storage.concurrency import parallel_map, prefetch

if TYPE_CHECKING:
    import pyarrow as pa

    from milepost.epoch import CheckpointMetadata

_LOG = logging.getLogger(__name__)

FULL_BYTES = 64 << 10
"""An object of this size is not rewritten until its day is over, so that an epoch writes little on a busy day.

1,440 epochs of 340 bytes make eight objects, which the first epoch of the next day merges into one.
"""


@dataclass(slots=True)
class _DayUpdate:
    """The rows that one day lacks, and its objects that are merged with them."""

    day: str
    missing: list[CompletedCheckpoint] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)


@dataclass(slots=True)
class _Plan:
    """Rows to write.

    Attributes:
        version: up to which every completed checkpoint has a row already. days: ascending.
        after: stored times after the commit of missing checkpoints.
    """

    version: int
    days: list[_DayUpdate]
    after: Mapping[CheckpointId, tuple[PostCommitTimes, ...]]

    @property
    def missing(self) -> list[CompletedCheckpoint]:
        return [checkpoint for day in self.days for checkpoint in day.missing]


class FiguresUpdate:
    """The rows that the completed checkpoints of a state lack.

    Args:
        state: before any of them is dropped.
        session_id: if this session has completed a checkpoint, its row will be stored, so stored rows are prefetched.
        measured_here: checkpoint whose times after the commit are all measured by this process.
    """

    def __init__(
        self,
        context: JobContext,
        state: ManifestState,
        session_id: SessionId,
        measured_here: CheckpointId | None = None,
    ) -> None:
        self._context, self._state, self._measured_here = context, state, measured_here
        is_needed = any(item.session_id == session_id for item in state.checkpoints)
        self._prefetched = prefetch(context.store, self._read_plan, "figures") if is_needed else self._read_plan

    @cached_property
    def _plan(self) -> _Plan | None:
        """The plan, read once; None: reading failed."""
        try:
            return self._prefetched()
        except CheckpointError as error:
            _LOG.warning("figures of past epochs are not stored now, the next epoch stores them: %s", error.message)
            return None

    @property
    def requests(self) -> StoreRequests:
        """The requests that `store` makes if nothing fails. Their bytes are not known yet."""
        plan = self._plan
        if plan is None or self._context.store.config.is_local:
            return NO_REQUESTS
        return StoreRequests(puts=len(plan.days), deletes=int(any(day.merged for day in plan.days)))

    def store_before_drop(self, dropped: Collection[CheckpointId]) -> None:
        """Store the rows of checkpoints that are about to be dropped. An earlier epoch may have crashed before that."""
        plan = self._plan
        if plan is not None and any(checkpoint.checkpoint_id in dropped for checkpoint in plan.missing):
            self.store({}, frozenset(dropped))

    def store(
        self, times: Mapping[CheckpointId, PostCommitTimes], only: Collection[CheckpointId] | None = None
    ) -> None:
        """Store the missing rows.

        Args:
            times: measured by this process. only: the checkpoints to store now; None: all.
        """
        plan = self._plan
        if plan is None or not plan.days:
            return
        try:
            self._write(plan, times, only)
        except CheckpointError as error:
            _LOG.warning("figures of past epochs are not stored now, the next epoch stores them: %s", error.message)

    def _write(
        self, plan: _Plan, times: Mapping[CheckpointId, PostCommitTimes], only: Collection[CheckpointId] | None
    ) -> None:
        from milepost.jobmaster.figures.row_file import encode_rows, table_of, union

        merged: list[str] = []
        for day in plan.days:
            stored = [item for item in day.missing if only is None or item.checkpoint_id in only]
            if not stored and only is not None:
                continue
            rows = self._rows(plan, stored, times)
            table = union([*day.rows, table_of(rows)])
            is_last = only is None and day is plan.days[-1]
            version = max([plan.version, *(item.version for item in plan.missing if is_last)])
            key = figures_key(day.day, version, uuid.uuid4().hex)
            self._context.store.put(key, encode_rows(table))
            merged += day.merged
            day.missing = [item for item in day.missing if item not in stored]
            day.merged, day.rows = [key], [table]
        plan.days = [day for day in plan.days if day.missing]
        if merged:
            self._context.store.delete(merged)

    def _rows(
        self, plan: _Plan, checkpoints: Sequence[CompletedCheckpoint], times: Mapping[CheckpointId, PostCommitTimes]
    ) -> list[Row]:
        recent = self._context.log.recent_head()  # after the confirmation, which records the duration
        confirmed = {} if recent is None else {item.checkpoint_id: item for item in recent.state.checkpoints}
        checkpoints = [confirmed.get(item.checkpoint_id, item) for item in checkpoints]
        all_metadata = parallel_map(self._context.store, self._metadata, checkpoints)
        measured = {checkpoint_id: (mine,) for checkpoint_id, mine in times.items()}
        return [
            completed_row(
                item,
                metadata,
                (*plan.after.get(item.checkpoint_id, ()), *measured.get(item.checkpoint_id, ())),
            )
            for item, metadata in zip(checkpoints, all_metadata, strict=True)
        ]

    def _metadata(self, checkpoint: CompletedCheckpoint) -> CheckpointMetadata | None:
        try:
            return self._context.metadata(checkpoint)
        except (NotFound, StateCorrupt) as error:
            _LOG.warning("checkpoint %s: most of its figures are lost: %s", checkpoint.checkpoint_id, error.message)
            return None

    def _read_plan(self) -> _Plan:
        """List and read the stored rows. Repeats if another writer merges them meanwhile."""
        if not self._state.checkpoints:
            return _Plan(0, [], {})
        newest = max(self._state.checkpoints, key=lambda item: item.version)  # usually the one whose row is missing
        times_of_newest = prefetch(self._context.store, partial(self._stored_times, [newest]), "figures-times")
        for _ in range(MAX_LISTINGS):
            try:
                plan = self._plan_of(self._list())
                others = [item for item in plan.missing if item is not newest]
                after = times_of_newest() if len(others) < len(plan.missing) else {}
                return replace(plan, after={**after, **self._stored_times(others)})
            except NotFound:
                continue
        raise StoreUnavailable(
            f"job {self._state.job}: other processes merged the figures of past epochs during each of {MAX_LISTINGS} "
            "listings. Nothing was changed."
        )

    def _list(self) -> list[FiguresObject]:
        """Return the objects from the day of the newest row on. An epoch after a normal one needs a single LIST."""
        completed = sorted(self._state.checkpoints, key=lambda item: item.version)
        days = [day_of(item.completed_time_ms) for item in completed[-2:]]
        listed = list_objects(self._context.store, min(days))
        oldest = min(day_of(item.completed_time_ms) for item in completed)
        if not self._version(listed) and oldest < min(days):
            return list_objects(self._context.store, oldest)
        return listed

    def _version(self, objects: Sequence[FiguresObject]) -> int:
        """Return the newest version in the keys. A version beyond the manifest's is of another life of the job."""
        return max((item.version for item in objects if item.version <= self._state.version), default=0)

    def _plan_of(self, listed: list[FiguresObject]) -> _Plan:
        store, version, objects = self._context.store, self._version(listed), by_day(listed)
        newest_day = max(day_of(item.completed_time_ms) for item in self._state.checkpoints)
        updates = {day: _DayUpdate(day) for day in objects}
        for checkpoint in sorted(self._state.checkpoints, key=lambda item: item.version):
            if checkpoint.version > version:
                day = day_of(checkpoint.completed_time_ms)
                updates.setdefault(day, _DayUpdate(day)).missing.append(checkpoint)
        merged = {
            day: [item for item in objects.get(day, ()) if day < newest_day or item.stat.size < FULL_BYTES]
            for day in updates
        }
        written = {
            day: update
            for day, update in sorted(updates.items())
            if update.missing or (day < newest_day and len(merged[day]) > 1)
        }
        for item, rows in read_objects(store, [item for day in written for item in merged[day]]):
            if isinstance(rows, StateCorrupt):
                _LOG.warning("%s", rows.full_message())
                self._add_lost(written[item.day])
            else:
                written[item.day].merged.append(item.stat.key)
                written[item.day].rows.append(rows)
        return _Plan(version, [*written.values()], {})

    def _add_lost(self, update: _DayUpdate) -> None:
        """Store the rows of the retained checkpoints of a day again. `union` drops those that another object has."""
        update.missing = [item for item in self._state.checkpoints if day_of(item.completed_time_ms) == update.day]

    def _stored_times(
        self, checkpoints: Iterable[CompletedCheckpoint]
    ) -> dict[CheckpointId, tuple[PostCommitTimes, ...]]:
        elsewhere = [item for item in checkpoints if item.checkpoint_id != self._measured_here]
        times = parallel_map(
            self._context.store,
            lambda item: read_post_commit_times(self._context, item.checkpoint_id, item.token),
            elsewhere,
        )
        return {item.checkpoint_id: of for item, of in zip(elsewhere, times, strict=True)}


def store_aborted(context: JobContext, event: CheckpointAborted, version: int, refused_by: Sequence[str] = ()) -> None:
    """Store the row of an aborted checkpoint, in an object that the next completed epoch merges. Errors are logged.

    Args:
        version: of the manifest, with the abort. refused_by: names of the rules that vetoed the checkpoint.
    """
    from milepost.jobmaster.figures.row_file import encode_rows, table_of

    try:
        table = table_of([aborted_row(event, version, refused_by)])
        context.store.put(figures_key(day_of(event.at_ms), 0, uuid.uuid4().hex), encode_rows(table))
    except CheckpointError as error:
        _LOG.warning("checkpoint %s: its row of figures is not stored: %s", event.pending.checkpoint_id, error.message)
