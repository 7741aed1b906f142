"""Positions in the snapshots of an Iceberg branch. Pure.

::

    {"initial": 41, "sequence": 7, "file": 3}         3 files of the table as of snapshot 41 are read
    {"snapshot": 41, "sequence": 7, "file": null}     everything up to snapshot 41 is read
    {"snapshot": 57, "sequence": 8, "file": 2}        everything before snapshot 57, and 2 of the files that it added
    {"snapshot": null, "sequence": 0, "file": null}   nothing is read: the table had no snapshot

Where snapshots are expired, some catalogs keep the id of the parent in the snapshot after them, and others remove it.
The sequence number then shows whether a snapshot in between is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from milepost.protocol.landed import Position


@dataclass(frozen=True, slots=True)
class IcebergPosition:
    """A position in the snapshots of a branch.

    Attributes:
        snapshot: the newest one of which anything is read; None: none. sequence: its number in the table, from 1.
        file: number of its files that are read; None: all.
        is_initial: whether its files are all of the table as of the snapshot, not those that it added.
    """

    snapshot: int | None
    sequence: int
    file: int | None = None
    is_initial: bool = False

    def encode(self) -> Position:
        """Return the position that is stored in the log."""
        kind = "initial" if self.is_initial else "snapshot"
        return {kind: self.snapshot, "sequence": self.sequence, "file": self.file}

    @classmethod
    def decode(cls, position: Position) -> IcebergPosition:
        """Return the position that was stored."""
        is_initial = "initial" in position
        snapshot = position["initial" if is_initial else "snapshot"]
        return cls(snapshot, position["sequence"], position["file"], is_initial)
