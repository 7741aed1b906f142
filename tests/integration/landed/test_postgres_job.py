"""A job replicates a table of a real server: its table is Postgres's own at each epoch that has caught up."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest

from milepost.cli.workspace.doctor import job_checks
from milepost.errors import InvalidRequest, PositionExpired
from milepost.jobmaster import JobMaster, LandingReport, NothingToDo, Session
from milepost.jobspec.load.load import load_job
from milepost.sources.landed.postgres import postgres_source
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.postgres_landing import replicated
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.postgres_server import Database

SPEC = """\
name: shop
storage: ../store
sources:
  customers:
    format: postgres
    dsn: "${env:PG_DSN}"
    table: public.customers
    publication: milepost_customers
    key: [id]
    schema: {id: int64, name: string, paid: "decimal(12, 2)", note: string}
    metadata: {op: op, lsn: lsn, number: number, committed: commit_time}
    event_time: committed
    start: START
    land: {max_rows: 20}
operators:
  - {uid: newest, kind: latest, inputs: [customers], key: [id], sequence_by: [lsn, number],
     delete_when: "op = 'delete'", columns: [id, name, paid, note]}
sinks:
  - {name: customers, input: newest, format: parquet, path: ../lake/customers, mode: upsert}
  - {name: changes, input: customers, format: parquet, path: ../lake/changes, mode: append}
checkpointing: {retained: {last: 50}}
"""
TABLE = "CREATE TABLE customers (id bigint PRIMARY KEY, name varchar(50), paid numeric(12, 2), note text)"
COLUMNS = ("id", "name", "paid", "note")
ROWS = "SELECT id, name, paid, note FROM customers ORDER BY id"
NEWEST = """
SELECT id, name, paid, note FROM (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY lsn DESC, number DESC) AS age FROM changes
) WHERE age = 1 AND op <> 'delete' ORDER BY id
"""


def job(folder: Path) -> JobMaster:
    return JobMaster(load_job(str(folder / "config" / "shop.yaml")))


def create(folder: Path, database: Database, start: str = "copy") -> None:
    replicated(
        database,
        TABLE,
        "ALTER TABLE customers REPLICA IDENTITY FULL",
        publication="milepost_customers",
        table="customers",
    )
    (folder / "config").mkdir()
    (folder / "config" / "shop.yaml").write_text(SPEC.replace("START", start))


def create_twice(folder: Path, database: Database, start: str) -> tuple[Path, Path]:
    """Create the same job in two folders, over one table."""
    first, second = folder / "first", folder / "second"
    first.mkdir()
    create(first, database, start)
    shutil.copytree(first / "config", second / "config")
    return first, second


def land(folder: Path) -> LandingReport:
    report = job(folder).landings.land()
    assert not report.failed, report
    return report


def epochs(folder: Path) -> int | None:
    """Run epochs until nothing is left. Returns the last checkpoint."""
    last = None
    while not isinstance(result := job(folder).epochs.run(Session.cli(), SparklessRunner()), NothingToDo):
        last = int(result.checkpoint_id)
    return last


def published(folder: Path, sink: str) -> pa.Table:
    return job(folder).reports.read(sink)


def assert_equal(folder: Path, expected: list[tuple[Any, ...]]) -> None:
    """The upsert table, and what DuckDB makes of the changes, are the rows that Postgres had."""
    rows = published(folder, "customers").select(list(COLUMNS)).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in rows] == expected
    with duckdb.connect() as connection:
        connection.register("changes", published(folder, "changes"))
        assert connection.sql(NEWEST).fetchall() == expected


def land_and_die(spec: str) -> None:
    """Land, and die of kill -9 after the first record, before it is acknowledged."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    postgres_source.advance_slot = die  # type: ignore[assignment]
    JobMaster(load_job(spec)).landings.land()


def killed(folder: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=land_and_die, args=(str(folder / "config" / "shop.yaml"),)
    )
    process.start()
    process.join(120)
    assert process.exitcode in (-signal.SIGKILL, 0), "0: there was nothing to acknowledge"


