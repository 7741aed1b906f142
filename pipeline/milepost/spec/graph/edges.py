"""Edges have names: as which an operator's inputs are known on the wire, in channel state and among its late rows."""

from __future__ import annotations

from collections.abc import Sequence

LATE, BAD = ".late", ".bad"
"""Behind an operator's name: its late rows; behind a source's: its records that cannot be read."""

WINDOW_START, WINDOW_END = WINDOW_COLUMNS = ("window_start", "window_end")
"""Columns that every window adds to its rows: its first moment, and the first one after it."""

DELETED_COLUMN = "__deleted"
"""Column (bool, never null) of rows that may be deletes, and of no others: a delete has its key alone, the other
columns are null. No column of a spec begins with "__"."""

RETRACT = ".retract"
"""Behind an operator's name: its updates as rows that are taken back and new ones, each with a weight."""


def columns_of_users(names: Sequence[str]) -> list[str]:
    """Return those of some columns that are not the product's own."""
    return [name for name in names if not name.startswith("__")]


def edge_names(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return a name for each input of an operator: the producer's, and where it is read again, ``orders.2``."""
    return tuple(
        name if name not in inputs[:position] else f"{name}.{inputs[:position].count(name) + 1}"
        for position, name in enumerate(inputs)
    )


def late_output(uid: str, edges: Sequence[str], position: int) -> str:
    """Return the output that holds the late rows of one input: ``<uid>.late``, of several ``<uid>.late.<input>``."""
    return f"{uid}{LATE}" if len(edges) == 1 else f"{uid}{LATE}.{edges[position]}"


def conditions_output(uid: str) -> str:
    """Return the output that holds the rows of an operator's input, each with whether it is a delete."""
    return f"{uid}.marked"
