"""Aggregate calls such as `sum(dep_delay)`: the one table of what is available, and their result types."""

from __future__ import annotations

import re
from dataclasses import dataclass

from milepost.spec.values.types import FLOATS, INTEGERS, ColumnType

AVAILABLE = ("count", "sum", "min", "max", "avg")
UNAVAILABLE = ("stddev", "var", "first", "last", "approx_distinct")
_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\(\s*(.*?)\s*\)\s*", re.DOTALL)
_QUOTED = re.compile(r"`([^`]+)`")
_BARE = re.compile(r"[^\s()`,*]+")


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate of an operator.

    Attributes:
        function: one of AVAILABLE.
        column: the input column; None only for ``count(*)``.
    """

    function: str
    column: str | None

    def __str__(self) -> str:
        """Return the canonical text, which `parse_aggregate` reads back."""
        if self.column is None:
            return f"{self.function}(*)"
        return (
            f"{self.function}({self.column})" if _BARE.fullmatch(self.column) else f"{self.function}(`{self.column}`)"
        )


def parse_aggregate(text: object) -> AggregateCall:
    """Return the call that `text` names; nulls count as in SQL.

    Raises:
        ValueError: not a call, or of a function that does not exist or is not available in this version.
    """
    if isinstance(text, AggregateCall):
        return text
    match = _CALL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected an aggregate such as count(*) or sum(x), got {text!r}")
    function, argument = match[1].lower(), match[2]
    if function in UNAVAILABLE:
        raise ValueError(f"`{function}` is not available in this version; available: {', '.join(AVAILABLE)}")
    if function not in AVAILABLE:
        raise ValueError(f"{text!r}: there is no aggregate `{function}`; available: {', '.join(AVAILABLE)}")
    if re.match(r"distinct\b", argument, re.IGNORECASE):
        raise ValueError(f"`{function}(distinct …)` is not available in this version; deduplicate first")
    if argument == "*":
        if function != "count":
            raise ValueError(f"{text!r}: only count takes *; name a column")
        return AggregateCall("count", None)
    quoted = _QUOTED.fullmatch(argument)
    if quoted is None and not _BARE.fullmatch(argument):
        raise ValueError(
            f"{text!r}: expected one column, got {argument!r}; compute an expression in a sql operator first"
        )
    return AggregateCall(function, quoted[1] if quoted else argument)


def type_problem(call: AggregateCall, type_: ColumnType | None) -> str | None:
    """Return why `call` cannot take a column of this type, or None. An unknown type (None) is not judged here."""
    if type_ is None or call.function == "count":
        return None
    if call.function in ("sum", "avg") and not type_.is_number:
        return f"{call.function} needs numbers, but {call.column} is {type_}"
    if type_.is_nested or (call.function in ("min", "max") and type_.kind == "binary"):
        return f"{call.function} cannot order values of type {type_}"
    return None


def result_type(call: AggregateCall, type_: ColumnType | None) -> ColumnType | None:
    """Return the type of the aggregate's column, or None when it follows from a type that only Spark knows."""
    if call.function == "count":
        return ColumnType("int64")
    if call.function in ("min", "max"):
        return type_
    if call.function == "avg":
        return ColumnType("float64")
    if type_ is None:
        return None
    if type_.kind in INTEGERS:
        return ColumnType("int64")
    if type_.kind in FLOATS:
        return ColumnType("float64")
    return ColumnType("decimal", precision=38, scale=type_.scale)
