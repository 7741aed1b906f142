"""Every use case of a job; the only door for DAGs, command line and UI."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobmaster.backfill.backfill import BackfillResult as BackfillResult
    from milepost.jobmaster.backfill.backfill import DisposedBackfills as DisposedBackfills
    from milepost.jobmaster.backfill.plan import ApprovedBackfill as ApprovedBackfill
    from milepost.jobmaster.compatibility.advice import advice as advice
    from milepost.jobmaster.compatibility.edits.edit_rows import statement_edits as statement_edits
    from milepost.jobmaster.compatibility.spec_check import report_lines as report_lines
    from milepost.jobmaster.figures.timings import AFTER_PUBLICATION as AFTER_PUBLICATION
    from milepost.jobmaster.figures.timings import PHASE_GROUPS as PHASE_GROUPS
    from milepost.jobmaster.figures.timings import time_by_phase_group as time_by_phase_group
    from milepost.jobmaster.job.checks.expectation_suites import suite_problems as suite_problems
    from milepost.jobmaster.job.checks.store_checks import local_disks as local_disks
    from milepost.jobmaster.job.checks.store_checks import probe_stores as probe_stores
    from milepost.jobmaster.job.checks.store_checks import probe_tables as probe_tables
    from milepost.jobmaster.job.session import Session as Session
    from milepost.jobmaster.job.warm_up import warm_up as warm_up
    from milepost.jobmaster.jobmaster import JobMaster as JobMaster
    from milepost.jobmaster.landing.gaps import AppendedGap as AppendedGap
    from milepost.jobmaster.landing.gaps import ApprovedGap as ApprovedGap
    from milepost.jobmaster.landing.lander import Landing as Landing
    from milepost.jobmaster.landing.landings import LandingReport as LandingReport
    from milepost.jobmaster.landing.source_probe import probe_landed_sources as probe_landed_sources
    from milepost.jobmaster.landing.voids import AppendedVoid as AppendedVoid
    from milepost.jobmaster.landing.voids import ApprovedVoid as ApprovedVoid
    from milepost.jobmaster.leadership.outcomes import AbortedCheckpoint as AbortedCheckpoint
    from milepost.jobmaster.leadership.outcomes import CanceledJob as CanceledJob
    from milepost.jobmaster.leadership.outcomes import CheckpointCopy as CheckpointCopy
    from milepost.jobmaster.leadership.outcomes import NothingAborted as NothingAborted
    from milepost.jobmaster.leadership.outcomes import Resumed as Resumed
    from milepost.jobmaster.leadership.outcomes import StartedJob as StartedJob
    from milepost.jobmaster.metrics.metric_table import Metric as Metric
    from milepost.jobmaster.metrics.prometheus_text import prometheus_text as prometheus_text
    from milepost.jobmaster.metrics.samples import Sample as Sample
    from milepost.jobmaster.metrics.samples import listed_samples as listed_samples
    from milepost.jobmaster.metrics.telemetry import Telemetry as Telemetry
    from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails as CheckpointDetails
    from milepost.jobmaster.reports.checkpoint.details import SourceDetails as SourceDetails
    from milepost.jobmaster.reports.checkpoint.document import CheckpointReport as CheckpointReport
    from milepost.jobmaster.reports.checkpoint.static_sources import StaticSourceDetails as StaticSourceDetails
    from milepost.jobmaster.reports.checkpoint.subtasks import Spread as Spread
    from milepost.jobmaster.reports.checkpoint.subtasks import SubtaskDetails as SubtaskDetails
    from milepost.jobmaster.reports.cost.epoch_cost import EpochCost as EpochCost
    from milepost.jobmaster.reports.cost.epoch_cost import MonthCost as MonthCost
    from milepost.jobmaster.reports.cost.upsert_price import UpsertPrice as UpsertPrice
    from milepost.jobmaster.reports.flow.data_flow import DataFlow as DataFlow
    from milepost.jobmaster.reports.flow.data_flow import FlowEdge as FlowEdge
    from milepost.jobmaster.reports.flow.data_flow import FlowEpoch as FlowEpoch
    from milepost.jobmaster.reports.flow.data_flow import FlowNode as FlowNode
    from milepost.jobmaster.reports.flow.data_flow import FlowTable as FlowTable
    from milepost.jobmaster.reports.health.conditions import Condition as Condition
    from milepost.jobmaster.reports.health.sources import LogHealth as LogHealth
    from milepost.jobmaster.reports.health.sources import SourceHealth as SourceHealth
    from milepost.jobmaster.reports.health.sources import missing_input as missing_input
    from milepost.jobmaster.reports.health.sources import source_checks as source_checks
    from milepost.jobmaster.reports.health.static_sources import StaticSourceHealth as StaticSourceHealth
    from milepost.jobmaster.reports.health.status import Status as Status
    from milepost.jobmaster.reports.health.verdict import Grade as Grade
    from milepost.jobmaster.reports.health.verdict import JobVerdict as JobVerdict
    from milepost.jobmaster.reports.history.actors import HistoryActor as HistoryActor
    from milepost.jobmaster.reports.history.acts import HistoryAct as HistoryAct
    from milepost.jobmaster.reports.history.page import HistoryPage as HistoryPage
    from milepost.jobmaster.reports.history.page import TimelineOrigin as TimelineOrigin
    from milepost.jobmaster.reports.history.page import TimelineSwitch as TimelineSwitch
    from milepost.jobmaster.reports.history.percentiles import percentiles_of as percentiles_of
    from milepost.jobmaster.reports.history.series import EpochFigures as EpochFigures
    from milepost.jobmaster.reports.history.series import FiguresSeries as FiguresSeries
    from milepost.jobmaster.reports.job_report import JobState as JobState
    from milepost.jobmaster.reports.job_report import TimelineReport as TimelineReport
    from milepost.jobmaster.reports.jobs import jobs_in_storage_of as jobs_in_storage_of
    from milepost.jobmaster.reports.jobs import jobs_of_folder as jobs_of_folder
    from milepost.jobmaster.reports.jobs import jobs_under as jobs_under
    from milepost.jobmaster.reports.tables.diff import Difference as Difference
    from milepost.jobmaster.reports.tables.state_sizes import StateSize as StateSize
    from milepost.jobmaster.reports.tables.tables import VerifiedObjects as VerifiedObjects
    from milepost.jobmaster.retention.fsck import Audit as Audit
    from milepost.jobmaster.retention.fsck import StoredObject as StoredObject
    from milepost.jobmaster.retention.garbage_collection import Collection as Collection
    from milepost.jobmaster.rollback.plan import ApprovedRollback as ApprovedRollback
    from milepost.jobmaster.rollback.realign import RealignedSink as RealignedSink
    from milepost.jobmaster.rollback.realign import RealignmentPlan as RealignmentPlan
    from milepost.jobmaster.rollback.rewind_points import RewindPoint as RewindPoint
    from milepost.jobmaster.rollback.rollback import RollbackResult as RollbackResult
    from milepost.jobmaster.run.restarts import Recovery as Recovery
    from milepost.jobmaster.run.trigger_result import NothingToDo as NothingToDo
    from milepost.jobmaster.run.trigger_result import Triggered as Triggered
    from milepost.jobmaster.savepoints.restore import StartedFromSavepoint as StartedFromSavepoint
    from milepost.jobmaster.savepoints.savepoints import DisposedSavepoint as DisposedSavepoint
    from milepost.storage import StoreRequests as StoreRequests
    from milepost.tables.records import CatalogAddress as CatalogAddress
    from milepost.tables.records import TableAddress as TableAddress
else:
    __getattr__, __dir__ = lazy_exports(__name__)
