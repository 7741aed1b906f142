"""Columns that an operator of a random job can read, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost_testkit.law.rows import SCHEMA

CALLS = (
    {"n": "count(*)", "total": "sum(i)"},
    {"n": "count(*)", "low": "min(x)", "high": "max(f)", "mean": "avg(x)"},
    {"n": "count(i)", "money": "sum(d)", "least": "min(d)", "first": "min(t)", "name": "max(k)"},
    {"n": "count(*)", "sum_x": "sum(x)", "mean_i": "avg(i)"},
    {"n": "count(*)", "spread": "var(i)", "of_x": "stddev(x)", "of_d": "var(d) filter (where b)", "some": "any(b)"},
    {"n": "count(*)", "ks": "count(distinct k)", "xs": "count(distinct x)", "is": "count(distinct i) filter (where b)"},
    {"n": "count(b)", "first_k": "first(k)", "last_x": "last(x)", "at_most": "arg_max(i, d)", "every": "every(b)"},
    {"n": "count(*) filter (where i > 0 and not b)", "total": "sum(d) filter (where x > 1 or k = 'a')",
     "ks": "count(distinct k) filter (where i > 0 and not b)", "some": "any(b) filter (where x IS NULL)"},
    {"n": "count(*) filter (where b)", "total": "sum(i) filter (where b)", "low": "arg_min(k, x) filter (where b)",
     "last_d": "last(d) filter (where b)", "mean": "avg(x) filter (where b)"},
)  # fmt: skip
OVER_UPDATES = (
    {"n": "count(*)", "total": "sum(n)"},
    {"n": "count(*) filter (where n > 1)", "total": "sum(n) filter (where n <> 2 or n IS NULL)"},
    {"n": "count(n)", "mean": "avg(n)", "spread": "var(n)"},
)


def over_updates(
    columns: Sequence[str], flags: Sequence[str] = (), by: str = "n", sums: Sequence[dict[str, str]] = OVER_UPDATES
) -> tuple[dict[str, str], ...]:
    """Return the possible aggregates over updates: sums, values of some columns, and flags."""
    values = tuple(
        one
        for name in columns
        for one in (
            {"n": "count(*)", "low": f"min({name})", "high": f"max({name})", "many": f"count(distinct {name})"},
            {"n": "count(*)", "least": f"arg_min({name}, {by})", "most": f"arg_max({by}, {name})", "top": f"max({by})"},
        )
    )
    of_flags = tuple(
        {"n": "count(*)", "some": f"any({name})", "each": f"every({name})", "low": f"min({by}) filter (where {name})",
         "of_true": f"arg_max({name}, {by}) filter (where {name})",
         "many": f"count(distinct {by}) filter (where {name})"}
        for name in flags
    )  # fmt: skip
    return (*sums, *values, *of_flags)


OVER_CHOSEN = over_updates(
    SCHEMA.names,
    ["b"],
    "i",
    (
        {"n": "count(*)", "total": "sum(i)"},
        {"n": "count(i)", "money": "sum(d)", "mean": "avg(d)", "spread": "var(i)"},
        {"n": "count(*) filter (where b)", "total": "sum(i) filter (where b)", "some": "count(x)"},
        {"n": "count(*)", "sum_x": "sum(x)", "mean": "avg(x)", "of_x": "stddev(x)", "of_b": "sum(x) filter (where b)"},
    ),
)
"""Over rows of `SCHEMA` of which others may take the place."""
BASE_KEYS = (("k",), ("f",), ("k", "f"), ("i",), ("k", "i"))


@dataclass(frozen=True)
class Readable:
    """The columns of a node that an operator may read: possible keys, aggregates of the others, and event time.

    Attributes:
        columns: all columns if a join may read them, those of `SCHEMA` first.
        orders: for updates, columns by which rows may be ranked.
        key: for updates; None if rows are inserted and retracted without a key.
        numbered: whether SQL may read them. value: a numeric column.
    """

    name: str
    keys: tuple[tuple[str, ...], ...]
    calls: tuple[dict[str, str], ...]
    event_time: str
    columns: tuple[str, ...] = ()
    updates: bool = False
    orders: tuple[tuple[str, ...], ...] = (("n",),)
    key: tuple[str, ...] | None = None
    numbered: bool = False
    value: str = "n"
