"""The old table stays while a retained checkpoint is of it; then it is emptied, collected and forgotten (I8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import StoreUnavailable
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sinks.staging import compaction
from milepost.storage.open import open_store
from milepost.tables.records.table_address import TableAddress
from milepost.tables.records.table_keys import DATA
from milepost_testkit.jobs.sparkless.migrating_job import SINKS, MigratingJob
from milepost_testkit.readers.reading_engines import ReadingEngines
from milepost_testkit.stores.job_stores import LaterStore, later

pytestmark = pytest.mark.long

HOUR_MS = 3_600_000
HOURS = 2
"""Between two epochs: more than the grace period, so each of them looks at the tables."""


def at_hour(patch: pytest.MonkeyPatch, hour: int) -> None:
    later(patch, hour * HOUR_MS)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> MigratingJob:
    """Four epochs, two hours apart, of which three checkpoints are retained. Only to be copied."""
    job = MigratingJob.create(tmp_path_factory.mktemp("prepared") / "job", {"last: 1": "last: 3"})
    job.land(range(1, 20))
    with pytest.MonkeyPatch.context() as patch:
        for number in range(4):
            at_hour(patch, HOURS * number)
            job.run()
    return job


@pytest.fixture
def job(prepared: MigratingJob, tmp_path: Path) -> MigratingJob:
    return prepared.copy_to(tmp_path / "job")


def files(job: MigratingJob, folder: str) -> set[str]:
    root = job.small.folder / "lake" / folder / DATA
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


def registered(job: MigratingJob, sink: str) -> set[str]:
    return {stat.key for stat in job.small.context.store.list(f"sinks/{sink}/tables/")}


def run_later(job: MigratingJob, patch: pytest.MonkeyPatch, first: int, epochs: int) -> None:
    for number in range(epochs):
        at_hour(patch, HOURS * (first + number))
        job.run()
        if number in (0, epochs // 2, epochs - 1):
            job.assert_whole()


def test_the_old_table_is_retained_while_it_is_needed_and_deleted_afterwards(
    job: MigratingJob, monkeypatch: pytest.MonkeyPatch, reading_engines: ReadingEngines
) -> None:
    at_hour(monkeypatch, HOURS * 4)
    for sink in SINKS:
        job.migrate(sink)
        job.say(sink)
    kept = {sink: files(job, sink) for sink in SINKS}
    run_later(job, monkeypatch, 4, 1)
    assert {sink: files(job, sink) for sink in SINKS} == kept, "a retained checkpoint is of the old tables"
    assert all(len(registered(job, sink)) == 2 for sink in SINKS)
    run_later(job, monkeypatch, 5, 6)
    oldest = job.small.context.head().state.checkpoints[0].checkpoint_id
    assert oldest > 6
    for sink in SINKS:
        assert files(job, sink) == set(), "nothing is of the old table any more"
        assert len(registered(job, sink)) == 1, "only the one in force"
        assert len(list(job.small.context.store.list(f"sinks/{sink}/marks/"))) <= 2
    job.assert_engines_agree(reading_engines)
    at_hour(monkeypatch, HOURS * 20)
    assert job.master.collect_garbage().unreachable == ()
    job.assert_whole()


@pytest.mark.deep
def test_after_a_rollback_beyond_it_the_new_table_is_emptied_and_collected(
    job: MigratingJob, monkeypatch: pytest.MonkeyPatch, reading_engines: ReadingEngines
) -> None:
    at_hour(monkeypatch, HOURS * 4)
    for sink in SINKS:
        job.migrate(sink)
        job.say(sink)
    run_later(job, monkeypatch, 4, 1)
    job.rollback(4)
    for sink in SINKS:
        job.say_parquet(sink)
    assert reading_engines.read("duckdb", job.lake("seen")).num_rows, "an abandoned checkpoint is of it"
    run_later(job, monkeypatch, 5, 7)
    for sink in SINKS:
        assert reading_engines.read("duckdb", job.lake(sink)).num_rows == 0, "its readers see an empty table"
        assert files(job, f"delta-{sink}") == set()
        assert len(registered(job, sink)) == 1
    at_hour(monkeypatch, HOURS * 20)
    assert job.master.collect_garbage().unreachable == ()
    job.assert_whole()


def test_what_a_savepoint_is_of_stays_a_root(job: MigratingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also files that the old table itself had replaced before it was left."""
    at_hour(monkeypatch, HOURS * 4)
    job.master.savepoints.create("before")
    monkeypatch.setattr(compaction, "COMPACT_FILES", 4)
    run_later(job, monkeypatch, 4, 1)
    for sink in SINKS:
        job.migrate(sink)
        job.say(sink)
    run_later(job, monkeypatch, 5, 5)
    assert files(job, "seen") and len(registered(job, "seen")) == 2
    old = job.small.context.sink("table", TableAddress("parquet", "../lake/table"))
    assert old.position().checkpoint_id == 5, "a table that a checkpoint is of is left as it was"
    job.rollback(4)
    job.assert_whole()
    assert job.rows_at("table", 4).num_rows == 9


def test_the_mark_of_a_table_that_did_not_answer_stays(job: MigratingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows which one it carries; without it a rollback could not move that table."""
    at_hour(monkeypatch, HOURS * 4)
    job.master.savepoints.create("before")
    job.migrate("seen")
    job.say("seen")

    def opener(config: StoreConfig) -> ObjectStore:
        def silent(operation: str, key: str) -> None:
            if config.url.endswith("/lake/seen") and (operation, key) == ("list", ""):
                raise StoreUnavailable(f"{config.url} does not answer")

        return LaterStore(open_store(config), before=silent, later_ms=HOURS * 6 * HOUR_MS)

    monkeypatch.setattr("milepost.jobmaster.job.context.open_store", opener)
    job.run()
    at_hour(monkeypatch, HOURS * 8)
    old = job.small.context.sink("seen", TableAddress("parquet", "../lake/seen"))
    assert old.position().checkpoint_id == 4, "the mark that it carries has its record"
    job.rollback(4)
    job.assert_whole()


def test_files_staged_by_a_dead_migration_are_collected_without_another_try(
    job: MigratingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is registered before anything is staged there."""

    class Killed(BaseException):
        pass

    def kill(operation: str, key: str) -> None:
        if operation == "put" and key.startswith(DATA) and "chk-" in key:
            killed.append(key)
        if killed:
            raise Killed

    killed: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            "milepost.jobmaster.job.context.open_store",
            lambda config: LaterStore(open_store(config), after=kill, later_ms=HOURS * 4 * HOUR_MS),
        )
        with pytest.raises(Killed):
            job.migrate("seen")
    assert files(job, "delta-seen") and killed
    run_later(job, monkeypatch, 9, 6)
    assert files(job, "delta-seen") == set()
    job.assert_whole()
