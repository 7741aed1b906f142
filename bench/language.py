"""Queries beyond one grouping, each as every system that can say it says it.

All read bids alone, whose times have milliseconds here: Flink's times have no finer ones in their watermarks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

JOIN_S = 10


@dataclass(frozen=True, slots=True)
class Statement:
    """One query.

    Attributes:
        columns: of the bids that it reads. result: columns of the published table that are compared.
        operators: of Milepost's spec; the last one is `result`. key: of the published table; (): rows are appended.
        answer: DuckDB's, over a table expression of all bids.
        flink: Flink's SELECT over the table `bids`.
        spark: Structured Streaming's data frame, of a function that opens the stream of bids; None: it cannot.
    """

    columns: tuple[str, ...]
    result: tuple[str, ...]
    operators: tuple[dict[str, Any], ...]
    key: tuple[str, ...]
    answer: Callable[[str], str]
    flink: str
    spark: Callable[[Callable[[], Any]], Any] | None


def _join_of_spark(bids: Callable[[], Any]) -> Any:
    from pyspark.sql import functions as f

    left, right = bids().alias("l"), bids().alias("r")
    near = f"r.event_time BETWEEN l.event_time AND l.event_time + INTERVAL {JOIN_S} SECONDS"
    pairs = left.join(right, f.expr(f"l.auction = r.auction AND {near}"))
    return pairs.select("l.auction", "l.price", f.col("r.price").alias("next_price"))


JOIN = Statement(
    columns=("auction", "price", "event_time"),
    result=("auction", "price", "next_price"),
    operators=(
        {"uid": "result", "kind": "join", "inputs": ["bids", "bids"], "key": ["auction"],
         "within": ["0s", f"{JOIN_S}s"],
         "columns": {"next_price": "right.price", "next_time": "right.event_time"}},
    ),
    key=(),
    answer=lambda bids: f"""SELECT l.auction, l.price, r.price AS next_price FROM {bids} l JOIN {bids} r
        ON l.auction = r.auction AND r.event_time BETWEEN l.event_time AND l.event_time + INTERVAL {JOIN_S} SECOND""",
    flink=f"""SELECT l.auction, l.price, r.price AS next_price FROM bids l JOIN bids r
        ON l.auction = r.auction AND r.event_time BETWEEN l.event_time AND l.event_time + INTERVAL '{JOIN_S}' SECOND""",
    spark=_join_of_spark,
)  # fmt: skip
