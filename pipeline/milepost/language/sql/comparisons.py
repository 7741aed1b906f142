"""Conditions that compare columns with each other or with constants, for which Arrow gives Spark's answers.

Integers, text, and dates are compared with their own kind by =, <>, <, <=, >, >=, BETWEEN and IN. These comparisons are
combined by AND, OR and NOT, with IS NULL and with boolean columns. None of them depends on how an engine converts a
value: no floats, decimals, casts, functions or arithmetic. Any other condition is left to Spark.

A comparison with null is null, and NOT null is null. Only rows for which a condition is true pass it::

    n        n > 1    n > 1 OR n IS NULL    NOT n > 1
    2        true     true                  false
    null     null     true                  null
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from milepost.language.sql.sql_parse import parse_select

if TYPE_CHECKING:
    from sqlglot import exp

_INTEGER, _TEXT, _DATE, _BOOLEAN = "integer", "text", "date", "boolean"
_COMPARISONS = {
    "EQ": "equal",
    "NEQ": "not_equal",
    "LT": "less",
    "LTE": "less_equal",
    "GT": "greater",
    "GTE": "greater_equal",
}
"""Class of a comparison in sqlglot, which is imported late -> function of Arrow."""
_MOST_INTEGER = 2**63 - 1
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOST_VALUES = 32
"""Maximum number of values of an IN."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A column, or a constant if `column` is None. kind: what it is compared as."""

    kind: str
    column: str | None = None
    constant: int | str | dt.date | None = None

    def value(self, rows: pa.Table) -> pa.ChunkedArray | pa.Scalar:
        if self.column is None:
            return pa.scalar(self.constant, _TYPES[self.kind])
        return rows.column(self.column).cast(_TYPES[self.kind])


_TYPES = {_INTEGER: pa.int64(), _TEXT: pa.large_string(), _DATE: pa.date32(), _BOOLEAN: pa.bool_()}


