"""The floor of a landed source's log: where the records that are retained begin (L5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from milepost.codec import Count, Sha256, Text


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