class Writer:
    """A client of the database, whose transactions stay open across those of another."""

    def __init__(self, database: Database, dice: random.Random) -> None:
        self.dice, self.connection = dice, database.connect()
        self.connection.execute("SET lock_timeout = '50ms'")
        self.connection.commit()

    def act(self) -> None:
        """Change some rows, and commit or roll back now and then."""
        try:
            for _ in range(self.dice.randint(1, 4)):
                self.connection.execute(self._statement().encode())
            ended = self.dice.random()
            if ended < 0.6:
                self.connection.commit()
            elif ended < 0.75:
                self.connection.rollback()
        except (psycopg.errors.UniqueViolation, psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            self.connection.rollback()

    def _statement(self) -> str:
        dice, key = self.dice, self.dice.randint(1, 40)
        note = "NULL" if dice.random() < 0.3 else f"'{f'{dice.getrandbits(64):x}' * dice.choice([1, 900])}'"
        if dice.random() < 0.5:
            big = f"(SELECT string_agg(md5(n::text || '{dice.random()}'), '') FROM generate_series(1, 200) n)"
            note = dice.choice([note, big])
        bulk, again = f"generate_series({key + 40}, {key + 50})", "ON CONFLICT (id) DO UPDATE SET name = 'again'"
        return dice.choice(
            [
                f"INSERT INTO customers VALUES ({key}, 'n{key}', {dice.randint(0, 10**6)} / 100.0, {note})",
                f"INSERT INTO customers SELECT n, 'bulk', n, {note} FROM {bulk} n {again}",
                f"UPDATE customers SET paid = paid + 1 WHERE id = {key}",
                f"UPDATE customers SET note = {note} WHERE id BETWEEN {key} AND {key + 3}",
                f"UPDATE customers SET id = {dice.randint(1, 90)} WHERE id = {key}",
                f"UPDATE customers SET id = id WHERE id = {key}",
                f"DELETE FROM customers WHERE id BETWEEN {key} AND {key + 2}",
            ]
        )


@pytest.mark.parametrize(
    "seed",
    [pytest.param(1, marks=pytest.mark.long), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 8))],
)
def test_the_published_table_equals_its_own_rows_after_writes_kills_and_rollbacks(
    tmp_path: Path, database: Database, seed: int
) -> None:
    create(tmp_path, database)
    dice = random.Random(seed)
    database.run("INSERT INTO customers SELECT n, 'old', n, repeat(n::text, 3000) FROM generate_series(1, 60) n")
    land(tmp_path)
    writers = [Writer(database, dice), Writer(database, dice)]
    history: dict[int, list[tuple[Any, ...]]] = {}
    for step in range(7):
        for _ in range(dice.randint(3, 12)):
            dice.choice(writers).act()
        if dice.random() < 0.5:
            killed(tmp_path)
        land(tmp_path)
        expected = database.run(ROWS)
        checkpoint = epochs(tmp_path)
        assert_equal(tmp_path, expected)
        if checkpoint is not None:
            history[checkpoint] = expected
        if step == 4:
            target = sorted(history)[0]
            roll_back(job(tmp_path), target)
            assert_equal(tmp_path, history[target])
            epochs(tmp_path)
            assert_equal(tmp_path, expected)
    for writer in writers:
        writer.connection.rollback()
        writer.connection.close()
    assert len(history) >= 3
    back_fill(job(tmp_path), SparklessRunner(), from_checkpoint=sorted(history)[0])
    assert_equal(tmp_path, database.run(ROWS))


def test_a_landing_that_loses_a_race_is_no_alarm(tmp_path: Path, database: Database) -> None:
    """The other has appended and acknowledged what this one reads: the slot is beyond its position, and it is fine."""
    create(tmp_path, database, "latest")
    land(tmp_path)
    database.run("INSERT INTO customers VALUES (1, 'a', 1, 'x')")
    original = postgres_source.read_slot

    def overtaken(*arguments: Any) -> Any:
        postgres_source.read_slot = original
        land(tmp_path)
        return original(*arguments)

    postgres_source.read_slot = overtaken  # after the newest record was read, before the slot is
    try:
        (failed,) = job(tmp_path).landings.land().failed
    finally:
        postgres_source.read_slot = original
    assert failed.error == "CommitConflict" and "another landing appended record 2" in failed.message
    assert [one.records for one in land(tmp_path).landed] == [0]


def test_a_lost_slot_stops_the_landing_and_epochs_go_on(tmp_path: Path, database: Database) -> None:
    create(tmp_path, database, "latest")
    land(tmp_path)
    database.run("INSERT INTO customers VALUES (1, 'a', 1, 'x')")
    land(tmp_path)
    drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
    database.run(drop, database.name)
    (failed,) = job(tmp_path).landings.land().failed
    assert (failed.error, failed.may_pass) == ("PositionExpired", False)
    assert "does not exist" in failed.message and "another name" in failed.hint
    epochs(tmp_path)
    assert published(tmp_path, "customers").num_rows == 1


