"""The job graph: nodes, columns, levels, and compatibility with recorded state."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.graph.checks import late_outputs as late_outputs
    from milepost.jobspec.graph.checks import structure_problems as structure_problems
    from milepost.jobspec.graph.compatibility import BEGINS_EMPTY as BEGINS_EMPTY
    from milepost.jobspec.graph.compatibility import COMPATIBLE as COMPATIBLE
    from milepost.jobspec.graph.compatibility import FROM_NOW_ON as FROM_NOW_ON
    from milepost.jobspec.graph.compatibility import NEW_TABLE as NEW_TABLE
    from milepost.jobspec.graph.compatibility import NEW_TABLE_OR_BACKFILL as NEW_TABLE_OR_BACKFILL
    from milepost.jobspec.graph.compatibility import NEW_UID as NEW_UID
    from milepost.jobspec.graph.compatibility import NON_RESTORED as NON_RESTORED
    from milepost.jobspec.graph.compatibility import REMOVED as REMOVED
    from milepost.jobspec.graph.compatibility import RENAMED_FROM as RENAMED_FROM
    from milepost.jobspec.graph.compatibility import UNCHANGED as UNCHANGED
    from milepost.jobspec.graph.compatibility import can_continue as can_continue
    from milepost.jobspec.graph.compatibility import compare_signatures as compare_signatures
    from milepost.jobspec.graph.compatibility import is_changed as is_changed
    from milepost.jobspec.graph.compatibility import is_other_table as is_other_table
    from milepost.jobspec.graph.compatibility import is_same_query as is_same_query
    from milepost.jobspec.graph.compatibility import recorded_answers as recorded_answers
    from milepost.jobspec.graph.compatibility import retimed_sources as retimed_sources
    from milepost.jobspec.graph.compatibility import state_signatures as state_signatures
    from milepost.jobspec.graph.compatibility import with_answers as with_answers
    from milepost.jobspec.graph.compatibility import with_rows_of as with_rows_of
    from milepost.jobspec.graph.compatibility import with_source_names as with_source_names
    from milepost.jobspec.graph.compatibility import without_queries as without_queries
    from milepost.jobspec.graph.fingerprints import fingerprint as fingerprint
    from milepost.jobspec.graph.fingerprints import reads_statement as reads_statement
    from milepost.jobspec.graph.fingerprints import state_fingerprint as state_fingerprint
    from milepost.jobspec.graph.fingerprints import statement_of as statement_of
    from milepost.jobspec.graph.graph import JobGraph as JobGraph
    from milepost.jobspec.graph.graph import Node as Node
    from milepost.jobspec.graph.graph import analyse as analyse
    from milepost.jobspec.graph.in_flight import consumed_columns as consumed_columns
    from milepost.jobspec.graph.in_flight import input_signatures as input_signatures
    from milepost.jobspec.graph.output_checks import bad_columns as bad_columns
    from milepost.jobspec.graph.read_columns import columns_read as columns_read
    from milepost.jobspec.graph.read_updates import with_queries_of as with_queries_of
    from milepost.jobspec.graph.read_updates import with_updates_of as with_updates_of
    from milepost.jobspec.graph.row_rule_checks import rejected_outputs as rejected_outputs
    from milepost.jobspec.graph.sink_input import SinkInput as SinkInput
else:
    __getattr__, __dir__ = lazy_exports(__name__)
