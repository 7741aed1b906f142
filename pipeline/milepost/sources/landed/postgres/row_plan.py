"""Turn the changes of one table into rows with the declared columns. Pure.

Every change is one row, except an update of the key, which is a delete of the old key and then an update::

    UPDATE t SET id = 7, b = 'x' WHERE id = 1     ->   op delete, id 1, b null
                                                       op update, id 7, b x
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from milepost.language import ColumnType
from milepost.sources.landed.postgres.pgoutput import UNCHANGED, Delete, Insert, Relation, Unchanged, Update, Values
from milepost.sources.landed.postgres.text_values import type_problem

_PROCESS_FIRST = "let epochs process the landed rows first: they need `schema` as it is"

INSERT, UPDATE, DELETE, COPY = "insert", "update", "delete", "copy"

Row = tuple[str, tuple[bytes | None, ...]]
"""The operation on a row, and the texts of its declared columns."""


class UnfitTable(Exception):
    """A table, or one of its changes, does not match the declaration of the source.

    Attributes:
        reason: why. hint: what to do.
    """

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason, self.hint = reason, hint


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Where the declared columns are in the tuples of a relation.

    Attributes:
        positions: of each declared column in a tuple, in their order. key: positions of the key's columns.
        names: of the declared columns, for messages. is_full: whether an old tuple has all columns.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    key: tuple[int, ...]
    identity: frozenset[int]
    is_full: bool

    def rows(self, change: Insert | Update | Delete) -> Iterator[Row]:
        """Yield the rows of a change. Raises UnfitTable: the change does not have the value of a column."""
        if isinstance(change, Insert):
            yield INSERT, self._values(change.new, None, "")
        elif isinstance(change, Delete):
            yield DELETE, self._old(change.old, change.old_kind)
        else:
            new = self._values(change.new, change.old, change.old_kind)
            if change.old is not None and any(
                change.old[at] != change.new[at] and change.new[at] is not UNCHANGED for at in self.key
            ):
                yield DELETE, self._old(change.old, change.old_kind)
            yield UPDATE, new

    def _old(self, old: Values, kind: str) -> tuple[bytes | None, ...]:
        """Return the texts of an old tuple: of its key alone (K), or of all columns (O)."""
        return tuple(
            self._known(old[at], name) if kind == "O" or at in self.identity else None
            for name, at in zip(self.names, self.positions, strict=True)
        )

    def _values(self, new: Values, old: Values | None, kind: str) -> tuple[bytes | None, ...]:
        """Return the texts of a new tuple. What is unchanged is in the old one, if that has the column."""
        values = tuple(new[at] for at in self.positions)
        if UNCHANGED not in values:
            return values  # type: ignore[return-value]
        found: list[bytes | None] = []
        for name, at in zip(self.names, self.positions, strict=True):
            value = new[at]
            if value is UNCHANGED and old is not None and (kind == "O" or at in self.identity):
                value = old[at]
            found.append(self._known(value, name))
        return tuple(found)

    def _known(self, value: bytes | Unchanged | None, name: str) -> bytes | None:
        if isinstance(value, Unchanged):
            raise UnfitTable(
                f"an update did not change column {name}, which is stored out of line (TOAST), and Postgres sends such "
                "a value only if the table has REPLICA IDENTITY FULL",
                "ALTER TABLE … REPLICA IDENTITY FULL, and begin a new log under another source name; or remove the "
                f"column {name} from `schema`, then land again",
            )
        return value


def plan_rows(relation: Relation, declared: Mapping[str, ColumnType], key: Sequence[str]) -> RowPlan:
    """Return where the declared columns are in a relation's tuples.

    Raises:
        UnfitTable: a column is missing or has another type, or the replica identity does not name rows by the key.
    """
    positions = {column.name: at for at, column in enumerate(relation.columns)}
    for name, type_ in declared.items():
        if name not in positions:
            raise UnfitTable(
                f"it has no column {name}; it has {', '.join(positions)}",
                f"{_PROCESS_FIRST}. Then remove {name} from it, or name the column as it is now, and land again. "
                "A publication with a column list must have it",
            )
        problem = type_problem(relation.columns[positions[name]].type_oid, type_)
        if problem is not None:
            raise UnfitTable(f"its column {name} {problem}", _declare_string(name))
    identity = frozenset(at for at, column in enumerate(relation.columns) if column.is_identity)
    is_full = relation.identity == "f"
    wanted = frozenset(positions[name] for name in key)
    if not is_full and identity != wanted:
        has = ", ".join(relation.columns[at].name for at in sorted(identity)) or "no columns"
        raise UnfitTable(
            f"its replica identity has {has}, and the source's `key` is {', '.join(key)}, so deletes would not say "
            "which row was deleted",
            "make `key` the table's primary key, or ALTER TABLE … REPLICA IDENTITY FULL",
        )
    names = tuple(declared)
    return RowPlan(names, tuple(positions[name] for name in names), tuple(sorted(wanted)), identity, is_full)


def _declare_string(name: str) -> str:
    return (
        f"{_PROCESS_FIRST}. Then correct the type of {name}, and land again: it is read from the same position. "
        "`string` takes the text of every type"
    )
