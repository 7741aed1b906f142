"""Rows that a node emits, and checks of operators' inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.language import ColumnType, Path, Problem, did_you_mean

APPEND, UPDATES, RETRACTIONS = "append", "updates", "retract"
"""Output modes. append: rows are final. updates: a row replaces the previous one with its key. retract: rows without a
key are retracted."""

Columns = dict[str, ColumnType | None]
"""Column -> type, in order. None: only Spark knows the type."""


@dataclass(frozen=True, slots=True)
class OutputRows:
    """The rows that a node emits: columns in order, event time column, mode and key.

    Attributes:
        shift_us, holdback_us, deletes: as in `Node`.
        retracts: whether operators may read its updates, because the producer also emits the rows they replace.
        repeats_keys: for append rows, whether a later row may have the key of an earlier one.
        columns_known: whether the columns are known. They are not downstream of a process operator whose class was not
            loaded (`lint` and DAG files load none). Column names are then not checked, and event time and key are
            assumed to be kept.
    """

    columns: Columns
    event_time: str | None
    kind: str
    key: tuple[str, ...]
    columns_known: bool = True
    shift_us: int = 0
    holdback_us: int = 0
    deletes: bool = False
    retracts: bool = False
    repeats_keys: bool = False

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        """Columns that no two current rows have in common, () for a single row; None: there are none."""
        return self.key if self.kind == UPDATES or (self.key and not self.repeats_keys) else None

    def type_of(self, column: str | None) -> ColumnType | None:
        """Return a column's type, or None if it is not known."""
        return self.columns.get(column) if column is not None else None


def nanosecond_problems(name: str, rows: OutputRows, path: Path) -> list[Problem]:
    """Return a problem for each column with nanoseconds. Whole rows pass through Spark, which has microseconds."""
    return [
        Problem(
            path,
            f"{name} has the column {column} of type {type_}, but Spark has only microseconds, so precision would be "
            "lost; declare it in microseconds, or as string or int64",
        )
        for column, type_ in rows.columns.items()
        if type_ is not None and _has_nanoseconds(type_)
    ]


def _has_nanoseconds(type_: ColumnType) -> bool:
    inner = [type_.element] if type_.element is not None else [field for _, field in type_.fields]
    return type_.unit == "ns" or any(map(_has_nanoseconds, inner))


def append_problems(kind: str, name: str, rows: OutputRows, path: Path, position: int = 0) -> list[Problem]:
    """Return a problem if an input of an operator that needs append rows is updates."""
    if rows.kind == APPEND:
        return []
    return [
        Problem(
            (*path, "inputs", position), f"{kind} over updates (the rows of {name}) is not available in this version"
        )
    ]


def event_time_problems(what: str, name: str, rows: OutputRows, path: Path, position: int = 0) -> list[Problem]:
    """Return a problem if an input of an operator that needs an event time has none."""
    if rows.event_time is not None:
        return []
    message = (
        f"{what} needs an event time, but the rows of {name} have none: set `event_time` in the source, and select "
        "that column (after a window: window_end) under its name in sql"
    )
    return [Problem((*path, "inputs", position), message)]


def key_problems(key: tuple[str, ...], name: str, rows: OutputRows, path: Path) -> list[Problem]:
    """Return problems of key columns that the input does not have or that are nested."""
    return scalar_problems("a key", key, name, rows, (*path, "key"))


def scalar_problems(what: str, columns: Sequence[str], name: str, rows: OutputRows, path: Path) -> list[Problem]:
    """Return problems of columns that the input does not have, or that are lists or structs.

    Args:
        what: what the columns are used for, in messages: "a key". path: path of the list of columns.
    """
    problems = []
    for index, column in enumerate(columns):
        if column not in rows.columns and not rows.columns_known:
            continue
        if column not in rows.columns:
            message = f"{name} has no column {column}; {did_you_mean(column, rows.columns)}"
        elif (type_ := rows.type_of(column)) is not None and type_.is_nested:
            message = f"{column} is {type_}; {what} cannot contain lists or structs"
        else:
            continue
        problems.append(Problem((*path, index), message))
    return problems
