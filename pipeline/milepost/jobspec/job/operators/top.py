"""Spec of the `top` operator: keep the first rows of each key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from milepost.jobspec.job.operators.keyed import KeyedOperator, OrderColumns
from milepost.language import ColumnName

MOST_ROWS = 1_000
"""Maximum `n`: a change of the first row of a key re-emits all ranks."""


class TopOperator(KeyedOperator):
    """The first rows of each key, in a given order. Each epoch emits the ranks whose row changed.

    The output has the columns of the input and the rank. Its key is the operator's key and the rank, and it has no
    event time. Ties are broken by all columns, in the order of the input. Without `rank` the output is a retract stream
    without a key, which operators can read but no sink can publish.

    Attributes:
        inputs: name of one source or operator. Its rows may be append or updates.
        order_by: columns, each once; `{column: desc}` sorts descending. As in Spark, null is the smallest value and NaN
            the greatest number.
        n: number of rows per key, 1 to 1,000.
        rank: output column with the row's rank, from 1. null: no such column.
    """

    kind: Literal["top"]
    order_by: Annotated[OrderColumns, Field(min_length=1)]
    n: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    rank: ColumnName | None = None

    @property
    def order_texts(self) -> list[str]:
        """Each column of `order_by` as text: ``views desc``, ``page asc``."""
        return [f"{name} {'desc' if descends else 'asc'}" for name, descends in self.order_by]
