"""Positions in the changes of a Postgres table. Pure.

::

    {"lsn": "0/1AF7CA0", "timeline": 1, "system_id": "7437…", "slot": "milepost_shop_orders_4f1d09a2b6c3"}
        transactions with a commit record before this LSN are landed
    {…, "copy": {"after": ["50000"], "since": 758, "time_us": 1767225600000000}}
        rows of the initial copy with a key up to 50000 are landed; the LSN is the slot's consistent point
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.protocol.landed import Position
from milepost.sources.landed.postgres.pgoutput import lsn_text, parse_lsn


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """How far a table was copied.

    Attributes:
        after: texts of the key up to which it was copied; None: nothing was copied yet.
        since: transactions with an older id must have ended before the first row is read: they may be committed
            before the consistent point, and not be visible yet.
        time_us: the time of the rows. Each change is later.
    """

    after: tuple[str, ...] | None
    since: int
    time_us: int

    def encode(self) -> dict[str, Any]:
        """Return the part of a stored position."""
        return {"after": None if self.after is None else list(self.after), "since": self.since, "time_us": self.time_us}

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> CopyPosition:
        """Return what `encode` encoded."""
        after = value["after"]
        return cls(None if after is None else tuple(after), value["since"], value["time_us"])


@dataclass(frozen=True, slots=True)
class SlotPosition:
    """A position in the changes that a slot has.

    Attributes:
        lsn: transactions with a commit record before it are landed. copy: None: the copy is complete.
    """

    lsn: int
    timeline: int
    system_id: str
    slot: str
    copy: CopyPosition | None = None

    def encode(self) -> Position:
        """Return the position that is stored in the log."""
        value = {"lsn": lsn_text(self.lsn), "timeline": self.timeline, "system_id": self.system_id, "slot": self.slot}
        return value if self.copy is None else {**value, "copy": self.copy.encode()}

    @classmethod
    def decode(cls, position: Position) -> SlotPosition:
        """Return a stored position."""
        lsn, copy = parse_lsn(position["lsn"]), position.get("copy")
        copying = None if copy is None else CopyPosition.decode(copy)
        return cls(lsn, position["timeline"], position["system_id"], position["slot"], copying)
