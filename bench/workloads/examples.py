"""Queries that Milepost's examples state in SQL: their text is what DuckDB answers, and Flink's where it can say it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.workloads.columns import NEXMARK, TPCH
from bench.workloads.language import NEWEST_FILE, Statement
from milepost_testkit.specs.sql_statements import query_of, statements
from milepost_testkit.tpch.tables import KEYS

_EXAMPLES = Path(__file__).resolve().parents[2] / "config" / "examples"
_TEXTS = {name: statements((_EXAMPLES / name / f"{name}.sql").read_text()) for name in ("nexmark", "tpch")}


def _statement(
    names: Sequence[str],
    texts: Mapping[str, str],
    *,
    streams: Mapping[str, tuple[str, ...]],
    result: Sequence[str],
    key: tuple[str, ...],
    types: Mapping[str, str],
    flink: str = "",
    views: Sequence[str] = (),
    operators: Sequence[dict[str, Any]] = (),
) -> Statement:
    """Return the query of the last of some statements. Args: flink: the query in Flink's words, if they differ."""
    *before, last = (texts[name] for name in names)
    query = query_of(last)
    return Statement(
        columns=(),
        result=tuple(result),
        operators=tuple(operators),
        key=key,
        answer=lambda _: query,
        flink=flink or query,
        views=(*views, *before),
        order=NEWEST_FILE,
        timed=False,
        streams=streams,
        types=types,
        sql=";\n\n".join((*before, last)) + ";\n",
        table=names[-1],
    )


_EVENTS = {
    "person": ("id", "name", "city", "state", "event_time"),
    "auction": ("id", "item", "initial_bid", "expires", "seller", "category", "event_time"),
    "bid": ("auction", "bidder", "price", "channel", "event_time"),
}


def _nexmark(*names: str, result: str, key: tuple[str, ...] = (), flink: str = "") -> Statement:
    kinds = ("auction", "person") if names == ("q3",) else ("auction", "bid")
    streams = {kind: _EVENTS[kind] for kind in kinds}
    columns = result.split()
    return _statement(names, _TEXTS["nexmark"], streams=streams, result=columns, key=key, types=NEXMARK, flink=flink)


NEXMARK_Q3 = _nexmark("q3", result="name city state id")
NEXMARK_Q4 = _nexmark(
    "closed", "q4", result="category mean", key=("category",),
    flink="SELECT category, avg(CAST(final AS DOUBLE)) AS mean FROM closed GROUP BY category",
)  # fmt: skip
NEXMARK_Q9 = _nexmark(
    "q9", result="id item seller bidder price event_time", key=("id",),
    flink="""SELECT id, item, seller, bidder, price, event_time FROM (SELECT *, ROW_NUMBER() OVER (
            PARTITION BY id ORDER BY price DESC, event_time) AS place
        FROM (SELECT a.id, a.item, a.seller, b.bidder, b.price, b.event_time FROM auction a JOIN bid b
            ON a.id = b.auction WHERE b.event_time BETWEEN a.event_time AND a.expires)) WHERE place = 1""",
)  # fmt: skip
NEXMARK_Q20 = _nexmark("q20", result="auction bidder price channel event_time item initial_bid expires seller")

TABLES = {
    "region": "r_regionkey r_name",
    "nation": "n_nationkey n_name n_regionkey",
    "supplier": "s_suppkey s_nationkey",
    "customer": "c_custkey c_name c_address c_nationkey c_phone c_acctbal c_mktsegment c_comment",
    "orders": "o_orderkey o_custkey o_totalprice o_orderdate o_shippriority",
    "lineitem": "l_orderkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_returnflag l_shipdate",
}
"""Columns of each table that the queries read."""


CHANGE = ("op", "seq")
"""Columns of each change."""


def changes_of(table: str) -> str:
    """Return the stream of a table's changes."""
    return f"{table}_changes"


def _tpch(name: str, tables: str, *, result: str, key: tuple[str, ...]) -> Statement:
    text = re.findall(r"\w+", _TEXTS["tpch"][name])
    columns = {
        table: tuple(one for one in TABLES[table].split() if one in text or one in KEYS[table])
        for table in tables.split()
    }
    views, operators = [], []
    for table, own in columns.items():
        changes = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {', '.join(KEYS[table])} ORDER BY seq DESC) AS place"
        newest = f"SELECT * FROM ({changes} FROM {changes_of(table)}) WHERE place = 1"
        views.append(f"CREATE VIEW {table} AS SELECT {', '.join(own)} FROM ({newest}) WHERE op <> 'D'")
        operators.append(
            {"uid": table, "kind": "latest", "inputs": [changes_of(table)], "key": list(KEYS[table]),
             "sequence_by": ["seq"], "delete_when": "op = 'D'"}
        )  # fmt: skip
    streams = {changes_of(table): (*own, *CHANGE) for table, own in columns.items()}
    return _statement(
        (name,), _TEXTS["tpch"], streams=streams, result=result.split(), key=key, types=TPCH, views=views,
        operators=operators,
    )  # fmt: skip


TPCH_Q3 = _tpch(
    "q03", "customer orders lineitem", result="l_orderkey revenue o_orderdate o_shippriority", key=("l_orderkey",)
)
TPCH_Q5 = _tpch("q05", "customer orders lineitem supplier nation region", result="n_name revenue", key=("n_name",))
TPCH_Q10 = _tpch(
    "q10", "customer orders lineitem nation", key=("c_custkey",),
    result="c_custkey c_name revenue c_acctbal n_name c_address c_phone c_comment",
)  # fmt: skip
TPCH_Q18 = _tpch(
    "q18", "customer orders lineitem", key=("o_orderkey",),
    result="c_name c_custkey o_orderkey o_orderdate o_totalprice sum_qty",
)  # fmt: skip
