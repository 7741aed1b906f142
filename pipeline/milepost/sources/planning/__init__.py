"""Plan what one epoch reads of a source, and which subtask reads it."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sources.planning.consumed import ConsumedSet as ConsumedSet
    from milepost.sources.planning.consumed import append as append
    from milepost.sources.planning.consumed import load as load
    from milepost.sources.planning.consumed import needs_compaction as needs_compaction
    from milepost.sources.planning.consumed import read_run as read_run
    from milepost.sources.planning.forgetting import ForgottenRows as ForgottenRows
    from milepost.sources.planning.listing import format_object_list as format_object_list
    from milepost.sources.planning.listing import list_objects as list_objects
    from milepost.sources.planning.listing import matches as matches
    from milepost.sources.planning.listing import split_path as split_path
    from milepost.sources.planning.log_plan import cut_to_bytes as cut_to_bytes
    from milepost.sources.planning.log_plan import has_new_rows as has_new_rows
    from milepost.sources.planning.log_plan import plan_log as plan_log
    from milepost.sources.planning.log_plan import planned_objects as planned_objects
    from milepost.sources.planning.plan import LogInput as LogInput
    from milepost.sources.planning.plan import ObjectVersion as ObjectVersion
    from milepost.sources.planning.plan import SourcePlan as SourcePlan
    from milepost.sources.planning.plan import SourceRules as SourceRules
    from milepost.sources.planning.plan import plan_source as plan_source
    from milepost.sources.planning.splits import assign_splits as assign_splits
    from milepost.sources.planning.splits import count_indivisible_objects as count_indivisible_objects
    from milepost.sources.planning.table_references import LOST_FILE_HINT as LOST_FILE_HINT
    from milepost.sources.planning.table_references import ReferencedFiles as ReferencedFiles
    from milepost.sources.planning.table_references import lost_file_error as lost_file_error
    from milepost.sources.planning.table_references import lost_file_problem as lost_file_problem
    from milepost.sources.planning.table_references import referenced_files as referenced_files
else:
    __getattr__, __dir__ = lazy_exports(__name__)
