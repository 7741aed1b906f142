"""What stops a landing of a table: each case has its own error, says the way out, and lands nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from milepost.errors import (
    CheckpointError,
    EnvironmentUnusable,
    InvalidRequest,
    PositionExpired,
    SourceReplaced,
    SourceUnreachable,
    SourceWentBack,
)
from milepost.protocol.landed import require_identity
from milepost.sources.landed import NotedSource, RewindableSource
from milepost.sources.landed.postgres.postgres_source import slot_name
from milepost.sources.landed.postgres.server import ends_of_timelines
from milepost_testkit.jobs.postgres_landing import PostgresLog, replicated
from milepost_testkit.processes.processes import free_ports
from milepost_testkit.servers.postgres_server import Database, PostgresServer, new_directory

SCHEMA = {"id": "int64", "v": "int64"}
TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, v bigint)"
StartServer = Callable[..., PostgresServer]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Start servers of the test's own, with settings."""
    servers: list[PostgresServer] = []

    def start(**settings: str) -> PostgresServer:
        server = PostgresServer(new_directory(), **settings)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.remove()


def begun(database: Database, *statements: str, **keys: Any) -> PostgresLog:
    replicated(database, *(statements or (TABLE,)))
    log = PostgresLog(database, **{"schema": SCHEMA, **keys})
    log.begin()
    return log


def slots(database: Database) -> int:
    (row,) = database.run("SELECT count(*) FROM pg_replication_slots WHERE database = %s", database.name)
    return int(row[0])


@pytest.mark.long
def test_a_server_without_logical_wal_is_refused(start_server: StartServer) -> None:
    database = start_server(wal_level="replica").new_database()
    database.run(TABLE)
    log = PostgresLog(database, SCHEMA)
    log.refused(EnvironmentUnusable, "has wal_level replica; expected logical", "ALTER SYSTEM SET wal_level = logical")


def test_a_role_without_the_right_is_refused_also_before_anything_is_created(database: Database) -> None:
    replicated(database, TABLE)
    database.run_as_superuser(f'ALTER ROLE "{database.user}" NOREPLICATION')
    log = PostgresLog(database, SCHEMA)
    log.refused(EnvironmentUnusable, "denied access", f'ALTER ROLE "{database.user}" REPLICATION')
    with pytest.raises(EnvironmentUnusable, match="may not use replication slots"):
        log.source(may_create=False).initial_position()


