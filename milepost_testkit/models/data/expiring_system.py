"""An external system that forgets acknowledged rows: a lander that acknowledges too early loses rows permanently.

It can also go back. The rows that follow then are others: row 7 of the first life is 7, that of the second 1,000,007.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from milepost.errors import PositionExpired, SourceWentBack
from milepost.protocol.landed.records import Identity, Position
from milepost.sources.landed.contract import Pull, Reached

MAX_ROWS = 5
"""Of one record."""

COLUMNS = pa.schema([("n", pa.int64())])


OnCall = Callable[[str], None]
"""Called with the name of each call of an opened source. An error that it raises ends the landing there."""


@dataclass
class ExpiringSystem:
    """Rows 0, 1, 2, … of which those below `earliest` can no longer be read.

    Attributes:
        produced: rows that exist so far. acknowledged, expired: rows below it are deleted.
        lives: first row of each life after the first one.
    """

    produced: int = 0
    acknowledged: int = 0
    expired: int = 0
    name: str = "numbers"
    lives: list[int] = field(default_factory=list)

    def value(self, row: int) -> int:
        """Return the value of a row in the life that it is of."""
        return row + 1_000_000 * self.life(row)

    def life(self, row: int) -> int:
        """Return the newest life that begins at or before a row, from 0."""
        return max((number for number, first in enumerate(self.lives, 1) if first <= row), default=0)

    def go_back(self, to: int) -> None:
        """Lose all rows from `to` on, as a failover to a replica that knows of no acknowledgement."""
        if to < self.produced:
            self.lives.append(to)
            self.produced, self.acknowledged = to, 0

    def position(self, end: int) -> Position:
        """Return the position after the rows below `end`, with the life of the last one."""
        life = self.life(end - 1)
        return {"next": end, "life": life} if life else {"next": end}

    def has(self, position: Position) -> bool:
        """Return whether the rows before a position are still those of this system."""
        return position["next"] <= self.produced and self.position(position["next"]) == position

    @property
    def earliest(self) -> int:
        """The first row that can be read."""
        return max(self.acknowledged, self.expired)

    def expire(self, below: int) -> None:
        """Delete rows, whether or not they were acknowledged."""
        self.expired = max(self.expired, min(below, self.produced))

    def open(self, on_call: OnCall = lambda call: None) -> OpenedSystem:
        """Open it for one landing, which ends at the rows of now."""
        return OpenedSystem(self, self.produced, on_call)


@dataclass
class OpenedSystem:
    """A `LandedSource` over an `ExpiringSystem`. A position is the number of the next row."""

    system: ExpiringSystem
    target: int
    on_call: OnCall

    def identity(self) -> Identity:
        return {"name": self.system.name}

    def initial_position(self) -> Position:
        self.on_call("initial_position")
        return self.system.position(self.system.earliest)

    def next_pull(self, position: Position) -> Pull | None:
        self.on_call("next_pull")
        first = position["next"]
        if not self.system.has(position):
            raise SourceWentBack(f"it has {self.system.produced} rows", **self._bounds())
        end = min(self.target, first + MAX_ROWS)
        if first >= end:
            return None
        middle = (first + end) // 2
        return Pull([(first, middle), (middle, end)], self.system.position(end))

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        return next((number for number, end in enumerate(ends) if self.system.has(end)), None)

    def read(self, split: Any) -> Iterator[pa.RecordBatch | Reached]:
        self.on_call("read")
        first, end = split
        if first < end and first < self.system.earliest:
            raise PositionExpired(f"rows before {self.system.earliest} have expired", **self._bounds())
        if first < end:
            values = pa.array(map(self.system.value, range(first, end)), pa.int64())
            yield pa.record_batch([values], schema=COLUMNS)

    def commit(self, end: Position) -> None:
        self.on_call("commit")
        self.system.acknowledged = max(self.system.acknowledged, end["next"])

    def _bounds(self) -> dict[str, Position]:
        return {"earliest": {"next": self.system.earliest}, "latest": {"next": self.system.produced}}
