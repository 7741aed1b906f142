"""What subtasks write for a table before the commit point: new rows, joined small files and compacted files."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.staging.compaction import MaintenancePlan as MaintenancePlan
    from milepost.sinks.staging.compaction import plan_compaction as plan_compaction
    from milepost.sinks.staging.small_files import JoinPlan as JoinPlan
    from milepost.sinks.staging.small_files import plan_joins as plan_joins
else:
    __getattr__, __dir__ = lazy_exports(__name__)
