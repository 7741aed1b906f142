"""An external system that forgets what was acknowledged: a lander that acknowledges too early loses rows for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    """Rows 0, 1, 2, … of which those below `earliest` cannot be read any more.

    Attributes:
        produced: rows that exist so far. acknowledged, expired: rows below it are deleted.
    """

    produced: int = 0
    acknowledged: int = 0
    expired: int = 0
    name: str = "numbers"

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
        return {"next": self.system.earliest}

    def next_pull(self, position: Position) -> Pull | None:
        self.on_call("next_pull")
        first = position["next"]
        if first > self.system.produced:
            raise SourceWentBack(f"it has {self.system.produced} rows", **self._bounds())
        end = min(self.target, first + MAX_ROWS)
        if first >= end:
            return None
        middle = (first + end) // 2
        return Pull([(first, middle), (middle, end)], {"next": end})

    def read(self, split: Any) -> Iterator[pa.RecordBatch | Reached]:
        self.on_call("read")
        first, end = split
        if first < end and first < self.system.earliest:
            raise PositionExpired(f"rows before {self.system.earliest} have expired", **self._bounds())
        if first < end:
            yield pa.record_batch([pa.array(range(first, end), pa.int64())], schema=COLUMNS)

    def commit(self, end: Position) -> None:
        self.on_call("commit")
        self.system.acknowledged = max(self.system.acknowledged, end["next"])

    def _bounds(self) -> dict[str, Position]:
        return {"earliest": {"next": self.system.earliest}, "latest": {"next": self.system.produced}}
