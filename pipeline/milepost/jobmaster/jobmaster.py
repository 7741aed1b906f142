"""The facade of a job: it composes the rooms of the job master, and names each use case in one line."""

from __future__ import annotations

from milepost.jobmaster.backfill.backfill import BackfillResult, Backfills, DisposedBackfills
from milepost.jobmaster.backfill.plan import ApprovedBackfill
from milepost.jobmaster.compatibility.preflight import advice, report_lines
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.installed_suite import suite_faults
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.store_checks import probe_stores
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.lifecycle import Lifecycle
from milepost.jobmaster.leadership.outcomes import AbortedCheckpoint, CanceledJob, CheckpointCopy
from milepost.jobmaster.leadership.reconciliation import SinkReconciler
from milepost.jobmaster.reports.checkpoint_details import CheckpointDetails, SourceDetails
from milepost.jobmaster.reports.checkpoint_document import CheckpointReport
from milepost.jobmaster.reports.diff import Difference
from milepost.jobmaster.reports.jobs import JobSummary, jobs_beside, jobs_of_folder, jobs_under
from milepost.jobmaster.reports.reports import Reports
from milepost.jobmaster.reports.series import EpochFigures
from milepost.jobmaster.reports.source_health import SourceHealth, source_checks
from milepost.jobmaster.reports.status import Status
from milepost.jobmaster.retention.fsck import Audit, StoredObject
from milepost.jobmaster.retention.garbage_collection import Collection, collect_garbage
from milepost.jobmaster.rollback.plan import ApprovedRollback, RollbackPlan
from milepost.jobmaster.rollback.rollback import RollbackResult, Rollbacks
from milepost.jobmaster.run.epochs import Epochs
from milepost.jobmaster.run.restarts import Recovery
from milepost.jobmaster.run.trigger import Trigger
from milepost.jobmaster.run.triggered import NothingToDo, Triggered
from milepost.jobmaster.savepoints.bootstrap import Bootstrap
from milepost.jobmaster.savepoints.restore import Restores, StartedFromSavepoint
from milepost.jobmaster.savepoints.savepoints import Savepoints
from milepost.spec.load.load import LoadedJob

__all__ = [
    "AbortedCheckpoint",
    "ApprovedBackfill",
    "ApprovedRollback",
    "Audit",
    "BackfillResult",
    "CanceledJob",
    "CheckpointCopy",
    "CheckpointDetails",
    "CheckpointReport",
    "Collection",
    "Difference",
    "DisposedBackfills",
    "EpochFigures",
    "JobMaster",
    "JobSummary",
    "NothingToDo",
    "Recovery",
    "RollbackPlan",
    "RollbackResult",
    "Session",
    "SourceDetails",
    "SourceHealth",
    "StartedFromSavepoint",
    "Status",
    "StoredObject",
    "Triggered",
    "advice",
    "jobs_beside",
    "jobs_of_folder",
    "jobs_under",
    "probe_stores",
    "report_lines",
    "source_checks",
    "suite_faults",
]


class JobMaster:
    """One job, opened: each use case is a method of the class that does it, and is named here.

    It is stateless between calls: each Airflow task starts cold, reads the manifest's head, asks the pure protocol for
    one transition, and acts outside the manifest only on what the head says afterwards (I1).
    """

    def __init__(self, job: LoadedJob) -> None:
        self.job = job
        self.context = context = JobContext(job)
        leadership, reconciler = Leadership(context), SinkReconciler(context)
        lifecycle = Lifecycle(context, leadership, reconciler)
        rollbacks = Rollbacks(context, leadership, reconciler, lifecycle)
        savepoints = Savepoints(context, lifecycle)
        restores = Restores(context, leadership, lifecycle, rollbacks, savepoints)
        trigger = Trigger(context, leadership, reconciler, lifecycle)
        epochs = Epochs(context, leadership, lifecycle, trigger)
        backfills = Backfills(context, epochs, leadership, reconciler)
        reports = Reports(context)

        self.run = epochs.run
        self.trigger = trigger.trigger
        self.run_epoch = epochs.run_epoch
        self.run_opened = epochs.run_opened
        self.validate = epochs.validate
        self.complete = epochs.complete
        self.notify_complete = epochs.notify_complete
        self.subsume = epochs.subsume
        self.abort = epochs.abort
        self.keep_times = epochs.keep_times

        self.abort_running = lifecycle.abort_running
        self.finish = lifecycle.finish
        self.resume = lifecycle.resume
        self.cancel = savepoints.cancel
        self.start = restores.start
        self.restore = restores.restore
        self.bootstrap = Bootstrap(context, leadership, lifecycle, rollbacks).bootstrap

        self.plan_rollback = rollbacks.plan_rollback
        self.rollback_target = rollbacks.rollback_target
        self.rollback = rollbacks.rollback
        self.finish_reconciliation = rollbacks.finish_reconciliation
        self.plan_backfill = backfills.plan_backfill
        self.backfill = backfills.backfill
        self.dispose_backfills = backfills.dispose_backfills

        self.create_savepoint = savepoints.create_savepoint
        self.export = savepoints.export
        self.list_savepoints = savepoints.list_savepoints
        self.find_savepoint = savepoints.find_savepoint
        self.dispose_savepoint = savepoints.dispose_savepoint

        self.list_checkpoints = reports.list_checkpoints
        self.show = reports.show
        self.history = reports.history
        self.job_state = reports.job_state
        self.status = reports.status
        self.read = reports.read
        self.state = reports.state
        self.state_values = reports.state_values
        self.diff = reports.diff
        self.series = reports.series
        self.verify = reports.verify
        self.fsck = reports.fsck
        self.compatibility = reports.compatibility

    def collect_garbage(self, *, dry_run: bool = False) -> Collection:
        """List what is provably unreachable, delete what has been listed for the grace period (I8); leads nothing.

        Raises: StateCorrupt when not every root can be walked; CommitConflict when the head keeps moving.
        """
        return collect_garbage(self.context, Session.cli().session_id, self.context.timeout_ms, dry_run=dry_run)
