"""The floor of a landed source's log: where the records that are retained begin (L5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from milepost.codec import Count, Sha256, Text
from milepost.protocol.records.layout import landed_place


@dataclass(frozen=True, slots=True)
class LogFloor:
    """Where the retained records of one source's log begin. Records below it are deleted, or will be.

    It has the fields of a checkpoint's position in that log, so a walk can begin here and still verify the chain.

    Attributes:
        next: sequence of the first retained record.
        digest: SHA-256 of the record before it.
        at: position in the external system from which record `next` starts.
        total_rows, total_bytes, total_objects: of all records before `next`.
    """

    source: Text
    log: Text
    next: int
    digest: Sha256
    at: Any
    total_rows: Count
    total_bytes: Count
    total_objects: Count

    def check(self) -> str | None:
        """Return why this cannot be a floor, or None."""
        return None if self.next >= 2 else f"expected a floor after record 1, got next {self.next}"


def is_below_floor(entry: str, floors: Iterable[LogFloor]) -> bool:
    """Return whether a key or directory belongs to a record below the floor of its log. False for any other entry.

    With the floor of `clicks` at record 4, ``landed/clicks/objects/00000000000000000003/`` is below it.
    """
    place = landed_place(entry)
    return place is not None and any(floor.source == place[0] and place[1] < floor.next for floor in floors)
