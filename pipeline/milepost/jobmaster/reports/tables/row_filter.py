"""The row filter keeps the rows of a table that a SQL predicate over its columns is true for."""

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
from milepost.jobspec.sql.sql_parse import SqlProblem, parse_statements, sql_tokens
from milepost.jobspec.values.suggestions import nearest

if TYPE_CHECKING:
    from sqlglot import exp

_OFFERED = "columns, values, AND, OR, NOT, = <> < <= > >=, IN, BETWEEN, LIKE, IS NULL, + - * / and brackets"

_COMPARISONS: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "EQ": pc.equal,
    "NEQ": pc.not_equal,
    "LT": pc.less,
    "LTE": pc.less_equal,
    "GT": pc.greater,
    "GTE": pc.greater_equal,
}
_PARTS = {"this", "expression", "expressions"}
_KNOWN_PARTS = {
    "Between": {"this", "low", "high"},
    "Cast": {"this", "to"},
    "Div": {"this", "expression", "typed", "safe"},
    "Column": {"this", "table", "db", "catalog"},
    "Like": {"this", "expression", "negate"},
    "Literal": {"this", "is_string"},
}
"""What a node may consist of: more of it is syntax that is not offered."""

_ARITHMETIC: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "Add": pc.add_checked,
    "Sub": pc.subtract_checked,
    "Mul": pc.multiply_checked,
    "Div": lambda left, right: pc.divide_checked(left.cast(pa.float64()), right.cast(pa.float64())),
}


def rows_where(table: pa.Table, predicate: str) -> pa.Table:
    """Return the rows for which a predicate is true; as in SQL, one that is null for a row leaves it out.

    Args:
        predicate: what may stand behind WHERE in Spark SQL, as far as `_OFFERED` goes. A time may be given as text.
    Raises:
        InvalidRequest: it does not parse, names no column of the table, needs more than is offered, or has types that
            do not compare.
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
    """A predicate over the columns of one schema, on its way from SQL to Arrow."""

    schema: pa.Schema
    text: str

    def expression(self) -> pc.Expression:
        """Return the whole predicate. Raises InvalidRequest."""
        text = f"SELECT * FROM t WHERE {self.text}\n"
        try:
            sql_tokens(text)
            statements = parse_statements(text)
        except SqlProblem as problem:
            raise _refused(self.text, problem.reason) from None
        select = statements[0] if len(statements) == 1 else None
        clauses = [] if select is None else [name for name, value in select.args.items() if value]
        where = None if select is None else select.args.get("where")
        if where is None or set(clauses) - {"expressions", "from", "from_", "where", "kind"}:
            raise _refused(self.text, "expected one predicate, as behind WHERE", f"Offered are {_OFFERED}.")
        try:
            return self._of(where.this)
        except RecursionError:
            raise _refused(self.text, "it is nested too deeply", "Read with a shorter predicate.") from None

    def _of(self, node: exp.Expression) -> pc.Expression:
        """Return a node whose value needs no other one's type."""
        kind = type(node).__name__
        if {name for name, value in node.args.items() if value} - _KNOWN_PARTS.get(kind, _PARTS):
            raise self._not_offered(node)
        if kind == "Paren":
            return self._of(node.this)
        if kind in ("And", "Or"):
            return (and_ if kind == "And" else or_)(self._of(node.this), self._of(node.expression))
        if kind == "Not":
            return ~self._of(node.this)
        if kind in _COMPARISONS:
            return _COMPARISONS[kind](*self._like_typed(node.this, node.expression))
        if kind in _ARITHMETIC:
            return _ARITHMETIC[kind](self._operand(node.this), self._operand(node.expression))
        if kind == "Neg":
            return pc.negate_checked(self._of(node.this))
        if kind == "Is" and type(node.expression).__name__ == "Null":
            return self._of(node.this).is_null()
        if kind == "In" and node.expressions:
            return reduce(or_, [pc.equal(*self._like_typed(node.this, one)) for one in node.expressions])
        if kind == "Between":
            low, high = (self._like_typed(node.this, node.args[side]) for side in ("low", "high"))
            return pc.greater_equal(*low) & pc.less_equal(*high)
        if kind == "Like" and self._text_of(node.expression) is not None:
            like = pc.match_like(self._of(node.this), str(self._text_of(node.expression)))
            return ~like if node.args.get("negate") else like
        if kind == "Column":
            return pc.field(*self._column(node))
        if kind == "Boolean":
            return pc.scalar(bool(node.this))
        if kind == "Literal":
            return pc.scalar(str(node.this) if node.is_string else _number(str(node.this)))
        if (text := self._text_of(node)) is not None:
            return pc.scalar(_moment(text) or text)
        raise self._not_offered(node)

    def _not_offered(self, node: exp.Expression) -> InvalidRequest:
        shown = node.sql(dialect="spark")
        return _refused(self.text, f"{shown!r} is not available here", f"Offered are {_OFFERED}.")

    def _operand(self, node: exp.Expression) -> pc.Expression:
        """Return a side of a calculation; decimals are calculated with as doubles."""
        value = self._of(node)
        if type(node).__name__ == "Column" and pa.types.is_decimal(_type_at(self.schema, self._column(node))):
            return value.cast(pa.float64())
        return value

    def _like_typed(self, left: exp.Expression, right: exp.Expression) -> tuple[pc.Expression, pc.Expression]:
        """Return both sides of a comparison; a text beside a column is read as a value of the column's type."""
        return self._beside(left, right), self._beside(right, left)

    def _beside(self, node: exp.Expression, other: exp.Expression) -> pc.Expression:
        if type(other).__name__ != "Column" or type(node).__name__ == "Column":
            return self._of(node)
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
            raise _refused(self.text, f"column {'.'.join(name)} is {type_}, and {shown} is no value of it")
        return self._of(node)

    def _time(self, text: str, type_: pa.DataType) -> pc.Expression:
        moment = _moment(text)
        if moment is None:
            raise _refused(self.text, f"{text!r} is no time: expected ISO 8601, as in '2026-07-14 06:00'")
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        if getattr(type_, "tz", None) is not None:
            return pc.scalar(pa.scalar(aware, pa.timestamp("us", type_.tz)))
        # A column without a zone is compared as UTC, a date as its midnight.
        return pc.scalar(pa.scalar(aware.astimezone(UTC).replace(tzinfo=None), pa.timestamp("us")))

    def _text_of(self, node: exp.Expression) -> str | None:
        """Return the text of a quoted value, or of one that is named a time as in TIMESTAMP '…'; None for others."""
        if type(node).__name__ == "Cast" and node.to.this.name in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "DATE"):
            node = node.this
        return str(node.this) if type(node).__name__ == "Literal" and node.is_string else None

    def _column(self, node: exp.Expression) -> tuple[str, ...]:
        """Return the path of a column, or of a field of a struct. Raises InvalidRequest: there is none."""
        path = tuple(part.name for part in node.parts)
        if _type_at(self.schema, path) is None:
            near = nearest(path[0], self.schema.names)
            guess = f"Did you mean {near}? " if near else ""
            known = f"{guess}The table has: {', '.join(self.schema.names)}."
            raise _refused(self.text, f"there is no column {'.'.join(path)}", known)
        return path


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType | None:
    """Return the type of a column or of a field of a struct; None: there is none."""
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


def _moment(text: str) -> datetime | None:
    """Return the time of an ISO text; None: it is none."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None
