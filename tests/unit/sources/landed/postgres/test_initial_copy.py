"""The copy of a table before its changes: no row is missed, none is wrong, and it goes on where it stopped."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from milepost.errors import EnvironmentUnusable, InvalidRequest, SourceUnreachable
from milepost.sources.landed.contract import INITIAL_COPY
from milepost_testkit.jobs.postgres_landing import PostgresLog, replicated
from milepost_testkit.servers.postgres_server import Database

SCHEMA = {"id": "int64", "v": "int64"}
TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, v bigint)"


def log_of(database: Database, *statements: str, **keys: Any) -> PostgresLog:
    replicated(database, *(statements or (TABLE,)))
    return PostgresLog(database, **{"schema": SCHEMA, "start": "copy", **keys})


def rows_of(database: Database) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The table as Postgres shows it, by id."""
    return {(row[0],): row for row in database.run("SELECT id, v FROM t")}


@pytest.mark.deep
def test_a_table_is_copied_in_the_order_of_its_key_then_followed(database: Database) -> None:
    log = log_of(database, TABLE, "INSERT INTO t SELECT n, n FROM generate_series(10, 1, -1) n", max_rows=4)
    assert [row[:2] for row in log.changes()] == [("copy", n) for n in range(1, 11)]
    assert [record.num_rows for record in log.records] == [4, 4, 2]
    assert log.behind == [(INITIAL_COPY,), (INITIAL_COPY,), ()], "the watermark waits for all of the copy"
    assert "copy" not in log.position
    assert {row["number"] for record in log.records for row in record.to_pylist()} == {0}
    database.run("UPDATE t SET v = 0 WHERE id = 5")
    assert log.changes() == [("update", 5, 0)]
    assert log.table_now() == rows_of(database)


@pytest.mark.deep
def test_a_table_with_as_many_rows_as_a_record_is_copied_by_one(database: Database) -> None:
    log = log_of(database, TABLE, "INSERT INTO t SELECT n, n FROM generate_series(1, 4) n", max_rows=4)
    assert len(log.land()) == 4 and len(log.records) == 1 and "copy" not in log.position
    log = log_of_second(database)
    assert len(log.land()) == 4 and [record.num_rows for record in log.records] == [1, 1, 1, 1]


def log_of_second(database: Database) -> PostgresLog:
    return PostgresLog(database, SCHEMA, start="copy", job_identity="two", max_bytes=1)


def test_an_empty_table_is_followed_at_once(database: Database) -> None:
    log = log_of(database)
    assert log.land() == []
    database.run("INSERT INTO t VALUES (1, 1)")
    assert [row[1:] for row in log.changes()][-1] == (1, 1)
    database.run("DELETE FROM t")
    assert log.changes()[-1] == ("delete", 1, None)
    assert log.table_now() == {}


@pytest.mark.deep
def test_what_changes_while_the_table_is_copied_ends_as_the_table_is(database: Database) -> None:
    log = log_of(database, TABLE, "INSERT INTO t SELECT n, n FROM generate_series(1, 30) n", max_rows=5)
    for step in range(8):
        log.land(most=1)
        database.run("UPDATE t SET v = v + 100 WHERE mod(id, 4) = mod(%s::int, 4)", step)
        database.run("DELETE FROM t WHERE id = %s::int", step * 3 + 2)
        database.run("UPDATE t SET id = id + 1000 WHERE id = %s::int", step * 3 + 1)  # behind and ahead of the copy
        database.run("UPDATE t SET id = %s::int - 1000 WHERE id = %s::int", step, 29 - step)
        database.run("INSERT INTO t VALUES (%s::int, 0), (%s::int, 0)", -step - 1, 100 + step)
    log.land()
    assert log.table_now() == rows_of(database)


@pytest.mark.deep
def test_a_copy_that_stops_after_each_record_repeats_none_and_misses_none(database: Database) -> None:
    insert = "INSERT INTO t SELECT n, n FROM generate_series(1, 7) n"
    log = log_of(database, TABLE, insert, max_rows=3)
    rows = [row for _ in range(3) for row in log.changes(most=1, acknowledge=False)]
    assert [row[1] for row in rows] == [1, 2, 3, 4, 5, 6, 7] and "copy" not in log.position
    assert log.land() == []