def test_a_wrong_password_is_no_server_that_is_down(database: Database) -> None:
    replicated(database, TABLE)
    log = PostgresLog(database, SCHEMA)
    log.refused(EnvironmentUnusable, "password authentication failed", dsn=database.dsn.replace("hush-", "hush-no-"))
    log.refused(EnvironmentUnusable, "the `dsn` of source t cannot be used", dsn="postgresql://nobody")
    (free,) = free_ports(1)
    log.refused(SourceUnreachable, "did not answer", dsn=database.through(free).dsn)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DROP TABLE t", ("there is no table public.t",)),
        ("DROP PUBLICATION p", ("there is no publication p", 'CREATE PUBLICATION "p" FOR TABLE "public"."t"')),
        ("ALTER PUBLICATION p DROP TABLE t", ("table public.t is not in publication p", "ADD TABLE")),
        ("ALTER PUBLICATION p ADD TABLE other", ("publishes other tables than public.t",)),
        ("ALTER PUBLICATION p SET (publish = 'insert, update, delete')", ("leaves out some operations",)),
        ("ALTER PUBLICATION p SET TABLE t WHERE (id > 5)", ("has a row filter",)),
        ("ALTER PUBLICATION p SET TABLE t (id)", ("it has no column v; it has id", "column list")),
        ("ALTER TABLE t DROP COLUMN v", ("it has no column v",)),
        ("ALTER TABLE t ALTER v TYPE text", ("column v is a text, and is declared as int64; expected string",)),
        ("ALTER TABLE t ALTER v TYPE mood USING 'sad'", ("that is landed as text",)),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", ("its replica identity has no columns", "REPLICA IDENTITY FULL")),
        ("ALTER TABLE t REPLICA IDENTITY NOTHING", ("its replica identity has no columns",)),
        (
            "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t REPLICA IDENTITY FULL",
            ("no unique index of required columns on `key`, id",),
        ),
        ("ALTER TABLE t SET UNLOGGED", ("is not written to WAL",)),
        ("DROP TABLE t; CREATE VIEW t AS SELECT 1", ("is a view",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_that_cannot_be_landed_is_refused_before_its_slot_exists(
    database: Database, statement: str, words: tuple[str, ...]
) -> None:
    replicated(database, TABLE, "CREATE TABLE other (id int PRIMARY KEY)", "CREATE TYPE mood AS ENUM ('sad')")
    if "UNLOGGED" in statement:
        database.run("DROP PUBLICATION p")
    database.run_many(statement)
    log = PostgresLog(database, SCHEMA)
    log.refused(InvalidRequest, *words)
    assert slots(database) == 0


def test_a_publication_of_all_tables_or_of_a_schema_is_refused(database: Database) -> None:
    replicated(database, TABLE)
    database.run_as_superuser("CREATE PUBLICATION everything FOR ALL TABLES")
    database.run_as_superuser("CREATE PUBLICATION schema_of_it FOR TABLES IN SCHEMA public")
    for publication in ("everything", "schema_of_it"):
        PostgresLog(database, SCHEMA, publication=publication).refused(InvalidRequest, "publishes other tables")


def test_a_partitioned_table_is_refused(database: Database) -> None:
    replicated(database, "CREATE TABLE t (id bigint PRIMARY KEY, v bigint) PARTITION BY HASH (id)")
    PostgresLog(database, SCHEMA).refused(InvalidRequest, "is partitioned; expected a plain table")


@pytest.mark.deep
def test_a_generated_column_is_not_published(database: Database) -> None:
    replicated(database, "CREATE TABLE t (id bigint PRIMARY KEY, v bigint GENERATED ALWAYS AS (id * 2) STORED)")
    PostgresLog(database, SCHEMA).refused(InvalidRequest, "it has no column v")


@pytest.mark.deep
def test_a_dropped_slot_is_an_expired_position(database: Database) -> None:
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    database.run("SELECT pg_drop_replication_slot(%s)", log.slot)
    log.refused(PositionExpired, f"slot {log.slot} does not exist")
    with pytest.raises(PositionExpired):
        log.source().commit(log.position)
    assert slots(database) == 0, "it is never made again under a log that has begun"


@pytest.mark.deep
def test_a_slot_that_another_reader_has_advanced_is_an_expired_position(database: Database) -> None:
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    database.run("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", log.slot)
    error = log.refused(PositionExpired, "by another reader, or was made anew")
    assert error.details["earliest"]["lsn"] > log.position["lsn"]
    log.source().commit(log.position)  # a late acknowledgement changes nothing
    database.run("SELECT pg_drop_replication_slot(%s)", log.slot)
    database.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", log.slot)
    log.refused(PositionExpired, "was made anew")


def test_a_slot_of_another_kind_is_refused(database: Database) -> None:
    replicated(database, TABLE)
    log = PostgresLog(database, SCHEMA)
    database.run("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", log.slot)
    log.refused(EnvironmentUnusable, "got a logical slot of test_decoding", "pg_drop_replication_slot")


def test_a_slot_that_is_in_use_is_tried_again_later(database: Database) -> None:
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    with closing(psycopg.connect(log.database.dsn, replication="database", autocommit=True)) as walsender:
        started = f"START_REPLICATION SLOT \"{log.slot}\" LOGICAL 0/0 (proto_version '1', publication_names 'p')"
        walsender.pgconn.exec_(started.encode())
        log.refused(SourceUnreachable, "is in use")
    database.run_as_superuser("SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE active")
    assert len(log.land()) == 1


@pytest.mark.long
def test_without_a_free_slot_the_error_says_what_to_raise(start_server: StartServer) -> None:
    database = start_server(max_replication_slots="1").new_database()
    begun(database)
    other = PostgresLog(database, SCHEMA, job_identity="two")
    other.refused(EnvironmentUnusable, "no replication slot left", "max_replication_slots")


@pytest.mark.long
def test_a_slot_whose_wal_was_removed_is_an_expired_position(start_server: StartServer) -> None:
    server = start_server(max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="32MB")
    database = server.new_database()
    log = begun(database)
    source = log.source()
    assert isinstance(source, NotedSource)
    assert not any("max_slot_wal_keep_size" in note.text for note in source.notes(None))
    database.run("INSERT INTO t VALUES (1, 1)")
    for _ in range(4):
        database.run_as_superuser("SELECT pg_switch_wal()")
        database.run_as_superuser("CREATE TABLE IF NOT EXISTS filler AS SELECT 1")
        database.run_as_superuser("SELECT pg_logical_emit_message(true, 'm', repeat('x', 100000))")
        database.run_as_superuser("CHECKPOINT")
    log.refused(PositionExpired, "can no longer be read (wal_removed)", "max_slot_wal_keep_size", "pg_drop_replication")
    log.position = None
    log.refused(EnvironmentUnusable, "can no longer be read (wal_removed), and nothing was landed from it")


def test_a_slot_waits_for_open_transactions_and_says_so(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.sources.landed.postgres.server._LOCK_WAIT_S", 1)
    replicated(database, TABLE)
    with database.connect() as connection:
        connection.execute("INSERT INTO t VALUES (1, 1)")
        log = PostgresLog(database, SCHEMA)
        log.refused(SourceUnreachable, "pg_stat_activity")
        assert slots(database) == 0
    log.begin()
    assert log.land() == []


def test_an_interrupted_first_landing_is_continued_with_its_slot(database: Database) -> None:
    log = begun(database)
    begin = log.position
    database.run("INSERT INTO t VALUES (1, 1)")
    log.position = None  # it stopped before its first record
    log.begin()
    assert log.position == begin and log.changes() == [("insert", 1, 1)]


def test_another_table_publication_or_slot_is_another_source(database: Database) -> None:
    log = begun(database)
    recorded = log.source().identity()

    def replaced() -> str:
        with pytest.raises(SourceReplaced) as raised:
            require_identity("t", {**recorded, "job": "j"}, {**log.source().identity(), "job": "j"})
        return raised.value.message

    database.run("ALTER PUBLICATION p DROP TABLE t")
    database.run("ALTER PUBLICATION p ADD TABLE t")
    assert "for publication" in replaced(), "changes in between were not published"
    database.run("DROP TABLE t")
    database.run(TABLE)
    database.run("ALTER PUBLICATION p ADD TABLE t")
    assert "for publication" in replaced()
    moved = PostgresLog(database, SCHEMA, job_identity="two")
    assert moved.source().identity()["slot"] != recorded["slot"]
    error = None
    try:
        moved.source().next_pull(log.position)
    except CheckpointError as raised:
        error = raised
    assert isinstance(error, SourceReplaced) and "a slot belongs to one log" in error.full_message()


@pytest.mark.deep
def test_doctor_creates_nothing_and_shows_what_the_slot_retains(database: Database) -> None:
    replicated(database, TABLE)
    log = PostgresLog(database, SCHEMA)
    source = log.source(may_create=False)
    source.identity()
    assert source.next_pull(source.initial_position()) is None
    assert isinstance(source, NotedSource)
    first, second = source.notes(None)
    assert "is created by the first landing" in first.text and not first.is_warning
    assert "max_slot_wal_keep_size is not set" in second.text and second.is_warning
    assert slots(database) == 0
    log.begin()
    source = log.source(may_create=False)
    assert isinstance(source, NotedSource)
    assert f"slot {log.slot} is reserved and retains " in source.notes(None)[0].text
    database.run("SELECT pg_drop_replication_slot(%s)", log.slot)
    with pytest.raises(PositionExpired):
        log.source(may_create=False).next_pull(log.position)


def promoted(server: PostgresServer) -> None:
    """Begin a new timeline, as a standby that is promoted does."""
    (server.directory / "data" / "standby.signal").touch()
    if (account := (server.directory / "data").stat()).st_uid:
        shutil.chown(server.directory / "data" / "standby.signal", account.st_uid, account.st_gid)
    server.start()
    Database(server, "postgres", "postgres", server.password, server.port).run("SELECT pg_promote()")


@pytest.mark.deep
def test_a_lossless_failover_continues_and_one_that_lost_landed_rows_stops(
    start_server: StartServer,
) -> None:
    server = start_server()
    database = server.new_database()
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    assert len(log.land()) == 1
    server.stop()
    promoted(server)
    database.run("INSERT INTO t VALUES (2, 2)")
    assert log.changes() == [("insert", 2, 2)]
    assert log.position["timeline"] == 2
    kept = log.position
    server.stop()
    data = server.directory / "data"
    copy = server.directory / "copy"
    shutil.copytree(data, copy)
    server.start()
    database.run("INSERT INTO t VALUES (3, 3)")
    assert len(log.land()) == 1
    server.stop()
    shutil.rmtree(data)
    copy.rename(data)
    owner = server.directory.stat()
    for path in (data, *data.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    server.start()
    log.refused(SourceWentBack, "the server lost what was written after that")
    server.stop()
    promoted(server)
    database.run("INSERT INTO t SELECT n, n FROM generate_series(100, 20000) n")
    log.refused(SourceWentBack, "the server lost what was written after that: timeline 3 has it up to")
    with pytest.raises(SourceWentBack):
        log.source().commit(log.position)
    ends = [log.position, kept]
    with pytest.raises(InvalidRequest, match="its initial copy may have rows that the server has lost since"):
        rewindable(replace(log, start="copy")).newest_true(ends)
    streamed = rewindable(log)
    assert [streamed.newest_true(ends), streamed.newest_true(ends[:1])] == [1, None]


def rewindable(log: PostgresLog) -> RewindableSource:
    source = log.source()
    assert isinstance(source, RewindableSource)
    return source


@pytest.mark.deep
def test_a_standby_is_refused(start_server: StartServer) -> None:
    server = start_server()
    database = server.new_database()
    log = begun(database)
    server.stop()
    (server.directory / "data" / "standby.signal").touch()
    owner = server.directory.stat()
    shutil.chown(server.directory / "data" / "standby.signal", owner.st_uid, owner.st_gid)
    server.start()
    log.refused(SourceUnreachable, "is a standby", "target_session_attrs")


@pytest.mark.deep
def test_a_server_that_crashes_after_an_acknowledgement_repeats_nothing(start_server: StartServer) -> None:
    server = start_server()
    database = server.new_database()
    log = begun(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    assert len(log.land()) == 1
    server.stop(kill=True)
    server.start()
    assert log.land() == []
    database.run("INSERT INTO t VALUES (2, 2)")
    assert log.changes() == [("insert", 2, 2)]


def test_a_timeline_ends_where_the_next_begins() -> None:
    history = "1\t0/3000148\tno recovery target specified\n\n2\t1/A\tbefore 2026-01-01\n"
    assert ends_of_timelines(history) == {1: 0x3000148, 2: 0x10000000A}


def test_the_name_of_a_slot_fits_and_differs_by_job_source_and_life() -> None:
    names = {slot_name("j" * 63, "S-ä" * 20, "a"), slot_name("j" * 63, "S-ä" * 20, "b"), slot_name("j", "s", "a")}
    assert len(names) == 3
    for name in names:
        assert len(name) <= 63 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
