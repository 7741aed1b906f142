"""The part of a spec that keeps the first rows of each key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from milepost.spec.job.operators.keyed import KeyedOperator, OrderColumns
from milepost.spec.values.fields import ColumnName

MOST_ROWS = 1_000
"""Of one key: what a change of its first row puts out again."""


class TopOperator(KeyedOperator):
    """The first rows of each key, in an order of their columns; emits, per epoch, the ranks whose row is another one.

    The output has the columns of its input and the rank; its key is that of the operator and the rank, and it has no
    event time. Rows that the order does not tell apart are sorted by all their columns, one after another in the order
    in which the input has them. Without a rank the output is rows that come and are taken back, without a key, which
    operators read and no sink takes.

    Attributes:
        inputs: the name of one source or operator. Its rows are append, or updates.
        order_by: columns, each once; `{column: desc}` where the greatest is first. As in Spark null is the least and
            NaN the greatest number.
        n: how many rows of a key, 1 to 1,000.
        rank: column of the output with a row's place in the order, from 1. null: none has it.
    """

    kind: Literal["top"]
    order_by: Annotated[OrderColumns, Field(min_length=1)]
    n: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    rank: ColumnName | None = None

    @property
    def order_texts(self) -> list[str]:
        """Each column of its order as one text: ``views desc``, ``page asc``."""
        return [f"{name} {'desc' if descends else 'asc'}" for name, descends in self.order_by]
