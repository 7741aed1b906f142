"""Boolean columns that Spark adds to an operator's input, one per SQL condition.

Spark adds them before the exchange. They occur neither in the rows of the producer nor in late rows. Like all reserved
columns, their names begin with "__".
"""

from __future__ import annotations

from milepost.jobspec.graph.edges import DELETED_COLUMN
from milepost.jobspec.job.operators.latest import LatestOperator
from milepost.jobspec.job.spec import AggregateOperator, RowWiseSpec, StatefulSpec, WindowOperator


def condition_columns(operator: RowWiseSpec | StatefulSpec) -> tuple[tuple[str, str], ...]:
    """Return (column name, SQL condition) for each condition of an operator."""
    if isinstance(operator, LatestOperator):
        return () if operator.delete_when is None else ((DELETED_COLUMN, operator.delete_when),)
    if not isinstance(operator, AggregateOperator | WindowOperator):
        return ()
    calls = operator.aggregates.values()
    return tuple({call.where: call.condition for call in calls if call.where and call.condition}.items())
