"""What is measured: one query over the bids, as each system states it, and the answer that DuckDB gives.

A query is stated once here, in SQL's words; the systems translate it. All of them read the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bench.workloads.columns import TYPES
from bench.workloads.examples import (
    NEXMARK_Q3,
    NEXMARK_Q4,
    NEXMARK_Q9,
    NEXMARK_Q20,
    TPCH_Q3,
    TPCH_Q5,
    TPCH_Q10,
    TPCH_Q18,
)
from bench.workloads.language import (
    ASOF,
    DELAY_MS,
    HOT_KEY,
    JOIN,
    LATEST,
    LOOKUP,
    RETRACT,
    SESSION,
    UPDATES_JOIN,
    Statement,
)
from bench.workloads.shapes import ORDERS, Family, Shape, Skew

BIDS = "bids"
"""The stream that most workloads read."""
WINDOW_S = 10

_WINDOW_US = WINDOW_S * 1_000_000
_WINDOW_START = f"epoch_us(event_time) // {_WINDOW_US} * {_WINDOW_US}"

AGGREGATES = {"bids": "count(*)", "total": "sum(price)", "highest": "max(price)"}


class Query(Enum):
    """What is done with the bids, per key."""

    AGGREGATE = "aggregate"
    WINDOW = "window"
    DEDUPLICATE = "deduplicate"
    JOIN = "join"
    SESSION = "session"
    LATEST = "latest"
    RETRACT = "retract"
    ASOF = "asof"
    LOOKUP = "lookup"
    UPDATES_JOIN = "updates-join"
    HOT_KEY = "hot-key"
    NEXMARK_Q3 = "nexmark-q3"
    NEXMARK_Q4 = "nexmark-q4"
    NEXMARK_Q9 = "nexmark-q9"
    NEXMARK_Q20 = "nexmark-q20"
    TPCH_Q3 = "tpch-q3"
    TPCH_Q5 = "tpch-q5"
    TPCH_Q10 = "tpch-q10"
    TPCH_Q18 = "tpch-q18"


@dataclass(frozen=True, slots=True)
class Workload:
    """One query over bids of one shape.

    Attributes:
        key: columns that rows are grouped by. says: for people, in the tables.
        memory: of a JVM that keeps the state on its heap, as `spark.driver.memory` takes it.
    """

    name: str
    says: str
    query: Query
    key: tuple[str, ...]
    shape: Shape
    memory: str = "4g"

    @property
    def statement(self) -> Statement | None:
        """The query, of one beyond a grouping."""
        return STATEMENTS.get(self.query)

    @property
    def is_timed(self) -> bool:
        """Whether rows have event time: else no system needs a watermark."""
        return self.query is Query.WINDOW if self.statement is None else self.statement.timed

    @property
    def fires(self) -> bool:
        """Whether what an epoch publishes waits for the watermark."""
        return self.query is Query.WINDOW if self.statement is None else self.statement.fires

    @property
    def delay_ms(self) -> int:
        """Of the watermark, where rows have event time."""
        return DELAY_MS if self.statement is None else self.statement.delay_ms

    @property
    def replaces(self) -> bool:
        """Whether a published row replaces the last one of its key."""
        return self.query is Query.AGGREGATE if self.statement is None else bool(self.statement.key)

    @property
    def static(self) -> str:
        """Static tables that are read in addition to the stream of bids; "": none."""
        return "" if self.statement is None else self.statement.static

    @property
    def streams(self) -> Mapping[str, tuple[str, ...]]:
        """The columns that the query reads, in the order of the files, by stream."""
        return (self.statement.streams if self.statement is not None else {}) or {BIDS: self.columns}

    @property
    def types(self) -> Mapping[str, str]:
        """The types of columns, those that the query publishes included."""
        return TYPES | (self.statement.types if self.statement is not None else {})

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the query reads, in the order of the files."""
        if self.statement is not None:
            return self.statement.columns
        wanted = {*self.key, "price", *(("event_time",) if self.query is not Query.AGGREGATE else ())}
        return tuple(name for name in ("auction", "bidder", "price", "channel", "url", "event_time") if name in wanted)

    @property
    def result_columns(self) -> tuple[str, ...]:
        """The columns of the published table that are compared."""
        if self.statement is not None:
            return self.statement.result
        if self.query is Query.DEDUPLICATE:
            return self.key
        window = ("window_start", "window_end") if self.query is Query.WINDOW else ()
        return (*self.key, *window, *AGGREGATES)

    def answer_sql(self, bids: str) -> str:
        """DuckDB SQL for the rows that must be published after all of `bids`, a table expression.

        Borders of windows are microseconds since 1970.
        """
        if self.statement is not None:
            return self.statement.answer(bids)
        key = ", ".join(self.key)
        figures = ", ".join(f"CAST({text} AS BIGINT) AS {name}" for name, text in AGGREGATES.items())
        if self.query is Query.AGGREGATE:
            return f"SELECT {key}, {figures} FROM {bids} GROUP BY {key}"
        if self.query is Query.DEDUPLICATE:
            return f"SELECT DISTINCT {key} FROM {bids}"
        start = _WINDOW_START
        return (
            f"SELECT {key}, {start} AS window_start, {start} + {_WINDOW_US} AS window_end, {figures} FROM {bids} "
            f"GROUP BY {key}, {start} "
            f"HAVING {start} + {_WINDOW_US} <= (SELECT max(epoch_us(event_time)) FROM {bids}) - {DELAY_MS * 1_000}"
        )

    def changed_sql(self, bids: str, before: str) -> str:
        """DuckDB SQL that counts the keys of state that one epoch's `bids` change after those of `before`.

        Each row of another stream has a key of its own.
        """
        key = "auction" if self.statement is not None else ", ".join(self.key)
        if self.query is Query.DEDUPLICATE:
            return f"SELECT count(*) FROM (SELECT {key} FROM {bids} EXCEPT SELECT {key} FROM {before})"
        window = f", {_WINDOW_START}" if self.query is Query.WINDOW else ""
        return f"SELECT count(*) FROM (SELECT DISTINCT {key}{window} FROM {bids})"

    def to_json(self) -> dict[str, Any]:
        """The whole workload, as raw results record it and as workers receive it."""
        shape = self.shape
        return {
            "name": self.name,
            "says": self.says,
            "query": self.query.value,
            "key": list(self.key),
            "keys": shape.keys,
            "rows": shape.rows,
            "files": shape.files,
            "skew": shape.skew.value,
            "seed": shape.seed,
            "prefill": shape.prefill,
            "string_bytes": shape.string_bytes,
            "coarse": shape.coarse,
            "family": shape.family.value,
            "memory": self.memory,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Workload:
        """The workload of a record that `to_json` made."""
        shape = Shape(
            document["keys"],
            document["rows"],
            document["files"],
            Skew(document["skew"]),
            document["seed"],
            document["prefill"],
            document["string_bytes"],
            document.get("coarse", False),
            Family(document.get("family", Family.BIDS.value)),
        )
        query, key = Query(document["query"]), tuple(document["key"])
        return cls(document["name"], document["says"], query, key, shape, document["memory"])


STATEMENTS = {
    Query.JOIN: JOIN,
    Query.SESSION: SESSION,
    Query.LATEST: LATEST,
    Query.RETRACT: RETRACT,
    Query.ASOF: ASOF,
    Query.LOOKUP: LOOKUP,
    Query.UPDATES_JOIN: UPDATES_JOIN,
    Query.HOT_KEY: HOT_KEY,
    Query.NEXMARK_Q3: NEXMARK_Q3,
    Query.NEXMARK_Q4: NEXMARK_Q4,
    Query.NEXMARK_Q9: NEXMARK_Q9,
    Query.NEXMARK_Q20: NEXMARK_Q20,
    Query.TPCH_Q3: TPCH_Q3,
    Query.TPCH_Q5: TPCH_Q5,
    Query.TPCH_Q10: TPCH_Q10,
    Query.TPCH_Q18: TPCH_Q18,
}
"""Queries beyond one grouping."""


_EVENTS = Shape(1, family=Family.NEXMARK)
_WITHOUT_BIDS = Shape(1, rows=12_500_000, family=Family.NEXMARK)
"""Events with 1 M persons and auctions."""
_CHANGES = Shape(ORDERS, rows=ORDERS // 100, seed=4, family=Family.TPCH)


def _stated(query: Query, says: str, shape: Shape) -> Workload:
    """Return the workload of an example's query."""
    number = query.value.partition("-")[2]
    of = {Family.NEXMARK: "Nexmark", Family.TPCH: "TPC-H"}[shape.family]
    return Workload(query.value, f"{of} {number}: {says}", query, STATEMENTS[query].key, shape, memory="12g")


def _keyed(name: str, says: str, key: tuple[str, ...], shape: Shape) -> Workload:
    return Workload(name, says, Query.AGGREGATE, key, shape)


WORKLOADS = {
    workload.name: workload
    for workload in (
        _keyed("keyed-10k", "count, sum, max by int64 key, 10 k keys", ("auction",), Shape(10_000)),
        _keyed("keyed-100k", "count, sum, max by int64 key, 100 k keys", ("auction",), Shape(100_000)),
        _keyed("keyed-1m", "count, sum, max by int64 key, 1 M keys", ("auction",), Shape(1_000_000)),
        _keyed("keyed-5m", "count, sum, max by int64 key, 5 M keys", ("auction",), Shape(5_000_000)),
        Workload(
            "window",
            "tumbling window of 10 s with watermark, 100 k keys",
            Query.WINDOW,
            ("auction",),
            Shape(100_000, prefill=False),
        ),
        Workload(
            "deduplicate",
            "first row of each of 10 M int64 keys",
            Query.DEDUPLICATE,
            ("auction",),
            Shape(10_000_000, prefill=False),
        ),
        _keyed("string-1m", "count, sum, max by string key, 1 M keys", ("url",), Shape(1_000_000, string_bytes=True)),
        _keyed(
            "composite-1m", "count, sum, max by (int64, string) key, 1 M keys", ("bidder", "channel"), Shape(1_000_000)
        ),
        _keyed(
            "zipf-1m",
            "count, sum, max by Zipf-skewed int64 key, 1 M keys",
            ("auction",),
            Shape(1_000_000, skew=Skew.ZIPF),
        ),
        Workload(
            "join",
            "interval join of 1 M bids with 1 M bids of 1 M keys, within 10 s",
            Query.JOIN,
            ("auction",),
            Shape(1_000_000, prefill=False, coarse=True),
        ),
        Workload(
            "session",
            "session windows with a gap of 10 s, 100 k keys",
            Query.SESSION,
            ("auction",),
            Shape(100_000, prefill=False, coarse=True),
        ),
        Workload(
            "latest", "newest of 1 M changes, 1 M keys", Query.LATEST, ("auction",), Shape(1_000_000, coarse=True)
        ),
        Workload("retract", "how many of 1 M keys have how many rows", Query.RETRACT, ("bids",), Shape(1_000_000)),
        Workload(
            "asof",
            "500 k rows joined as-of with 1 M versions of 1 M keys",
            Query.ASOF,
            ("auction",),
            Shape(1_000_000, prefill=False, coarse=True),
        ),
        Workload(
            "lookup",
            "1 M rows with what a static table of 100 k rows has of their key",
            Query.LOOKUP,
            ("auction",),
            Shape(100_000, prefill=False),
        ),
        Workload(
            "updates-join",
            "join over updates: 1 M changes against 5 M rows",
            Query.UPDATES_JOIN,
            ("category_id",),
            Shape(5_000_000, coarse=True),
            memory="12g",
        ),
        Workload(
            "hot-key",
            "join over updates: one key has 1 M rows, and each epoch changes all of them",
            Query.HOT_KEY,
            ("auction",),
            Shape(1_000_000, rows=10_000),
        ),
        _stated(Query.NEXMARK_Q3, "persons who sell in a category", _WITHOUT_BIDS),
        _stated(Query.NEXMARK_Q4, "the mean closing price of each category", _EVENTS),
        _stated(Query.NEXMARK_Q9, "the winning bid of each auction", _EVENTS),
        _stated(Query.NEXMARK_Q20, "bids with their auction, of one category", _EVENTS),
        _stated(Query.TPCH_Q3, "the ten orders that were not shipped with the highest revenue", _CHANGES),
        _stated(Query.TPCH_Q5, "the revenue of each nation of a region by its own suppliers", _CHANGES),
        _stated(Query.TPCH_Q10, "the twenty customers who returned most", _CHANGES),
        _stated(Query.TPCH_Q18, "the hundred largest orders", _CHANGES),
    )
}
