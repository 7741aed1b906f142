"""The generated tables of TPC-H have the properties that its queries depend on."""

from __future__ import annotations

import duckdb
import pyarrow.compute as pc
import pytest

from milepost_testkit.specs.sql_statements import statements
from milepost_testkit.tpch.changes import ChangeFeed
from milepost_testkit.tpch.job import EXAMPLE, oracle
from milepost_testkit.tpch.tables import KEYS, Tpch

QUERIES = statements((EXAMPLE / "tpch.sql").read_text())


def answers(database: duckdb.DuckDBPyConnection, queries: dict[str, str]) -> dict[str, list[tuple[object, ...]]]:
    found = {}
    for name, statement in queries.items():
        if "TEMPORARY" in statement:
            database.execute(statement)
        else:
            found[name] = database.sql(statement.split(" AS\n", 1)[1]).fetchall()
    return found


def test_every_query_has_rows() -> None:
    feed = ChangeFeed(Tpch())
    feed.advance()
    rows = answers(oracle(feed.tables), QUERIES)
    assert sorted(rows) == [f"q{number:02}" for number in range(1, 23)]
    assert all(found and found[0][-1] is not None for found in rows.values())


@pytest.mark.long
@pytest.mark.parametrize("scale", [0.001, 0.01])
def test_keys_are_unique_and_references_exist_through_refreshes(scale: float) -> None:
    feed = ChangeFeed(Tpch(scale))
    for _ in range(3):
        feed.advance()
        for name, key in KEYS.items():
            rows = feed.tables[name]
            assert rows.group_by(list(key)).aggregate([]).num_rows == rows.num_rows, name
        database = oracle(feed.tables)
        for child, parent, columns in (
            ("lineitem", "orders", "l_orderkey = o_orderkey"),
            ("lineitem", "partsupp", "l_partkey = ps_partkey AND l_suppkey = ps_suppkey"),
            ("orders", "customer", "o_custkey = c_custkey"),
            ("partsupp", "supplier", "ps_suppkey = s_suppkey"),
        ):
            assert not database.sql(f"FROM {child} ANTI JOIN {parent} ON {columns}").fetchall()
        assert not database.sql("FROM orders WHERE o_custkey % 3 = 0").fetchall()


def test_the_changes_of_each_epoch_lead_to_its_tables_and_are_the_same_in_each_run() -> None:
    feed, other, changes = ChangeFeed(Tpch(0.001), share=0.1), ChangeFeed(Tpch(0.001), share=0.1), []
    for _ in range(3):
        changes.append(feed.advance())
        assert other.advance() == changes[-1]
    for name, key in KEYS.items():
        database = duckdb.connect()
        for number, epoch in enumerate(changes):
            if name in epoch:
                database.register(f"part{number}", epoch[name])
        union = " UNION ALL ".join(f"FROM part{number}" for number, epoch in enumerate(changes) if name in epoch)
        newest = f"FROM ({union}) QUALIFY row_number() OVER (PARTITION BY {', '.join(key)} ORDER BY seq DESC) = 1"
        found = database.sql(f"SELECT * EXCLUDE (op, seq) FROM ({newest}) WHERE op <> 'D'").to_arrow_table()
        order = [(column, "ascending") for column in key]
        assert found.sort_by(order).equals(feed.tables[name].combine_chunks().sort_by(order)), name
    deletes = changes[1]["lineitem"].filter(pc.equal(changes[1]["lineitem"]["op"], "D"))
    assert deletes.num_rows > 0
    assert deletes["l_quantity"].null_count == deletes.num_rows
