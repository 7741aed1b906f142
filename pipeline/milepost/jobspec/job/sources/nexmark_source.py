"""Sources of generated Nexmark events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from milepost.jobspec.job.sources.landed_source import LandedSourceSpec, LandRules
from milepost.language import ColumnType, Size, parse_type

_TIME = "timestamp[us, UTC]"

NEXMARK_COLUMNS: Mapping[str, Mapping[str, ColumnType]] = {
    events: {name: parse_type(type_) for name, type_ in columns.items()}
    for events, columns in {
        "person": {
            "id": "int64",
            "name": "string",
            "email": "string",
            "credit_card": "string",
            "city": "string",
            "state": "string",
            "event_time": _TIME,
        },
        "auction": {
            "id": "int64",
            "item": "string",
            "description": "string",
            "initial_bid": "int64",
            "reserve": "int64",
            "expires": _TIME,
            "seller": "int64",
            "category": "int64",
            "event_time": _TIME,
        },
        "bid": {
            "auction": "int64",
            "bidder": "int64",
            "price": "int64",
            "channel": "string",
            "url": "string",
            "event_time": _TIME,
        },
    }.items()
}
"""Kind of event -> the columns of its rows, as in the Nexmark benchmark."""


class LandLimits(LandRules):
    """When the source is landed, and limits on what a landing appends to the log as one record.

    Attributes:
        max_rows: maximum number of rows per record.
        max_bytes: maximum size of these rows in memory. A record has at least one row.
    """

    max_rows: Annotated[int, Field(ge=1)] = 1_000_000
    max_bytes: Annotated[Size, Field(ge=1)] = 256_000_000


class NexmarkSourceSpec(LandedSourceSpec):
    """Generated events of the Nexmark auction benchmark. The same keys always generate the same events.

    The columns follow from `events`. All of them have the column `event_time`.

    Attributes:
        format: always nexmark.
        events: person, auction or bid: the kind of events. Sources with the same `seed` fit together: a bid names an
            auction and a bidder that exist.
        seed: another seed generates other events.
        events_per_second: number of events of all three kinds per second of event time. It does not limit how fast
            events are landed.
        total: number of events of this kind after which the source ends. null: each landing has one more record.
        land: how the source is landed.
    """

    format: Literal["nexmark"]
    events: Literal["person", "auction", "bid"]
    seed: Annotated[int, Field(ge=0)] = 0
    events_per_second: Annotated[int, Field(ge=1)] = 10_000
    total: Annotated[int, Field(ge=1)] | None = None
    land: LandLimits = LandLimits()

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        return NEXMARK_COLUMNS[self.events]

    @property
    def identity(self) -> dict[str, str]:
        keys = {"events": self.events, "seed": self.seed, "events_per_second": self.events_per_second}
        return {"format": self.format, **{key: str(value) for key, value in keys.items()}}

    @property
    def dataset(self) -> tuple[str, str]:
        return self.format, self.events

    @property
    def location(self) -> str:
        return f"nexmark:{self.events}"