def test_doctor_warns_of_a_slot_that_can_fill_the_disk(tmp_path: Path, database: Database) -> None:
    create(tmp_path, database, "latest")
    for landed in (False, True):
        if landed:
            land(tmp_path)
        checks = job_checks(load_job(str(tmp_path / "config" / "shop.yaml")))
        (check,) = (one for one in checks if one.check == "source customers")
        assert check.ok and check.warning and "max_slot_wal_keep_size is not set" in check.detail
        assert ("is reserved and retains" in check.detail) == landed
    (slots,) = database.run("SELECT count(*) FROM pg_replication_slots WHERE database = %s", database.name)
    assert slots == (1,)


def test_a_savepoint_that_is_restored_elsewhere_does_not_take_the_slot(tmp_path: Path, database: Database) -> None:
    first, second = create_twice(tmp_path, database, "latest")
    land(first)
    database.run("INSERT INTO customers VALUES (1, 'a', 1, 'x')")
    land(first)
    checkpoint = epochs(first)
    assert checkpoint is not None
    job(first).savepoints.export(checkpoint, str(tmp_path / "outside"))
    with pytest.raises(InvalidRequest) as refused:
        job(second).restores.start(str(tmp_path / "outside"))
    assert "from replication slot milepost_shop_customers_" in refused.value.message
    assert refused.value.hint is not None and "--claim" in refused.value.hint and "--with-input" in refused.value.hint
    (slots,) = database.run("SELECT count(*) FROM pg_replication_slots WHERE database = %s", database.name)
    assert slots == (1,)
    database.run("INSERT INTO customers VALUES (2, 'b', 2, 'y')")
    assert [one.rows for one in land(first).landed] == [1]


@pytest.mark.parametrize("with_input", [False, True])
def test_a_savepoint_that_is_claimed_elsewhere_goes_on_with_the_slot(
    tmp_path: Path, database: Database, with_input: bool
) -> None:
    first, second = create_twice(tmp_path, database, "copy")
    database.run("INSERT INTO customers SELECT n, 'old', n, 'x' FROM generate_series(1, 30) n")
    land(first)
    epochs(first)
    if with_input:
        database.run("UPDATE customers SET paid = paid + 1 WHERE id < 9")
        land(first)
    where = str(tmp_path / "outside")
    job(first).savepoints.create("saved", target=where, with_input=with_input)
    job(first).savepoints.cancel()
    database.run("UPDATE customers SET name = 'meanwhile' WHERE id > 25")
    database.run("DELETE FROM customers WHERE id = 7")
    job(second).restores.start(f"{where}/saved", claim=True)
    land(second)
    epochs(second)
    assert_equal(second, database.run(ROWS))
    database.run("INSERT INTO customers VALUES (99, 'after', 1, 'y')")
    land(second)
    epochs(second)
    assert_equal(second, database.run(ROWS))
    (slots,) = database.run("SELECT count(*) FROM pg_replication_slots WHERE database = %s", database.name)
    assert slots == (1,)
    job(first).restores.start()
    (failed,) = job(first).landings.land().failed
    assert failed.error == "PositionExpired" and "by another reader" in failed.message


def create_twice_with_a_row(tmp_path: Path, database: Database) -> tuple[Path, Path]:
    """Return two jobs, of which the first has read one row."""
    first, second = create_twice(tmp_path, database, "latest")
    land(first)
    database.run("INSERT INTO customers VALUES (1, 'a', 1, 'x')")
    land(first)
    epochs(first)
    return first, second


@pytest.mark.deep
def test_a_slot_is_not_claimed_after_its_job_has_landed_more(tmp_path: Path, database: Database) -> None:
    first, second = create_twice_with_a_row(tmp_path, database)
    where = str(tmp_path / "outside")
    job(first).savepoints.create("saved", target=where)
    database.run("INSERT INTO customers VALUES (2, 'b', 2, 'y')")
    land(first)
    with pytest.raises(PositionExpired, match="by another reader"):
        job(second).restores.start(f"{where}/saved", claim=True)
    assert not (second / "store").exists()
    database.run("INSERT INTO customers VALUES (3, 'c', 3, 'z')")
    assert [one.rows for one in land(first).landed] == [1]


def test_with_input_and_without_a_claim_only_landed_rows_are_processed(tmp_path: Path, database: Database) -> None:
    first, second = create_twice_with_a_row(tmp_path, database)
    database.run("INSERT INTO customers VALUES (2, 'b', 2, 'y')")
    land(first)
    where = str(tmp_path / "outside")
    job(first).savepoints.create("saved", target=where, with_input=True)
    job(second).restores.start(f"{where}/saved")
    (failed,) = job(second).landings.land().failed
    assert failed.error == "SourceReplaced"
    epochs(second)
    assert published(second, "customers").num_rows == 2
    database.run("INSERT INTO customers VALUES (3, 'c', 3, 'z')")
    assert [one.rows for one in land(first).landed] == [1]
