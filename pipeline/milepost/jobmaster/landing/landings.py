"""Use cases of landed sources: land new rows of the external systems, and read landed rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from milepost.errors import Busy, CheckpointError, InvalidRequest, NotFound
from milepost.jobmaster.job.checks.landed_source_checks import (
    require_declared_start,
    require_no_unread_log,
    require_renamed,
    require_restored,
)
from milepost.jobmaster.job.checks.store_checks import head_within_deadline, require_stores
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.table_files import read_table_files
from milepost.jobmaster.job.landing_failures import delete_failure, failure_of, store_failure
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.landing.landed_rows import LandedRows, read_landed_rows
from milepost.jobmaster.landing.lander import Lander, Landing
from milepost.jobmaster.landing.lost_positions import lost_hints
from milepost.jobmaster.landing.open_sources import open_source
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.language import arrow_schema
from milepost.protocol.landed import LandingFailure, LogPosition
from milepost.protocol.manifest.transaction import find_coverage, job_ended_error
from milepost.protocol.records import ENDED_STATUSES, ManifestState
from milepost.sources.landed import MESSAGE_SCHEMA, GivenRows
from milepost.storage.log import SourceLog

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LandingReport:
    """The outcome of a landing, in the order of the sources' names.

    Attributes:
        failed: the sources that failed. The others were landed.
        not_due: why nothing was landed; None: it was due.
        exit_code: of the errors, if all have the same; 1 if they differ; 0 if no source failed.
    """

    landed: tuple[Landing, ...] = ()
    failed: tuple[LandingFailure, ...] = ()
    not_due: str | None = None
    exit_code: int = 0


class Landings:
    """The landed sources of one job."""

    def __init__(self, context: JobContext, leadership: Leadership) -> None:
        self._context, self._leadership = context, leadership

    @use_case
    def land(
        self, sources: Sequence[str] | None = None, progress: Callable[[str], None] | None = None
    ) -> LandingReport:
        """Append the new rows of each source to its log. Creates the job if it has never run.

        Args:
            sources: names of landed sources; None: all of them.
            progress: called with the name of each source before it is landed.
        Raises:
            NotFound: the spec has no such source. InvalidRequest: it is not landed.
        """
        names = sorted(self._context.spec.landed) if sources is None else list(sources)
        for name in names:
            require_landed(self._context, name)
        state = self._existing_state() if names else None
        ended = None if state is None else _ended(state)
        return LandingReport(not_due=ended) if ended else self._land_each(names, progress)

    @use_case
    def land_scheduled(self, sources: Sequence[str]) -> LandingReport:
        """Land sources by their own schedule. Unlike `land`, this never creates the job.

        A FAILED job continues landing. One that has ended, was deleted, or has never run lands nothing.
        """
        head = head_within_deadline(self._context)
        if head is None:
            job = self._context.spec.name
            return LandingReport(not_due=f"job {job} has not run yet, or its storage was deleted")
        ended = _ended(head.state)
        return LandingReport(not_due=ended) if ended else self._land_each(sources, None)

    @use_case
    def land_before_epoch(
        self,
        session: Session,
        sources: Sequence[str] | None = None,
        *,
        take_over: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> LandingReport:
        """Land each source, unless the session's run will have no epoch.

        A run has no epoch if it is covered, if the job has ended, or if another session's epoch is running. A FAILED
        job continues landing, so that data which its external systems delete meanwhile is not lost.

        Args:
            sources: names of landed sources; None: all of them.
            take_over: as for the trigger that follows. progress: as in `land`.
        """
        names = sorted(self._context.spec.landed) if sources is None else list(sources)
        state = self._existing_state() if names else None
        not_due = None if state is None else self._not_due(session, state, take_over=take_over)
        return LandingReport(not_due=not_due) if not_due else self._land_each(names, progress)

    @use_case
    def land_rows(self, source: str, rows: pa.Table) -> Landing:
        """Append given rows to a log as one record, without the external system. Creates the job if it has never run.

        Such a log is a copy of nothing else: no landing from the external system continues it.

        Args:
            rows: with the declared columns.
        Raises:
            NotFound, InvalidRequest: as `land`. SourceReplaced: the log is a copy of an external system.
        """
        require_landed(self._context, source)
        context, spec = self._context, self._context.spec.landed[source]
        state, log = self._leadership.head_or_create(), context.source_log(source)
        require_log_of_head(context, log, state)
        given = GivenRows(source, rows, spec.columns, spec.event_time)
        return Lander(log, given, context.identity).land()

    @use_case
    def newest_records(self) -> dict[str, int]:
        """Return the sequence of each log's newest record, by source; 0: nothing was landed.

        A run "until caught up" reads up to here, so that a source which is landed all the time cannot prolong it.
        """
        newest = {name: self._context.source_log(name).newest() for name in sorted(self._context.spec.landed)}
        return {name: 0 if stored is None else stored.record.sequence for name, stored in newest.items()}

    def _existing_state(self) -> ManifestState | None:
        """Return the head's state; None if the job has never run, after a check of its stores."""
        head = head_within_deadline(self._context)
        if head is None:
            require_stores(self._context)  # before the first write
        return None if head is None else head.state

    def _not_due(self, session: Session, state: ManifestState, *, take_over: bool) -> str | None:
        coverage = find_coverage(state, session.session_id, session.run)
        if coverage is not None:
            return coverage.message
        try:
            self._leadership.require_free(session, state, take_over=take_over)
        except Busy as busy:
            return busy.message
        return _ended(state)

    def _land_each(self, names: Sequence[str], progress: Callable[[str], None] | None) -> LandingReport:
        landed: list[Landing] = []
        failed: list[LandingFailure] = []
        codes: set[int] = set()
        if not names:
            return LandingReport()
        state = self._leadership.head_or_create()
        for name in names:
            if progress is not None:
                progress(name)
            try:
                landed.append(self._land(name, state))
            except CheckpointError as error:  # a source that fails must not block the others
                _LOG.info("source %s was not landed: %s", name, error.message)
                failed.append(failure_of(name, error))
                codes.add(error.exit_code)
        return LandingReport(tuple(landed), tuple(failed), exit_code=max(codes, default=0) if len(codes) < 2 else 1)

    @use_case
    def rows(self, source: str, at: int | None = None, limit: int | None = None) -> LandedRows:
        """Return the rows of one record of a source's log. Messages are as they were landed, not decoded.

        Args:
            at: sequence of the record; None: the newest one with rows. limit: maximum number of rows, the first ones.
        Raises:
            NotFound: the spec has no such source, or its log no such record. InvalidRequest: it is not landed.
        """
        require_landed(self._context, source)
        spec = self._context.spec.landed[source]
        schema = MESSAGE_SCHEMA if spec.layout.messages is not None else arrow_schema(spec.columns)
        read_files = partial(read_table_files, self._context, source)
        return read_landed_rows(self._context.source_log(source), schema, at, limit, read_files)

    def _land(self, name: str, state: ManifestState) -> Landing:
        context = self._context
        spec, log = context.spec.landed[name], context.source_log(name)
        try:
            require_log_of_head(context, log, state)
            source = open_source(context, name, spec, may_create=True)
            with lost_hints(context.spec.name, name, source):
                begins = partial(require_no_unread_log, context, name)
                start = spec.identity.get("start", "")
                landing = Lander(log, source, context.identity, before_begin=begins, declared_start=start).land()
        except Exception as error:
            store_failure(log, error)
            raise
        if not landing.records:
            delete_failure(log)
        return landing


