"""Spec of the `lookup` operator: add columns of a static source to each row."""

from __future__ import annotations

from typing import Literal

from milepost.jobspec.job.operators.join import TwoInputs
from milepost.jobspec.job.operators.keyed import OrderColumns


class LookupOperator(TwoInputs):
    """Adds the columns of a static source to each row, by key. It has no state and needs no exchange.

    The output has the columns of the row, then those of the static source without its key; event time and key are those
    of the row. A key that contains a null matches nothing. An epoch reads the objects that the source's path matches
    when the epoch is triggered.

    Attributes:
        uid: name of the operator: `[a-z][a-z0-9_]{0,62}` without `__`.
        inputs: name of a source or operator whose rows are append, then name of a source with `static: true`.
        key: columns that are equal in both, each once; `{column: column of the static source}` if their names differ.
        how: inner: rows without a match are dropped. left: they are emitted with nulls.
        order_by: columns of the static source, each once. If several of its rows have the same key, the first in this
            order is used; `{column: desc}` sorts descending. As in Spark, null is the smallest value and NaN the
            greatest number. Ties are broken by all columns, in the order of `schema`. Empty: a duplicate key fails the
            epoch.
        columns: new names for columns of the static source, needed where both have a column of the same name:
            `{maker: right.name}`.
    """

    kind: Literal["lookup"]
    how: Literal["inner", "left"] = "inner"
    order_by: OrderColumns = ()

    @property
    def dimension(self) -> str:
        """The static source."""
        return self.inputs[1]
