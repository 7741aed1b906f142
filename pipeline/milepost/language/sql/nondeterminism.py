"""Refuse strings that Spark reads as times relative to the run (I12).

Observed with Spark 4.3:

    CAST('now' AS TIMESTAMP)        the time of the run; also today, tomorrow, yesterday, in any case, with a zone
    ts > 'today'                    the same: a string compared with a timestamp becomes one
    CAST(lower('NOW') AS DATE)      the same: functions of constants are evaluated before the cast
    CAST(s AS TIMESTAMP)            for a column s: 'now' is an error, but '12:30' is 12:30 of the day of the run

Hence three rules. A constant like these is allowed only where it certainly stays a string. So is a string that
functions compute from constants, because its value is not known here. A column that may be a string is converted to a
timestamp only with a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from milepost.language.sql.spark_functions import BY_GROUP
from milepost.language.sql.sql_parse import SqlProblem, excerpt, is_variable, parse_select
from milepost.language.types import ColumnType

if TYPE_CHECKING:
    from sqlglot import exp

_RELATIVE_TIME = re.compile(r"(now|today|tomorrow|yesterday)\b.*|t?\s*\d{1,2}\s*:.*|t\d.*", re.IGNORECASE | re.DOTALL)

_TEXT_OF_TIME = frozenset({"date_format", "dayname", "from_unixtime", "monthname"})
_TIME_OF_DAY = frozenset({"make_time", "time", "time_trunc", "to_time", "try_to_time"}) | {
    name for name in BY_GROUP["datetime_funcs"] if name.startswith("time_from_")
}
_TIMESTAMPS = frozenset(
    {
        "date_trunc",
        "from_utc_timestamp",
        "make_timestamp",
        "make_timestamp_ltz",
        "time_bucket",
        "timestamp",
        "timestamp_micros",
        "timestamp_millis",
        "timestamp_nanos",
        "timestamp_seconds",
        "to_timestamp",
        "to_timestamp_ltz",
        "to_utc_timestamp",
        "try_make_timestamp",
        "try_make_timestamp_ltz",
        "try_to_timestamp",
    }
)
_TEXTS = (BY_GROUP["string_funcs"] - {"decode"}) | _TEXT_OF_TIME | {"bin", "concat", "conv", "hex", "string"}
_ANYTHING = frozenset({"greatest", "least"})
_OTHERS = (
    (BY_GROUP["math_funcs"] | BY_GROUP["bitwise_funcs"] | BY_GROUP["datetime_funcs"] | BY_GROUP["conversion_funcs"])
    - _TEXTS
    - _TIME_OF_DAY
    - _TIMESTAMPS
    - _ANYTHING
)
_STAYS_TEXT = (
    (BY_GROUP["string_funcs"] - {"decode"})
    | BY_GROUP["hash_funcs"]
    | BY_GROUP["url_funcs"]
    | {"concat", "regexp_like", "rlike"}
)
"""Functions that never read their string arguments as dates or timestamps."""
_CHOOSE = frozenset({"coalesce", "ifnull", "nullif", "nvl"})
_PLAIN_ON_CONSTANTS = frozenset({"array", "char", "chr", "map", "named_struct", "struct"})
"""Functions that compute no new string from constants. Their arguments are checked by themselves."""
_PARSE = frozenset({"timestamp", "to_timestamp", "to_timestamp_ltz", "try_to_timestamp"})
_WITH_PATTERN = _PARSE | {"to_date", "try_to_date", "to_unix_timestamp", "unix_timestamp"}
_SCHEMAS = {"from_csv": 1, "from_json": 1, "from_xml": 1, "try_variant_get": 2, "variant_get": 2}
"""Functions that parse strings by a schema or a type -> position of that argument."""
_READ_AS_TIMESTAMP = {
    "date_format": (0,),
    "date_part": (1,),
    "date_trunc": (1,),
    "datepart": (1,),
    "from_utc_timestamp": (0,),
    "hour": (0,),
    "minute": (0,),
    "months_between": (0, 1),
    "second": (0,),
    "timediff": (1, 2),
    "timestampadd": (2,),
    "timestampdiff": (1, 2),
    "to_utc_timestamp": (0,),
    "unix_micros": (0,),
    "unix_millis": (0,),
    "unix_nanos": (0,),
    "unix_seconds": (0,),
}
"""Functions that convert arguments to timestamps -> positions of these arguments."""


class _Kind(Enum):
    TEXT = "text"
    TIMESTAMP = "timestamp"
    OTHER = "other"
    """Neither, and never converted to a timestamp that depends on the clock."""
    UNKNOWN = "unknown"


def check_nondeterminism(sql: str, input_name: str, columns: Mapping[str, ColumnType | None]) -> None:
    """Refuse a SELECT that may read a string as a time that depends on when it runs.

    Args:
        columns: input column -> type; None if the type is not known. Unknown columns may be missing.
    Raises:
        SqlProblem: names the expression and what to write instead.
    """
    tree = parse_select(sql).tree
    alias = tree.args["from_"].this.alias or input_name
    _Checker(str(alias), {name.casefold(): type_ for name, type_ in columns.items()}).check(tree)


class _Checker:
    def __init__(self, alias: str, types: Mapping[str, ColumnType | None]) -> None:
        self._alias = alias.casefold()
        self._types = types
        self._constant: set[int] = set()
        self._with_text: set[int] = set()

    def check(self, tree: exp.Select) -> None:
        nodes = [*tree.walk()]
        for node in reversed(nodes):  # children before their parents
            self._classify(node)
        for node in nodes:
            self._check_constant(node)
            self._check_conversion(node)
            self._check_comparison(node)

    def _classify(self, node: exp.Expression) -> None:
        """Record, by identity, whether a node is constant, and whether it is or contains a string."""
        from sqlglot import exp

        children = [id(child) for child in node.iter_expressions()]
        reads_row = isinstance(node, exp.Column) or (isinstance(node, exp.Identifier) and is_variable(node))
        if not reads_row and self._constant.issuperset(children):
            self._constant.add(id(node))
        if self._kind(node) is _Kind.TEXT or not self._with_text.isdisjoint(children):
            self._with_text.add(id(node))

    def _is_constant(self, node: exp.Expression) -> bool:
        return id(node) in self._constant

    def _check_constant(self, node: exp.Expression) -> None:
        from sqlglot import exp

        text = _constant_text(node)
        if text is not None:
            is_relative = _RELATIVE_TIME.fullmatch(text.strip()) and not self._stays_text(node)
            if is_relative and (node.parent is None or _constant_text(node.parent) is None):  # else the parent reports
                raise SqlProblem(
                    f"Spark may read '{text}' as a time that depends on when the epoch runs; write a full timestamp, "
                    "or compare it with a string: CAST(x AS STRING)"
                )
        elif (
            isinstance(node, (exp.Func, exp.DPipe, exp.Cast, exp.Collate))
            and not (isinstance(node, exp.If) and isinstance(node.parent, exp.Case))
            and _name(node) not in _PLAIN_ON_CONSTANTS
            and self._may_be_text(node)
            and self._is_constant(node)
            and not self._stays_text(node)
        ):
            raise SqlProblem(
                f"{excerpt(node)} computes a string from constants, which Spark may read as a time that depends on "
                "when the epoch runs; write the result"
            )

    def _check_conversion(self, node: exp.Expression) -> None:
        from sqlglot import exp

        if isinstance(node, exp.Cast) and _has_timestamp(node.to):
            self._check_becomes_timestamp(node.this, node)
        name, arguments = _name(node), _arguments(node)
        if name in _PARSE and len(arguments) == 1:
            self._check_becomes_timestamp(arguments[0], node)
        if name in _SCHEMAS:
            self._check_schema(node, arguments, _SCHEMAS[name])
        converted = [arguments[i] for i in _READ_AS_TIMESTAMP.get(name, ()) if i < len(arguments)]
        if isinstance(node, exp.Extract):
            converted = [node.expression]
        for argument in converted:
            if self._kind(argument) is _Kind.TEXT and not self._is_constant(argument):
                raise SqlProblem(f"{excerpt(node)} {_TODAY}")

    def _check_becomes_timestamp(self, origin: exp.Expression, node: exp.Expression) -> None:
        if self._kind(origin) in (_Kind.TEXT, _Kind.UNKNOWN) and not self._is_constant(origin):
            raise SqlProblem(f"{excerpt(node)} {_TODAY}")

    def _check_schema(self, node: exp.Expression, arguments: list[exp.Expression], position: int) -> None:
        """Refuse a schema string with a timestamp type, unless the options contain a `timestampFormat`."""
        schema = _constant_text(arguments[position]) if position < len(arguments) else None
        pattern = any("timestampformat" in (_constant_text(n) or "").casefold() for n in node.walk())
        if schema is not None and re.search(r"\btimestamp(_ltz)?\b", schema, re.IGNORECASE) and not pattern:
            raise SqlProblem(f"{excerpt(node)} {_TODAY}")

    def _check_comparison(self, node: exp.Expression) -> None:
        compared = list(_compared(node))
        kinds = [self._kind(operand) for operand in compared]
        if _Kind.TIMESTAMP in kinds and any(
            kind is _Kind.TEXT and not self._is_constant(operand) for kind, operand in zip(kinds, compared, strict=True)
        ):
            raise SqlProblem(f"{excerpt(node)} {_TODAY}")

    def _may_be_text(self, node: exp.Expression) -> bool:
        """Return whether a constant expression is a string, or may return a string it was given."""
        kind = self._kind(node)
        return kind is _Kind.TEXT or (kind is _Kind.UNKNOWN and id(node) in self._with_text)

    def _kind(self, node: exp.Expression) -> _Kind:
        from sqlglot import exp

        if _constant_text(node) is not None or isinstance(node, (exp.DPipe, exp.Collate, exp.Trim, exp.Substring)):
            return _Kind.TEXT
        if isinstance(node, exp.Paren):
            return self._kind(node.this)
        if isinstance(node, exp.Cast):
            return _kind_of_cast(node.to)
        if isinstance(node, exp.Column):
            return self._kind_of_column(node)
        if isinstance(node, (exp.Literal, exp.Boolean, exp.Condition)) and not isinstance(node, exp.Func):
            passing = (exp.Bracket, exp.Dot, exp.Identifier, exp.Add, exp.Sub, exp.Interval, exp.Null, exp.Parameter)
            return _Kind.UNKNOWN if isinstance(node, passing) else _Kind.OTHER
        if results := list(_results(node)):
            kinds = {self._kind(result) for result in results if not isinstance(result, exp.Null)}
            return kinds.pop() if len(kinds) == 1 else _Kind.UNKNOWN
        return _kind_of_call(_name(node))

    def _kind_of_column(self, column: exp.Column) -> _Kind:
        parts = [part.name.casefold() for part in column.parts]
        if len(parts) > 1 and parts[0] == self._alias:
            parts = parts[1:]
        type_ = None if len(parts) > 1 or is_variable(column) else self._types.get(parts[0])
        if type_ is None or type_.is_nested:
            return _Kind.UNKNOWN
        if type_.kind == "string":
            return _Kind.TEXT
        return _Kind.TIMESTAMP if type_.kind == "timestamp" else _Kind.OTHER

    def _stays_text(self, node: exp.Expression) -> bool:
        """Return whether a string is certainly never read as a date or a timestamp in its context."""
        from sqlglot import exp

        parent = node.parent
        if isinstance(parent, (exp.Select, exp.DPipe, exp.Collate, exp.Trim, exp.Substring)):
            return True
        if isinstance(parent, exp.Interval):
            return parent.args.get("unit") is not None  # without a unit, the parser accepts any string here
        if isinstance(parent, (exp.Like, exp.ILike, exp.RegexpLike)):
            return True
        if isinstance(parent, exp.Alias):
            return isinstance(parent.parent, exp.Select)
        if isinstance(parent, exp.Paren):
            return self._stays_text(parent)
        if isinstance(parent, exp.Cast):
            kind = _kind_of_cast(parent.to)
            return parent.to.this == exp.DataType.Type.TIME or (kind is _Kind.TEXT and self._stays_text(parent))
        if isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case):
            case = parent.parent
            if node.arg_key == "this":
                return self._all_text([case.this, *(branch.this for branch in case.args["ifs"])])
            return self._all_text(_results(case)) and self._stays_text(case)
        operands = list(_compared(parent)) if parent is not None else []
        if any(operand is node for operand in operands):
            return self._all_text(operands)
        if parent is not None and any(result is node for result in _results(parent)):
            return self._all_text(_results(parent)) and self._stays_text(parent)
        name = _name(parent) if parent is not None else ""
        return name in _STAYS_TEXT or (name in _WITH_PATTERN and len(_arguments(parent)) > 1)

    def _all_text(self, nodes: Iterator[exp.Expression] | list[exp.Expression]) -> bool:
        from sqlglot import exp

        return all(isinstance(node, exp.Null) or self._kind(node) is _Kind.TEXT for node in nodes)


_TODAY = (
    "may read a string such as '12:30' as a time on the day the epoch runs; give a pattern: "
    "to_timestamp(x, 'yyyy-MM-dd HH:mm:ss'), or for a number: timestamp_seconds(x)"
)


def _constant_text(node: exp.Expression) -> str | None:
    """Return the value of a string literal, or of adjacent literals: `'no' 'w'` is `now`."""
    from sqlglot import exp

    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else None
    if isinstance(node, exp.RawString):
        return str(node.this)
    if isinstance(node, exp.Concat):
        texts = [_constant_text(part) for part in node.expressions]
        return None if None in texts else "".join(text or "" for text in texts)
    return None


def _name(node: exp.Expression) -> str:
    """Return the name of a called function, in lower case; "" for other expressions."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return str(node.name).casefold()
    return "array" if isinstance(node, exp.Array) else ""


