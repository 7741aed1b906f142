"""The part of a spec that joins two inputs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from milepost.spec.job.operators.keyed import distinct
from milepost.spec.values.fields import ColumnName, KeyPair, Many, NodeName, RightColumn, SignedDuration, SpecModel


def _distinct_pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    for side in range(2):
        distinct(tuple(pair[side] for pair in pairs))
    return pairs


def _ascending(bounds: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
    if len(bounds) == 2 and bounds[0] > bounds[1]:
        raise ValueError("the first bound is above the second one: no row could pair with another")
    return bounds


class TwoInputs(SpecModel):
    """What an operator has whose rows have the columns of two inputs.

    Attributes:
        uid: the operator's name: `[a-z][a-z0-9_]{0,62}` without `__`.
        inputs: the names of two sources or operators, the left one first.
        key: columns that are equal in both, each once; `{left: right}` where they have other names.
        columns: new names of columns of the right input, where both inputs have one of a name: `{paid_at: right.at}`.
    """

    uid: NodeName
    inputs: Annotated[Many[NodeName], Field(min_length=2, max_length=2)]
    key: Annotated[Many[KeyPair], Field(min_length=1), AfterValidator(_distinct_pairs)]
    columns: dict[ColumnName, RightColumn] = Field(default_factory=dict)

    @property
    def key_texts(self) -> list[str]:
        """Each pair of its key as one text: ``left = right``, or the one name that both have."""
        return [left if left == right else f"{left} = {right}" for left, right in self.key]

    @property
    def renamed(self) -> dict[str, str]:
        """New name -> column of the right input."""
        return {name: column.removeprefix("right.") for name, column in self.columns.items()}


class PairedOperator(TwoInputs):
    """What an operator has that pairs rows of two inputs.

    Attributes:
        uid: the operator's name, under which its state is kept: `[a-z][a-z0-9_]{0,62}` without `__`.
        renamed_from: the uid under which earlier checkpoints have its state.
        inputs: the names of two sources or operators, the left one first; the rows of both are append, never updates,
            with an event time. One name twice joins its rows with each other.
    """

    renamed_from: NodeName | None = None


class JoinOperator(PairedOperator):
    """Pairs of a row of its left and a row of its right input: of one key, near each other in event time.

    The output has the columns of the left row, then those of the right row without its key; its event time is the left
    row's. `<uid>.late.<input>` has the late rows of an input. A key with a null in it pairs with nothing.

    Rows that pair with nothing come out (`left`, `right`, `anti`) once the watermark says that nothing can come that
    would pair with them; those with a null in the key at once. The other side's columns are null in them; where it is
    the left one (`right`), its key and event time are the right row's.

    Attributes:
        within: how long after the left row's event time the right row's is, at least and at most; a bound below 0s is
            before it.
        how: which rows come out. inner: pairs. left, right: also the rows of that side that pair with nothing. semi,
            anti: left rows, with their columns alone: once where a right row pairs with them, where none does.
    """

    kind: Literal["join"]
    within: Annotated[Many[SignedDuration], Field(min_length=2, max_length=2), AfterValidator(_ascending)]
    how: Literal["inner", "left", "right", "semi", "anti"] = "inner"

    @property
    def bounds(self) -> tuple[timedelta, timedelta]:
        """The least and the greatest of `within`."""
        low, high = self.within
        return low, high
