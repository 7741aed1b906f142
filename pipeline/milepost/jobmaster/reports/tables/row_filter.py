"""Filter a table by a SQL predicate over its columns.

`price > 10 AND city IN ('Bonn', 'Ulm')` is parsed by sqlglot and translated, node by node, to an Arrow expression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.language import nearest
from milepost.language.sql import SqlProblem, parse_statements

if TYPE_CHECKING:
    from sqlglot import exp

_SUPPORTED = "columns, values, AND, OR, NOT, = <> < <= > >=, IN, BETWEEN, LIKE, IS NULL, + - * / and brackets"

_COMPARISONS: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "EQ": pc.equal,
    "NEQ": pc.not_equal,
    "LT": pc.less,
    "LTE": pc.less_equal,
    "GT": pc.greater,
    "GTE": pc.greater_equal,
}
_PARTS = {"this", "expression", "expressions"}
_PARTS_BY_NODE = {
    "Between": {"this", "low", "high"},
    "Cast": {"this", "to"},
    "Div": {"this", "expression", "typed", "safe"},
    "Column": {"this", "table", "db", "catalog"},
    "Like": {"this", "expression", "negate"},
    "Literal": {"this", "is_string"},
}
"""The supported parts of each kind of node. A node with other parts is unsupported syntax."""

_ARITHMETIC: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "Add": pc.add_checked,
    "Sub": pc.subtract_checked,
    "Mul": pc.multiply_checked,
    "Div": lambda left, right: pc.divide_checked(left.cast(pa.float64()), right.cast(pa.float64())),
}


def rows_where(table: pa.Table, predicate: str) -> pa.Table:
    """Return the rows for which a predicate is true. As in SQL, a row for which it is null is left out.

    Args:
        predicate: the text after WHERE in Spark SQL, limited to `_SUPPORTED`. A time may be given as text.
    Raises:
        InvalidRequest: it does not parse, names an unknown column, uses unsupported syntax, or compares types that do
            not compare.
    """
    expression = _Predicate(table.schema, predicate).expression()
    try:
        return table.filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as problem:
        raise _refused(predicate, str(problem).splitlines()[0]) from None


def _refused(predicate: str, reason: str, hint: str = "") -> InvalidRequest:
    return InvalidRequest(f"the predicate {predicate!r} cannot be used: {reason}. Nothing was read out.", hint=hint)


@dataclass(frozen=True, slots=True)
class _Predicate:
    """Translates a SQL predicate over the columns of one schema to Arrow."""

    schema: pa.Schema
    text: str

    def expression(self) -> pc.Expression:
        """Return the whole predicate. Raises InvalidRequest."""
        text = f"SELECT * FROM t WHERE {self.text}\n"
        try:
            statements = parse_statements(text)
        except SqlProblem as problem:
            raise _refused(self.text, problem.reason) from None
        select = statements[0] if len(statements) == 1 else None
        clauses = [] if select is None else [name for name, value in select.args.items() if value]
        where = None if select is None else select.args.get("where")
        if where is None or set(clauses) - {"expressions", "from", "from_", "where", "kind"}:
            raise _refused(self.text, "expected one predicate, as after WHERE", f"Supported are {_SUPPORTED}.")
        try:
            return self._translate(where.this)
        except RecursionError:
            raise _refused(self.text, "it is nested too deeply", "Read with a shorter predicate.") from None

    def _translate(self, node: exp.Expression) -> pc.Expression:
        """Translate a node whose value does not depend on the type of another one."""
        kind = type(node).__name__
        if {name for name, value in node.args.items() if value} - _PARTS_BY_NODE.get(kind, _PARTS):
            raise self._unsupported(node)
        if kind == "Paren":
            return self._translate(node.this)
        if kind in ("And", "Or"):
            return (and_ if kind == "And" else or_)(self._translate(node.this), self._translate(node.expression))
        if kind == "Not":
            return ~self._translate(node.this)
        if kind in _COMPARISONS:
            return _COMPARISONS[kind](*self._comparable(node.this, node.expression))
        if kind in _ARITHMETIC:
            return _ARITHMETIC[kind](self._operand(node.this), self._operand(node.expression))
        if kind == "Neg":
            return pc.negate_checked(self._translate(node.this))
        if kind == "Is" and type(node.expression).__name__ == "Null":
            return self._translate(node.this).is_null()
        if kind == "In" and node.expressions:
            return reduce(or_, [pc.equal(*self._comparable(node.this, item)) for item in node.expressions])
        if kind == "Between":
            low, high = (self._comparable(node.this, node.args[side]) for side in ("low", "high"))
            return pc.greater_equal(*low) & pc.less_equal(*high)
        if kind == "Like" and self._text_of(node.expression) is not None:
            like = pc.match_like(self._translate(node.this), str(self._text_of(node.expression)))
            return ~like if node.args.get("negate") else like
        if kind == "Column":
            return pc.field(*self._column(node))
        if kind == "Boolean":
            return pc.scalar(bool(node.this))
        if kind == "Literal":
            return pc.scalar(str(node.this) if node.is_string else _number(str(node.this)))
        if (text := self._text_of(node)) is not None:
            return pc.scalar(_parse_time(text) or text)
        raise self._unsupported(node)

    def _unsupported(self, node: exp.Expression) -> InvalidRequest:
        shown = node.sql(dialect="spark")
        return _refused(self.text, f"{shown!r} is not available here", f"Supported are {_SUPPORTED}.")

    def _operand(self, node: exp.Expression) -> pc.Expression:
        """Translate an operand of a calculation. Decimals become doubles."""
        value = self._translate(node)
        if type(node).__name__ == "Column" and pa.types.is_decimal(_type_at(self.schema, self._column(node))):
            return value.cast(pa.float64())
        return value

    def _comparable(self, left: exp.Expression, right: exp.Expression) -> tuple[pc.Expression, pc.Expression]:
        """Translate both sides of a comparison. A literal is read as a value of the other side's column type.

        Example: with `day date`, `day = '2026-07-14'` compares with a date, not with a text.
        """
        return self._side(left, right), self._side(right, left)

    def _side(self, node: exp.Expression, other: exp.Expression) -> pc.Expression:
        if type(other).__name__ != "Column" or type(node).__name__ == "Column":
            return self._translate(node)
        name = self._column(other)
        type_ = _type_at(self.schema, name)
        text = self._text_of(node)
        if pa.types.is_decimal(type_) and type(node).__name__ == "Literal" and not node.is_string:
            return pc.scalar(Decimal(str(node.this)))
        if text is not None and (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
            return self._time(text, type_)
        is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
        if type(node).__name__ == "Literal" and bool(node.is_string) is not is_text:
            shown = node.sql(dialect="spark")
            raise _refused(self.text, f"column {'.'.join(name)} is {type_}, and {shown} is not a value of that type")
        return self._translate(node)

    def _time(self, text: str, type_: pa.DataType) -> pc.Expression:
        time = _parse_time(text)
        if time is None:
            raise _refused(self.text, f"{text!r} is not a time: expected ISO 8601, as in '2026-07-14 06:00'")
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        if getattr(type_, "tz", None) is not None:
            return pc.scalar(pa.scalar(aware, pa.timestamp("us", type_.tz)))
        # A column without a time zone counts as UTC, a date as its midnight.
        return pc.scalar(pa.scalar(aware.astimezone(UTC).replace(tzinfo=None), pa.timestamp("us")))

    def _text_of(self, node: exp.Expression) -> str | None:
        """Return the text of a string literal or of a time literal such as TIMESTAMP '…'; None for other nodes."""
        if type(node).__name__ == "Cast" and node.to.this.name in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "DATE"):
            node = node.this
        return str(node.this) if type(node).__name__ == "Literal" and node.is_string else None

    def _column(self, node: exp.Expression) -> tuple[str, ...]:
        """Return the path of a column, or of a field of a struct. Raises InvalidRequest: unknown column."""
        path = tuple(part.name for part in node.parts)
        if _type_at(self.schema, path) is None:
            near = nearest(path[0], self.schema.names)
            guess = f"Did you mean {near}? " if near else ""
            known = f"{guess}The table has: {', '.join(self.schema.names)}."
            raise _refused(self.text, f"there is no column {'.'.join(path)}", known)
        return path


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType | None:
    """Return the type of a column or of a field of a struct; None: unknown."""
    fields: Any = schema
    type_: pa.DataType | None = None
    for name in path:
        index = fields.get_field_index(name) if isinstance(fields, pa.Schema | pa.StructType) else -1
        if index < 0:
            return None
        type_ = fields.field(index).type
        fields = type_
    return type_


def _number(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)


def _parse_time(text: str) -> datetime | None:
    """Parse an ISO 8601 time; None: it is none."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None
