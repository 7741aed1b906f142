"""Queries beyond one grouping, each as every system that can say it says it.

All but one of those here read bids alone. Where they have times, these are whole 10 ms: Flink's have no finer ones
than milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

DELAY_MS = 5_000
"""Of the watermark: above the bids' disorder of 2 s, so that no row is late in any system."""

JOIN_S = 10


Opens = Callable[[str], Any]
"""Opens the stream `bids`, or what is static, as a data frame of Spark's."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One query.

    Attributes:
        columns: of the bids that it reads. result: columns of the published table that are compared.
        operators: of Milepost's spec; the last one is `result`. key: of the published table; (): rows are appended.
        answer: DuckDB's, over a table expression of all bids.
        flink: Flink's SELECT over the table `bids`. views: further tables that it reads.
        spark: Structured Streaming's data frame, of a function that opens what it reads by its name; None: it cannot.
        static: static tables that it reads in addition to the stream of bids; "": none.
        order: of the rows that Flink has published of a key, the one that comes first is the newest.
        timed: whether rows have event time. fires: whether what is published waits for the watermark.
        delay_ms: of the watermark.
        streams: columns that it reads, by stream; {}: it reads bids. types: of columns that are not those of bids.
        sql: Milepost's statements, of which the last one publishes. table: what it publishes. Their `views` are
            DuckDB's too.
    """

    columns: tuple[str, ...]
    result: tuple[str, ...]
    operators: tuple[dict[str, Any], ...]
    key: tuple[str, ...]
    answer: Callable[[str], str]
    flink: str
    spark: Callable[[Opens], Any] | None = None
    static: str = ""
    views: tuple[str, ...] = ()
    order: str = ""
    timed: bool = True
    fires: bool = False
    delay_ms: int = DELAY_MS
    streams: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    sql: str = ""
    table: str = "result"

    @property
    def is_limited(self) -> bool:
        """Whether it publishes the first rows alone, so that a key's rows come and go."""
        return "\nLIMIT " in self.sql


def _join_of_spark(opens: Opens) -> Any:
    from pyspark.sql import functions as f

    left, right = opens("bids").alias("l"), opens("bids").alias("r")
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


GAP_MS = 10_005
"""No two rows are so far apart: whether those would be of one session, Spark and Flink on one side and Milepost do not
agree."""

_FIGURES = "count(*) AS bids, sum(price) AS total, max(price) AS highest"


def _session_of_spark(opens: Opens) -> Any:
    from pyspark.sql import functions as f

    session = f.session_window("event_time", f"{GAP_MS} milliseconds").alias("session")
    figures = f.count("*").alias("bids"), f.sum("price").alias("total"), f.max("price").alias("highest")
    found = opens("bids").groupBy("auction", session).agg(*figures)
    borders = f.col("session.start").alias("window_start"), f.col("session.end").alias("window_end")
    return found.select("auction", *borders, "bids", "total", "highest")


SESSION = Statement(
    columns=("auction", "price", "event_time"),
    result=("auction", "window_start", "window_end", "bids", "total", "highest"),
    operators=(
        {"uid": "result", "kind": "window", "inputs": ["bids"], "key": ["auction"],
         "window": {"session": {"gap": f"{GAP_MS}ms"}},
         "aggregates": {"bids": "count(*)", "total": "sum(price)", "highest": "max(price)"}},
    ),
    key=(),
    answer=lambda bids: f"""SELECT auction, min(us) AS window_start, max(us) + {GAP_MS}000 AS window_end,
            count(*) AS bids, sum(price)::BIGINT AS total, max(price) AS highest
        FROM (SELECT *, count(*) FILTER (us - before > {GAP_MS}000)
                  OVER (PARTITION BY auction ORDER BY us ROWS UNBOUNDED PRECEDING) AS session
              FROM (SELECT auction, price, us, lag(us) OVER (PARTITION BY auction ORDER BY us) AS before
                    FROM (SELECT *, epoch_us(event_time) AS us FROM {bids})))
        GROUP BY auction, session
        HAVING max(us) + {GAP_MS}000 <= (SELECT max(epoch_us(event_time)) FROM {bids}) - {DELAY_MS}000""",
    flink=f"""SELECT auction, window_start, window_end, {_FIGURES}
        FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(event_time), INTERVAL '{GAP_MS / 1000}' SECOND))
        GROUP BY auction, window_start, window_end""",
    spark=_session_of_spark,
    fires=True,
)  # fmt: skip


def _latest_of_spark(opens: Opens) -> Any:
    from pyspark.sql import functions as f

    newest = f.max(f.struct("event_time", "price")).alias("newest")
    return opens("bids").groupBy("auction").agg(newest).select("auction", f.col("newest.price").alias("price"))