def require_log_of_head(context: JobContext, log: SourceLog, state: ManifestState) -> None:
    """Check that a log has what the live head has read. Raises: StateCorrupt, InvalidRequest (an unfinished restore).

    Otherwise rows would be acknowledged that no checkpoint of this log can reach.
    """
    position = _position(context, log.stored_as, state)
    if position is not None:
        return log.require_holds(position)
    newest = log.newest()
    log.require_continues(None, newest)
    require_renamed(log, newest)
    if newest is not None:
        require_restored(log.source, newest, state)
        require_declared_start(context, log, newest)


def _position(context: JobContext, log: str, state: ManifestState) -> LogPosition | None:
    """Return how far the live head has read a log; None: it has read none. log: name under which it is stored."""
    checkpoint = state.checkpoint(state.timeline().head)
    return None if checkpoint is None else context.metadata(checkpoint).log_position(log)


def require_landed(context: JobContext, name: str) -> None:
    """Check that the spec has a landed source of this name. Raises: NotFound, InvalidRequest."""
    spec = context.spec
    if name in spec.landed:
        return
    known = ", ".join(sorted(spec.landed)) or "none"
    if name in spec.sources:
        raise InvalidRequest(
            f"job {spec.name}: source {name} is files, which epochs read where they are. Nothing was landed.",
            hint=f"landed sources of this job: {known}",
            source=name,
        )
    raise NotFound(f"job {spec.name} has no source {name}; landed sources: {known}", source=name)


def _ended(state: ManifestState) -> str | None:
    """Return why a job that has ended lands nothing; None: it has not ended."""
    return job_ended_error(state).message if state.status in ENDED_STATUSES else None