@dataclass(frozen=True, slots=True)
class Comparisons:
    """A condition as a call of an Arrow function, on operands or on other calls. Picklable."""

    function: str
    arguments: tuple[Operand | Comparisons, ...]

    def evaluate(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return true, false or null for each row."""
        values = [one.value(rows) if isinstance(one, Operand) else one.evaluate(rows) for one in self.arguments]
        return pc.call_function(self.function, values)

    def is_true(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return a mask of the rows for which the condition is true."""
        return self.evaluate(rows).fill_null(False)


def compile_comparisons(select: str, types: Mapping[str, pa.DataType]) -> Comparisons | None:
    """Return the condition of a SELECT over one input; None if it is not made of comparisons alone.

    Args:
        select: a valid SELECT with a WHERE. types: type of each column of its input.

    >>> rows = pa.table({"n": [1, 2, None], "shop": ["north", "south", "south"]})
    >>> types = dict(zip(rows.column_names, rows.schema.types))
    >>> compile_comparisons("SELECT n FROM sales WHERE n > 1 OR shop IN ('south')", types).is_true(rows).to_pylist()
    [False, True, True]
    >>> compile_comparisons("SELECT n FROM sales WHERE n + 1 > 2", types) is None
    True
    """
    if "\\" in select:
        return None  # Spark and the parser may read an escape in a text differently
    tree = parse_select(select).tree
    table, where = tree.args["from_"].this, tree.args["where"].this
    try:
        return _Compiler(str(table.alias or table.name), types).condition(where)
    except _NotComparisons:
        return None


class _NotComparisons(Exception):
    """Something in a condition is left to Spark."""


class _Compiler:
    """Compiles the tree of a condition."""

    def __init__(self, input_name: str, types: Mapping[str, pa.DataType]) -> None:
        self._input = input_name.casefold()
        self._columns = {name.casefold(): (name, type_) for name, type_ in types.items()}

    def condition(self, node: exp.Expression) -> Comparisons:
        """Return a condition. Raises _NotComparisons."""
        from sqlglot import exp

        parts, comparison = _parts(node), _COMPARISONS.get(type(node).__name__)
        match node:
            case exp.Paren() if parts == {"this"}:
                return self.condition(node.this)
            case exp.Not() if parts == {"this"}:
                return Comparisons("invert", (self.condition(node.this),))
            case exp.And() | exp.Or() if parts == {"this", "expression"}:
                function = "and_kleene" if isinstance(node, exp.And) else "or_kleene"
                return Comparisons(function, (self.condition(node.this), self.condition(node.expression)))
            case exp.Is() if parts == {"this", "expression"} and isinstance(node.expression, exp.Null):
                return Comparisons("is_null", (self._column(node.this),))
            case exp.Between() if parts == {"this", "low", "high"}:
                bounds = ("greater_equal", node.args["low"]), ("less_equal", node.args["high"])
                return _all("and_kleene", [self._compared(function, node.this, bound) for function, bound in bounds])
            case exp.In() if parts == {"this", "expressions"} and len(node.expressions) <= _MOST_VALUES:
                return _all("or_kleene", [self._compared("equal", node.this, one) for one in node.expressions])
            case exp.Column():
                column = self._column(node)
                if column.kind == _BOOLEAN:
                    return Comparisons("or_kleene", (column, column))
        if comparison is not None and parts == {"this", "expression"}:
            return self._compared(comparison, node.this, node.expression)
        raise _NotComparisons

    def _compared(self, function: str, left: exp.Expression, right: exp.Expression) -> Comparisons:
        one, other = self._operand(left), self._operand(right)
        if one.kind != other.kind or one.kind == _BOOLEAN or (one.column is None and other.column is None):
            raise _NotComparisons
        return Comparisons(function, (one, other))

    def _operand(self, node: exp.Expression) -> Operand:
        from sqlglot import exp

        match node:
            case exp.Column():
                return self._column(node)
            case exp.Literal() if node.is_string and not set(node.this) & {"'", '"'}:
                return Operand(_TEXT, constant=node.this)
            case exp.Literal() if not node.is_string and node.this.isdecimal() and int(node.this) <= _MOST_INTEGER:
                return Operand(_INTEGER, constant=int(node.this))
            case exp.Neg() if isinstance(node.this, exp.Literal):
                literal = self._operand(node.this)
                if isinstance(literal.constant, int):
                    return Operand(_INTEGER, constant=-literal.constant)
            case exp.Cast() if _parts(node) == {"this", "to"} and node.to.this is exp.DataType.Type.DATE:
                return Operand(_DATE, constant=_date(node.this))
        raise _NotComparisons

    def _column(self, node: exp.Expression) -> Operand:
        """Return a column that is no field of a struct."""
        from sqlglot import exp

        if not isinstance(node, exp.Column):
            raise _NotComparisons
        *qualifier, name = [part.name.casefold() for part in node.parts]
        if qualifier not in ([], [self._input]) or name not in self._columns:
            raise _NotComparisons
        column, type_ = self._columns[name]
        return Operand(_kind(type_), column=column)


def _all(function: str, conditions: list[Comparisons]) -> Comparisons:
    """Return conditions joined by one function."""
    joined, *others = conditions
    for one in others:
        joined = Comparisons(function, (joined, one))
    return joined


def _parts(node: exp.Expression) -> set[str]:
    """Return the names of the parts that a node has."""
    return {name for name, part in node.args.items() if part not in (None, False, [])}


def _kind(type_: pa.DataType) -> str:
    if pa.types.is_signed_integer(type_):
        return _INTEGER
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _TEXT
    if pa.types.is_date32(type_):
        return _DATE
    if pa.types.is_boolean(type_):
        return _BOOLEAN
    raise _NotComparisons


def _date(node: exp.Expression) -> dt.date:
    """Return the date of `DATE '1995-03-15'`. Spark reads other forms too, which are left to it."""
    from sqlglot import exp

    if not isinstance(node, exp.Literal) or not node.is_string or not _DAY.fullmatch(node.this):
        raise _NotComparisons
    try:
        return dt.date.fromisoformat(node.this)
    except ValueError:
        raise _NotComparisons from None
