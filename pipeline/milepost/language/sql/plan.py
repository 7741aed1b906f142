"""The parts of a row-wise SELECT, as they are passed to Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ITEM = "__item"
"""Name of the exploded value in the expressions of a SELECT with an explode."""


@dataclass(frozen=True, slots=True)
class Exploded:
    """The `explode` of a SELECT, which makes one row per value of a list.

    Attributes:
        name: name of the output column. lists: Spark SQL expression of the list.
        column: the input column, if the list is a plain column; otherwise None.
    """

    name: str
    lists: str
    column: str | None


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """The parts of a row-wise SELECT.

    Attributes:
        columns: (output name, Spark SQL expression), in order.
        filter_sql: Spark SQL condition; only rows for which it is true pass. None: all rows pass.
        passthrough: output name -> input column, for outputs that are an unchanged input column.
        exploded: the explode; None: a row that passes the filter gives exactly one row.
        read: the input columns that it reads.
    """

    columns: tuple[tuple[str, str], ...]
    filter_sql: str | None
    passthrough: Mapping[str, str]
    exploded: Exploded | None
    read: frozenset[str]
