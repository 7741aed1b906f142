"""The part of a spec that looks rows up in a static source."""

from __future__ import annotations

from typing import Literal

from milepost.spec.job.operators.join import TwoInputs
from milepost.spec.job.operators.keyed import OrderColumns


class LookupOperator(TwoInputs):
    """Rows, each with the columns of the row that a static source has of its key; without state, and without exchange.

    The output has the columns of the row, then those of the static source without its key; event time and key are the
    row's. A key with a null in it finds nothing. An epoch looks up in what the source's path named when it was
    triggered.

    Attributes:
        uid: the operator's name: `[a-z][a-z0-9_]{0,62}` without `__`.
        inputs: the name of a source or operator, whose rows are append, never updates; then that of a source with
            `static: true`.
        key: columns that are equal in both, each once; `{column: column of the static source}` where they have other
            names.
        how: inner, rows that find nothing are left out; left, they come out with nulls.
        order_by: columns of the static source, each once, that say which of its rows with one key is found: the first;
            `{column: desc}` where the greatest is first. As in Spark null is the least and NaN the greatest number;
            rows that these do not tell apart are sorted by all their columns, one after another in the order of
            `schema`. Empty: a key that is there twice fails the epoch.
        columns: new names of columns of the static source, where both have one of a name: `{maker: right.name}`.
    """

    kind: Literal["lookup"]
    how: Literal["inner", "left"] = "inner"
    order_by: OrderColumns = ()

    @property
    def dimension(self) -> str:
        """The static source."""
        return self.inputs[1]
