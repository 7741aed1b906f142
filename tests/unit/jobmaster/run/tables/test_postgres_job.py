"""A job with a table in Postgres: epochs, rollbacks, savepoints, maintenance and secrets."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from milepost.cli.workspace.doctor import job_checks
from milepost.errors import EnvironmentUnusable, InvalidRequest, StoreUnavailable
from milepost.jobmaster import Session
from milepost.protocol.records.layout import staged_files_prefix
from milepost.sinks.staging import compaction
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import IN_POSTGRES, CountedJob
from milepost_testkit.jobs.sparkless.saved_job import OtherJob, moved
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.long


@pytest.fixture
def job(database: Database, tmp_path: Path) -> CountedJob:
    """A job after three epochs."""
    return CountedJob.with_epochs(tmp_path / "job", 3, IN_POSTGRES)


def rows_in(database: Database, table: str = "public.totals") -> dict[int, int]:
    return dict(database.run(f"SELECT k, rows FROM {table}"))  # type: ignore[arg-type]


def assert_equal(job: CountedJob, database: Database, table: str = "public.totals") -> None:
    """Assert that the table, read by SQL and from the checkpoint, equals DuckDB's result over the consumed rows."""
    counted = job.expected()["table"]
    expected = dict(zip(counted.column("k").to_pylist(), counted.column("rows").to_pylist(), strict=True))
    assert rows_in(database, table) == expected
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_table_in_postgres_follows_epochs_and_rollbacks(job: CountedJob, database: Database) -> None:
    """I14: after each step the table equals DuckDB's result."""
    assert_equal(job, database)
    job.rollback(1)
    assert_equal(job, database)
    assert sorted(rows_in(database)) == [-1, 0, 1]
    job.master.lifecycle.resume()
    job.run(2)
    assert_equal(job, database)
    job.rollback(3)
    assert_equal(job, database)
    job.rollback(0)
    assert rows_in(database) == {}
    job.master.lifecycle.resume()
    job.run(1)
    assert_equal(job, database)


def test_fsck_and_gc_recognize_staged_files(job: CountedJob, database: Database) -> None:
    """I8: staged files are in the job's storage, below their own prefix, and belong to the sink."""
    audit = job.master.reports.fsck()
    assert (audit.exit_code, audit.foreign, audit.unreachable) == (0, (), ())
    prefix = staged_files_prefix("table")
    store = job.small.context.store
    files = [stat.key for stat in store.list(prefix) if stat.key.endswith(".parquet")]
    stray = f"{prefix}_milepost/data/chk-{99:020d}/t1/0-{'a' * 64}.parquet"
    store.put(stray, b"x")
    assert job.master.reports.fsck().exit_code == 0
    job.master.collect_garbage()
    assert stray not in files and len([stat for stat in store.list(prefix) if stat.key in files]) == len(files) > 3
    store.delete([files[0]])
    broken = job.master.reports.fsck()
    assert broken.exit_code == 7
    assert [(missing.where, missing.key) for missing in broken.missing] == [
        ("sink table", files[0].removeprefix(prefix))
    ]


def test_a_rollback_reads_only_files_of_its_target(job: CountedJob, database: Database) -> None:
    """A file of the head was deleted. A rollback to an earlier checkpoint repairs the job."""
    store = job.small.context.store
    prefix = staged_files_prefix("table")
    store.delete([stat.key for stat in store.list(f"{prefix}_milepost/data/chk-{3:020d}/")])
    job.rollback(2)
    assert_equal(job, database)
    assert sorted(rows_in(database)) == [-2, -1, 0, 1, 2]


