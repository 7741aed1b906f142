"""Streaming a table of a real server: rows, order, records and positions."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost_testkit.jobs.postgres_landing import PostgresLog, replicated
from milepost_testkit.servers.postgres_server import Database

SCHEMA = {"id": "int64", "v": "int64"}
TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, v bigint)"
BIG = "(SELECT string_agg(md5(n::text || {}), '') FROM generate_series(1, 400) n)"
"""A text of 12,800 characters that does not compress, so it is stored out of line."""


def begun(database: Database, *statements: str, **keys: Any) -> PostgresLog:
    """Return the log of a table, begun now."""
    replicated(database, *(statements or (TABLE,)))
    log = PostgresLog(database, **{"schema": SCHEMA, **keys})
    log.begin()
    return log


@pytest.mark.deep
def test_each_change_is_a_row_in_commit_order(database: Database) -> None:
    log = begun(database, TABLE, "INSERT INTO t VALUES (0, 0)")
    with database.connect() as first, database.connect() as second:
        first.execute("INSERT INTO t VALUES (1, 1)")
        second.execute("INSERT INTO t VALUES (2, 2)")
        second.commit()
        first.execute("UPDATE t SET v = 10 WHERE id = 1")
    database.run("DELETE FROM t WHERE id = 0")
    assert log.changes() == [("insert", 2, 2), ("insert", 1, 1), ("update", 1, 10), ("delete", 0, None)]
    assert log.changes() == []
    (record,) = log.records
    rows = record.to_pylist()
    assert [row["number"] for row in rows] == [1, 1, 2, 1]
    assert [row["lsn"] for row in rows] == sorted(row["lsn"] for row in rows) and len({r["xid"] for r in rows}) == 3
    assert [row["committed"] for row in rows] == sorted(row["committed"] for row in rows)


def test_rolled_back_transactions_are_not_landed(database: Database) -> None:
    log = begun(database)
    with database.connect() as connection:
        connection.execute("INSERT INTO t VALUES (1, 1)")
        connection.rollback()
        connection.execute("INSERT INTO t VALUES (2, 2)")
        connection.execute("SAVEPOINT a; INSERT INTO t VALUES (3, 3); ROLLBACK TO a")
    assert log.changes() == [("insert", 2, 2)]


@pytest.mark.deep
def test_changes_of_other_tables_are_not_landed_and_move_the_position(database: Database) -> None:
    log = begun(database, TABLE, "CREATE TABLE u (id bigint PRIMARY KEY)")
    before = log.position
    database.run("INSERT INTO u SELECT generate_series(1, 1000)")
    source = log.source()
    pull = source.next_pull(before)
    assert pull is not None
    (reached,) = source.read(pull.splits[0])
    assert reached.position["lsn"] > before["lsn"]  # type: ignore[union-attr]
    source.commit(reached.position)  # type: ignore[union-attr]
    log.position = reached.position  # type: ignore[union-attr]
    database.run("INSERT INTO t VALUES (1, 1)")
    assert log.changes() == [("insert", 1, 1)]


VALUES = {
    "b": ("boolean", "bool", "true", True),
    "i2": ("smallint", "int16", "-32768", -32768),
    "i4": ("integer", "int64", "2147483647", 2147483647),
    "i8": ("bigint", "int64", "-9223372036854775808", -(2**63)),
    "f4": ("real", "float32", "0.1", 0.10000000149011612),
    "f8": ("double precision", "float64", "0.1::float8 + 0.2::float8", 0.1 + 0.2),
    "inf": ("double precision", "float64", "'-Infinity'", -math.inf),
    "n": ("numeric(10, 2)", "decimal(10, 2)", "-1.5", Decimal("-1.50")),
    "n_as_text": ("numeric", "string", "'NaN'", "NaN"),
    "s": ("text", "string", "E'a\\n\\\\''\\u20ac'", "a\n\\'€"),
    "c": ("char(5)", "string", "'ab'", "ab   "),
    "y": ("bytea", "binary", "'\\x00ff5c'", b"\x00\xff\\"),
    "d": ("date", "date", "'2024-02-29'", "2024-02-29"),
    "ts": ("timestamp", "timestamp[us]", "'2026-03-29 02:30:00.123456'", "2026-03-29 02:30:00.123456"),
    "tz": ("timestamptz", "timestamp[us, UTC]", "'2026-03-29 02:30:00+02'", "2026-03-29 00:30:00+00:00"),
    "u": ("uuid", "string", "'7f1b6a9e-0000-4000-8000-000000000001'", "7f1b6a9e-0000-4000-8000-000000000001"),
    "j": ("jsonb", "string", "'{\"a\": [1, null]}'", '{"a": [1, null]}'),
    "a": ("integer[]", "string", "'{1,NULL,3}'", "{1,NULL,3}"),
    "iv": ("interval", "string", "'1 day 2 hours'", "1 day 02:00:00"),
    "tz_as_text": ("timestamptz", "string", "'infinity'", "infinity"),
    "e": ("mood", "string", "'sad'", "sad"),
    "z": ("text", "string", "NULL", None),
    "zi": ("integer", "int32", "NULL", None),
}
"""Column -> type, declared type, SQL of a value, and the value as it is landed (times as texts)."""


@pytest.mark.parametrize("start", ["latest", "copy"])
def test_values_of_each_type_are_landed_without_loss_whatever_role_and_server_have_set(
    database: Database, start: str
) -> None:
    columns = ", ".join(f"{name} {type_}" for name, (type_, *_) in VALUES.items())
    replicated(
        database,
        "CREATE TYPE mood AS ENUM ('sad')",
        f"CREATE TABLE t (id int PRIMARY KEY, {columns})",
        "ALTER TABLE t REPLICA IDENTITY FULL",
    )
    log = PostgresLog(database, {"id": "int32"} | {name: declared for name, (_, declared, *_) in VALUES.items()})
    log.start = start
    insert = f"INSERT INTO t VALUES (1, {', '.join(text for *_, text, _ in VALUES.values())})"
    if start == "copy":
        database.run(insert)
    log.begin()
    if start == "latest":
        database.run(insert)
    (row,) = log.land()
    assert row["op"] == ("copy" if start == "copy" else "insert")
    for name, (*_, expected) in VALUES.items():
        actual = str(row[name]) if name in ("d", "ts", "tz") else row[name]
        assert actual == expected, name


@pytest.mark.deep
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_changed_key_is_a_delete_and_an_update(database: Database, identity: str) -> None:
    log = begun(database, TABLE, f"ALTER TABLE t REPLICA IDENTITY {identity}", "INSERT INTO t VALUES (1, 5)")
    database.run("UPDATE t SET id = 7, v = 6 WHERE id = 1")
    database.run("UPDATE t SET v = 8 WHERE id = 7")
    old = 5 if identity == "FULL" else None
    assert log.changes() == [("delete", 1, old), ("update", 7, 6), ("update", 7, 8)]
    assert [row["number"] for row in log.records[0].to_pylist()] == [1, 2, 1]


@pytest.mark.deep
def test_rows_that_swap_their_keys_end_where_the_table_is(database: Database) -> None:
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 10), (2, 20)")
    with database.connect() as connection:
        connection.execute("UPDATE t SET id = 3 WHERE id = 1")
        connection.execute("UPDATE t SET id = 1 WHERE id = 2")
        connection.execute("UPDATE t SET id = 2 WHERE id = 3")
    log.land()
    assert log.table_now() == {(1,): (1, 20), (2,): (2, 10)}


@pytest.mark.deep
def test_an_unchanged_value_out_of_line_is_taken_from_the_old_row(database: Database) -> None:
    log = begun(
        database,
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint, s text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        schema={**SCHEMA, "s": "string"},
    )
    database.run(f"INSERT INTO t VALUES (1, 1, {BIG.format(1)})")
    database.run("UPDATE t SET v = 2 WHERE id = 1")
    database.run("UPDATE t SET id = 3 WHERE id = 1")
    (expected,) = database.run("SELECT s FROM t")[0]
    rows = log.changes()
    assert [row[:3] for row in rows] == [("insert", 1, 1), ("update", 1, 2), ("delete", 1, 2), ("update", 3, 2)]
    assert len(expected) == 12_800 and {row[3] for row in rows} == {expected}


def test_a_table_whose_unchanged_values_would_be_missing_is_refused_before_its_slot_exists(database: Database) -> None:
    replicated(database, "CREATE TABLE t (id bigint PRIMARY KEY, v bigint, s text)")
    log = PostgresLog(database, {**SCHEMA, "s": "string"})
    log.refused(InvalidRequest, "may store s out of line", "REPLICA IDENTITY FULL")
    assert database.run("SELECT count(*) FROM pg_replication_slots WHERE database = %s", database.name) == [(0,)]
    log.schema = SCHEMA
    log.begin()
    database.run(f"INSERT INTO t VALUES (1, 1, {BIG.format(1)})")
    database.run("UPDATE t SET v = 2 WHERE id = 1")
    assert log.changes() == [("insert", 1, 1), ("update", 1, 2)], "a column that is not declared may be missing"


@pytest.mark.deep
def test_an_unchanged_value_that_is_not_sent_stops_the_landing_and_is_never_null(database: Database) -> None:
    log = begun(
        database,
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint, s text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        schema={**SCHEMA, "s": "string"},
    )
    database.run(f"INSERT INTO t VALUES (1, 1, {BIG.format(1)})")
    database.run("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    for change in ("v = 2", "id = 3"):
        database.run(f"UPDATE t SET {change}")
    assert [row[:3] for row in log.changes(most=1)] == [("insert", 1, 1)]
    log.refused(InvalidRequest, "did not change column s", "REPLICA IDENTITY FULL", "remove the column s")
    log.schema = SCHEMA
    assert log.changes() == [("update", 1, 2), ("delete", 1, None), ("update", 3, 2)]


@pytest.mark.deep
def test_what_comes_before_a_truncate_is_landed_and_then_the_landing_stops(database: Database) -> None:
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    with database.connect() as connection:
        connection.execute("INSERT INTO t VALUES (2, 2)")
        connection.execute("TRUNCATE t")
    database.run("INSERT INTO t VALUES (3, 3)")
    assert log.changes(most=1) == [("insert", 1, 1)]
    for _ in range(2):
        log.refused(InvalidRequest, "emptied by TRUNCATE", "another name")


def test_a_landing_repeats_nothing_after_its_acknowledgement_was_lost(database: Database) -> None:
    log = begun(database, max_rows=1)
    database.run("INSERT INTO t VALUES (1, 1)")
    assert log.changes(acknowledge=False, most=1) == [("insert", 1, 1)]
    database.run("INSERT INTO t VALUES (2, 2)")
    source = log.source()  # reads before anything is acknowledged, as `doctor` does not, and a landing may
    pull = source.next_pull(log.position)
    assert pull is not None
    batch, _ = source.read(pull.splits[0])
    assert batch.column("id").to_pylist() == [2]  # type: ignore[union-attr]
    assert log.changes() == [("insert", 2, 2)]
    assert log.changes() == []


def test_a_landing_ends_at_the_data_on_disk_at_its_start(database: Database) -> None:
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    source = log.source()
    pull = source.next_pull(log.position)
    assert pull is not None
    database.run("INSERT INTO t VALUES (2, 2)")
    batch, reached = source.read(pull.splits[0])
    assert batch.column("id").to_pylist() == [1]  # type: ignore[union-attr]
    assert source.next_pull(reached.position) is None  # type: ignore[union-attr]


@pytest.mark.deep
def test_a_record_ends_with_the_transaction_that_reaches_a_limit(database: Database) -> None:
    log = begun(database, max_rows=5)
    for first in range(0, 21, 3):
        database.run("INSERT INTO t SELECT n, n FROM generate_series(%s::int, %s::int + 2) n", first, first)
    rows = log.changes()
    assert [row[1] for row in rows] == list(range(21))
    assert [record.num_rows for record in log.records] == [6, 6, 6, 3]
    log.max_rows, log.max_bytes = 100_000, 30
    for first in range(100, 140, 10):
        database.run("INSERT INTO t SELECT n, n FROM generate_series(%s::int, %s::int + 3) n", first, first)
    assert len(log.changes()) == 16
    assert [record.num_rows for record in log.records[4:]] == [8, 8]


@pytest.mark.deep
def test_a_large_transaction_is_a_record_of_its_own(database: Database) -> None:
    log = begun(database, max_rows=2_000)
    database.run("INSERT INTO t VALUES (-1, 0)")
    database.run("INSERT INTO t SELECT n, n FROM generate_series(1, 25000) n")
    database.run("INSERT INTO t VALUES (-2, 0)")
    rows = log.changes()
    assert [record.num_rows for record in log.records] == [1, 25_000, 1]
    assert [row[1] for row in rows] == [-1, *range(1, 25_001), -2]
    assert [row["number"] for row in log.records[1].to_pylist()] == list(range(1, 25_001))


@pytest.mark.deep
def test_a_column_that_is_added_or_not_declared_does_not_matter(database: Database) -> None:
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    database.run("ALTER TABLE t ADD COLUMN w text DEFAULT 'x'")
    database.run("INSERT INTO t VALUES (2, 2, 'y')")
    assert log.changes() == [("insert", 1, 1), ("insert", 2, 2)]


@pytest.mark.deep
def test_a_renamed_column_stops_the_landing_until_the_schema_has_it(database: Database) -> None:
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    database.run("ALTER TABLE t RENAME COLUMN v TO w")
    database.run("INSERT INTO t VALUES (2, 2)")
    assert log.changes(most=1) == [("insert", 1, 1)]
    log.refused(InvalidRequest, "it has no column v; it has id, w", "let epochs process the landed rows first")
    log.schema = {"id": "int64", "w": "int64"}
    assert log.changes() == [("insert", 2, 2)]


def test_a_column_of_another_type_stops_the_landing_until_it_is_declared_so(database: Database) -> None:
    log = begun(database)
    database.run("ALTER TABLE t ALTER COLUMN v TYPE numeric")
    database.run("INSERT INTO t VALUES (2, 2.5)")
    log.refused(InvalidRequest, "column v is numeric, and is declared as int64; expected decimal, or string")
    log.schema = {"id": "int64", "v": "decimal(9, 2)"}
    assert log.changes() == [("insert", 2, Decimal("2.50"))]


def test_a_value_that_does_not_fit_stops_the_landing_before_its_transaction(database: Database) -> None:
    table = "CREATE TABLE t (id bigint PRIMARY KEY, v timestamptz)"
    log = begun(database, table, schema={"id": "int64", "v": "timestamp[us, UTC]"})
    database.run("INSERT INTO t VALUES (1, '2026-01-01')")
    with database.connect() as connection:
        connection.execute("INSERT INTO t VALUES (2, '2026-01-01')")
        connection.execute("INSERT INTO t VALUES (3, 'infinity')")
    assert [row[1] for row in log.changes(most=1)] == [1]
    error = log.refused(InvalidRequest, "column v: a value does not fit timestamp[us, UTC]", "`string` takes")
    assert "infinity" not in error.full_message()
    log.schema = {"id": "int64", "v": "string"}
    assert log.changes() == [("insert", 2, "2026-01-01 00:00:00+00"), ("insert", 3, "infinity")]


def test_a_row_without_an_event_time_is_refused(database: Database) -> None:
    table = "CREATE TABLE t (id bigint PRIMARY KEY, v timestamptz)"
    log = begun(database, table, schema={"id": "int64", "v": "timestamp[us, UTC]"}, event_time="v")
    database.run("INSERT INTO t VALUES (1, NULL)")
    log.refused(InvalidRequest, "column v")
    log.event_time = "committed"
    assert log.changes() == [("insert", 1, None)]


@pytest.mark.deep
def test_names_may_have_any_characters(database: Database) -> None:
    replicated(
        database,
        'CREATE SCHEMA "Sché;ma"',
        """CREATE TABLE "Sché;ma"."t'a%%b" ("i d" int PRIMARY KEY, "Größe" bigint)""".replace("%%", "%"),
        publication='"p"", x"',
        table='"Sché;ma"."t\'a%b"',
    )
    for start in ("latest", "copy"):
        log = PostgresLog(database, {"i d": "int32", "Größe": "int64"}, key=("i d",), start=start, job_identity=start)
        log.table, log.publication = "Sché;ma.t'a%b", 'p", x'
        log.begin()
        database.run('INSERT INTO "Sché;ma"."t\'a%b" SELECT count(*), 1 FROM "Sché;ma"."t\'a%b"')
        copied = [] if start == "latest" else [("copy", 0, 1), ("copy", 1, 1)]
        assert log.changes() == [*copied, ("insert", len(copied) // 2, 1)]