@pytest.mark.deep
@pytest.mark.parametrize(
    ("types", "key", "rows"),
    [
        ("a text, b int", ("a", "b"), "('x', 2), ('x', 10), ('', 1), ('é''%s', 3), ('X', 4), ('x\\y', 5)"),
        ("a uuid, b int", ("a",), "(gen_random_uuid(), 1), (gen_random_uuid(), 2), (gen_random_uuid(), 3)"),
        ("a char(3), b int", ("a",), "('a', 1), ('ab', 2), ('abc', 3), ('b', 4)"),
        ("a timestamptz, b int", ("a",), "('2026-01-01', 1), ('2026-01-01 00:00:00.000001', 2), ('infinity', 3)"),
        ("a numeric, b int", ("b", "a"), "(1.10, 1), (1.2, 1), ('NaN', 1), (-5, 0)"),
        ("a bytea, b int", ("a",), "('\\x00', 1), ('\\x', 2), ('\\xff5c', 3)"),
        ("a boolean, b int", ("a", "b"), "(true, 1), (false, 1), (true, 2)"),
        ("a double precision, b int", ("a",), "(0.1, 1), (0.30000000000000004, 2), (0.3, 3), ('Infinity', 4)"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value and "(" not in value else "",
)
def test_a_key_of_any_type_divides_the_copy(database: Database, types: str, key: tuple[str, ...], rows: str) -> None:
    replicated(
        database, f"CREATE TABLE t ({types}, PRIMARY KEY ({', '.join(key)}))", "ALTER TABLE t REPLICA IDENTITY FULL"
    )
    with database.connect() as connection:
        connection.execute(f"INSERT INTO t VALUES {rows}".encode())
    log = PostgresLog(database, {"a": "string", "b": "int32"}, start="copy", key=key, max_rows=1)
    copied = sorted((row[1], row[2]) for row in log.changes())
    assert len(copied) == len(set(copied)) == len(database.run("SELECT FROM t"))
    assert len(log.records) == len(copied)


def test_transactions_open_when_the_copy_began_are_not_missed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit waits for a synchronous standby: it is in the WAL, and not visible yet."""
    monkeypatch.setattr("milepost.sources.landed.postgres.postgres_source._WAIT_S", 0.3)
    log = log_of(database, TABLE, "INSERT INTO t VALUES (1, 1)")
    log.begin()
    with database.connect() as connection:
        connection.execute("INSERT INTO t VALUES (2, 2)")
        log.position["copy"]["since"] = 2**40  # as if it had been open then
        log.refused(SourceUnreachable, "are still open", "pg_stat_activity")


@pytest.mark.deep
def test_a_copy_waits_for_transactions_and_goes_on_once_they_end(database: Database) -> None:
    log = log_of(database, TABLE, "INSERT INTO t VALUES (1, 1)")
    log.begin()
    connection = database.connect()
    connection.execute("INSERT INTO t VALUES (2, 2)")
    ((xid,),) = database.run("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
    log.position["copy"]["since"] = xid + 1
    rows: list[Any] = []
    thread = threading.Thread(target=lambda: rows.extend(log.land(most=1)))
    thread.start()
    connection.commit()
    connection.close()
    thread.join(60)
    assert [row["id"] for row in rows] == [1, 2]


@pytest.mark.deep
def test_a_copy_needs_the_right_to_read_and_a_stream_does_not(database: Database) -> None:
    log = log_of(database, TABLE, "INSERT INTO t VALUES (1, 1)")
    database.run_as_superuser("ALTER TABLE t OWNER TO postgres")
    log.begin()
    log.refused(EnvironmentUnusable, "denied access", "GRANT SELECT ON public.t")
    stream = PostgresLog(database, SCHEMA, start="latest", job_identity="stream")
    stream.begin()
    database.run_as_superuser("INSERT INTO t VALUES (2, 2)")
    assert stream.changes() == [("insert", 2, 2)]


def test_row_security_never_hides_rows_of_a_copy(database: Database) -> None:
    log = log_of(database, TABLE, "INSERT INTO t VALUES (1, 1)")
    database.run("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    database.run("ALTER TABLE t FORCE ROW LEVEL SECURITY")
    log.begin()
    log.refused(EnvironmentUnusable, "denied access", "row-level security")


def test_a_column_that_is_dropped_while_the_table_is_copied_stops_it(database: Database) -> None:
    log = log_of(database, TABLE, "INSERT INTO t SELECT n, n FROM generate_series(1, 4) n", max_rows=2)
    log.land(most=1)
    database.run("ALTER TABLE t DROP COLUMN v")
    log.refused(InvalidRequest, "it has no column v")
    log.schema = {"id": "int64"}
    assert [row[1] for row in log.changes()] == [3, 4]


def test_a_value_of_a_copy_that_does_not_fit_stops_it(database: Database) -> None:
    log = log_of(
        database,
        "CREATE TABLE t (id bigint PRIMARY KEY, v date)",
        "INSERT INTO t VALUES (1, '2026-01-01'), (2, 'infinity')",
        schema={"id": "int64", "v": "date"},
    )
    log.begin()
    log.refused(InvalidRequest, "initial copy: column v: a value does not fit date", "`string` takes")


@pytest.mark.deep
def test_rows_of_a_copy_are_older_than_every_change(database: Database) -> None:
    log = log_of(database, TABLE, "INSERT INTO t VALUES (1, 1)", event_time="committed")
    log.begin()
    database.run("UPDATE t SET v = 2")
    first, second = log.land()
    assert (first["op"], first["v"], second["op"], second["v"]) == ("copy", 2, "update", 2)
    assert (first["lsn"], first["number"]) < (second["lsn"], second["number"])
    assert first["committed"] <= second["committed"] and first["xid"] is None
