"""Aggregate calls such as `sum(dep_delay)`: the one table of what is available, and their result types."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from milepost.spec.values.names import did_you_mean
from milepost.spec.values.types import FLOATS, INTEGERS, ColumnType

ARGUMENTS: Mapping[str, int] = {
    **dict.fromkeys(("count", "sum", "min", "max", "avg", "stddev", "var", "first", "last", "any", "every"), 1),
    **dict.fromkeys(("arg_min", "arg_max"), 2),
}
"""How many columns each available function takes."""

UNAVAILABLE = ("approx_distinct", "approx_percentile", "median", "mode", "percentile")
ALSO_CALLED = {"average": "avg", "mean": "avg", "std": "stddev", "variance": "var", "all": "every", "some": "any"}
"""What other engines call an aggregate -> its name here."""
BY_EVENT_TIME: Mapping[str, str] = {"first": "arg_min", "last": "arg_max"}
"""What a function is over the event time of its input."""

EXACT_DIGITS = 18
"""Decimals of so many digits are int64 inside: their squares are summed exactly."""

SYNTAX = (
    "count(*), count(x), count(distinct x), sum(x), min(x), max(x), avg(x), stddev(x), var(x), first(x), last(x), "
    "arg_min(x, y), arg_max(x, y), any(x), every(x); each also with filter (where condition)"
)
_COLUMN = r"(?:`[^`]+`|[^\s()`,*]+)"
_CALL = re.compile(
    r"\s*([A-Za-z_]+)\s*\(\s*((?:`[^`]*`|[^`])*?)\s*\)\s*(?:filter\s*\(\s*where\s+(.*?)\s*\)\s*)?",
    re.DOTALL | re.IGNORECASE,
)
_COLUMNS = re.compile(rf"{_COLUMN}(?:\s*,\s*{_COLUMN})*")
_DISTINCT = re.compile(r"distinct(?:\s+|(?=`))", re.IGNORECASE)
_BARE = re.compile(r"[^\s()`,*]+")
_ONE_NAME = re.compile(r"\w+|`[^`]+`")
_MARK = "__where_"
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate of an operator.

    Attributes:
        function: one of ARGUMENTS.
        column: the input column; None only for ``count(*)``.
        by: of arg_min and arg_max the column that is smallest or largest in the row that is meant.
        where: a column of true or false; rows where it is not true do not count. None: all rows do.
        condition: SQL over a row, of which `where` is what it says; None: `where` is a column of the input.
        distinct: of count, whether equal values count once.
    """

    function: str
    column: str | None
    by: str | None = None
    where: str | None = None
    distinct: bool = False
    condition: str | None = None

    def __str__(self) -> str:
        """Return the canonical text, which `parse_aggregate` reads back."""
        arguments = ", ".join(_written(name) for name in (self.column, self.by) if name is not None) or "*"
        where = self.condition if self.where is None or self.condition else _written(self.where)
        filtered = "" if where is None else f" filter (where {where})"
        return f"{self.function}({'distinct ' if self.distinct else ''}{arguments}){filtered}"

    @property
    def value_table(self) -> str | None:
        """The table of state that has the values of a distinct count; None: it is none."""
        return f"distinct({argument_label(self.column, self.where)})" if self.distinct else None

    @property
    def weighted_table(self) -> str | None:
        """The table of state that says how often each value is there, over updates, of a `timed` call; None: none."""
        label = argument_label(self.column, self.where)
        if self.by is not None:
            return f"values({label} by `{self.by}`)"
        return f"values({label})" if self.distinct or self.function in ("min", "max") else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, beside the event time of its input: what a condition says is one."""
        return tuple(dict.fromkeys(name for name in (self.column, self.by, self.where) if name is not None))

    def timed(self, event_time: str | None) -> AggregateCall:
        """Return the call with first and last said over the column that times its input. Raises ValueError: none."""
        if self.function not in BY_EVENT_TIME:
            return self
        if event_time is None:
            raise ValueError(f"{self.function} is by event time, and its input has none; name a column: "
                             f"{BY_EVENT_TIME[self.function]}({self.column}, …)")  # fmt: skip
        return replace(self, function=BY_EVENT_TIME[self.function], by=event_time)


def argument_label(column: str | None, where: str | None) -> str:
    """Return what an argument is called in state; no column name contains a back quote."""
    return (column or "*") + ("" if where is None else f" where `{where}`")


def _written(name: str) -> str:
    return name if _BARE.fullmatch(name) else f"`{name}`"


def parse_aggregate(text: object) -> AggregateCall:
    """Return the call that `text` names; nulls count as in SQL.

    Raises:
        ValueError: not a call, or of a function that does not exist or is not available in this version.
    """
    if isinstance(text, AggregateCall):
        return text
    match = _CALL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        is_cut = isinstance(text, str) and text.count("(") > text.count(")")
        hint = '; within {} a call with a comma stands in quotes: "arg_max(x, y)"' if is_cut else ""
        example = "an aggregate such as count(*) or sum(x) filter (where y > 0)"
        raise ValueError(f"expected {example}, got {text!r}{hint}")
    function, argument, condition = match[1].lower(), match[2], match[3]
    if function in UNAVAILABLE:
        raise ValueError(f"`{function}` is not available in this version; available: {', '.join(ARGUMENTS)}")
    if function not in ARGUMENTS:
        meant = did_you_mean(ALSO_CALLED.get(function, function), ARGUMENTS)
        raise ValueError(f"{text!r}: there is no aggregate `{function}`; {meant}")
    where, condition = (None, None) if condition is None else _filter(text, condition)
    if (distinct := _DISTINCT.match(argument)) is not None:
        if function != "count":
            raise ValueError(f"`{function}(distinct …)` is not available in this version; deduplicate first")
        column = _one_column(text, argument[distinct.end() :])
        return AggregateCall("count", column, where=where, distinct=True, condition=condition)
    if argument == "*":
        if function != "count":
            raise ValueError(f"{text!r}: only count takes *; name a column")
        return AggregateCall("count", None, where=where, condition=condition)
    if ARGUMENTS[function] == 1:
        return AggregateCall(function, _one_column(text, argument), where=where, condition=condition)
    columns = _columns(argument)
    if len(columns) != ARGUMENTS[function]:
        raise ValueError(f"{text!r}: expected {function}(x, y): a column, and the one that it is picked by")
    return AggregateCall(function, columns[0], by=columns[1], where=where, condition=condition)


def _filter(text: object, condition: str) -> tuple[str, str | None]:
    """Return the column that filters, and the condition that it is what is said of; None: it is of the input."""
    if not condition:
        raise ValueError(f"{text!r}: expected a column or a condition behind `where`")
    if _ONE_NAME.fullmatch(condition):
        return condition.strip("`"), None
    return f"{_MARK}{hashlib.sha256(condition.encode()).hexdigest()[:_DIGITS]}", condition


def _one_column(text: object, argument: str) -> str:
    columns = _columns(argument)
    if len(columns) != 1:
        raise ValueError(
            f"{text!r}: expected one column, got {argument!r}; compute an expression in a sql operator first"
        )
    return columns[0]


def _columns(argument: str) -> list[str]:
    """Return the columns of a list; empty: it is none."""
    if not _COLUMNS.fullmatch(argument):
        return []
    return [name.strip("`") for name in re.findall(_COLUMN, argument)]


def type_problem(call: AggregateCall, types: Mapping[str, ColumnType | None]) -> str | None:
    """Return why `call` cannot take columns of these types, or None. An unknown type (None) is not judged here."""
    condition = None if call.where is None else types.get(call.where)
    if condition is not None and condition.kind != "bool":
        return f"a filter needs a column of true and false, but {call.where} is {condition}"
    by = None if call.by is None else types.get(call.by)
    if by is not None and not _is_ordered(by):
        return f"{call.function} cannot order values of type {by}"
    type_ = None if call.column is None else types.get(call.column)
    if call.distinct and type_ is not None and type_.is_nested:
        return f"count(distinct …) compares single values, but {call.column} is {type_}"
    if type_ is None or call.function in ("count", "arg_min", "arg_max", "first", "last"):
        return None
    if call.function in ("any", "every"):
        return None if type_.kind == "bool" else f"{call.function} needs true and false, but {call.column} is {type_}"
    if call.function in ("min", "max"):
        return None if _is_ordered(type_) else f"{call.function} cannot order values of type {type_}"
    return None if type_.is_number else f"{call.function} needs numbers, but {call.column} is {type_}"


def rounds(call: AggregateCall, type_: ColumnType | None) -> bool:
    """Return whether sums of floats, which the order of rows rounds, decide the result."""
    if type_ is None or call.function not in ("sum", "avg", "stddev", "var"):
        return False
    wide = call.function in ("stddev", "var") and type_.kind == "decimal" and type_.precision > EXACT_DIGITS
    return type_.kind in FLOATS or wide


def updates_problem(call: AggregateCall, type_: ColumnType | None) -> str | None:
    """Return why rows cannot be taken back from an aggregate, or None. An unknown type is not judged here."""
    if rounds(call, type_):
        return f"{call} over updates: a sum of floats is rounded, so rows cannot be taken back; sum a decimal"
    if type_ is not None and type_.is_nested and call.function != "count":
        return f"{call} over updates of values of type {type_} is not available in this version; take a part of them"
    return None


def _is_ordered(type_: ColumnType) -> bool:
    return not type_.is_nested and type_.kind != "binary"


def result_type(call: AggregateCall, type_: ColumnType | None) -> ColumnType | None:
    """Return the type of the aggregate's column, or None when it follows from a type that only Spark knows."""
    if call.function == "count":
        return ColumnType("int64")
    if call.function in ("any", "every"):
        return ColumnType("bool")
    if call.function in ("avg", "stddev", "var"):
        return ColumnType("float64")
    if call.function != "sum" or type_ is None:
        return type_
    if type_.kind in INTEGERS:
        return ColumnType("int64")
    if type_.kind in FLOATS:
        return ColumnType("float64")
    return ColumnType("decimal", precision=38, scale=type_.scale)
