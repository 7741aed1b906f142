"""Find the equalities by which a subquery depends on the query around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from milepost.jobspec.sql.names.conditions import sides_of
from milepost.jobspec.sql.names.scope import Scope, shown_name
from milepost.jobspec.sql.text import Expression, Item, Select, Tokens, aggregate_calls


@dataclass
class Correlation:
    """What a subquery has in common with the query around it.

    Attributes:
        outer: the relations of the query around it. is_scalar: whether it is an aggregate of rows with equal values.
        pairs: (expression over the outer query, output column of the subquery).
    """

    # SELECT … FROM part WHERE … (SELECT avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
    # p_partkey = key_l_partkey of SELECT avg(l_quantity), l_partkey AS key_l_partkey FROM lineitem GROUP BY l_partkey
    outer: Scope
    is_scalar: bool
    pairs: list[tuple[Tokens, str]] = field(default_factory=list)

    def without(self, select: Select, scope: Scope) -> Select:
        """Return the subquery without its conditions on outer columns, but with the columns that they compare.

        Args:
            scope: the relations of the subquery. A name means a column of it before one of the outer query.
        Raises:
            SqlProblem: a condition on outer columns is no equality.
        """
        where, keys = list[Tokens](), dict[str, Tokens]()
        for run in select.where:
            if self._is_inner(run, scope):
                where.append(run)
                continue
            sides = sides_of(run)
            own = [side for side in sides[::2] if self._is_inner(side, scope)] if sides is not None else []
            if sides is None or sides[1] != "=" or len(own) != 1 or not scope.references(own[0]):
                raise run.problem("a subquery compares columns of the query around it by `=` alone: "
                                  "inner.column = outer.column")  # fmt: skip
            other = sides[2] if own[0] is sides[0] else sides[0]
            name = _key_name(own[0], scope, keys)
            keys[name] = own[0]
            self.outer.references(other)
            self.pairs.append((other, name))
        if not keys:
            return select
        for clause in (select.qualify, select.limit):
            if clause is not None:
                raise clause.problem("QUALIFY and LIMIT are not available in a subquery that reads outer columns")
        is_aggregate = any(aggregate_calls(item.tokens) for item in select.items)
        if is_aggregate and not select.group and not self.is_scalar:
            raise select.tokens.problem("an aggregate without GROUP BY always has a row; compare it with =")
        items = [*select.items, *(Item(run, name) for name, run in keys.items())]
        group = [*select.group, *keys.values()] if self.is_scalar or select.group or is_aggregate else []
        return replace(select, items=items, where=where, group=group)

    def _is_inner(self, run: Tokens, scope: Scope) -> bool:
        """Return whether an expression reads no column of the outer query alone."""
        return all(scope.knows(parts) or not self.outer.knows(parts) for parts in Expression(run).columns())


def _key_name(run: Tokens, scope: Scope, keys: Mapping[str, Tokens]) -> str:
    """Return the output column of a compared expression. Columns of one name of several relations get their number."""
    reference = scope.column(run)
    if reference is None:
        return f"key_{scope.rewritten(run, lambda one: f'{one[0]} {one[1]}').digest}"
    name = f"key_{shown_name(reference)}"
    return name if name not in keys or scope.column(keys[name]) == reference else f"{name}_{reference[0]}"
