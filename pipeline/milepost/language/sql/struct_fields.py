"""Check that the struct fields a SELECT reads exist.

Spark matches field names case-insensitively. Fields of undeclared types are not checked.
With items: list<struct<price: float64>>

    items.price                      list<float64>, the field of each struct
    items[0].price                   float64
    transform(items, x -> x.price)   x is a struct<price: float64>
    items.cost                       refused: the struct has no field cost
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from milepost.language.names import did_you_mean
from milepost.language.sql.sql_parse import is_variable, parse_select, problem_at
from milepost.language.types import ColumnType

if TYPE_CHECKING:
    from sqlglot import exp

_PER_ELEMENT = frozenset({"exists", "filter", "forall", "transform"})
"""Functions with a lambda that gets an element of the list as its first parameter."""


def check_fields(sql: str, input_name: str, columns: Mapping[str, ColumnType | None]) -> None:
    """Refuse a SELECT that reads a field that does not exist, or a field of something other than a struct.

    Args:
        columns: as for `check_nondeterminism`.
    Raises:
        SqlProblem: with the position, and the fields that exist.
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
        """Return the type of an expression, or None if it is not known. Raises SqlProblem: a field does not exist."""
        from sqlglot import exp

        if isinstance(node, exp.Column):
            return self._of_column(node)
        if isinstance(node, exp.Paren):
            return self.type_of(node.this)
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
            return self._field(self.type_of(node.this), node.expression)
        if isinstance(node, exp.Bracket):
            indexed = self.type_of(node.this)
            return None if indexed is None or len(node.expressions) != 1 else indexed.element
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
        """Return the type of a lambda parameter that is bound to the elements of a list."""
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
        if name.casefold() not in _PER_ELEMENT:
            return None
        elements = self.type_of(call.expressions[0] if isinstance(call, exp.Anonymous) else call.this)
        return None if elements is None else elements.element

    def _field(self, parent: ColumnType | None, field: exp.Expression) -> ColumnType | None:
        if parent is None:
            return None
        if parent.element is not None and parent.element.kind == "struct":
            inner = self._field(parent.element, field)
            return None if inner is None else replace(parent, element=inner)
        if parent.kind != "struct":
            raise problem_at(self._sql, field, f"there is no field {field.name}: {parent} is not a struct")
        for name, type_ in parent.fields:
            if name.casefold() == field.name.casefold():
                return type_
        known = [name for name, _ in parent.fields]
        raise problem_at(self._sql, field, f"the struct has no field {field.name}; {did_you_mean(field.name, known)}")
