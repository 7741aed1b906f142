"""Derive which columns are unique in joined rows."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.jobspec.sql.emit import Emitter
from milepost.jobspec.sql.joins.sides import RIGHT_UNMATCHED, Frame
from milepost.jobspec.sql.names import Relation, Scope, merged_name


def unique_columns(
    emitter: Emitter,
    scope: Scope,
    frame: Frame,
    index: int,
    inputs: tuple[str, str],
    pairs: Sequence[tuple[str, str]],
    how: str,
) -> tuple[str, ...] | None:
    """Return the unique columns of joined rows: those of a side with a unique partner, otherwise of both.

    Args:
        index: the relation that is joined. inputs: nodes of both sides. pairs: columns that are equal in matching rows.
    Returns: None if rows may be equal.
    """
    left, right = inputs
    mine, other = emitter.unique_of(left), emitter.unique_of(right)
    relation = scope.relations[index]
    if how in RIGHT_UNMATCHED:
        if _is_keyed(emitter, scope.relations[index], left, right, pairs) and how == "full":
            columns = (relation.folded[name] for name in relation.using)
            return tuple(sorted(frame.name((index, merged_name(column))) for column in columns))
        renamed = None if other is None else tuple(frame.name((index, name)) for name in other)
        if how == "right" and mine is not None and {*mine} <= {name for name, _ in pairs}:
            return renamed
        if mine is None or other is None or renamed is None:
            return None
        never_null = emitter.derived.is_never_null
        has_value = any(never_null(left, one) for one in mine) or any(never_null(right, one) for one in other)
        # Unmatched rows of both sides are all null in these columns, if the sides may be.
        return tuple(dict.fromkeys([*mine, *renamed])) if how == "right" or has_value else None
    if how in ("semi", "anti") or (other is not None and {*other} <= {name for _, name in pairs}):
        return mine
    same = {name: left_name for left_name, name in pairs}
    if other is None or (how != "inner" and {*other} & {*same}):
        return None
    renamed = tuple(same.get(name, f"{relation.prefix}__{name}") for name in other)
    if how == "inner" and mine is not None and {*mine} <= {*same.values()}:
        return renamed
    return None if mine is None else tuple(dict.fromkeys([*mine, *renamed]))


def _is_keyed(emitter: Emitter, relation: Relation, left: str, right: str, pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether the USING columns of a full join are unique: they are on both sides, and never null."""
    keys = [{*(emitter.unique_of(node) or ("",))} for node in (left, right)]
    is_unique = all(key <= {pair[side] for pair in pairs} for side, key in enumerate(keys))
    never_null = emitter.derived.is_never_null
    return bool(relation.using) and is_unique and all(
        never_null(left, one) and never_null(right, other) for one, other in pairs
    )  # fmt: skip
