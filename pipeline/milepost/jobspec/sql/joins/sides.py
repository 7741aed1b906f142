"""Read the two sides of what a join compares."""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.jobspec.sql.emit import Column, Emitter, common_type, sql_type
from milepost.jobspec.sql.names import Reference, Scope
from milepost.jobspec.sql.text import FromItem, Tokens
from milepost.operators.base import OutputRows, key_family

RIGHT_UNMATCHED = ("right", "full")
"""Joins that emit right rows without a match."""


@dataclass
class Frame:
    """The rows of the relations that are joined so far.

    Attributes:
        node: the node with the rows. physical: column of a relation -> its name in that node.
        where: conditions that are still to be applied.
    """

    node: str
    physical: dict[Reference, str]
    where: list[Tokens] = field(default_factory=list)

    def name(self, reference: Reference) -> str:
        return self.physical[reference]


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a comparison, as a join compares them.

    Attributes:
        names: columns with values that are equal if those of the sides are; "" if there are none.
        uncast: columns before a cast. is_comparable: whether their types are known and can be compared.
    """

    left: Column
    right: Column
    names: tuple[str, str]
    uncast: tuple[str, str]
    is_comparable: bool = False


@dataclass(frozen=True, slots=True)
class UnmatchedRight:
    """Columns of the left side that an unmatched right row fills with its own values: its key and event time.

    The query reads others, which are null there.

    Attributes:
        times: the left event time, as the query reads it. prefix: begins the names of the keys; None: as they are.
    """

    times: list[Column]
    prefix: str | None = None

    @classmethod
    def of(cls, relation: str, left: OutputRows, how: str, *, has_bounds: bool) -> UnmatchedRight:
        """Return the columns for a join with a relation."""
        if how not in RIGHT_UNMATCHED:
            return cls([])
        time = Column.plain(str(left.event_time), 0)
        return cls([time.renamed(f"{relation}__left_{time.name}")] if has_bounds else [], f"{relation}__key_")

    def key(self, column: Column) -> Column:
        """Return a key column of the join."""
        return column if self.prefix is None else column.renamed(f"{self.prefix}{column.name}")


def own_name(reference: Reference) -> str:
    """Return the name of a column in its relation."""
    return reference[1]


def left_side(emitter: Emitter, scope: Scope, frame: Frame, side: Tokens | Reference, at: Tokens) -> Column:
    """Return an expression over the relations that are joined so far."""
    shown, scope.shown = scope.shown, None
    reference = scope.column(side) if isinstance(side, Tokens) else side
    column = Column.plain(frame.name(reference), at.start) if reference is not None else None
    if column is None:
        assert isinstance(side, Tokens)
        text = scope.rewritten(side, frame.name)
        column = Column(emitter.label(f"key_{text.digest}", side), text)
    scope.shown = shown
    return column


def right_side(emitter: Emitter, scope: Scope, side: Tokens | Reference, at: Tokens) -> Column:
    """Return an expression over the relation that is joined."""
    reference = scope.column(side) if isinstance(side, Tokens) else side
    if reference is not None:
        return Column.plain(reference[1], at.start)
    assert isinstance(side, Tokens)
    text = scope.rewritten(side, own_name)
    return Column(emitter.label(f"key_{text.digest}", side), text)


def both_sides(
    emitter: Emitter,
    scope: Scope,
    frame: Frame,
    index: int,
    pair: tuple[Tokens | Reference, Tokens | Reference],
    how: str = "inner",
) -> Sides:
    """Return both sides of a comparison with relation `index`, cast to the type in which Spark compares them."""
    # amount (decimal(10,2)) = id (int64)  ->  CAST(`amount` AS DECIMAL(22, 2)), CAST(`id` AS DECIMAL(22, 2))
    relation = scope.relations[index]
    left = left_side(emitter, scope, frame, pair[0], relation.item.keyword)
    right = right_side(emitter, scope, pair[1], relation.item.tokens)
    names = left.name, right.name
    left_type = emitter.derived.type_at(frame.node, str(left.text))
    right_type = emitter.derived.type_at(relation.node, str(right.text))
    if left_type is None or right_type is None:
        return Sides(left, right, names, names)
    is_same = key_family(left_type) == key_family(right_type)
    common = common_type(left_type, right_type)
    needs_one_type = how in RIGHT_UNMATCHED and left_type != right_type  # the left key holds a right one
    if common is None or (is_same and not needs_one_type):
        return Sides(left, right, names, names, is_comparable=is_same)
    uncast = names
    names = names if is_same or common.kind == "decimal" else ("", "")  # several integers may be one float
    casts = [side.cast(sql_type(common)) for side in (left, right)]
    for cast, side in zip(casts, (left, right), strict=True):
        emitter.labels[cast.name] = emitter.labels.get(side.name, side.name)
    return Sides(casts[0], casts[1], names, uncast, is_comparable=True)


def check_not_in(emitter: Emitter, left: str, right: str, item: FromItem, sides: Sides) -> None:
    """Raise SqlProblem if a null could decide NOT IN: its sides may have nulls."""
    assert item.equals is not None
    texts = item.equals.text, sides.uncast[1]
    for node, column, text in zip((left, right), sides.uncast, texts, strict=True):
        if not emitter.derived.is_never_null(node, column):
            whose = "the query" if node == right else "the left side"
            raise item.keyword.problem(f"NOT IN: a null of {whose} would decide; add `{text} IS NOT NULL` to the WHERE "
                                       "there, or write NOT EXISTS (SELECT …)")  # fmt: skip
