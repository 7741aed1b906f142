"""Column lineage of a job's tables, derived from the spec alone."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.column_lineage.sink_columns import sink_lineage as sink_lineage
else:
    __getattr__, __dir__ = lazy_exports(__name__)
