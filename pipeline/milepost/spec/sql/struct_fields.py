"""Struct fields that a SELECT reads are there, as far as the types of what they are read of are declared.

Spark finds them without regard to case. A field of a list is, of each of its structs, that field: `items.price` of
`list<struct<price: float64>>` is a `list<float64>`. So are fields of a lambda's variable that stands for its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from milepost.spec.sql.sql_parse import is_variable, parse_select, problem_at
from milepost.spec.values.names import did_you_mean
from milepost.spec.values.types import ColumnType

if TYPE_CHECKING:
    from sqlglot import exp

_OF_EACH = frozenset({"exists", "filter", "forall", "transform"})
"""Functions whose lambda has a value of the list before it as first variable."""


def check_fields(sql: str, input_name: str, columns: Mapping[str, ColumnType | None]) -> None:
    """Refuse a SELECT that reads a field which a struct does not have, or a field of what is no struct.

    Args:
        columns: as of `check_nondeterminism`.
    Raises:
        SqlProblem: names the place, and the fields that are there.
    """
    tree = parse_select(sql).tree
    alias = str(tree.args["from_"].this.alias or input_name)
    fields = _Fields(sql, alias.casefold(), {name.casefold(): type_ for name, type_ in columns.items()})
    for node in tree.walk():
        fields.type_of(node)


class _Fields:
    def __init__(self, sql: str, alias: str, types: Mapping[str, ColumnType | None]) -> None:
        self._sql, self._alias, self._types = sql, alias, types

    def type_of(self, node: exp.Expression) -> ColumnType | None:
        """Return the type of what fields may be read of; None: not known. Raises SqlProblem: a field is not there."""
        from sqlglot import exp

        if isinstance(node, exp.Column):
            return self._of_column(node)
        if isinstance(node, exp.Paren):
            return self.type_of(node.this)
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
            return self._field(self.type_of(node.this), node.expression)
        if isinstance(node, exp.Bracket):
            of = self.type_of(node.this)
            return None if of is None or len(node.expressions) != 1 else of.element
        return self._of_variable(node) if isinstance(node, exp.Identifier) and is_variable(node) else None

    def _of_column(self, column: exp.Column) -> ColumnType | None:
        parts = list(column.parts)
        if is_variable(column):
            return None
        if len(parts) > 1 and parts[0].name.casefold() == self._alias:
            del parts[0]
        type_ = self._types.get(parts[0].name.casefold())
        for part in parts[1:]:
            type_ = self._field(type_, part)
        return type_

    def _of_variable(self, variable: exp.Identifier) -> ColumnType | None:
        """Return the type of a lambda's variable where it stands for a value of a list."""
        from sqlglot import exp

        inner: exp.Expression = variable
        while (outer := inner.find_ancestor(exp.Lambda)) is not None:
            names = [parameter.name.casefold() for parameter in outer.expressions]
            if variable.name.casefold() in names:
                break
            inner = outer
        call = None if outer is None else outer.parent
        if call is None or names[0] != variable.name.casefold():
            return None
        name = call.name if isinstance(call, exp.Anonymous) else call.key
        if name.casefold() not in _OF_EACH:
            return None
        of = self.type_of(call.expressions[0] if isinstance(call, exp.Anonymous) else call.this)
        return None if of is None else of.element

    def _field(self, of: ColumnType | None, field: exp.Expression) -> ColumnType | None:
        if of is None:
            return None
        if of.element is not None and of.element.kind == "struct":
            inner = self._field(of.element, field)
            return None if inner is None else replace(of, element=inner)
        if of.kind != "struct":
            raise problem_at(self._sql, field, f"there is no field {field.name}: {of} is no struct")
        for name, type_ in of.fields:
            if name.casefold() == field.name.casefold():
                return type_
        known = [name for name, _ in of.fields]
        raise problem_at(self._sql, field, f"the struct has no field {field.name}; {did_you_mean(field.name, known)}")
