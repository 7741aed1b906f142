"""Names of edges and outputs, on the wire and in state."""

from __future__ import annotations

from collections.abc import Sequence

LATE, BAD, REJECTED = ".late", ".bad", ".rejected"
"""Suffixes: the late rows of an operator, the unreadable records of a source, and the quarantined rows of a sink."""

RULE_COLUMN, OBJECT_COLUMN = REJECTED_COLUMNS = ("_rule", "_object")
"""Columns of quarantined rows: the rules that refuse the row, in the order of the suite, and the source object that it
was read from. The object is null if a stateful operator is in between."""

WINDOW_START, WINDOW_END = WINDOW_COLUMNS = ("window_start", "window_end")
"""Columns of window results: start (inclusive) and end (exclusive)."""

DELETED_COLUMN = "__deleted"
"""Boolean column, never null, of outputs that may contain deletes. A delete has its key; its other columns are null."""

RETRACT = ".retract"
"""Suffix: the updates of an operator as retracted and added rows, each with a weight."""


def user_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that are not reserved."""
    return [name for name in names if not name.startswith("__")]


def edge_names(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return a unique name for each input: the producer's name, or ``orders.2`` if it is read a second time."""
    return tuple(
        name if name not in inputs[:position] else f"{name}.{inputs[:position].count(name) + 1}"
        for position, name in enumerate(inputs)
    )


def late_output(uid: str, edges: Sequence[str], position: int) -> str:
    """Return the output with the late rows of one input: ``<uid>.late``, or ``<uid>.late.<input>`` with several."""
    return f"{uid}{LATE}" if len(edges) == 1 else f"{uid}{LATE}.{edges[position]}"


def conditions_output(uid: str) -> str:
    """Return the output that holds the rows of an operator's input with its condition columns."""
    return f"{uid}.marked"
