"""The facade of a job: composes the use-case classes and exposes each use case.

A use-case class is imported and created when one of its use cases is first called, and a record class when its name is
first used. So a command that reads one object does not wait for the import of the backfill code.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.metrics.abort_reporter import AbortReporter, configured_telemetry
from milepost.jobspec.load.load import LoadedJob
from milepost.openlineage.settings import LineageSettings, asked, settings_of_environment
from milepost.protocol.records.cached_property import cached_property

if TYPE_CHECKING:
    from milepost.jobmaster.backfill.backfill import BackfillResult, Backfills, DisposedBackfills
    from milepost.jobmaster.backfill.plan import ApprovedBackfill
    from milepost.jobmaster.compatibility.advice import advice
    from milepost.jobmaster.compatibility.preflight import report_lines
    from milepost.jobmaster.job.checks.expectation_suites import suite_problems
    from milepost.jobmaster.job.checks.store_checks import local_disks, probe_stores, probe_tables
    from milepost.jobmaster.job.session import Session
    from milepost.jobmaster.job.warm_up import warm_up
    from milepost.jobmaster.leadership.leadership import Leadership
    from milepost.jobmaster.leadership.lifecycle import Lifecycle
    from milepost.jobmaster.leadership.outcomes import AbortedCheckpoint, CanceledJob, CheckpointCopy
    from milepost.jobmaster.leadership.reconciliation import SinkReconciler
    from milepost.jobmaster.metrics.metric_table import Metric
    from milepost.jobmaster.metrics.prometheus_text import prometheus_text
    from milepost.jobmaster.metrics.samples import Sample, listed_samples
    from milepost.jobmaster.metrics.telemetry import Telemetry
    from milepost.jobmaster.migration.migration import MigratedTable, Migrations
    from milepost.jobmaster.migration.plan import MigrationPlan
    from milepost.jobmaster.observers.delivery import Delivery
    from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails, SourceDetails
    from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
    from milepost.jobmaster.reports.checkpoint.static_sources import StaticSourceDetails
    from milepost.jobmaster.reports.checkpoint.subtasks import Spread, SubtaskDetails
    from milepost.jobmaster.reports.cost.epoch_cost import EpochCost, MonthCost
    from milepost.jobmaster.reports.cost.upsert_price import UpsertPrice
    from milepost.jobmaster.reports.health.conditions import Condition
    from milepost.jobmaster.reports.health.sources import SourceHealth, missing_input, source_checks
    from milepost.jobmaster.reports.health.static_sources import StaticSourceHealth
    from milepost.jobmaster.reports.health.status import Status
    from milepost.jobmaster.reports.history.page import HistoryPage, TimelineSwitch
    from milepost.jobmaster.reports.history.percentiles import Percentiles, percentiles_of
    from milepost.jobmaster.reports.history.series import EpochFigures
    from milepost.jobmaster.reports.job_report import JobState, TimelineReport
    from milepost.jobmaster.reports.jobs import JobSummary, jobs_in_storage_of, jobs_of_folder, jobs_under
    from milepost.jobmaster.reports.reports import Reports
    from milepost.jobmaster.reports.tables.diff import Difference
    from milepost.jobmaster.reports.tables.state_sizes import StateSize
    from milepost.jobmaster.reports.timings import PHASE_GROUPS, time_by_phase_group
    from milepost.jobmaster.retention.fsck import Audit, StoredObject
    from milepost.jobmaster.retention.garbage_collection import Collection
    from milepost.jobmaster.rollback.plan import ApprovedRollback, RollbackPlan
    from milepost.jobmaster.rollback.realign import RealignedSink, RealignmentPlan, Realignments
    from milepost.jobmaster.rollback.rewind_points import RewindPoint
    from milepost.jobmaster.rollback.rollback import RollbackResult, Rollbacks
    from milepost.jobmaster.run.epochs import Epochs
    from milepost.jobmaster.run.restarts import Recovery
    from milepost.jobmaster.run.trigger import Trigger
    from milepost.jobmaster.run.trigger_result import NothingToDo, Triggered
    from milepost.jobmaster.savepoints.bootstrap import Bootstrap
    from milepost.jobmaster.savepoints.listed import ListedSavepoint
    from milepost.jobmaster.savepoints.restore import Restores, StartedFromSavepoint
    from milepost.jobmaster.savepoints.savepoints import Savepoints
    from milepost.sinks.records.table_address import CatalogAddress, TableAddress
    from milepost.storage.requests import StoreRequests

_HOMES = {
    "backfill.backfill": ("BackfillResult", "DisposedBackfills"),
    "backfill.plan": ("ApprovedBackfill",),
    "compatibility.advice": ("advice",),
    "compatibility.preflight": ("report_lines",),
    "job.checks.expectation_suites": ("suite_problems",),
    "job.checks.store_checks": ("local_disks", "probe_stores", "probe_tables"),
    "job.session": ("Session",),
    "job.warm_up": ("warm_up",),
    "leadership.outcomes": ("AbortedCheckpoint", "CanceledJob", "CheckpointCopy"),
    "migration.migration": ("MigratedTable",),
    "migration.plan": ("CatalogAddress", "MigrationPlan", "TableAddress"),
    "reports.checkpoint.details": ("CheckpointDetails", "SourceDetails"),
    "reports.checkpoint.document": ("CheckpointReport",),
    "reports.checkpoint.subtasks": ("Spread", "SubtaskDetails"),
    "metrics.metric_table": ("Metric",),
    "metrics.prometheus_text": ("prometheus_text",),
    "metrics.samples": ("Sample", "listed_samples"),
    "metrics.telemetry": ("Telemetry",),
    "reports.cost.epoch_cost": ("EpochCost", "MonthCost"),
    "reports.history.percentiles": ("Percentiles", "percentiles_of"),
    "reports.health.conditions": ("Condition",),
    "reports.tables.diff": ("Difference",),
    "reports.jobs": ("JobSummary", "jobs_in_storage_of", "jobs_of_folder", "jobs_under"),
    "reports.history.page": ("HistoryPage", "TimelineSwitch"),
    "reports.job_report": ("JobState", "TimelineReport"),
    "reports.history.series": ("EpochFigures",),
    "reports.health.sources": ("SourceHealth", "source_checks", "missing_input"),
    "reports.health.static_sources": ("StaticSourceHealth",),
    "reports.checkpoint.static_sources": ("StaticSourceDetails",),
    "reports.health.status": ("Status",),
    "reports.tables.state_sizes": ("StateSize",),
    "reports.timings": ("PHASE_GROUPS", "time_by_phase_group"),
    "reports.cost.upsert_price": ("UpsertPrice",),
    "retention.fsck": ("Audit", "StoredObject"),
    "retention.garbage_collection": ("Collection",),
    "rollback.plan": ("ApprovedRollback", "RollbackPlan"),
    "rollback.rewind_points": ("RewindPoint",),
    "rollback.realign": ("RealignedSink", "RealignmentPlan"),
    "rollback.rollback": ("RollbackResult",),
    "run.restarts": ("Recovery",),
    "run.trigger_result": ("NothingToDo", "Triggered"),
    "savepoints.restore": ("StartedFromSavepoint",),
}
_HOME_OF = {name: f"milepost.jobmaster.{module}" for module, names in _HOMES.items() for name in names} | {
    "StoreRequests": "milepost.storage.requests"
}

_ROOMS = {
    "Backfills": "backfill.backfill",
    "Bootstrap": "savepoints.bootstrap",
    "Epochs": "run.epochs",
    "Lifecycle": "leadership.lifecycle",
    "Migrations": "migration.migration",
    "Realignments": "rollback.realign",
    "Reports": "reports.reports",
    "Restores": "savepoints.restore",
    "Rollbacks": "rollback.rollback",
    "Savepoints": "savepoints.savepoints",
    "Trigger": "run.trigger",
}
"""Class with use cases -> its module."""

__all__ = ["JobMaster", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(sorted(__all__))}")
    return getattr(import_module(_HOME_OF[name]), name)


T = TypeVar("T")


class _UseCase(cached_property[T]):
    """A method of a use-case class, looked up on first access. It returns after observers have received its events.

    Accessed on the class `JobMaster` it is the plain function, for `help`.

    Args:
        find: `lambda master: master.<attribute>.<method>`.
    """

    def __init__(self, find: Callable[[JobMaster], T]) -> None:
        super().__init__(lambda master: _observed(master, find(master)))
        self._path = find.__code__.co_names

    if not TYPE_CHECKING:

        def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
            if instance is not None:
                return super().__get__(instance, owner)
            room, method = self._path
            name = getattr(owner, room).func.__annotations__["return"]
            return getattr(getattr(import_module(f"milepost.jobmaster.{_ROOMS[name]}"), name), method)


def _observed(master: JobMaster, use_case: T) -> T:
    use_case = master.abort_reporter.report_aborts_after(use_case)
    return use_case if master.observers is None else master.observers.wait_after(use_case)


class JobMaster:
    """One job, with all its use cases as methods.

    It is stateless between calls. Each Airflow task starts cold, reads the manifest's head, requests one transition
    from the pure protocol, and acts outside the manifest only on the head after that transition (I1).

    Args:
        lineage: returns the OpenLineage settings, or None to send no events; by default from its variables and files.
        telemetry: returns the metrics and traces exporter, or None; by default from OpenTelemetry's variables.
    """

    def __init__(
        self,
        job: LoadedJob,
        lineage: Callable[[], LineageSettings | None] = settings_of_environment,
        telemetry: Callable[[], Telemetry | None] = configured_telemetry,
    ) -> None:
        self.job = job
        self.context = JobContext(job)
        self.telemetry = telemetry
        self.abort_reporter = AbortReporter(self.context, telemetry)
        self.observers: Delivery | None = None
        if (settings := asked(lineage)) is not None:
            from milepost.jobmaster.observers.observers import observe

            self.observers = observe(self.context, settings)

    run = _UseCase(lambda master: master._epochs.run)
    trigger = _UseCase(lambda master: master._trigger.trigger)
    open_incarnation = _UseCase(lambda master: master._trigger.open_incarnation)
    run_epoch = _UseCase(lambda master: master._epochs.run_epoch)
    validate = _UseCase(lambda master: master._epochs.validate)
    complete = _UseCase(lambda master: master._epochs.complete)
    notify_complete = _UseCase(lambda master: master._epochs.notify_complete)
    subsume = _UseCase(lambda master: master._epochs.subsume)
    abort = _UseCase(lambda master: master._epochs.abort)
    keep_times = _UseCase(lambda master: master._epochs.keep_times)

    abort_running = _UseCase(lambda master: master._lifecycle.abort_running)
    finish = _UseCase(lambda master: master._lifecycle.finish)
    resume = _UseCase(lambda master: master._lifecycle.resume)
    cancel = _UseCase(lambda master: master._savepoints.cancel)
    start = _UseCase(lambda master: master._restores.start)
    restore = _UseCase(lambda master: master._restores.restore)
    bootstrap = _UseCase(lambda master: master._bootstrap.bootstrap)

    plan_rollback = _UseCase(lambda master: master._rollbacks.plan_rollback)
    rollback_target = _UseCase(lambda master: master._rollbacks.rollback_target)
    rollback = _UseCase(lambda master: master._rollbacks.rollback)
    plan_realign = _UseCase(lambda master: master._realignments.plan_realign)
    realign = _UseCase(lambda master: master._realignments.realign)
    plan_migration = _UseCase(lambda master: master._migrations.plan_migration)
    migrate_table = _UseCase(lambda master: master._migrations.migrate_table)
    finish_reconciliation = _UseCase(lambda master: master._rollbacks.finish_reconciliation)
    plan_backfill = _UseCase(lambda master: master._backfills.plan_backfill)
    backfill = _UseCase(lambda master: master._backfills.backfill)
    dispose_backfills = _UseCase(lambda master: master._backfills.dispose_backfills)

    create_savepoint = _UseCase(lambda master: master._savepoints.create_savepoint)
    export = _UseCase(lambda master: master._savepoints.export)
    dispose_savepoint = _UseCase(lambda master: master._savepoints.dispose_savepoint)

    list_checkpoints = _UseCase(lambda master: master._reports.list_checkpoints)
    show = _UseCase(lambda master: master._reports.show)
    history_page = _UseCase(lambda master: master._reports.history_page)
    history = _UseCase(lambda master: master._reports.history)
    job_state = _UseCase(lambda master: master._reports.job_state)
    status = _UseCase(lambda master: master._reports.status)
    read = _UseCase(lambda master: master._reports.read)
    table_rows = _UseCase(lambda master: master._reports.table_rows)
    state = _UseCase(lambda master: master._reports.state)
    state_values = _UseCase(lambda master: master._reports.state_values)
    state_rows = _UseCase(lambda master: master._reports.state_rows)
    diff = _UseCase(lambda master: master._reports.diff)
    series = _UseCase(lambda master: master._reports.series)
    verify = _UseCase(lambda master: master._reports.verify)
    begin_published_check = _UseCase(lambda master: master._reports.begin_published_check)
    fsck = _UseCase(lambda master: master._reports.fsck)
    compatibility = _UseCase(lambda master: master._reports.compatibility)
    upsert_prices = _UseCase(lambda master: master._reports.upsert_prices)
    month_cost = _UseCase(lambda master: master._reports.month_cost)
    state_sizes = _UseCase(lambda master: master._reports.state_sizes)
    check_sink_columns = _UseCase(lambda master: master._reports.check_sink_columns)
    refused_tables = _UseCase(lambda master: master._reports.refused_tables)

    def look_ahead(self) -> None:
        """Start reading the head in the background, for the use case that is called next."""
        self.context.log.prefetch_head()

    def list_savepoints(self) -> list[ListedSavepoint]:
        """Return the job's savepoints by name."""
        from milepost.jobmaster.savepoints.listed import list_savepoints

        return list_savepoints(self.context)

    def rewind_points(self, limit: int | None = None) -> list[RewindPoint]:
        """Return the checkpoints that the job can roll back to, newest first, and what each rollback would change."""
        from milepost.jobmaster.rollback.rewind_points import rewind_points

        return rewind_points(self.context, limit)

    def find_savepoint(self, name: str) -> ListedSavepoint:
        """Return one of the job's savepoints, as `list_savepoints` shows it. Raises NotFound."""
        from milepost.jobmaster.savepoints.listed import find_savepoint

        return find_savepoint(self.context, name)

    def samples(self) -> list[Sample]:
        """Return the current values of the job's metrics. Raises as `status` and `show`."""
        from milepost.jobmaster.metrics.samples import job_samples

        return job_samples(self.context)

    def collect_garbage(self, *, dry_run: bool = False) -> Collection:
        """List what is provably unreachable, and delete what has been listed for the grace period (I8).

        It takes no leadership.

        Raises: StateCorrupt: a root cannot be walked. CommitConflict: the head keeps moving.
        """
        from milepost.jobmaster.job.session import Session
        from milepost.jobmaster.retention.garbage_collection import collect_garbage

        return collect_garbage(self.context, Session.cli().session_id, self.context.timeout_ms, dry_run=dry_run)

    @cached_property
    def _leadership(self) -> Leadership:
        from milepost.jobmaster.leadership.leadership import Leadership

        return Leadership(self.context)

    @cached_property
    def _reconciler(self) -> SinkReconciler:
        from milepost.jobmaster.leadership.reconciliation import SinkReconciler

        return SinkReconciler(self.context)

    @cached_property
    def _lifecycle(self) -> Lifecycle:
        from milepost.jobmaster.leadership.lifecycle import Lifecycle

        return Lifecycle(self.context, self._leadership, self._reconciler)

    @cached_property
    def _rollbacks(self) -> Rollbacks:
        from milepost.jobmaster.rollback.rollback import Rollbacks

        return Rollbacks(self.context, self._leadership, self._reconciler, self._lifecycle)

    @cached_property
    def _realignments(self) -> Realignments:
        from milepost.jobmaster.rollback.realign import Realignments

        return Realignments(self.context, self._reconciler)

    @cached_property
    def _migrations(self) -> Migrations:
        from milepost.jobmaster.migration.migration import Migrations

        return Migrations(self.context, self._leadership, self._reconciler)

    @cached_property
    def _savepoints(self) -> Savepoints:
        from milepost.jobmaster.savepoints.savepoints import Savepoints

        return Savepoints(self.context, self._lifecycle)

    @cached_property
    def _restores(self) -> Restores:
        from milepost.jobmaster.savepoints.restore import Restores

        return Restores(self.context, self._leadership, self._lifecycle, self._rollbacks, self._savepoints)

    @cached_property
    def _bootstrap(self) -> Bootstrap:
        from milepost.jobmaster.savepoints.bootstrap import Bootstrap

        return Bootstrap(self.context, self._leadership, self._lifecycle, self._rollbacks)

    @cached_property
    def _trigger(self) -> Trigger:
        from milepost.jobmaster.run.trigger import Trigger

        return Trigger(self.context, self._leadership, self._reconciler, self._lifecycle)

    @cached_property
    def _epochs(self) -> Epochs:
        from milepost.jobmaster.run.epochs import Epochs

        return Epochs(self.context, self._leadership, self._lifecycle, self._trigger)

    @cached_property
    def _backfills(self) -> Backfills:
        from milepost.jobmaster.backfill.backfill import Backfills

        return Backfills(self.context, self._epochs, self._leadership, self._reconciler)

    @cached_property
    def _reports(self) -> Reports:
        from milepost.jobmaster.reports.reports import Reports

        return Reports(self.context)