def _arguments(node: exp.Expression) -> list[exp.Expression]:
    return list(node.expressions) if _name(node) else []


def _results(node: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the operands that an expression may return: branches of CASE and IF, arguments of COALESCE."""
    from sqlglot import exp

    if isinstance(node, exp.Case):
        yield from (branch.args["true"] for branch in node.args["ifs"])
        yield from [node.args["default"]] if node.args.get("default") else []
    elif isinstance(node, exp.If) and not isinstance(node.parent, exp.Case):
        yield from (node.args[key] for key in ("true", "false") if node.args.get(key))
    elif isinstance(node, exp.Coalesce):
        yield from (node.this, *node.expressions)
    elif _name(node) in _CHOOSE:
        yield from node.expressions
    elif _name(node) == "nvl2":
        yield from node.expressions[1:]


def _compared(node: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the operands that an expression compares, which Spark converts to one type."""
    from sqlglot import exp

    if isinstance(node, (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)):
        yield from (node.left, node.right)
    elif isinstance(node, exp.Between):
        yield from (node.this, node.args["low"], node.args["high"])
    elif isinstance(node, exp.In):
        yield from (node.this, *node.expressions)
    elif isinstance(node, exp.Case) and node.this is not None:
        yield from (node.this, *(branch.this for branch in node.args["ifs"]))
    elif _name(node) in ("equal_null", "nullif"):
        yield from node.expressions


def _kind_of_call(name: str) -> _Kind:
    for kind, names in ((_Kind.TEXT, _TEXTS), (_Kind.TIMESTAMP, _TIMESTAMPS), (_Kind.OTHER, _OTHERS)):
        if name in names:
            return kind
    return _Kind.UNKNOWN


def _kind_of_cast(to: exp.DataType) -> _Kind:
    from sqlglot import exp

    if to.this in exp.DataType.TEXT_TYPES:
        return _Kind.TEXT
    if to.this in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ):
        return _Kind.TIMESTAMP
    if to.this in (exp.DataType.Type.TIME, exp.DataType.Type.VARIANT) or to.args.get("nested"):
        return _Kind.UNKNOWN
    return _Kind.OTHER


def _has_timestamp(to: exp.DataType) -> bool:
    from sqlglot import exp

    timestamps = (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ)
    return any(isinstance(inner, exp.DataType) and inner.this in timestamps for inner in to.walk())