LATEST = Statement(
    columns=("auction", "price", "event_time"),
    result=("auction", "price"),
    operators=(
        {"uid": "result", "kind": "latest", "inputs": ["bids"], "key": ["auction"],
         "sequence_by": ["event_time", "price"]},
    ),
    key=("auction",),
    answer=lambda bids: f"""SELECT auction, price FROM {bids}
        QUALIFY row_number() OVER (PARTITION BY auction ORDER BY event_time DESC, price DESC) = 1""",
    flink="""SELECT auction, price, event_time FROM (SELECT *, ROW_NUMBER() OVER (
        PARTITION BY auction ORDER BY event_time DESC, price DESC) AS place FROM bids) WHERE place = 1""",
    spark=_latest_of_spark,
    order="event_time DESC, price DESC",
    timed=False,
)  # fmt: skip

NEWEST_FILE = "regexp_extract(filename, '([0-9]+)$', 1)::BIGINT DESC, place DESC"
"""Of the rows that Flink has published of a key: the one that it wrote last."""

RETRACT = Statement(
    columns=("auction",),
    result=("bids", "auctions"),
    operators=(
        {"uid": "totals", "kind": "aggregate", "inputs": ["bids"], "key": ["auction"],
         "aggregates": {"bids": "count(*)"}},
        {"uid": "result", "kind": "aggregate", "inputs": ["totals"], "key": ["bids"],
         "aggregates": {"auctions": "count(*)"}},
    ),
    key=("bids",),
    answer=lambda bids: f"""SELECT bids, count(*) AS auctions
        FROM (SELECT auction, count(*) AS bids FROM {bids} GROUP BY auction) GROUP BY bids""",
    flink="""SELECT bids, count(*) AS auctions
        FROM (SELECT auction, count(*) AS bids FROM bids GROUP BY auction) GROUP BY bids""",
    order=NEWEST_FILE,
    timed=False,
)  # fmt: skip

_BETWEEN_MS = DELAY_MS + 5
"""No row is of the very moment of a watermark: whether it waits for more, Flink and Milepost do not agree."""

ASOF = Statement(
    columns=("auction", "price", "event_time"),
    result=("auction", "price", "offered_ms"),
    operators=(
        {"uid": "asks", "kind": "sql", "inputs": ["bids"],
         "sql": "SELECT auction + 1 AS auction, price, event_time FROM bids WHERE price % 2 = 0"},
        {"uid": "offers", "kind": "sql", "inputs": ["bids"],
         "sql": "SELECT auction, event_time, unix_millis(event_time) AS offered_ms FROM bids"},
        {"uid": "result", "kind": "asof", "inputs": ["asks", "offers"], "key": ["auction"],
         "columns": {"offered_at": "right.event_time"}},
    ),
    key=(),
    answer=lambda bids: f"""SELECT l.auction, l.price, epoch_ms(r.event_time) AS offered_ms
        FROM (SELECT auction + 1 AS auction, price, event_time FROM {bids} WHERE price % 2 = 0) l
        ASOF JOIN (SELECT DISTINCT auction, event_time FROM {bids}) r
        ON l.auction = r.auction AND l.event_time >= r.event_time
        WHERE epoch_us(l.event_time) < (SELECT max(epoch_us(event_time)) FROM {bids}) - {_BETWEEN_MS}000""",
    flink="""SELECT l.auction, l.price, UNIX_TIMESTAMP(CAST(v.event_time AS STRING)) * 1000
            + EXTRACT(MILLISECOND FROM v.event_time) AS offered_ms
        FROM asks l JOIN versions FOR SYSTEM_TIME AS OF l.event_time AS v ON l.auction = v.auction""",
    views=(
        "CREATE VIEW asks AS SELECT auction + 1 AS auction, price, event_time FROM bids WHERE MOD(price, 2) = 0",
        "CREATE TABLE versions (PRIMARY KEY (auction) NOT ENFORCED) LIKE bids",
    ),
    fires=True,
    delay_ms=_BETWEEN_MS,
)  # fmt: skip


def _lookup_of_spark(opens: Opens) -> Any:
    return opens("bids").join(opens(AUCTIONS), "auction").select("auction", "price", "seller", "category")


AUCTIONS = "auctions"
"""The static table: a row of each auction."""

CATEGORIES = 20
SELLS = 10
"""Auctions of one seller."""

