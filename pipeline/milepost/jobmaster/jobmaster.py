"""The job master of one job: its use cases, grouped by subject.

A group and its imports are loaded when it is first used, so a command that reads one object waits for no backfill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.metrics.abort_reporter import AbortReporter, configured_telemetry
from milepost.jobspec.load import LoadedJob
from milepost.openlineage import LineageSettings, settings_of_environment, settings_or_none
from milepost.protocol.records import cached_property

if TYPE_CHECKING:
    from milepost.jobmaster.backfill.backfill import Backfills
    from milepost.jobmaster.landing.gaps import Gaps
    from milepost.jobmaster.landing.landings import Landings
    from milepost.jobmaster.landing.voids import Voids
    from milepost.jobmaster.leadership.incarnations import Incarnations
    from milepost.jobmaster.leadership.leadership import Leadership
    from milepost.jobmaster.leadership.lifecycle import Lifecycle
    from milepost.jobmaster.leadership.reconciliation import SinkReconciler
    from milepost.jobmaster.metrics.samples import Sample
    from milepost.jobmaster.metrics.telemetry import Telemetry
    from milepost.jobmaster.migration.migration import Migrations
    from milepost.jobmaster.observers.delivery import Delivery
    from milepost.jobmaster.quarantine.quarantine import Quarantine
    from milepost.jobmaster.reports.reports import Reports
    from milepost.jobmaster.retention.garbage_collection import Collection
    from milepost.jobmaster.rollback.realign import Realignments
    from milepost.jobmaster.rollback.rollback import Rollbacks
    from milepost.jobmaster.run.epochs import Epochs
    from milepost.jobmaster.run.trigger import Trigger
    from milepost.jobmaster.savepoints.bootstrap import Bootstrap
    from milepost.jobmaster.savepoints.listed import ListedSavepoint
    from milepost.jobmaster.savepoints.restore import Restores
    from milepost.jobmaster.savepoints.savepoints import Savepoints
    from milepost.jobmaster.tracing.tracing import Tracing


class JobMaster:
    """One job, with its use cases grouped by subject: `epochs`, `rollbacks`, `reports` and so on.

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
        AbortReporter(self.context, telemetry).observe()
        self.observers: Delivery | None = None
        if (settings := settings_or_none(lineage)) is not None:
            from milepost.jobmaster.observers.observers import observe

            self.observers = observe(self.context, settings)

    def prefetch_head(self) -> None:
        """Start reading the head in the background, for the use case that is called next."""
        self.context.log.prefetch_head()

    def list_savepoints(self) -> list[ListedSavepoint]:
        """Return the job's savepoints by name."""
        from milepost.jobmaster.savepoints.listed import list_savepoints

        return list_savepoints(self.context)

    def find_savepoint(self, name: str) -> ListedSavepoint:
        """Return one of the job's savepoints, as `list_savepoints` shows it. Raises NotFound."""
        from milepost.jobmaster.savepoints.listed import find_savepoint

        return find_savepoint(self.context, name)

    def samples(self) -> list[Sample]:
        """Return the current values of the job's metrics. Raises as `reports.status` and `reports.show`."""
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
    def _incarnations(self) -> Incarnations:
        from milepost.jobmaster.leadership.incarnations import Incarnations

        return Incarnations(self.context, self._leadership, self._reconciler)

    @cached_property
    def lifecycle(self) -> Lifecycle:
        from milepost.jobmaster.leadership.lifecycle import Lifecycle

        return Lifecycle(self.context, self._leadership, self._incarnations)

    @cached_property
    def rollbacks(self) -> Rollbacks:
        from milepost.jobmaster.rollback.rollback import Rollbacks

        return Rollbacks(self.context, self._leadership, self._reconciler, self._incarnations)

    @cached_property
    def realignments(self) -> Realignments:
        from milepost.jobmaster.rollback.realign import Realignments

        return Realignments(self.context, self._reconciler)

    @cached_property
    def migrations(self) -> Migrations:
        from milepost.jobmaster.migration.migration import Migrations

        return Migrations(self.context, self._leadership, self._reconciler)

    @cached_property
    def savepoints(self) -> Savepoints:
        from milepost.jobmaster.savepoints.savepoints import Savepoints

        return Savepoints(self.context, self._incarnations)

    @cached_property
    def restores(self) -> Restores:
        from milepost.jobmaster.savepoints.restore import Restores

        return Restores(
            self.context, self._leadership, self._reconciler, self._incarnations, self.rollbacks, self.savepoints
        )

    @cached_property
    def bootstraps(self) -> Bootstrap:
        from milepost.jobmaster.savepoints.bootstrap import Bootstrap

        return Bootstrap(self.context, self._leadership, self._incarnations, self.rollbacks)

    @cached_property
    def triggers(self) -> Trigger:
        from milepost.jobmaster.run.trigger import Trigger

        return Trigger(self.context, self._leadership, self._reconciler, self._incarnations, self.lifecycle)

    @cached_property
    def landings(self) -> Landings:
        from milepost.jobmaster.landing.landings import Landings

        return Landings(self.context, self._leadership)

    @cached_property
    def gaps(self) -> Gaps:
        from milepost.jobmaster.landing.gaps import Gaps

        return Gaps(self.context)

    @cached_property
    def voids(self) -> Voids:
        from milepost.jobmaster.landing.voids import Voids

        return Voids(self.context)

    @cached_property
    def quarantine(self) -> Quarantine:
        from milepost.jobmaster.quarantine.quarantine import Quarantine

        return Quarantine(self.context)

    @cached_property
    def epochs(self) -> Epochs:
        from milepost.jobmaster.run.epochs import Epochs

        return Epochs(self.context, self._leadership, self.lifecycle, self.triggers)

    @cached_property
    def backfills(self) -> Backfills:
        from milepost.jobmaster.backfill.backfill import Backfills

        return Backfills(self.context, self.epochs, self._leadership, self._reconciler)

    @cached_property
    def reports(self) -> Reports:
        from milepost.jobmaster.reports.reports import Reports

        return Reports(self.context)

    @cached_property
    def tracing(self) -> Tracing:
        from milepost.jobmaster.tracing.tracing import Tracing

        return Tracing(self.context)
