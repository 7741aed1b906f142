"""Decide whether the sinks of a changed spec fit the tables that are there."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobmaster.compatibility.tables.locations import OTHER_TABLE as OTHER_TABLE
    from milepost.jobmaster.compatibility.tables.locations import OTHER_TABLE_OR_MIGRATION as OTHER_TABLE_OR_MIGRATION
    from milepost.jobmaster.compatibility.tables.locations import check_locations as check_locations
    from milepost.jobmaster.compatibility.tables.locations import migration_command as migration_command
    from milepost.jobmaster.compatibility.tables.locations import resolved_path_note as resolved_path_note
    from milepost.jobmaster.compatibility.tables.new_tables import check_new_tables as check_new_tables
    from milepost.jobmaster.compatibility.tables.new_tables import refused_tables as refused_tables
    from milepost.jobmaster.compatibility.tables.renamed_tables import describe_renamed_table as describe_renamed_table
    from milepost.jobmaster.compatibility.tables.sink_columns import check_sink_columns as check_sink_columns
    from milepost.jobmaster.compatibility.tables.sink_filling import begins_from_state as begins_from_state
    from milepost.jobmaster.compatibility.tables.sink_filling import can_be_filled as can_be_filled
    from milepost.jobmaster.compatibility.tables.sink_filling import filled_sinks as filled_sinks
    from milepost.jobmaster.compatibility.tables.sink_filling import missed_rows as missed_rows
    from milepost.jobmaster.compatibility.tables.sink_filling import seeded_operators as seeded_operators
    from milepost.jobmaster.compatibility.tables.table_columns import changed_types as changed_types
    from milepost.jobmaster.compatibility.tables.table_columns import check_switched_tables as check_switched_tables
    from milepost.jobmaster.compatibility.tables.table_columns import missing_columns as missing_columns
else:
    __getattr__, __dir__ = lazy_exports(__name__)
