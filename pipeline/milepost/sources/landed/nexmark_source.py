"""Format `nexmark`: generated events of the Nexmark auction benchmark, the same for the same seed.

Events are numbered over all three kinds. Of each 50, the first is a person, the next 3 are auctions and the other 46
bids, so a bid refers only to persons and auctions with smaller numbers. Event 73 is event 23 of the second 50: with it,
2 persons and 6 auctions exist. A position counts the events of the source's own kind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.protocol.landed import Identity, Position
from milepost.sources.landed.contract import LandedSource, Pull, Reached
from milepost.sources.landed.splitmix import Words, below, splitmix64

_CYCLE = 50
_FIRST = {"person": 0, "auction": 1, "bid": 4}
_PER_CYCLE = {"person": 1, "auction": 3, "bid": 46}
FIRST_ID = 1_000
_RECENT = 100
"""A bid is for one of this many newest auctions, and by one of this many newest persons."""

_BATCH_ROWS = 100_000
_START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_CITIES = pa.array(["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Seattle", "Cheyenne"])
_STATES = pa.array(["AZ", "CA", "CA", "ID", "OR", "OR", "WA", "WY"])
_NAMES = pa.array(["Ada", "Barbara", "Edsger", "Frances", "Grace", "John", "Ken", "Leslie", "Niklaus", "Radia", "Tony"])
_CHANNELS = pa.array(["Apple", "Baidu", "Facebook", "Google"])


def open_nexmark_source(
    identity: Identity,
    schema: pa.Schema,
    *,
    events: str,
    seed: int,
    events_per_second: int,
    total: int | None,
    max_rows: int,
    max_bytes: int,
) -> LandedSource:
    """Open the generator for one landing. Without a total, a landing is one record.

    Args:
        schema: of the events of that kind. The others: as in the spec.
    """
    return _Nexmark(identity, schema, events, seed, events_per_second, total, max_rows, max_bytes)


@dataclass
class _Nexmark:
    source_identity: Identity
    schema: pa.Schema
    events: str
    seed: int
    events_per_second: int
    total: int | None
    max_rows: int
    max_bytes: int
    has_pulled: bool = False

    def identity(self) -> Identity:
        return self.source_identity

    def initial_position(self) -> Position:
        return {"next": 0}

    def next_pull(self, position: Position) -> Pull | None:
        first = int(position["next"])
        end = first + self.max_rows
        if self.total is None:
            is_read, self.has_pulled = self.has_pulled, True
        else:
            end = min(end, self.total)
            is_read = first >= end
        return None if is_read else Pull([range(first, end)], None)

    def read(self, split: Any) -> Iterator[pa.RecordBatch | Reached]:
        at, room = split.start, self.max_bytes
        while at < split.stop and room > 0:
            rows = np.arange(at, min(at + _BATCH_ROWS, split.stop), dtype=np.uint64)
            batch = pa.RecordBatch.from_pydict(dict(self._columns(rows)), schema=self.schema)
            fitting = _rows_within(batch, room) if at > split.start else max(1, _rows_within(batch, room))
            if fitting:
                yield batch.slice(0, fitting)
            at, room = at + fitting, room - batch.nbytes
        yield Reached({"next": at})

    def commit(self, end: Position) -> None:
        """Nothing waits for an acknowledgement."""

    def _columns(self, rows: Words) -> Mapping[str, pa.Array]:
        per_cycle = np.uint64(_PER_CYCLE[self.events])
        event = rows // per_cycle * np.uint64(_CYCLE) + np.uint64(_FIRST[self.events]) + rows % per_cycle
        times = (event * np.uint64(1_000_000) // np.uint64(self.events_per_second)).astype(np.int64) + _START_US
        columns = {"event_time": pa.array(times).cast(pa.timestamp("us", "UTC"))}
        if self.events == "person":
            return columns | self._persons(rows, event)
        return columns | (self._auctions(rows, event, times) if self.events == "auction" else self._bids(event))

    def _persons(self, rows: Words, event: Words) -> dict[str, pa.Array]:
        city = below(self._random(event, 0), len(_CITIES))
        name = _NAMES.take(pa.array(below(self._random(event, 1), len(_NAMES))))
        number = pa.array(rows.astype(np.int64) + FIRST_ID)
        card = pa.array((self._random(event, 2) % np.uint64(10**16)).astype(np.int64)).cast(pa.string())
        return {
            "id": number,
            "name": pc.binary_join_element_wise(name, number.cast(pa.string()), " "),
            "email": pc.binary_join_element_wise(pc.utf8_lower(name), number.cast(pa.string()), "@example."),
            "credit_card": pc.utf8_lpad(card, 16, "0"),
            "city": _CITIES.take(pa.array(city)),
            "state": _STATES.take(pa.array(city)),
        }

    def _auctions(self, rows: Words, event: Words, times: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        number = pa.array(rows.astype(np.int64) + FIRST_ID)
        initial = _price(self._random(event, 0))
        lasts_us = below(self._random(event, 1), 20_000_000).astype(np.int64) + 1_000_000
        return {
            "id": number,
            "item": pc.binary_join_element_wise("item", number.cast(pa.string()), " "),
            "description": pc.binary_join_element_wise("one used item, number", number.cast(pa.string()), " "),
            "initial_bid": pa.array(initial),
            "reserve": pa.array(initial + _price(self._random(event, 2))),
            "expires": pa.array(times + lasts_us).cast(pa.timestamp("us", "UTC")),
            "seller": pa.array(self._person_of(event, 3)),
            "category": pa.array(below(self._random(event, 4), 5).astype(np.int64) + 10),
        }

    def _bids(self, event: Words) -> dict[str, pa.Array]:
        auctions = event // np.uint64(_CYCLE) * np.uint64(3) + np.uint64(3)  # a bid comes after its cycle's auctions
        auction = pa.array(_recent(self._random(event, 0), auctions))
        channel = _CHANNELS.take(pa.array(below(self._random(event, 2), len(_CHANNELS))))
        return {
            "auction": auction,
            "bidder": pa.array(self._person_of(event, 1)),
            "price": pa.array(_price(self._random(event, 3))),
            "channel": channel,
            "url": pc.binary_join_element_wise("https://www.example.com/item?id=", auction.cast(pa.string()), ""),
        }

    def _person_of(self, event: Words, column: int) -> npt.NDArray[np.int64]:
        return _recent(self._random(event, column), event // np.uint64(_CYCLE) + np.uint64(1))

    def _random(self, event: Words, column: int) -> Words:
        """Return one 64-bit number per event, by splitmix64 of (seed, column, event)."""
        stream = splitmix64(np.array([self.seed * 16 + column], dtype=np.uint64))[0]
        with np.errstate(over="ignore"):
            return splitmix64(event + stream)


def _recent(random: Words, count: Words) -> npt.NDArray[np.int64]:
    """Return the id of one of the newest of `count` objects. Half of the time it is the newest multiple of 10."""
    newest = count - np.uint64(1)
    back = np.minimum(random % np.uint64(_RECENT), newest)
    is_hot = (random >> np.uint64(63)).astype(bool)
    drawn = np.where(is_hot, newest - newest % np.uint64(10), newest - back)
    return drawn.astype(np.int64) + FIRST_ID


def _price(random: Words) -> npt.NDArray[np.int64]:
    """Return prices from 100 to 10,000,000 cents, as many of each order of magnitude."""
    unit = (random >> np.uint64(11)).astype(np.float64) / 2.0**53
    return np.round(np.power(10.0, 2.0 + 5.0 * unit)).astype(np.int64)


def _rows_within(batch: pa.RecordBatch, max_bytes: int) -> int:
    """Return how many of the first rows have at most this size in memory."""
    if batch.nbytes <= max_bytes:
        return batch.num_rows
    return max(0, bisect_right(range(batch.num_rows), max_bytes, key=lambda rows: batch.slice(0, rows).nbytes) - 1)
