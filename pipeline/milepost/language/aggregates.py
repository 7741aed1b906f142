"""Parse aggregate calls such as `sum(dep_delay)`, check their types and derive result types."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from milepost.language.names import did_you_mean
from milepost.language.types import FLOATS, INTEGERS, ColumnType

ARGUMENTS: Mapping[str, int] = {
    **dict.fromkeys(("count", "sum", "min", "max", "avg", "stddev", "var", "first", "last", "any", "every"), 1),
    **dict.fromkeys(("arg_min", "arg_max"), 2),
}
"""Available function -> number of columns it takes."""

UNAVAILABLE = ("approx_distinct", "approx_percentile", "median", "mode", "percentile")
ALSO_CALLED = {"average": "avg", "mean": "avg", "std": "stddev", "variance": "var", "all": "every", "some": "any"}
"""Name in other engines -> name here."""
BY_EVENT_TIME: Mapping[str, str] = {"first": "arg_min", "last": "arg_max"}
"""Function -> the equivalent function ordered by the event time of the input."""

EXACT_DIGITS = 18
"""Decimals of up to this precision fit in int64, so their squares are summed exactly."""

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
_CONDITION_PREFIX = "__where_"
_DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate of an operator.

    Attributes:
        function: one of ARGUMENTS.
        column: the input column; None only for ``count(*)``.
        by: for arg_min and arg_max, the column to minimize or maximize.
        where: boolean column; only rows where it is true count. None: all rows count.
        condition: SQL condition that Spark evaluates and adds to the rows as column `where`. None: `where` is an input
            column.
        distinct: for count, whether equal values count once.
    """

    # sum(x) filter (where y)      ->  column="x", where="y", condition=None
    # sum(x) filter (where y > 0)  ->  column="x", where="__where_143122bc4b4cc29e", condition="y > 0"
    # Spark evaluates a condition before the exchange, so the operator only reads a boolean column. The name of this
    # column is a digest of the condition: calls with the same condition share it.

    function: str
    column: str | None
    by: str | None = None
    where: str | None = None
    distinct: bool = False
    condition: str | None = None

    def __str__(self) -> str:
        """Return the canonical text, which `parse_aggregate` reads back."""
        arguments = ", ".join(_quoted(name) for name in (self.column, self.by) if name is not None) or "*"
        where = self.condition if self.where is None or self.condition else _quoted(self.where)
        filtered = "" if where is None else f" filter (where {where})"
        return f"{self.function}({'distinct ' if self.distinct else ''}{arguments}){filtered}"

    @property
    def value_table(self) -> str | None:
        """The state table with the values of a distinct count; None for other calls."""
        return f"distinct({argument_label(self.column, self.where)})" if self.distinct else None

    @property
    def weighted_table(self) -> str | None:
        """The state table with the multiplicity of each value, for a `timed` call over updates; None if not needed."""
        label = argument_label(self.column, self.where)
        if self.by is not None:
            return f"values({label} by `{self.by}`)"
        return f"values({label})" if self.distinct or self.function in ("min", "max") else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads, including the column of its condition; the event time only after `timed`."""
        return tuple(dict.fromkeys(name for name in (self.column, self.by, self.where) if name is not None))

    def timed(self, event_time: str | None) -> AggregateCall:
        """Return the call with first and last replaced by arg_min and arg_max over the event time.

        Raises:
            ValueError: the call needs an event time and there is none.
        """
        if self.function not in BY_EVENT_TIME:
            return self
        if event_time is None:
            raise ValueError(f"{self.function} is by event time, and its input has none; name a column: "
                             f"{BY_EVENT_TIME[self.function]}({self.column}, …)")  # fmt: skip
        return replace(self, function=BY_EVENT_TIME[self.function], by=event_time)


def argument_label(column: str | None, where: str | None) -> str:
    """Return the name of an argument in state tables. It is unambiguous: no column name contains a backtick."""
    return (column or "*") + ("" if where is None else f" where `{where}`")


def _quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) else f"`{name}`"


def parse_aggregate(text: object) -> AggregateCall:
    """Parse an aggregate call.

    Raises:
        ValueError: the text is not a call, or its function does not exist or is not available in this version.
    """
    if isinstance(text, AggregateCall):
        return text
    match = _CALL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        # In `{a: arg_max(x, y)}` YAML ends the value at the comma, so the call arrives as `arg_max(x`.
        is_cut = isinstance(text, str) and text.count("(") > text.count(")")
        hint = '; quote a call with a comma inside {}: "arg_max(x, y)"' if is_cut else ""
        example = "an aggregate such as count(*) or sum(x) filter (where y > 0)"
        raise ValueError(f"expected {example}, got {text!r}{hint}")
    function, argument, condition = match[1].lower(), match[2], match[3]
    if function in UNAVAILABLE:
        raise ValueError(f"`{function}` is not available in this version; available: {', '.join(ARGUMENTS)}")
    if function not in ARGUMENTS:
        suggestion = did_you_mean(ALSO_CALLED.get(function, function), ARGUMENTS)
        raise ValueError(f"{text!r}: there is no aggregate `{function}`; {suggestion}")
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
        raise ValueError(f"{text!r}: expected {function}(x, y): the column to return, and the column to order by")
    return AggregateCall(function, columns[0], by=columns[1], where=where, condition=condition)


def _filter(text: object, condition: str) -> tuple[str, str | None]:
    """Return (filter column, condition that computes it, or None for an input column)."""
    if not condition:
        raise ValueError(f"{text!r}: expected a column or a condition after `where`")
    if _ONE_NAME.fullmatch(condition):
        return condition.strip("`"), None
    return f"{_CONDITION_PREFIX}{hashlib.sha256(condition.encode()).hexdigest()[:_DIGEST_LENGTH]}", condition


def _one_column(text: object, argument: str) -> str:
    columns = _columns(argument)
    if len(columns) != 1:
        raise ValueError(
            f"{text!r}: expected one column, got {argument!r}; compute an expression in an upstream sql operator"
        )
    return columns[0]


def _columns(argument: str) -> list[str]:
    """Return the columns of a list, or [] if the text is not a list of columns."""
    if not _COLUMNS.fullmatch(argument):
        return []
    return [name.strip("`") for name in re.findall(_COLUMN, argument)]


def call_type_problem(call: AggregateCall, types: Mapping[str, ColumnType | None]) -> str | None:
    """Return why `call` cannot take columns of these types, or None. Unknown types (None) are not checked."""
    condition = None if call.where is None else types.get(call.where)
    if condition is not None and condition.kind != "bool":
        return f"a filter needs a boolean column, but {call.where} is {condition}"
    by = None if call.by is None else types.get(call.by)
    if by is not None and not _is_ordered(by):
        return f"{call.function} cannot order values of type {by}"
    type_ = None if call.column is None else types.get(call.column)
    if call.distinct and type_ is not None and type_.is_nested:
        return f"count(distinct …) needs scalar values, but {call.column} is {type_}"
    if type_ is None or call.function in ("count", "arg_min", "arg_max", "first", "last"):
        return None
    if call.function in ("any", "every"):
        return None if type_.kind == "bool" else f"{call.function} needs a boolean column, but {call.column} is {type_}"
    if call.function in ("min", "max"):
        return None if _is_ordered(type_) else f"{call.function} cannot order values of type {type_}"
    return None if type_.is_number else f"{call.function} needs numbers, but {call.column} is {type_}"


def updates_problem(call: AggregateCall, type_: ColumnType | None) -> str | None:
    """Return why an aggregate cannot retract rows, or None. Unknown types (None) are not checked."""
    if type_ is not None and type_.is_nested and call.function != "count":
        return f"{call} over updates of type {type_} is not available in this version; aggregate a field or an element"
    return None


def _is_ordered(type_: ColumnType) -> bool:
    return not type_.is_nested and type_.kind != "binary"


def result_type(call: AggregateCall, type_: ColumnType | None) -> ColumnType | None:
    """Return the type of the aggregate's output column, or None if it depends on a type that only Spark knows."""
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
