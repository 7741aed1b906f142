"""Objects were removed from the log of a Delta table: each message names the steps to a table that works again."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import InvalidRequest
from milepost.sinks.formats.delta.delta_log import LAST_CHECKPOINT
from milepost.tables.delta.log_objects import log_key
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob

pytestmark = pytest.mark.long

EPOCHS = 11
DELTA = {f"format: parquet, path: ../lake/{sink}": f"format: delta, path: ../lake/{sink}" for sink in ("seen", "table")}
SINKS = ("seen", "table")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """So many epochs that the logs have a checkpoint, and more landed. Only to be copied."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", EPOCHS, DELTA)
    job.land([EPOCHS + 1])
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def table(job: CountedJob, sink: str) -> Path:
    return job.small.folder / "lake" / sink


def checkpoints(job: CountedJob, sink: str) -> list[Path]:
    return sorted((table(job, sink) / "_delta_log").glob("*.checkpoint.parquet"))


def remove_checkpoint(job: CountedJob, sink: str) -> int:
    (checkpoint,) = checkpoints(job, sink)
    checkpoint.unlink()
    return int(checkpoint.name[:20])


def remove_checkpoint_and_what_it_holds(job: CountedJob, sink: str) -> None:
    """As after a clean-up of the log, which needs no commit before its checkpoint."""
    for version in range(remove_checkpoint(job, sink) + 1):
        (table(job, sink) / log_key(version)).unlink()


def remove_a_commit(job: CountedJob, sink: str) -> int:
    version = remove_checkpoint(job, sink) - 2
    (table(job, sink) / log_key(version)).unlink()
    (table(job, sink) / LAST_CHECKPOINT).unlink()
    return version


def spoil_a_commit(job: CountedJob, sink: str) -> None:
    newest = max((table(job, sink) / "_delta_log").glob("*.json"))
    newest.write_text("{nothing")


def refused(job: CountedJob) -> InvalidRequest:
    with wording.raises(InvalidRequest, replace={r"(?s)Kernel error: .*?(?=Nothing was)": "{cause} "}) as told:
        job.run()
    for command in (["realign", job.spec_path, "seen", "--dry-run"], ["rollback", job.spec_path, "--to", "3"]):
        assert milepost(*command).exit_code == 2, "no other command hides what is wrong"
    return told.value


def assert_goes_on(job: CountedJob) -> None:
    job.run()
    job.assert_tables_equal_the_oracle()
    assert DeltaTable(table(job, "seen")).to_pyarrow_table().num_rows == 3 * (EPOCHS + 1)
    assert job.master.reports.verify(deep=True).discarded == () and job.master.reports.fsck().exit_code == 0


def test_a_removed_checkpoint_whose_commits_are_there_is_only_hinted_at(job: CountedJob) -> None:
    """The hint alone keeps readers from the table; the message names the object to delete."""
    for sink in SINKS:
        remove_checkpoint(job, sink)
    for _ in SINKS:
        told = refused(job)
        (named,) = re.findall(r"file://(\S+_last_checkpoint)\b", told.hint)
        Path(named).unlink()
        assert "milepost resume small" in told.hint
        job.master.lifecycle.resume()
    assert_goes_on(job)


@pytest.mark.parametrize(
    "remove",
    [
        remove_checkpoint_and_what_it_holds,
        pytest.param(remove_a_commit, marks=pytest.mark.deep),
        pytest.param(spoil_a_commit, marks=pytest.mark.deep),
    ],
)
def test_a_log_that_lacks_versions_is_restored_or_rebuilt_from_the_jobs_state(
    job: CountedJob, remove: Callable[[CountedJob, str], object]
) -> None:
    """The last resort, typed literally: the log moves away, and `realign` makes the table of the job's own files."""
    remove(job, "seen")
    told = refused(job)
    log = re.findall(r"file://(\S+_delta_log)/", told.hint)[-1]
    (command,) = re.findall(r"milepost (realign \S+ seen)", told.hint)
    Path(log).rename(job.small.folder / "away")
    words = command.replace("small", str(job.spec_path)).split()
    assert milepost(*words, "--yes").exit_code == 0
    job.master.lifecycle.resume()
    assert_goes_on(job)


def test_the_objects_to_restore_are_named_and_restoring_them_helps(job: CountedJob, tmp_path: Path) -> None:
    (checkpoint,) = checkpoints(job, "seen")
    shutil.copy(checkpoint, tmp_path / "copy")
    remove_checkpoint_and_what_it_holds(job, "seen")
    told = refused(job)
    version = int(checkpoint.name[:20])
    assert f" {version}" in told.message
    assert f"{version:020d}.checkpoint.*" in told.hint and f"file://{checkpoint.parent}/" in told.hint
    shutil.copy(tmp_path / "copy", checkpoint)
    job.master.lifecycle.resume()
    assert_goes_on(job)


def test_a_removed_commit_is_named_by_its_version(job: CountedJob) -> None:
    version = remove_a_commit(job, "seen")
    told = refused(job)
    assert f" {version} " in told.message and f"{version:020d}.json" in told.hint


def test_a_table_that_is_not_the_sinks_is_not_offered_to_be_rebuilt(tmp_path: Path) -> None:
    """A path that the sink has not reserved: moving another's log away would lose its table."""
    job = CountedJob.create(tmp_path / "job", DELTA)
    log = table(job, "seen") / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{7:020d}.json").write_text("{}")
    (log / f"{3:020d}.json").write_text("{}")
    job.land([1])
    with wording.raises(InvalidRequest) as told:
        job.run()
    assert "realign" not in told.value.hint
