"""An interval join with bounds that are columns of the left row gives DuckDB's join, however rows are cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost.operators.join.run as interval_join
from milepost.operators.contract import OperatorInput
from milepost.operators.join.row_bound import BothBounds, Bound, RowBound
from milepost.operators.join.run import IntervalJoinByKey, JoinShape
from milepost_testkit import profiles
from milepost_testkit.tasks.operators.two_inputs import TwoInputRun

MINUTE = timedelta(minutes=1)
UTC_US = pa.timestamp("us", "UTC")
AUCTIONS = pa.schema(
    [("id", pa.int64()), ("at", UTC_US), ("expires", pa.timestamp("ms")), ("n", pa.int64()), ("opens", UTC_US)]
)
BIDS = pa.schema([("auction", pa.int64()), ("bid_at", UTC_US), ("price", pa.int64())])
HOWS = ("inner", "left", "right", "full", "semi", "anti")


@dataclass(frozen=True)
class Bounds:
    """Minutes after the event time of an auction.

    Attributes:
        low: the first one. most: the last one, if there is one. opens, expires: whether the columns bound them as well.
    """

    low: int = 0
    opens: bool = False
    most: int | None = None
    expires: bool = True

    @property
    def within(self) -> tuple[Bound, Bound]:
        low, opens, expires = self.low * MINUTE, RowBound("opens", "at"), RowBound("expires", "at")
        first = BothBounds(low, opens) if self.opens else low
        if self.most is None:
            return first, expires
        return first, BothBounds(self.most * MINUTE, expires) if self.expires else self.most * MINUTE

    @property
    def near(self) -> str:
        """The matches in SQL: a null matches nothing."""
        near = f"r.auction = l.id AND r.bid_at >= l.at + INTERVAL ({self.low}) MINUTE"
        near += " AND r.bid_at >= l.opens" if self.opens else ""
        near += " AND r.bid_at <= l.expires" if self.has_end else ""
        return near + ("" if self.most is None else f" AND r.bid_at <= l.at + INTERVAL ({self.most}) MINUTE")

    @property
    def has_end(self) -> bool:
        return self.expires or self.most is None

    @property
    def last(self) -> str:
        """The microsecond of the last match of an auction; null if it can have none."""
        most = "" if self.most is None else f"epoch_us(l.at + INTERVAL ({self.most}) MINUTE)"
        own = "epoch_us(l.expires)" if self.has_end else ""
        last = f"CASE WHEN l.expires IS NOT NULL THEN least({most}, {own}) END" if most and own else most or own
        first = f"greatest(epoch_us(l.opens), epoch_us(l.at + INTERVAL ({self.low}) MINUTE))"
        return f"CASE WHEN l.opens IS NOT NULL AND {first} <= {last} THEN {last} END" if self.opens else last


def joined(bounds: Bounds = Bounds(), how: str = "inner") -> IntervalJoinByKey:
    inputs = [OperatorInput(AUCTIONS, "at"), OperatorInput(BIDS, "bid_at")]
    return IntervalJoinByKey("joined", JoinShape([("id", "auction")], bounds.within, how, {}), inputs)


def at(minute: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + minute * MINUTE


def us(minute: float) -> int:
    return int(at(minute).timestamp()) * 1_000_000


def auctions(*rows: tuple[Any, ...]) -> pa.Table:
    """Return rows of (id, minute, last minute, number). The number decides the first minute: null for 0."""
    columns = [
        [id_, at(begin), None if end is None else at(end).replace(tzinfo=None), n, at(begin + 2 * n - 4) if n else None]
        for id_, begin, end, n in rows
    ]
    return pa.table(list(zip(*columns, strict=True)) if rows else [[] for _ in AUCTIONS], schema=AUCTIONS)


def bids(*rows: tuple[Any, ...]) -> pa.Table:
    columns = [[auction, at(minute), price] for auction, minute, price in rows]
    return pa.table(list(zip(*columns, strict=True)) if rows else [[] for _ in BIDS], schema=BIDS)


def expected_rows(how: str, bounds: Bounds, firing_us: int | None) -> str:
    near, low = bounds.near, bounds.low
    past = "false" if firing_us is None else f"coalesce({bounds.last} < {firing_us}, true)"
    alone = f"NOT EXISTS (SELECT 1 FROM r WHERE {near}) AND (l.id IS NULL OR {past})"
    if how == "semi":
        return f"SELECT * FROM l WHERE EXISTS (SELECT 1 FROM r WHERE {near})"
    if how == "anti":
        return f"SELECT * FROM l WHERE {alone}"
    rows = f"SELECT l.*, r.bid_at, r.price FROM l JOIN r ON {near}"
    if how in ("left", "full"):
        rows += f" UNION ALL SELECT *, NULL, NULL FROM l WHERE {alone}"
    if how in ("right", "full"):
        past = "false" if firing_us is None else f"epoch_us(r.bid_at + INTERVAL ({-low}) MINUTE) < {firing_us}"
        alone = f"NOT EXISTS (SELECT 1 FROM l WHERE {near}) AND (r.auction IS NULL OR {past})"
        rows += f" UNION ALL SELECT auction, bid_at, NULL, NULL, NULL, bid_at, price FROM r WHERE {alone}"
    return rows


keys, minutes = st.sampled_from([None, 1, 2]), st.integers(0, 12)
pieces = st.lists(
    st.one_of(
        st.lists(
            st.tuples(keys, minutes, st.one_of(st.none(), st.integers(-2, 20)), st.integers(0, 4)), max_size=6
        ).map(lambda rows: (0, auctions(*rows))),
        st.lists(st.tuples(keys, minutes, st.integers(0, 1)), max_size=6).map(lambda rows: (1, bids(*rows))),
    ),
    max_size=4,
)
histories = st.lists(st.tuples(pieces, st.sampled_from([1, 2, 3]), st.integers(0, 4)), min_size=1, max_size=6)


some_bounds = st.builds(
    Bounds, st.integers(-3, 3), st.booleans(), st.one_of(st.none(), st.integers(3, 8)), st.booleans()
)


@pytest.mark.long
@profiles.examples(share=0.4)
@given(how=st.sampled_from(HOWS), history=histories, bounds=some_bounds, at_once=st.sampled_from([1, 10**6]))
def test_rows_are_those_of_duckdb_whatever_the_cut(
    tmp_path_factory: pytest.TempPathFactory, how: str, history: Any, bounds: Bounds, at_once: int
) -> None:
    """Over epochs and rescales. State has the rows that can still match."""
    operator = joined(bounds, how)
    run = TwoInputRun(operator, tmp_path_factory.mktemp("join"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval_join, "OUTPUT_BYTES", at_once)
        found, seen, late = run.follow(history, us, (auctions(), bids()))
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    for name, tables, gone in (("l", seen[0], late[0]), ("r", seen[1], late[1])):
        connection.register(f"all_{name}", pa.concat_tables(tables))
        connection.register(f"late_{name}", pa.concat_tables(gone))
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM all_{name} EXCEPT ALL SELECT * FROM late_{name}")
    expected = connection.sql(expected_rows(how, bounds, run.firing_us)).to_arrow_table().cast(operator.output_schema)
    assert Counter(map(repr, pa.concat_tables(found).to_pylist())) == Counter(map(repr, expected.to_pylist()))
    fired, until = run.firing_us or 0, f"epoch_us(bid_at) - {bounds.low} * 60000000"
    for name, live in (
        ("left", f"SELECT count(*) FROM l WHERE id IS NOT NULL AND {bounds.last} >= {fired}"),
        ("right", f"SELECT count(*) FROM r WHERE auction IS NOT NULL AND {until} >= {fired}"),
    ):
        stored, (alive,) = sum(run.restore(name).rows()["__weight"].to_pylist()), connection.sql(live).fetchall()[0]
        assert stored <= alive if operator.by_existence and name == "left" else stored == alive


def test_an_unmatched_row_is_emitted_once_its_own_bound_has_passed(tmp_path: Path) -> None:
    run = TwoInputRun(joined(how="left"), tmp_path)
    rows = auctions((1, 0, 9, 1), (2, 0, 3, 2), (3, 0, None, 3), (4, 5, 3, 4))
    first, _ = run.epoch([(0, rows), (1, bids((1, 9, 50), (2, 4, 60), (3, 1, 70)))], None, us(3))
    assert [(row["n"], row["price"]) for row in first.to_pylist()] == [(1, 50), (3, None)], "a null matches nothing"
    second, _ = run.epoch([], us(3), us(3) + 1)
    assert sorted(row["n"] for row in second.to_pylist()) == [2, 4], "no bid is between 5 and 3"
    assert run.restore("left").rows()["n"].to_pylist() == [1]
    third, _ = run.epoch([(1, bids((1, 10, 80), (1, 9, 90)))], us(9), us(9) + 1)
    assert [row["price"] for row in third.to_pylist()] == [90] and not run.restore("left").rows().num_rows
