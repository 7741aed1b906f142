"""What is published (I14): every completed epoch, in order, to the table that its rows were staged for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import CommitOutcomeUnknown, InvalidRequest, StateCorrupt, StoreUnavailable
from milepost.jobmaster import Session
from milepost.tables.records.table_heads import HEADS
from milepost.tables.records.table_keys import staged_prefix
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.job_stores import hook_stores


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Two epochs, and two more files landed. Only to be copied."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", 2)
    job.land([3, 4])
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def complete_one(job: CountedJob) -> None:
    """An epoch that ends at its commit point: its process dies before it publishes."""
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    job.master.epochs.run_epoch(session, triggered.checkpoint_id, SparklessRunner())  # type: ignore[union-attr]
    job.master.epochs.complete(session, triggered.checkpoint_id)  # type: ignore[union-attr]


@pytest.mark.deep
def test_a_table_that_is_not_where_the_job_left_it_fails_the_epoch_before_its_commit_point(job: CountedJob) -> None:
    """After it nothing could be published any longer, and nothing could be aborted either."""
    shutil.rmtree(job.small.folder / "lake" / "seen" / HEADS)
    with wording.raises(InvalidRequest):
        job.run_one()
    assert job.live_ids == [1, 2]
    job.assert_tables_equal_the_oracle("table")


def test_a_missing_staged_file_fails_the_epoch_before_its_commit_point(job: CountedJob) -> None:
    """`prepare` trusts the list of staged files; a concurrent request verifies that they exist."""

    def lose(plan: EpochPlan) -> None:
        next((job.small.folder / "lake").glob(f"*/{staged_prefix(plan.checkpoint_id, plan.token)}*")).unlink()

    with wording.raises(StateCorrupt):
        job.master.epochs.run(Session.cli(), SparklessRunner(after=lose))
    assert job.live_ids == [1, 2]
    job.assert_tables_equal_the_oracle("table")


def test_a_sink_that_is_moved_after_the_commit_point_gets_nothing_at_its_new_place(job: CountedJob) -> None:
    """Its rows are at the old one; another table there may even be at the right checkpoint."""
    complete_one(job)
    lake = job.small.folder / "lake"
    shutil.copytree(lake / "seen", lake / "moved")
    before = sorted(path.name for path in (lake / "moved" / HEADS).iterdir())
    job.edit("../lake/seen", "../lake/moved")
    with wording.raises(InvalidRequest):
        job.run_one()
    assert sorted(path.name for path in (lake / "moved" / HEADS).iterdir()) == before
    job.edit("../lake/moved", "../lake/seen")
    job.run()
    job.assert_tables_equal_the_oracle()


def test_a_sink_that_was_down_gets_the_older_epoch_before_the_new_one(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down when the first one ends, and still when the next run publishes what is left; up at that one's own end."""
    down = True

    def before(operation: str, key: str) -> None:
        if down and operation == "create" and key.startswith(HEADS):
            raise StoreUnavailable("planned outage")

    hook_stores(monkeypatch, before=before)
    with wording.raises(CommitOutcomeUnknown):
        job.run_one()

    def up(plan: object) -> None:
        nonlocal down
        down = False

    assert job.master.epochs.run(Session.cli(), SparklessRunner(after=up)).checkpoint_id == 4
    job.assert_tables_equal_the_oracle()
