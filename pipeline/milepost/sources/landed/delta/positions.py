"""Positions in a Delta table. Pure.

::

    {"initial": 7, "file": 3, "digest": "5f70bf…"}      3 files of the table as of version 7 are read
    {"version": 7, "file": null, "digest": "5f70bf…"}   everything up to version 7 is read
    {"version": 8, "file": 2, "digest": "c00fa1…"}      and 2 of the files that version 8 added
    {"version": null, "file": null, "digest": null}     nothing is read
    {"version": 8, "file": 0, "digest": "5f70bf…"}      everything up to version 7, in logs of earlier versions

The digest is that of the newest commit that is read. It shows that a table was restored from an older copy and then
written to.
"""

from __future__ import annotations

from dataclasses import dataclass

from milepost.protocol.landed import Position


@dataclass(frozen=True, slots=True)
class DeltaPosition:
    """A position in the commits of a table.

    Attributes:
        version: that is read next. file: number of its files that are read.
        is_initial: whether its files are all of the table as of the version, not those that its commit added.
        digest: SHA-256 of the commit `landed`; None: the log no longer had it.
    """

    version: int
    file: int = 0
    is_initial: bool = False
    digest: str | None = None

    @property
    def landed(self) -> int:
        """The newest version of which anything is read."""
        return self.version if self.is_initial or self.file else self.version - 1

    def encode(self) -> Position:
        """Return the position that is stored in the log."""
        if self.is_initial:
            return {"initial": self.version, "file": self.file, "digest": self.digest}
        landed = self.landed if self.landed >= 0 else None
        return {"version": landed, "file": self.file or None, "digest": self.digest}

    @classmethod
    def decode(cls, position: Position) -> DeltaPosition:
        """Return the position that was stored."""
        is_initial = "initial" in position
        version, file = position["initial" if is_initial else "version"], position["file"]
        if file is None:
            version, file = 0 if version is None else version + 1, 0
        return cls(version, file, is_initial, position["digest"])
