"""Decide what each table of a job must keep, and prune the rest."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobmaster.retention.tables.dropped_sinks import DroppedSink as DroppedSink
    from milepost.jobmaster.retention.tables.dropped_sinks import ListedTable as ListedTable
    from milepost.jobmaster.retention.tables.dropped_sinks import list_dropped_sinks as list_dropped_sinks
    from milepost.jobmaster.retention.tables.orphan_tables import orphan_table_records as orphan_table_records
    from milepost.jobmaster.retention.tables.table_pruning import PrunePlan as PrunePlan
    from milepost.jobmaster.retention.tables.table_pruning import TablePruning as TablePruning
    from milepost.jobmaster.retention.tables.table_pruning import execute as execute
    from milepost.jobmaster.retention.tables.table_pruning import plan_pruning as plan_pruning
    from milepost.jobmaster.retention.tables.table_pruning import prune_tables as prune_tables
    from milepost.jobmaster.retention.tables.table_pruning import pruning_due as pruning_due
    from milepost.jobmaster.retention.tables.table_references import OpenedTable as OpenedTable
    from milepost.jobmaster.retention.tables.table_references import TableNeeds as TableNeeds
    from milepost.jobmaster.retention.tables.table_references import TableShare as TableShare
    from milepost.jobmaster.retention.tables.table_references import retained_chain as retained_chain
    from milepost.jobmaster.retention.tables.tables_of_job import job_tables as job_tables
    from milepost.jobmaster.retention.tables.tables_of_job import prefetch_job_tables as prefetch_job_tables
    from milepost.jobmaster.retention.tables.tables_of_job import staging_tables as staging_tables
else:
    __getattr__, __dir__ = lazy_exports(__name__)
