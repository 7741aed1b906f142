"""What the state of an operator holds, and what bounds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from milepost.language.times import format_duration

OUTPUT_TABLE = "output"
"""The table of rows that an operator has emitted, if it has to retract them."""


@dataclass(frozen=True, slots=True)
class StateBound:
    """What one table of an operator's state holds, and for how long.

    Attributes:
        table: name of the table; "" if the operator has only one.
        holds: description of its rows.
        until: condition under which a row is removed, where W is the time up to which the operator has fired; None:
            never.
        grows_with: what the table grows with without bound; None: it is bounded.
    """

    table: str
    holds: str
    until: str | None = None
    grows_with: str | None = None

    @property
    def text(self) -> str:
        """The bound as text."""
        if self.grows_with is not None:
            return f"grows without bound with: {self.grows_with}"
        return "bounded" if self.until is None else f"bounded: until {self.until}"


@dataclass(frozen=True, slots=True)
class InputMode:
    """The rows of an operator's input, as far as they decide what bounds its state.

    Attributes:
        name: the node that emits them. is_append: whether they are final.
        key: key of updates, () for a single row, None without a key. event_time: column of updates, or None.
    """

    name: str
    is_append: bool
    key: tuple[str, ...] | None = None
    event_time: str | None = None

    @property
    def growth(self) -> str | None:
        """What a table of all its rows grows with."""
        return growth_over_updates(self.name, None if self.is_append else self.key)


def bound_per_key(what: str, key: Sequence[str]) -> StateBound:
    """Return the bound of a table with rows per key, or with one row in total if there is no key."""
    if not key:
        return StateBound("", f"{what} in total")
    return StateBound("", f"{what} per {column_list(key)}", grows_with=f"distinct {column_list(key)}")


def growth_over_updates(name: str, key: Sequence[str] | None) -> str | None:
    """Return what state over updates grows with: it holds all rows that are not retracted.

    Args:
        name: the node that emits the updates. key: key of its rows, () for a single row, or None without a key.
    """
    if key is None:
        return f"rows of {name}"
    return f"distinct {column_list(key)} of {name}" if key else None


def column_list(names: Sequence[str]) -> str:
    """Return column names separated by commas."""
    return ", ".join(names)


def plus(value: timedelta) -> str:
    """Return ` + 5m` or ` − 5m`, and "" for zero."""
    if not value:
        return ""
    return f" + {format_duration(value)}" if value > timedelta(0) else f" − {format_duration(-value)}"
