"""Resolve names in a SELECT: relations, columns, join conditions and output columns."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.sql.names.conditions import comparison as comparison
    from milepost.jobspec.sql.names.conditions import equality as equality
    from milepost.jobspec.sql.names.correlation import Correlation as Correlation
    from milepost.jobspec.sql.names.outputs import TIME_WINDOWS as TIME_WINDOWS
    from milepost.jobspec.sql.names.outputs import Output as Output
    from milepost.jobspec.sql.names.outputs import by_name_or_position as by_name_or_position
    from milepost.jobspec.sql.names.outputs import select_outputs as select_outputs
    from milepost.jobspec.sql.names.outputs import window_field as window_field
    from milepost.jobspec.sql.names.scope import Reference as Reference
    from milepost.jobspec.sql.names.scope import Relation as Relation
    from milepost.jobspec.sql.names.scope import Scope as Scope
    from milepost.jobspec.sql.names.scope import merged_name as merged_name
    from milepost.jobspec.sql.names.scope import shown_name as shown_name
    from milepost.jobspec.sql.names.time_bounds import Bound as Bound
    from milepost.jobspec.sql.names.time_bounds import read_bounds as read_bounds
else:
    __getattr__, __dir__ = lazy_exports(__name__)
