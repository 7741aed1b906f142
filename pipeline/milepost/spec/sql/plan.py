"""A SQL plan is what a row-wise SELECT is made of, as Spark gets it."""

from __future__ import annotations

from dataclasses import dataclass

ITEM = "__item"
"""What the expressions of a SELECT with an explode call the value of one row that it makes."""


@dataclass(frozen=True, slots=True)
class Exploded:
    """The one `explode` of a SELECT, which makes a row of each value of a list.

    Attributes:
        name: of the output column. lists: Spark SQL expression of the list.
        column: the input column that the list is, or None.
    """

    name: str
    lists: str
    column: str | None


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """A row-wise SELECT, taken apart.

    Attributes:
        columns: (output name, Spark SQL expression), in order.
        filter_sql: Spark SQL condition, or None: every row passes. A row for which it is null does not.
        passthrough: output name -> input column, for outputs that are an input column unchanged.
        exploded: makes several rows of one, or none; None: each row that passes the filter is one.
        read: the input columns that any part of it reads.
    """

    columns: tuple[tuple[str, str], ...]
    filter_sql: str | None
    passthrough: dict[str, str]
    exploded: Exploded | None
    read: frozenset[str]
