"""After a published file was deleted, each command suggests a rollback to the newest intact checkpoint."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from milepost.errors import StateCorrupt
from milepost.sinks.staging import compaction
from milepost.spark import driver
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, milepost
from milepost_testkit.jobs.sparkless.counted_job import IN_POSTGRES, CountedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.postgres_server import Database
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store

pytestmark = pytest.mark.long

FORMS = ("parquet", "delta")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CountedJob]:
    """Three epochs in each format, and more landed. Only to be copied."""
    jobs = {}
    for form in FORMS:
        edit = {f"parquet, path: ../lake/{sink}": f"{form}, path: ../lake/{sink}" for sink in ("seen", "table")}
        jobs[form] = CountedJob.with_epochs(tmp_path_factory.mktemp(form) / "job", 3, edit)
        jobs[form].land([4])
    return jobs


@pytest.fixture(params=FORMS)
def job(request: pytest.FixtureRequest, prepared: dict[str, CountedJob], tmp_path: Path) -> CountedJob:
    return prepared[request.param].copy_to(tmp_path / "job")


def delete_published(job: CountedJob, checkpoint_id: int, sink: str = "seen") -> Path:
    """Move a file that a checkpoint published out of its table, to the folder `trash`; return where it was."""
    staged = job.small.folder / "lake" / sink / "_milepost" / "data" / f"chk-{checkpoint_id:020d}"
    file = sorted(staged.rglob("*.parquet"))[0]
    trash(job).mkdir(exist_ok=True)
    file.rename(trash(job) / file.name)
    return file


def trash(job: CountedJob) -> Path:
    return job.small.folder / "trash"


def said(outcome: Outcome) -> str:
    return " ".join((outcome.stdout + outcome.stderr).split())


def suggested_rollback(outcome: Outcome) -> list[str]:
    """Return the rollback that a command names, as words to type."""
    (command,) = set(re.findall(r"milepost (rollback \S+ --to \d+)", said(outcome)))
    return shlex.split(command)


def test_the_rollback_in_verify_status_and_read_repairs_the_job(job: CountedJob) -> None:
    """The missing file was added by checkpoint 2 and is in the head's table, so only checkpoint 1 is intact."""
    delete_published(job, 2)
    for command in (["verify"], ["status"], ["read", "seen"]):
        refused = milepost(command[0], job.spec_path, *command[1:])
        assert refused.exit_code == 7
        assert suggested_rollback(refused) == ["rollback", str(job.spec_path), "--to", "1"], command
    assert milepost(*suggested_rollback(milepost("status", job.spec_path)), "--yes").exit_code == 0
    job.run(3)
    job.assert_tables_equal_the_oracle()
    verified = milepost("verify", job.spec_path)
    assert verified.exit_code == 0
    wording.matches("verify", verified.stdout + verified.stderr)
    assert milepost("status", job.spec_path).exit_code == 0
    alone = milepost("verify", job.spec_path, "2")
    assert alone.exit_code == 7, "asked for by its number, it is broken"


@pytest.mark.deep
def test_restoring_the_missing_file_is_sufficient(job: CountedJob) -> None:
    """Return the rollback that a message suggests first."""
    file = delete_published(job, 3)
    assert suggested_rollback(milepost("status", job.spec_path))[-1] == "2"
    (trash(job) / file.name).rename(file)
    assert milepost("status", job.spec_path).exit_code == milepost("verify", job.spec_path).exit_code == 0
    job.run()
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_if_no_checkpoint_is_intact_the_empty_state_is_suggested(job: CountedJob) -> None:
    delete_published(job, 1)
    told = milepost("status", job.spec_path)
    wording.matches("status", told.stdout + told.stderr)
    assert milepost(*suggested_rollback(told), "--yes").exit_code == 0
    job.run(4)
    job.assert_tables_equal_the_oracle()


def test_an_epoch_that_needs_the_file_names_the_rollback(
    prepared: dict[str, CountedJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of changes are compacted: the epoch that reads all of them fails with what to type."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 4)
    job = prepared["parquet"].copy_to(tmp_path / "job")
    delete_published(job, 2, "table")
    with wording.raises(StateCorrupt) as refused:
        job.run()
    assert refused.value.details["rollback_to"] == 1


def test_an_epoch_that_does_not_need_the_file_says_so_too(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` ends well, as its rows are published; the table cannot be read completely, and the recovery is named."""
    monkeypatch.setattr(driver, "spark_runner", SparklessRunner)
    delete_published(job, 2)
    ran = milepost("run", job.spec_path)
    assert ran.exit_code == 0
    wording.matches("run", ran.stdout + ran.stderr)
    assert suggested_rollback(ran) == ["rollback", str(job.spec_path), "--to", "1"]


@pytest.mark.deep
def test_staged_rows_of_a_table_in_a_database_count_as_published(database: Database, tmp_path: Path) -> None:
    """The table is compared with them, and a rollback needs them."""
    job = CountedJob.with_epochs(tmp_path / "job", 3, IN_POSTGRES)
    staged = job.small.context.sink("table").store
    staged.delete([stat.key for stat in staged.list(f"_milepost/data/chk-{2:020d}/")])
    told = milepost("status", job.spec_path)
    assert told.exit_code == 7 and suggested_rollback(told)[-1] == "1"
    assert milepost(*suggested_rollback(told), "--yes").exit_code == 0
    job.run(2)
    job.assert_tables_equal_the_oracle()
    assert milepost("status", job.spec_path).exit_code == 0


def test_an_unavailable_sink_does_not_count_as_a_missing_file(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` reports what it can read. An unreachable object is not missing."""
    url = job.small.context.sink("seen").store.config.url
    delete_published(job, 2)
    break_store(monkeypatch, url, Fault(at("list", "_milepost/data/"), Effect.UNAVAILABLE))
    job.master.reports.begin_published_check()()
