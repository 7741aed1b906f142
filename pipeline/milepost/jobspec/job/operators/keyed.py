"""What the specs of all operators with one key and one input share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from milepost.language import Aggregate, ColumnName, Many, NodeName, OrderColumn, SpecModel


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return `names`. Raises ValueError if one occurs twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]} occurs twice")
    return names


def _distinct_columns(order: tuple[tuple[str, bool], ...]) -> tuple[tuple[str, bool], ...]:
    distinct(tuple(name for name, _ in order))
    return order


OrderColumns = Annotated[Many[OrderColumn], AfterValidator(_distinct_columns)]
AnyColumns = Annotated[Many[ColumnName], AfterValidator(distinct)]
KeyColumns = Annotated[Many[ColumnName], Field(min_length=1), AfterValidator(distinct)]
OneInput = Annotated[Many[NodeName], Field(min_length=1, max_length=1)]
Aggregates = Annotated[dict[ColumnName, Aggregate], Field(min_length=1)]


class KeyedOperator(SpecModel):
    """Stateful operators with one input.

    Attributes:
        uid: name of the operator, under which its state is stored: `[a-z][a-z0-9_]{0,62}` without `__`.
        renamed_from: the uid under which earlier checkpoints store its state.
        inputs: name of one source or operator. Its rows must be append, not updates.
        key: key columns, each once.
    """

    uid: NodeName
    renamed_from: NodeName | None = None
    inputs: OneInput
    key: KeyColumns
