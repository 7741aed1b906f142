"""Derive Spark's types of numeric expressions and times, for keys and bounds of joins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from milepost.language import FLOATS, INTEGERS, ColumnType

_MAX_PRECISION, _MIN_SCALE = 38, 6
_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 20}
"""Integer type -> precision of the decimal that Spark makes of it."""
_CASTS = {"TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64", "FLOAT": "float32",
          "DOUBLE": "float64"}  # fmt: skip
_OTHER_CASTS = {"TEXT": "string", "BOOLEAN": "bool", "DATE": "date"}
_DECIMAL = re.compile(r"(\d*)\.(\d+)")
_RETURN_ARGUMENTS = {"coalesce": 0, "nvl": 0, "ifnull": 0, "if": 1, "abs": 0, "greatest": 0, "least": 0}
"""Function -> index of the first argument of which it returns one, or its absolute value."""

_SQL_NAMES = {kind: name for name, kind in _CASTS.items()}


def common_type(left: ColumnType, right: ColumnType) -> ColumnType | None:
    """Return the type in which Spark compares two numbers, if it holds all their values; None: there is none.

    int64, decimal(10,2)             decimal(22,2)
    decimal(15,2), decimal(21,7)     decimal(21,7)
    int32, float32                   float32
    decimal(10,2), float32           float64
    """
    if not (left.is_number and right.is_number):
        return None
    kinds = {left.kind, right.kind}
    if kinds & {*FLOATS}:
        is_double = "float64" in kinds or "decimal" in kinds
        return ColumnType("float64" if is_double else "float32")
    if kinds <= {*INTEGERS}:
        return max(left, right, key=lambda one: INTEGERS.index(one.kind))
    one, other = _as_decimal(left), _as_decimal(right)
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return ColumnType("decimal", precision=precision, scale=scale) if precision <= _MAX_PRECISION else None


def sql_type(type_: ColumnType) -> str:
    """Return a numeric type as SQL writes it."""
    return _SQL_NAMES.get(type_.kind) or f"DECIMAL({type_.precision}, {type_.scale})"


def expression_type(tree: Any, type_of: Callable[[str], ColumnType | None]) -> ColumnType | None:
    """Return Spark's type of columns, numbers, casts, arithmetic, times plus intervals, CASE and coalesce.

    None: of another expression.

    Args:
        tree: sqlglot's tree. type_of: returns the type of a column.
    """
    from sqlglot import exp

    if isinstance(tree, exp.Column):
        return type_of(tree.name) if len(list(tree.parts)) == 1 else None
    if isinstance(tree, (exp.Paren, exp.Neg)):
        return expression_type(tree.this, type_of)
    results = _results(tree)
    if results:
        return _type_of_all(results, type_of)
    if isinstance(tree, exp.Literal):
        return None if tree.is_string else _literal(str(tree.this))
    if isinstance(tree, exp.Cast):
        return _cast(tree.to)
    if not isinstance(tree, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return None
    if _is_interval(tree.expression):
        time = expression_type(tree.this, type_of)
        return time if time is not None and time.kind == "timestamp" else None
    sides = tree.this, tree.expression
    left, right = (expression_type(side, type_of) for side in sides)
    if left is None or right is None or not (left.is_number and right.is_number):
        return None
    if "decimal" not in (left.kind, right.kind) or {left.kind, right.kind} & {*FLOATS}:
        return ColumnType("float64") if isinstance(tree, exp.Div) else common_type(left, right)
    return _arithmetic(tree, *(_operand(side, type_) for side, type_ in zip(sides, (left, right), strict=True)))


def _is_interval(tree: Any) -> bool:
    """Return whether an expression is a constant interval, such as INTERVAL 1 HOUR 30 MINUTES."""
    from sqlglot import exp

    if isinstance(tree, exp.Paren):
        return _is_interval(tree.this)
    if isinstance(tree, exp.Add):
        return _is_interval(tree.this) and _is_interval(tree.expression)
    return isinstance(tree, exp.Interval)


def _results(tree: Any) -> list[Any]:
    """Return the expressions of which CASE or a function such as coalesce() returns one, without NULL; [] of others."""
    from sqlglot import exp

    if isinstance(tree, exp.Case):
        results = [*(branch.args["true"] for branch in tree.args["ifs"]), tree.args.get("default")]
    elif isinstance(tree, exp.If):
        results = [tree.args["true"], tree.args.get("false")]
    elif isinstance(tree, exp.Anonymous) and str(tree.this).lower() in _RETURN_ARGUMENTS:
        results = tree.expressions[_RETURN_ARGUMENTS[str(tree.this).lower()] :]
    else:
        results = []
    return [result for result in results if result is not None and not isinstance(result, exp.Null)]


def _type_of_all(trees: Sequence[Any], type_of: Callable[[str], ColumnType | None]) -> ColumnType | None:
    """Return the type to which Spark casts each of several expressions."""
    types = [expression_type(tree, type_of) for tree in trees]
    common = types[0] if types else None
    for type_ in types[1:]:
        if common is None or type_ is None:
            return None
        common = common if common == type_ else common_type(common, type_)
    return common


def shown_type(tree: Any, type_of: Callable[[str], ColumnType | None]) -> ColumnType | None:
    """Return Spark's type of an expression as `expression_type`, also of texts and truth values; None: not derived."""
    from sqlglot import exp

    if isinstance(tree, exp.Cast) and str(tree.to.this.name) in _OTHER_CASTS:
        return ColumnType(_OTHER_CASTS[str(tree.to.this.name)])
    if isinstance(tree, exp.Paren):
        return shown_type(tree.this, type_of)
    if isinstance(tree, exp.Literal) and tree.is_string:
        return ColumnType("string")
    return ColumnType("bool") if isinstance(tree, exp.Predicate) else expression_type(tree, type_of)


