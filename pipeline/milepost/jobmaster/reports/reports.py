"""The read-only use cases of a job: checkpoints, history, health, tables.

The only writes are a reader's pins. Each method imports what it needs when called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from milepost.errors import StateCorrupt, with_hint
from milepost.jobmaster.job.broken_head import suggest_rollback
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.pins import pin_for_read

if TYPE_CHECKING:
    import pyarrow as pa

    from milepost.epoch import CheckpointMetadata
    from milepost.errors import CheckpointError
    from milepost.jobmaster.reports.axis.comparison import EpochComparison
    from milepost.jobmaster.reports.axis.time_axis import Span, TimeAxis
    from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
    from milepost.jobmaster.reports.cost.epoch_cost import MonthCost
    from milepost.jobmaster.reports.cost.upsert_price import UpsertPrice
    from milepost.jobmaster.reports.flow.data_flow import DataFlow
    from milepost.jobmaster.reports.flow.progress import EpochProgress
    from milepost.jobmaster.reports.health.status import Status
    from milepost.jobmaster.reports.history.incident import Incident
    from milepost.jobmaster.reports.history.log_page import LogFilter, LogPage
    from milepost.jobmaster.reports.history.page import HistoryPage
    from milepost.jobmaster.reports.history.recent import RecentEpoch
    from milepost.jobmaster.reports.history.rows_before import RowsBefore
    from milepost.jobmaster.reports.history.series import FiguresSeries
    from milepost.jobmaster.reports.job_report import JobState
    from milepost.jobmaster.reports.tables.diff import Difference
    from milepost.jobmaster.reports.tables.sample import TableSample
    from milepost.jobmaster.reports.tables.state_sizes import StateSize
    from milepost.jobmaster.reports.tables.table_report import TableReport
    from milepost.jobmaster.reports.tables.tables import VerifiedObjects
    from milepost.jobmaster.retention.fsck import Audit
    from milepost.spill import SpilledRows


class Reports:
    """The read-only use cases of one job."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def list_checkpoints(self, status: str | None = None, limit: int | None = None) -> list[CheckpointReport]:
        """Return checkpoints, newest first; see DESIGN 8.2."""
        from milepost.jobmaster.reports.history.history import History

        return History(self._context).checkpoints(status, limit)

    def show(
        self, checkpoint_id: int | None = None, *, details: bool = True, with_cost: bool = True
    ) -> CheckpointReport:
        """Return one checkpoint in full, the head by default: a `CheckpointDetails` when it is retained.

        Args:
            details: False: only what the log has, which works even if its metadata is damaged.
            with_cost: whether the head includes its cost per month and of upsert tables, which reads every retained
                checkpoint.
        Raises: NotFound: no such checkpoint, or none has completed yet.
        """
        from milepost.jobmaster.reports.history.history import History

        history, state = History(self._context), self._context.head().state
        shown_id = history.head(state) if checkpoint_id is None else checkpoint_id
        report = history.show(shown_id, state=state, details=details)
        if report.checkpoint_id != state.timeline().head or not (details and with_cost):
            return report
        by_buckets = any(sink.by_buckets for sink in self._context.spec.sinks)
        return replace(report, upsert=(self.upsert_prices() or None) if by_buckets else None, month=self.month_cost())

    def incident(self) -> Incident | None:
        """Return the failure after which no epoch has completed; None: there is none."""
        from milepost.jobmaster.reports.history.incident import incident_of

        return incident_of(self._context)

    def rows_before(self, incident: Incident) -> list[RowsBefore]:
        """Return the published rows of the keys that each rule of an incident refused. Reads small tables only."""
        from milepost.jobmaster.reports.history.rows_before import rows_before

        return rows_before(self._context, incident)

    def month_cost(self) -> MonthCost | None:
        """Return the estimated cost per month as of the head; None without prices in the spec.

        Also None if a retained checkpoint is damaged: reports omit the figure, and `verify` finds the damage.
        """
        if self._context.spec.prices is None:
            return None
        from milepost.jobmaster.reports.cost.month_cost import month_cost

        try:
            return month_cost(self._context)
        except StateCorrupt:
            return None

    def upsert_prices(self) -> tuple[UpsertPrice, ...]:
        """Return the cost of each upsert table that is written by buckets, as of the head.

        () if a retained checkpoint is damaged: callers omit the figures, and `verify` finds the damage.
        """
        from milepost.jobmaster.reports.cost.upsert_cost import upsert_prices

        try:
            return upsert_prices(self._context)
        except StateCorrupt:
            return ()

    def state_sizes(self) -> Mapping[str, StateSize]:
        """Return the size and growth of each state table at the head, by `uid` or `uid.table`.

        {} if a retained checkpoint is damaged: callers omit the figures, and `verify` finds the damage.
        """
        from milepost.jobmaster.reports.tables.state_sizes import state_sizes

        try:
            return state_sizes(self._context)
        except StateCorrupt:
            return {}

    def history_page(
        self, limit: int, following: str | None = None, *, status: str | None = None, timeline: str | None = None
    ) -> HistoryPage:
        """Return a page of checkpoints, newest first, and the timeline switches between them.

        Args:
            following: from the previous page. status, timeline: filters, with which a page may have fewer checkpoints.
        Raises: InvalidRequest: not a position, or not a status.
        """
        from milepost.jobmaster.reports.history.history import History
        from milepost.jobmaster.reports.history.page import history_filter

        return History(self._context).page(limit, following, history_filter(status, timeline))

    def newest_page(self, limit: int) -> HistoryPage:
        """Return the newest checkpoints of the live timeline, and the acts of people since the oldest of them."""
        from milepost.jobmaster.reports.history.history import History

        return History(self._context).newest(limit)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the manifest log, newest first."""
        from milepost.jobmaster.reports.history.history import History

        return History(self._context).log(limit)

    def log_page(
        self, selected: LogFilter, limit: int, before: int | None = None, *, with_values: bool = True
    ) -> LogPage:
        """Return the newest entries of the log that a filter selects, older than version `before`.

        Args:
            with_values: whether they have messages that may quote rows.
        """
        from milepost.jobmaster.reports.history.log_page import log_page

        return log_page(self._context, selected, limit, before, with_values=with_values)

    def job_state(self) -> JobState:
        """Return the job as a whole: status, incarnation, result, leader, timelines, sinks to follow, last failure."""
        from milepost.jobmaster.job.extend_record import extend_record
        from milepost.jobmaster.reports.job_report import JobState, report_job

        head = self._context.log.head()
        failures = head.state.failures if head is not None else None
        return extend_record(
            JobState,
            report_job(self._context.spec.name, head.state if head is not None else None),
            last_failure=failures.last_reason if failures is not None else None,
            last_failure_detail=failures.last_detail if failures is not None else None,
        )

    @suggest_rollback
    def status(self, max_lag_ms: int | None = None, *, month: bool = True, recent: bool = False) -> Status:
        """Return the job's health: state, lag, unread objects, last success, next step.

        Args:
            month: whether to include the cost per month, which reads every retained checkpoint.
            recent: whether a head that this object read a moment ago is new enough.
        """
        from milepost.jobmaster.reports.health.status import status_of

        log = self._context.log
        status = status_of(self._context, log.recent_head() if recent else log.head(), max_lag_ms)
        return replace(status, month=self.month_cost()) if month else status

    def begin_published_check(self) -> Callable[[], None]:
        """Start to check, in the background, that the files of the head's tables exist.

        Returns: a function that waits for the result, and raises StateCorrupt if files are missing.
        """
        from milepost.storage.concurrency import prefetch

        return prefetch(self._context.store, self._check_published, "published-check")

    @suggest_rollback
    def _check_published(self) -> None:
        from milepost.jobmaster.reports.health.published_files import check_published

        check_published(self._context)

    def read(self, sink: str, at: int | None = None, where: str | None = None) -> pa.Table:
        """Return the published table at the sink's head, or as of a retained checkpoint, all in memory.

        Args:
            where: a SQL predicate over its columns, see `rows_where`; None: all rows.
        Raises: NotFound. InvalidRequest: the predicate is unusable.
        """
        return self.table_rows(sink, at, where).table()

    @suggest_rollback
    def table_rows(
        self, sink: str, at: int | None = None, where: str | None = None, limit: int | None = None
    ) -> SpilledRows:
        """Like `read`, but spills many rows to disk.

        Args:
            limit: maximum number of rows, the first ones; None: all.
        """
        from milepost.jobmaster.reports.tables.tables import Tables

        job = self._context.spec.name
        recovery = f"milepost verify {job} --deep shows what else is damaged; restore it from a copy of the bucket"
        with pin_for_read(self._context, at), with_hint(StateCorrupt, recovery):
            return Tables(self._context).read(sink, at, where, limit)

    @suggest_rollback
    def table(self, sink: str, *, sample: bool = False) -> TableReport:
        """Return the report of a sink's table, from the job's own store.

        Args:
            sample: whether it has a sample, or the reason why the table cannot be read.
        Raises: NotFound: no such sink.
        """
        from milepost.jobmaster.reports.tables.table_report import table_report, with_sample

        report = table_report(self._context, sink)
        return with_sample(self._context, report) if sample else report

    def table_sample(self, sink: str) -> TableSample:
        """Return a few rows of a sink's table as readers see it now. Reads the table. Raises: see `sample.py`."""
        from milepost.jobmaster.reports.tables.sample import table_sample

        return table_sample(self._context, sink)

    def state(self, uid: str, at: int | None = None) -> pa.Table:
        """Return an operator's keyed state as stored, in the form that `bootstrap` takes. Raises NotFound."""
        return self.state_rows(uid, at, stored=True).table()

    def state_values(self, uid: str, at: int | None = None) -> pa.Table:
        """Return an operator's keyed state in readable form, at the head or at a retained checkpoint.

        Raises: NotFound; InvalidRequest: a result does not fit its type.
        """
        return self.state_rows(uid, at).table()

    @suggest_rollback
    def state_rows(self, uid: str, at: int | None = None, *, stored: bool = False) -> SpilledRows:
        """Like `state_values`, or like `state` if `stored`, but spills many rows to disk."""
        from milepost.jobmaster.reports.tables.tables import Tables

        with pin_for_read(self._context, at):
            tables = Tables(self._context)
            return tables.state(uid, at) if stored else tables.state_values(uid, at)

    def diff(
        self, before: int, after: int, only: tuple[str, str] | None = None, limit: int | None = None
    ) -> list[Difference]:
        """Return what changed from one retained checkpoint to another; of one thing when `only` is its (kind, name).

        Args:
            limit: maximum number of rows per difference, the first ones; None: all.
        Raises: NotFound: a checkpoint is not retained, or neither has the thing.
        """
        from milepost.jobmaster.reports.tables.diff import Diff

        with pin_for_read(self._context, before), pin_for_read(self._context, after):
            diff = Diff(self._context, before, after, limit)
            return diff.all() if only is None else [diff.one(*only)]

    def series(self, limit: int, most_read: int | None = None, since_ms: int | None = None) -> FiguresSeries:
        """Return figures of the newest completed epochs of the live lineage, oldest first.

        Args:
            most_read: maximum number of retained checkpoints whose measurements are read, newest first; None: all.
            since_ms: only epochs that were triggered at that time or later, in ms since the epoch; None: all.
        """
        from milepost.jobmaster.reports.history.series import series_of

        return series_of(self._context, limit, most_read, since_ms)

    def data_flow(self) -> DataFlow:
        """Return the graph of the spec with figures of the newest epochs. Raises InvalidRequest: it is refused."""
        from milepost.jobmaster.reports.flow.data_flow import data_flow

        return data_flow(self._context)

    def progress(self) -> EpochProgress | None:
        """Return how far the running epoch of the live timeline is; None: none runs."""
        from milepost.jobmaster.reports.flow.progress import epoch_progress

        return epoch_progress(self._context)

    def time_axis(self, span: Span) -> TimeAxis:
        """Return the epochs within a span on an axis of time, with flags for acts and changes."""
        from milepost.jobmaster.reports.axis.time_axis import time_axis

        return time_axis(self._context, span)

    def compare_epochs(self, before: int | None = None, after: int | None = None) -> EpochComparison:
        """Return the figures of two epochs, retained or not. Raises NotFound: there are none of one of them.

        Args:
            before, after: checkpoints; None: the parent of the head, and the head.
        """
        from milepost.jobmaster.reports.axis.comparison import compare_epochs

        return compare_epochs(self._context, before, after)

    def recent_epochs(self) -> tuple[RecentEpoch, ...]:
        """Return rows, duration and late share of the newest 30 completed epochs, oldest first."""
        from milepost.jobmaster.reports.history.recent import recent_epochs

        head = self._context.log.recent_head()
        return () if head is None else recent_epochs(self._context.store, head.state)

    def verify(self, checkpoint_id: int | None = None, deep: bool = False) -> VerifiedObjects:
        """Check everything that a checkpoint refers to. Raises StateCorrupt, with the command to recover."""
        from milepost.jobmaster.reports.tables.tables import Tables

        with pin_for_read(self._context, checkpoint_id):
            return Tables(self._context).verify(checkpoint_id, deep=deep)

    def fsck(self) -> Audit:
        """Compare stored objects with those that roots need. Reports missing and unreachable ones, with proof."""
        from milepost.jobmaster.retention.fsck import check_job

        return check_job(self._context)

    def check_sink_columns(self) -> tuple[str, ...]:
        """Refuse columns that a sink's format cannot hold; see `compatibility.tables`. Contacts no store."""
        from milepost.jobmaster.compatibility.tables import check_sink_columns

        return check_sink_columns(self._context)

    @suggest_rollback
    def compatibility(self) -> list[dict[str, str]]:
        """Return the pre-flight report of the spec against the head (`preflight`); [] for a job that has never run.

        Loads no process class. Only `run` checks what depends on one.
        """
        from milepost.jobmaster.compatibility.preflight import preflight

        return preflight(self._context, self._base(), None)

    @suggest_rollback
    def incomplete_statements(self) -> dict[str, int]:
        """Return the SQL statements that do not equal their queries -> the checkpoint before which they do not."""
        from milepost.jobmaster.compatibility.edits import incomplete_statements

        return incomplete_statements(self._context.job.spec, self._context.graph, self._base())

    @suggest_rollback
    def refused_tables(self) -> list[CheckpointError]:
        """Return why sinks cannot create their new tables; see `compatibility.tables`."""
        from milepost.jobmaster.compatibility.tables import refused_tables

        return list(refused_tables(self._context, self._base()))

    def _base(self) -> CheckpointMetadata | None:
        """Return the checkpoint that the next epoch would continue; None: none."""
        head = self._context.log.head()
        return None if head is None else self._context.base_metadata(head.state, head.state.timeline().head)
