"""The part of a spec that every operator with a key and one input has."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from milepost.spec.values.fields import Aggregate, ColumnName, Many, NodeName, OrderColumn, SpecModel


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names, each of which is there once. Raises ValueError: one occurs twice."""
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
    """What an operator with state and one input has.

    Attributes:
        uid: the operator's name, under which its state is kept: `[a-z][a-z0-9_]{0,62}` without `__`.
        renamed_from: the uid under which earlier checkpoints have its state.
        inputs: the name of one source or operator; its rows are append, never updates.
        key: columns, each once.
    """

    uid: NodeName
    renamed_from: NodeName | None = None
    inputs: OneInput
    key: KeyColumns
