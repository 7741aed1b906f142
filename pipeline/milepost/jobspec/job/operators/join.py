"""Spec of the `join` operator, and what all operators with two inputs share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from milepost.jobspec.job.operators.keyed import distinct
from milepost.language import ColumnName, KeyPair, Many, NodeName, RightColumn, SignedDuration, SpecModel


def _distinct_pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    for side in range(2):
        distinct(tuple(pair[side] for pair in pairs))
    return pairs


def _ascending(bounds: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
    if len(bounds) == 2 and bounds[0] > bounds[1]:
        raise ValueError("the first bound is above the second, so no rows could match")
    return bounds


class TwoInputs(SpecModel):
    """Operators whose output has the columns of two inputs.

    Attributes:
        uid: name of the operator: `[a-z][a-z0-9_]{0,62}` without `__`.
        inputs: names of two sources or operators, the left one first.
        key: columns that are equal in both inputs, each once; `{left: right}` if their names differ.
        columns: new names for columns of the right input, needed where both inputs have a column of the same name:
            `{paid_at: right.at}`.
    """

    uid: NodeName
    inputs: Annotated[Many[NodeName], Field(min_length=2, max_length=2)]
    key: Annotated[Many[KeyPair], Field(min_length=1), AfterValidator(_distinct_pairs)]
    columns: dict[ColumnName, RightColumn] = Field(default_factory=dict)

    @property
    def key_texts(self) -> list[str]:
        """Each column pair of the key as text: ``left = right``, or the name if both are the same."""
        return [left if left == right else f"{left} = {right}" for left, right in self.key]

    @property
    def renamed(self) -> dict[str, str]:
        """New name -> column of the right input."""
        return {name: column.removeprefix("right.") for name, column in self.columns.items()}


class PairedOperator(TwoInputs):
    """Stateful operators that match rows of two inputs.

    Attributes:
        uid: name of the operator, under which its state is stored: `[a-z][a-z0-9_]{0,62}` without `__`.
        renamed_from: the uid under which earlier checkpoints store its state.
        inputs: names of two sources or operators, the left one first. Both must be append and have an event time. The
            same name twice is a self-join.
    """

    renamed_from: NodeName | None = None


class JoinOperator(PairedOperator):
    """Joins rows of two inputs that have the same key and are close in event time.

    The output has the columns of the left row, then those of the right row without its key; its event time is that of
    the left row. Late rows of an input go to `<uid>.late.<input>`. A key that contains a null matches nothing.

    `left`, `right` and `anti` emit an unmatched row once the watermark rules out a match, and at once if its key
    contains a null. The columns of the other side are then null; with `how: right`, the left key and event time columns
    hold the values of the right row.

    Attributes:
        within: minimum and maximum of the right row's event time minus the left row's. Both may be negative.
        how: the rows to emit. inner: matching pairs. left, right: also the unmatched rows of that side. semi: left rows
            with at least one match, once. anti: left rows without a match. semi and anti emit only the left columns.
    """

    kind: Literal["join"]
    within: Annotated[Many[SignedDuration], Field(min_length=2, max_length=2), AfterValidator(_ascending)]
    how: Literal["inner", "left", "right", "semi", "anti"] = "inner"

    @property
    def bounds(self) -> tuple[timedelta, timedelta]:
        """The lower and the upper bound of `within`."""
        low, high = self.within
        return low, high