def _arithmetic(tree: Any, left: ColumnType, right: ColumnType) -> ColumnType:
    """Return the type of an operation on two decimals."""
    from sqlglot import exp

    if isinstance(tree, exp.Mul):
        return _bounded(left.precision + right.precision + 1, left.scale + right.scale)
    if isinstance(tree, exp.Div):
        scale = max(_MIN_SCALE, left.scale + right.precision + 1)
        return _bounded(left.precision - left.scale + right.scale + scale, scale)
    scale = max(left.scale, right.scale)
    return _bounded(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)


def _bounded(precision: int, scale: int) -> ColumnType:
    if precision > _MAX_PRECISION:
        scale = max(_MAX_PRECISION - (precision - scale), min(scale, _MIN_SCALE))
        precision = _MAX_PRECISION
    return ColumnType("decimal", precision=precision, scale=scale)


def _as_decimal(type_: ColumnType) -> ColumnType:
    return type_ if type_.kind == "decimal" else ColumnType("decimal", precision=_DIGITS[type_.kind])


def _operand(tree: Any, type_: ColumnType) -> ColumnType:
    """Return the decimal that Spark makes of an operand: of an integer constant one with its digits."""
    from sqlglot import exp

    if isinstance(tree, exp.Literal) and type_.kind in INTEGERS:
        return ColumnType("decimal", precision=len(str(int(tree.this))))
    return _as_decimal(type_)


def _literal(text: str) -> ColumnType | None:
    if text.isdigit():
        return ColumnType("int32" if int(text) < 2**31 else "int64") if int(text) < 2**63 else None
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return None
    scale = len(match[2])
    return ColumnType("decimal", precision=max(len(match[1].lstrip("0")) + scale, 1), scale=scale)


def _cast(to: Any) -> ColumnType | None:
    kind = str(to.this.name)
    if kind == "DECIMAL":
        sizes = [int(str(size.this)) for size in to.expressions]
        precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
        return ColumnType("decimal", precision=precision, scale=scale)
    return ColumnType(_CASTS[kind]) if kind in _CASTS else None
