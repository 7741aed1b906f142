"""Resolve column references to the relations of a SELECT, as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from milepost.jobspec.sql.text import Expression, Fragment, FromItem, Tokens, edited
from milepost.language import did_you_mean
from milepost.language.sql import problem_from, quote

Reference = tuple[int, str]
"""(number of the relation, column)."""


_MERGED = "coalesce({})"


def merged_name(column: str) -> str:
    """Return the name of a USING column of a full join, which has the values of both sides."""
    return _MERGED.format(column)


def shown_name(reference: Reference) -> str:
    """Return the name of a column as the query states it."""
    prefix, suffix = _MERGED.split("{}")
    name = reference[1]
    is_merged = name.startswith(prefix) and name.endswith(suffix)
    return name[len(prefix) : -len(suffix)] if is_merged else name


@dataclass
class Relation:
    """One relation of FROM.

    Attributes:
        alias: the name by which columns are qualified. label: part of the names of its steps.
        prefix: begins the names of its columns after a join; the alias if nothing else distinguishes it.
        node: the node that it reads. columns: in order. is_static: whether only lookups read it.
        is_hidden: whether only the condition of its semi or anti join sees it.
        using: folded name of a USING column -> the column before this relation that it equals.
        pairs: (expression over the relations before it, column of this one) that are equal in a correlated subquery.
    """

    item: FromItem
    alias: str
    label: str
    node: str
    columns: list[str]
    is_static: bool = False
    is_hidden: bool = False
    using: dict[str, Reference] = field(default_factory=dict)
    pairs: list[tuple[Tokens, str]] = field(default_factory=list)
    folded: dict[str, str] = field(default_factory=dict)
    prefix: str = ""

    def __post_init__(self) -> None:
        self.prefix = self.prefix or self.alias
        self.folded = {column.casefold(): column for column in self.columns}


@dataclass
class Scope:
    """The relations of a SELECT, and columns that USING made one.

    Attributes:
        merged: folded name of a USING column -> its reference in the left relation, in the right one of a right join,
            and `merged_name` of a full one.
        used: every column that was resolved. scalars: column that stands for a query -> its reference.
    """

    relations: list[Relation] = field(default_factory=list)
    merged: dict[str, Reference] = field(default_factory=dict)
    used: set[Reference] = field(default_factory=set)
    scalars: dict[str, Reference] = field(default_factory=dict)
    shown: int | None = None
    """The number of the hidden relation whose join condition is being resolved."""

    def merge(self, index: int, column: Tokens) -> None:
        """Make one column of those that USING names. Raises SqlProblem: a side does not have exactly one."""
        folded = column.name().casefold()
        owners = [
            (number, one.folded[folded]) for number, one in enumerate(self.relations[:index]) if folded in one.folded
        ]
        if not owners or folded not in self.relations[index].folded:
            raise column.problem(f"USING needs the column {column.name()} on both sides")
        if len(owners) > 1 and folded not in self.merged:
            raise column.problem(f"{column.name()} is a column of several relations on the left; write ON")
        relation = self.relations[index]
        relation.using[folded] = self.merged.get(folded, owners[0])
        if relation.item.join == "right":
            self.merged[folded] = index, relation.folded[folded]
        elif relation.item.join == "full":
            self.merged[folded] = index, merged_name(relation.folded[folded])
        else:
            self.merged.setdefault(folded, owners[0])

    def sees(self, index: int) -> bool:
        """Return whether expressions see a relation."""
        return not self.relations[index].is_hidden or self.shown == index

    def references(self, run: Tokens) -> set[Reference]:
        """Return the columns that an expression reads. Raises SqlProblem: a column is unknown or ambiguous."""
        expression = Expression(run)
        return {self.resolve(expression, parts)[0] for parts in expression.columns()}

    def column(self, run: Tokens) -> Reference | None:
        """Return the column if an expression is nothing but a column; otherwise None."""
        from sqlglot import exp

        expression = Expression(run.without_brackets())
        tree = expression.tree
        if not isinstance(tree, exp.Column) or isinstance(tree.this, exp.Star):
            return None
        parts = list(tree.parts)
        reference, used = self.resolve(expression, parts)
        return reference if used == len(parts) else None

    def rewritten(
        self, run: Tokens, physical: Callable[[Reference], str], edits: Iterable[tuple[int, int, str]] = ()
    ) -> Fragment:
        """Return the user's text with each column replaced by its name in the input of a step.

        Args:
            physical: returns the name of a column in the input of the step.
            edits: further (first offset, last offset, text); columns inside them are not replaced.
        """
        done = list(edits)
        expression = Expression(run)
        for parts in expression.columns():
            start = expression.offsets(parts[0])[0]
            if any(first <= start <= last for first, last, _ in done):
                continue
            reference, used = self.resolve(expression, parts)
            done.append((start, expression.offsets(parts[used - 1])[1], quote(physical(reference))))
        return edited(run, done)

    def resolve(self, expression: Expression, parts: Sequence[Any]) -> tuple[Reference, int]:
        """Return the column of a reference, and how many of its parts name it. The rest are fields of a struct."""
        first = parts[0].name.casefold()
        offset = expression.offsets(parts[0])[0]
        sql = expression.tokens.sql
        if first in self.scalars:
            return self._use(self.scalars[first]), 1
        if len(parts) > 1:
            for index, relation in enumerate(self.relations):
                if relation.alias == first and self.sees(index):
                    column = relation.folded.get(parts[1].name.casefold())
                    if column is None:
                        message = f"{relation.alias} has no column {parts[1].name}; "
                        message += did_you_mean(parts[1].name, relation.columns)
                        raise problem_from(sql, expression.offsets(parts[1])[0], message)
                    return self._use((index, column)), 2
        own = None if self.shown is None else self.relations[self.shown]
        if own is not None and own.item.is_exists and first in own.folded:
            return self._use((self.relations.index(own), own.folded[first])), 1
        if first in self.merged:
            return self._use(self.merged[first]), 1
        found = [(i, r.folded[first]) for i, r in enumerate(self.relations) if first in r.folded and self.sees(i)]
        if len(found) > 1:
            owners = " and ".join(self.relations[index].alias for index, _ in found)
            message = f"{parts[0].name} is a column of {owners}; write {self.relations[found[0][0]].alias}."
            raise problem_from(sql, offset, message + parts[0].name)
        if not found:
            shown = [relation for index, relation in enumerate(self.relations) if self.sees(index)]
            known = [column for relation in shown for column in relation.columns]
            raise problem_from(sql, offset, f"there is no column {parts[0].name}; {did_you_mean(parts[0].name, known)}")
        return self._use(found[0]), 1

    def _use(self, reference: Reference) -> Reference:
        self.used.add(reference)
        return reference

    def has(self, name: str) -> bool:
        """Return whether a bare name is a column of a relation."""
        return any(name.casefold() in one.folded and self.sees(index) for index, one in enumerate(self.relations))

    def knows(self, parts: Sequence[Any]) -> bool:
        """Return whether the first part of a reference is a relation, if others follow it, or a column."""
        first = parts[0].name.casefold()
        is_relation = any(one.alias == first and self.sees(index) for index, one in enumerate(self.relations))
        return (len(parts) > 1 and is_relation) or first in self.scalars or self.has(first)
