"""The types of columns, in the words of Milepost's specs. The systems translate them."""

from __future__ import annotations

from collections.abc import Mapping

_TIME = "timestamp[us, UTC]"

TYPES: Mapping[str, str] = {
    # of bids, and of what the queries over bids publish
    "auction": "int64",
    "bidder": "int64",
    "price": "int64",
    "channel": "string",
    "url": "string",
    "event_time": _TIME,
    "window_start": _TIME,
    "window_end": _TIME,
    "bids": "int64",
    "total": "int64",
    "highest": "int64",
    "next_price": "int64",
    "offered_ms": "int64",
    "auctions": "int64",
    "seller": "int64",
    "category": "string",
    "category_id": "int64",
    "opening": "int64",
}
NEXMARK: Mapping[str, str] = {
    "id": "int64",
    "name": "string",
    "city": "string",
    "state": "string",
    "item": "string",
    "initial_bid": "int64",
    "expires": _TIME,
    "category": "int64",
    "mean": "float64",
}
"""Of Nexmark's persons and auctions, and of what its queries compute; the others are those of bids."""

_MONEY = "decimal(15,2)"
TPCH: Mapping[str, str] = {
    **dict.fromkeys(("r_regionkey", "n_nationkey", "n_regionkey", "s_nationkey", "c_nationkey"), "int32"),
    **dict.fromkeys(("l_linenumber", "o_shippriority"), "int32"),
    **dict.fromkeys(("s_suppkey", "c_custkey", "o_orderkey", "o_custkey", "l_orderkey", "l_suppkey", "seq"), "int64"),
    **dict.fromkeys(("c_acctbal", "o_totalprice", "l_quantity", "l_extendedprice", "l_discount"), _MONEY),
    **dict.fromkeys(("o_orderdate", "l_shipdate"), "date"),
    **dict.fromkeys(("r_name", "n_name", "c_name", "c_address", "c_phone", "c_mktsegment", "c_comment"), "string"),
    **dict.fromkeys(("l_returnflag", "op"), "string"),
    "revenue": "decimal(38,4)",
    "sum_qty": "decimal(38,2)",
}
"""Of TPC-H's changes, and of what its queries compute."""