LOOKUP = Statement(
    columns=("auction", "price"),
    result=("auction", "price", "seller", "category"),
    operators=({"uid": "result", "kind": "lookup", "inputs": ["bids", AUCTIONS], "key": ["auction"]},),
    key=(),
    answer=lambda bids: (
        f"""SELECT auction, price, auction // {SELLS} AS seller,
        'category ' || auction % {CATEGORIES} AS category FROM {bids}"""
    ),
    flink=f"""SELECT bids.auction, price, seller, category FROM bids
        JOIN {AUCTIONS} ON bids.auction = {AUCTIONS}.auction""",
    spark=_lookup_of_spark,
    static=AUCTIONS,
    timed=False,
)

_OPENED_UNTIL = "2023-11-14 22:15:00"
"""The end of epoch 0, in which every auction has one row: that opens it, and later rows are bids."""

_IN_SPARK, _IN_FLINK = f"TIMESTAMP '{_OPENED_UNTIL}Z'", f"TIMESTAMP '{_OPENED_UNTIL}'"
_IN_DUCKDB = f"TIMESTAMPTZ '{_OPENED_UNTIL}Z'"

UPDATES_JOIN = Statement(
    columns=("auction", "price", "event_time"),
    result=("category_id", "auctions", "total"),
    operators=(
        {"uid": "opened", "kind": "sql", "inputs": ["bids"],
         "sql": f"SELECT auction, auction % {CATEGORIES} AS category_id FROM bids WHERE event_time < {_IN_SPARK}"},
        {"uid": "current", "kind": "latest", "inputs": ["bids"], "key": ["auction"],
         "sequence_by": ["event_time", "price"], "columns": ["auction", "price"]},
        {"uid": "joined", "kind": "join", "inputs": ["current", "opened"], "key": ["auction"]},
        {"uid": "result", "kind": "aggregate", "inputs": ["joined"], "key": ["category_id"],
         "aggregates": {"auctions": "count(*)", "total": "sum(price)"}},
    ),
    key=("category_id",),
    answer=lambda bids: f"""SELECT auction % {CATEGORIES} AS category_id, count(*) AS auctions,
            sum(price)::BIGINT AS total
        FROM (SELECT * FROM {bids} QUALIFY row_number() OVER (
            PARTITION BY auction ORDER BY event_time DESC, price DESC) = 1)
        GROUP BY category_id""",
    flink=f"""SELECT category_id, count(*) AS auctions, sum(price) AS total
        FROM (SELECT l.price, o.category_id FROM (SELECT * FROM (SELECT auction, price, ROW_NUMBER() OVER (
                PARTITION BY auction ORDER BY event_time DESC, price DESC) AS place FROM bids) WHERE place = 1) l
            JOIN (SELECT auction, MOD(auction, {CATEGORIES}) AS category_id FROM bids
                WHERE event_time < {_IN_FLINK}) o ON l.auction = o.auction)
        GROUP BY category_id""",
    order=NEWEST_FILE,
    timed=False,
)  # fmt: skip
"""A bid replaces the last one of its auction, and is joined with the row that opened that auction."""

HOT_KEY = Statement(
    columns=("auction", "price", "event_time"),
    result=("auction", "price", "bids", "total"),
    operators=(
        {"uid": "opened", "kind": "sql", "inputs": ["bids"],
         "sql": f"SELECT auction % 1 AS hot, auction, price FROM bids WHERE event_time < {_IN_SPARK}"},
        {"uid": "later", "kind": "sql", "inputs": ["bids"],
         "sql": f"SELECT auction % 1 AS hot, price FROM bids WHERE event_time >= {_IN_SPARK}"},
        {"uid": "totals", "kind": "aggregate", "inputs": ["later"], "key": ["hot"],
         "aggregates": {"bids": "count(*)", "total": "sum(price)"}},
        {"uid": "joined", "kind": "join", "inputs": ["opened", "totals"], "key": ["hot"]},
        {"uid": "result", "kind": "materialize", "inputs": ["joined"], "key": ["auction"]},
    ),
    key=("auction",),
    answer=lambda bids: f"""SELECT auction, price, t.bids, t.total FROM {bids}
        CROSS JOIN (SELECT count(*) AS bids, sum(price)::BIGINT AS total FROM {bids}
            WHERE event_time >= {_IN_DUCKDB}) t
        WHERE event_time < {_IN_DUCKDB}""",
    flink=f"""SELECT o.auction, o.price, t.bids, t.total
        FROM (SELECT MOD(auction, 1) AS hot, auction, price FROM bids
            WHERE event_time < {_IN_FLINK}) o
        JOIN (SELECT hot, count(*) AS bids, sum(price) AS total
            FROM (SELECT MOD(auction, 1) AS hot, price FROM bids WHERE event_time >= {_IN_FLINK})
            GROUP BY hot) t ON o.hot = t.hot""",
    order=NEWEST_FILE,
    timed=False,
)  # fmt: skip
"""One key has all rows of epoch 0. Each later epoch changes the row that they are joined with."""
