"""Positions in the log of a landed source, and the floor where its retained records begin (L5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from milepost.codec import Count, Sha256, Text
from milepost.protocol.records.layout import landed_place

Position = Any
"""A position in the external system: a JSON value that only the source understands."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far a checkpoint has read a log.

    Attributes:
        next: sequence of the first record that it has not read.
        digest: SHA-256 of the record before `next`, which pins all of the log that was read.
        at: position in the external system from which record `next` starts.
        total_rows, total_bytes, total_objects: of all records before `next`.
    """

    log: Text
    next: int
    digest: Sha256
    at: Position
    total_rows: Count
    total_bytes: Count
    total_objects: Count

    def check(self) -> str | None:
        """Return why this cannot be a position, or None."""
        return None if self.next >= 2 else f"expected a position after record 1, got next {self.next}"

    @property
    def totals(self) -> tuple[int, Position, int, int, int]:
        """All but the log that it is a position of."""
        return self.next, self.at, self.total_rows, self.total_bytes, self.total_objects


@dataclass(frozen=True, slots=True)
class LogFloor(LogPosition):
    """Where the retained records of one source's log begin. Records below it are deleted, or will be.

    It extends a position because the stored manifest has all fields of a floor on one level.
    """

    source: Text


def is_below_floor(entry: str, floors: Iterable[LogFloor]) -> bool:
    """Return whether a key or directory belongs to a record below the floor of its log. False for any other entry.

    With the floor of `clicks` at record 4, ``landed/clicks/objects/00000000000000000003/`` is below it.
    """
    place = landed_place(entry)
    return place is not None and any(floor.source == place[0] and place[1] < floor.next for floor in floors)
