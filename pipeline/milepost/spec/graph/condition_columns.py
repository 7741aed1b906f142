"""Marks: columns of true and false that Spark adds to an operator's input before it is exchanged, by conditions.

A mark is not in the rows of its producer, nor in late rows: like all columns of the product its name begins with "__".
"""

from __future__ import annotations

from milepost.spec.graph.edges import DELETED_COLUMN
from milepost.spec.job.operators.latest import LatestOperator
from milepost.spec.job.spec import AggregateOperator, RowWiseSpec, StatefulSpec, WindowOperator


def condition_columns(operator: RowWiseSpec | StatefulSpec) -> tuple[tuple[str, str], ...]:
    """Return the marks of an operator's input, each with the condition that makes it true, in SQL."""
    if isinstance(operator, LatestOperator):
        return () if operator.delete_when is None else ((DELETED_COLUMN, operator.delete_when),)
    if not isinstance(operator, AggregateOperator | WindowOperator):
        return ()
    calls = operator.aggregates.values()
    return tuple({call.where: call.condition for call in calls if call.where and call.condition}.items())