@pytest.mark.parametrize("compact_files", [5, pytest.param(compaction.COMPACT_FILES, marks=pytest.mark.deep)])
def test_changes_are_compacted_as_in_a_managed_table(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compact_files: int
) -> None:
    """The number of change files is bounded, the rows are unchanged, and a rollback past the compaction works."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", compact_files)
    job = CountedJob.create(tmp_path / "job", IN_POSTGRES)
    count = compact_files + 2
    job.land(range(1, count + 1))
    runner = SparklessRunner()
    for _ in range(count):
        job.master.epochs.run(Session.cli(), runner)
    assert any(isinstance(plan.maintenance.get("table"), compaction.CompactionPlan) for plan in runner.plans)
    contents = job.small.context.sink("table").position().contents
    assert contents is not None and contents.files < count
    assert_equal(job, database)
    job.rollback(count - 4)
    assert_equal(job, database)


def test_realign_repairs_foreign_changes_to_the_table(job: CountedJob, database: Database) -> None:
    """TABLES 1.8: realign compares rows, and leaves foreign rows in place."""
    database.run("DELETE FROM public.totals WHERE k = 1")
    database.run("UPDATE public.totals SET rows = 77 WHERE k = 2")
    database.run("INSERT INTO public.totals (k, rows) VALUES (1000, 5)")
    plan = job.master.realignments.plan("table")
    wording.matches("realign", str(plan.fault))
    done = job.master.realignments.run(Session.cli(), plan)
    assert done.outcome == "realigned"
    assert rows_in(database).pop(1000) == 5
    database.run("DELETE FROM public.totals WHERE k = 1000")
    assert_equal(job, database)
    assert (
        job.master.realignments.run(Session.cli(), job.master.realignments.plan("table")).outcome
        == "nothing_to_realign"
    )


def test_realign_recreates_a_dropped_table(job: CountedJob, database: Database) -> None:
    database.run("DROP TABLE public.totals")
    job.land([4])
    with wording.raises(InvalidRequest):
        job.run()
    job.master.realignments.run(Session.cli(), job.master.realignments.plan("table"))
    assert_equal(job, database)
    job.master.lifecycle.resume()
    job.run()
    assert_equal(job, database)


def test_another_job_may_restore_a_savepoint_only_into_its_own_table(
    job: CountedJob, database: Database, tmp_path: Path
) -> None:
    """TABLES 1.9: the second job cannot read the first job's storage, so the table itself records its owner."""
    job.master.savepoints.create("kept")
    (saved,) = job.master.list_savepoints()
    other = OtherJob.beside(job)
    with wording.raises(InvalidRequest):
        other.run(1)
    third = {"storage: ../store": "storage: ../third", "../lake/": "../lake/third-"}
    with wording.raises(InvalidRequest):
        OtherJob.beside(job, third).master.restores.start(moved(saved, tmp_path / "moved" / "first"))
    own = OtherJob.beside(job, {"public.totals": "public.other_totals", **third})
    own.master.restores.start(moved(saved, tmp_path / "moved" / "second"))
    assert rows_in(database, "public.other_totals") == rows_in(database)
    job.land([4])
    own.run(1)
    job.run(1)
    assert rows_in(database, "public.other_totals") == rows_in(database)
    assert_equal(job, database)


def test_an_epoch_fails_before_its_commit_point_while_the_database_is_down(
    job: CountedJob, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of that epoch is committed, and the next one reads its rows."""
    job.land([4])
    monkeypatch.setenv("PG_DSN", database.through(1).dsn)
    with wording.raises(StoreUnavailable):
        job.run()
    monkeypatch.setenv("PG_DSN", database.dsn)
    job.master.lifecycle.resume()
    job.run()
    assert_equal(job, database)


def test_a_connection_replaces_the_dsn(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`conn_id` replaces `dsn`, and is resolved when the database is opened."""
    database = postgres.new_database()
    edit = {old: new.replace('dsn: "${env:PG_DSN}"', "conn_id: warehouse") for old, new in IN_POSTGRES.items()}
    job = CountedJob.create(tmp_path / "job", edit)
    job.land([1])
    with wording.raises(EnvironmentUnusable):
        job.run()
    parts = {"conn_type": "postgres", "host": "127.0.0.1", "port": database.port, "login": database.user}
    monkeypatch.setenv(
        "AIRFLOW_CONN_WAREHOUSE", json.dumps({**parts, "schema": database.name, "password": database.password})
    )
    job.run()
    assert_equal(job, database)


def test_doctor_checks_the_database(job: CountedJob, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def check_table() -> tuple[bool, str]:
        (check,) = [check for check in job_checks(job.small.loaded()) if "public.totals" in check.check]
        return check.ok, check.detail

    ok, detail = check_table()
    assert ok
    wording.matches("doctor", detail)
    database.run("ALTER TABLE public.totals ADD CHECK (rows < 100)")
    ok, detail = check_table()
    assert not ok and "ALTER TABLE public.totals DROP CONSTRAINT" in detail
    assert "sink table" not in detail, "the name of the check names the sink"
    wording.matches("doctor", detail)
    monkeypatch.setenv("PG_DSN", database.through(1).dsn)
    ok, detail = check_table()
    assert not ok
    wording.matches("doctor", detail, replace={r"\(OperationalError: [^)]*\)": "({cause})"})


def test_the_password_is_never_stored_logged_or_shown(
    job: CountedJob, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """TABLES 1.15: not in stored files, logs, output or errors."""
    secret = database.password
    with caplog.at_level(logging.DEBUG):
        job.land([4])
        job.run()
        job.rollback(2)
        job.master.lifecycle.resume()
        database.server.new_database()
        database.run_as_superuser(f"ALTER ROLE \"{database.user}\" PASSWORD 'another'")
        with wording.raises(EnvironmentUnusable) as refused:
            job.run()
    shown = milepost("show", str(job.spec_path))
    assert secret not in f"{shown.stdout}{shown.stderr}"
    assert secret not in f"{refused.value!r} {refused.value.hint} {refused.value.details}"
    assert refused.value.__cause__ is None and refused.value.__suppress_context__
    assert secret not in caplog.text
    stored = [path for path in (tmp_path / "job").rglob("*") if path.is_file()]
    assert stored and not [path for path in stored if secret.encode() in path.read_bytes()]
