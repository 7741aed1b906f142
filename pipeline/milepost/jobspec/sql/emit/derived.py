"""Derive what the rows of compiled steps do not state: types of expressions, and columns that are never null."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from milepost.jobspec.sql.emit.types import expression_type
from milepost.jobspec.sql.text import parsed_expression
from milepost.language import ColumnType
from milepost.language.sql import quote
from milepost.operators.base import OutputRows
from milepost.operators.over import over_type, parse_over

_NOT_NULL = re.compile(r"\s*`((?:[^`]|``)+)`\s+IS\s+NOT\s+NULL\s*", re.IGNORECASE)
_CALL = re.compile(r"(\w+)\((distinct )?(?:`((?:[^`]|``)+)`|\*)\)(?: filter .*)?", re.DOTALL)
_SAME_ROWS = ("latest", "top", "deduplicate", "materialize", "over")


@dataclass
class Derived:
    """Properties that are derived of each node, on demand.

    Attributes:
        rows: name of a node -> its rows. operators: compiled operators.
        selects: `sql` operator of one SELECT -> (output column -> expression, conditions).
    """

    rows: Mapping[str, OutputRows]
    operators: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    selects: dict[str, tuple[Mapping[str, str], Sequence[str]]] = field(default_factory=dict)

    def type_of(self, node: str, column: str) -> ColumnType | None:
        """Return the type of a column, or None if it is not derived."""
        stated = self.rows[node].type_of(column)
        operator = self.operators.get(node)
        if stated is not None or operator is None:
            return stated
        if node in self.selects:
            text = self.selects[node][0].get(column)
            return None if text is None else self.type_at(operator["inputs"][0], text)
        if operator["kind"] == "aggregate" and column in operator["aggregates"]:
            return self._aggregate_type(operator, column)
        if operator["kind"] == "over" and column in operator["functions"]:
            call = parse_over(operator["functions"][column])
            return over_type(call, {name: self.type_of(operator["inputs"][0], name) for name in [call.column] if name})
        origin = self._origin(operator, column)
        return None if origin is None else self.type_of(*origin)

    def type_at(self, node: str, text: str) -> ColumnType | None:
        """Return the type of an expression over the rows of a node, or None if it is not derived."""
        tree = parsed_expression(text)
        return None if tree is None else expression_type(tree, lambda name: self.type_of(node, name))

    def is_never_null(self, node: str, column: str) -> bool:
        """Return whether a column has a value in every row: its query filters nulls, or counts."""
        operator = self.operators.get(node)
        if operator is None:
            return False
        if node in self.selects:
            columns, conditions = self.selects[node]
            filtered = {match[1] for match in map(_NOT_NULL.fullmatch, conditions) if match is not None}
            text = columns.get(column, "")
            names = [name for name in self.rows[operator["inputs"][0]].columns if quote(name) == text]
            return any(name in filtered or self.is_never_null(operator["inputs"][0], name) for name in names)
        if operator["kind"] == "aggregate" and column in operator["aggregates"]:
            return str(operator["aggregates"][column]).startswith("count(")
        origin = self._origin(operator, column)
        if origin is None:
            return False
        how, is_left = operator.get("how"), origin[0] == operator["inputs"][0]
        if how in ("right", "full") and is_left:  # a key has the value of the right row if no left row matches
            keys = [pair if isinstance(pair, dict) else {pair: pair} for pair in operator["key"]]
            others = [pair[column] for pair in keys if column in pair]
            return bool(others) and self.is_never_null(*origin) and self.is_never_null(operator["inputs"][1], others[0])
        return not (how in ("left", "full") and not is_left) and self.is_never_null(*origin)

    def _aggregate_type(self, operator: Mapping[str, Any], column: str) -> ColumnType | None:
        match = _CALL.fullmatch(operator["aggregates"][column])
        if match is None:
            return None
        if match[1] == "count":
            return ColumnType("int64")
        type_ = None if match[3] is None else self.type_of(operator["inputs"][0], match[3].replace("``", "`"))
        if type_ is None or match[1] in ("min", "max", "first", "last"):
            return type_
        if match[1] == "sum" and type_.kind == "decimal":
            return ColumnType("decimal", precision=38, scale=type_.scale)
        if match[1] == "sum" and type_.is_number:
            return ColumnType("float64" if type_.kind.startswith("float") else "int64")
        return ColumnType("float64") if match[1] == "avg" else None

    def _origin(self, operator: Mapping[str, Any], column: str) -> tuple[str, str] | None:
        """Return (input, column) of a column that an operator passes on unchanged, or None."""
        first = operator["inputs"][0]
        if operator["kind"] in (*_SAME_ROWS, "aggregate", "window"):
            return (first, column) if column in self.rows[first].columns else None
        if operator["kind"] not in ("join", "asof", "lookup"):
            return None
        origin = operator.get("columns", {}).get(column)
        if origin is not None:
            return operator["inputs"][1], str(origin).removeprefix("right.")
        return (first, column) if column in self.rows[first].columns else None
