"""A landed source that is renamed continues its log, wherever the job reads, trims, saves or replays it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import Condition, NothingToDo
from milepost.protocol.landed.floors import floor_of
from milepost.sources.landed.postgres.postgres_source import slot_name
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.specs.spec_edits import edit_spec


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    job = LandedJob.create(tmp_path / "job")
    job.land_and_run(1, 2)
    return job


def spec(job: LandedJob) -> Path:
    return job.folder / "config" / "landed.yaml"


def forget_former_name(job: LandedJob) -> None:
    edit_spec(spec(job), {"    renamed_from: feed\n": ""})


def logs(job: LandedJob) -> set[str]:
    """The names under which logs are stored."""
    return {stat.key.split("/")[1] for stat in job.context.store.list("landed/")}


def run_all(job: LandedJob) -> None:
    while not isinstance(job.epoch(), NothingToDo):
        pass


@pytest.mark.long
def test_a_renamed_source_goes_on_in_its_log(job: LandedJob) -> None:
    job.rename("events")
    head = job.land_and_run(3)
    assert (logs(job), job.left) == ({"feed"}, 0)
    job.assert_tables(3)
    context = job.context
    checkpoint = context.head().state.head()
    assert checkpoint is not None and checkpoint.checkpoint_id == head
    sources = context.metadata(checkpoint).sources
    assert sources.keys() == {"events"} and sources["events"].stored_as == "feed"
    assert job.master.reports.fsck().exit_code == 0
    job.master.reports.verify(deep=True)
    assert milepost("input", spec(job), "events").exit_code == 0
    assert milepost("status", spec(job)).exit_code == 0


@pytest.mark.deep
def test_the_former_name_is_needed_only_until_a_checkpoint_has_the_new_one(job: LandedJob) -> None:
    job.rename("events")
    job.land_and_run(3)
    forget_former_name(job)
    job.land_and_run(4)
    assert logs(job) == {"feed"}
    job.assert_tables(4)


@pytest.mark.deep
@pytest.mark.parametrize("target", [0, 1])
def test_a_rollback_to_before_the_rename_goes_on_in_the_same_log(job: LandedJob, target: int) -> None:
    job.rename("events")
    job.land_and_run(3)
    forget_former_name(job)
    job.roll_back(target)
    run_all(job)
    assert logs(job) == {"feed"}
    job.assert_tables(3)


@pytest.mark.deep
def test_a_source_can_be_renamed_twice_and_back(job: LandedJob) -> None:
    job.rename("events")
    job.land_and_run(3)
    job.rename("clicks")
    job.land_and_run(4)
    job.roll_back(1)
    run_all(job)
    job.assert_tables(4)
    job.rename("feed")
    job.land_and_run(5)
    assert logs(job) == {"feed"}
    job.assert_tables(5)


@pytest.mark.deep
@pytest.mark.parametrize("with_epoch", [False, True])
def test_a_savepoint_from_before_two_renames_is_restored(job: LandedJob, with_epoch: bool) -> None:
    job.master.savepoints.create("first")
    job.rename("events")
    job.land_and_run(3)
    job.rename("clicks")
    if with_epoch:
        job.land_and_run(4)
    job.master.savepoints.cancel()
    job.master.restores.start("first")
    assert job.position() == job.position(1)
    run_all(job)
    assert logs(job) == {"feed"}
    job.assert_tables(4 if with_epoch else 3)


@pytest.mark.deep
@pytest.mark.parametrize("target", [1, 2, 3])
@pytest.mark.parametrize("name", ["feed", "events"])
def test_the_spec_can_be_reverted_to_a_former_name(job: LandedJob, name: str, target: int) -> None:
    job.rename("events")
    job.land_and_run(3)
    job.rename("clicks")
    job.land_and_run(4)
    job.rename(name)
    job.forget_rename()
    job.roll_back(target)
    run_all(job)
    job.land_and_run(5)
    assert logs(job) == {"feed"}
    job.assert_tables(5)


@pytest.mark.deep
def test_the_first_name_is_a_former_name_after_a_second_rename(job: LandedJob) -> None:
    job.rename("events")
    job.land_and_run(3)
    job.rename("clicks")
    edit_spec(spec(job), {"renamed_from: events": "renamed_from: feed"})
    job.land_and_run(4)
    assert logs(job) == {"feed"}
    job.assert_tables(4)


@pytest.mark.long
@pytest.mark.parametrize("is_restored", [False, True], ids=["rolled back", "restored"])
def test_a_new_source_under_a_former_name_gets_a_log_of_its_own(job: LandedJob, is_restored: bool) -> None:
    job.rename("events")
    job.land_and_run(3)
    job.master.savepoints.create("then")
    job.rename("clicks")
    job.land_and_run(4)
    job.forget_rename()
    edit_spec(spec(job), {"sources:\n": SECOND.replace("feed:", "events:")})
    assert not job.land().failed
    if is_restored:  # to where `events` is the name of the first log
        job.master.savepoints.cancel()
        job.master.restores.start("then")
    else:
        job.roll_back(2)
    assert job.context.log_names() == {"clicks": "feed", "events": "events"}
    state = job.context.head().state
    base = job.context.base_metadata(state, state.timeline().head)
    assert base is not None and base.sources.keys() == {"clicks"}
    run_all(job)
    assert logs(job) == {"events", "feed"}
    job.assert_tables(4, lost=[])


@pytest.mark.deep
def test_a_backfill_replays_input_read_under_the_former_name(job: LandedJob) -> None:
    job.land_and_run(3)
    job.rename("events")
    job.land_and_run(4)
    job.backfill(from_checkpoint=0)
    job.assert_tables(4)


@pytest.mark.deep
def test_a_log_that_no_epoch_has_read_yet_goes_on(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path / "job")
    job.produce(1, 2)
    job.land()
    job.rename("events")
    job.land_and_run(3)
    run_all(job)
    assert logs(job) == {"feed"}
    job.assert_tables(3)


def test_a_log_that_does_not_exist_cannot_be_continued(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path / "job")
    job.produce(1, 2)
    job.land()
    job.rename("events")
    job.rename("clicks")
    job.produce(3)
    (failed,) = job.land().failed
    wording.matches("land", f"{failed.message}\n{failed.hint}")
    assert (logs(job), job.left) == ({"events", "feed"}, 1), "only the failure is stored there"


@pytest.mark.long
@pytest.mark.parametrize("landed_again", [False, True])
def test_a_log_that_no_epoch_has_read_is_not_left_behind(tmp_path: Path, landed_again: bool) -> None:
    job = LandedJob.create(tmp_path / "job")
    job.produce(1, 2)
    job.land()
    job.rename("events")
    if landed_again:
        job.produce(3)
        assert not job.land().failed
    forget_former_name(job)
    job.produce(4)
    (failed,) = job.land().failed
    wording.matches("land", f"{failed.message}\n{failed.hint}")
    assert job.left == 1
    edit_spec(spec(job), {"  events:\n": "  events:\n    renamed_from: feed\n"})
    assert not job.land().failed
    run_all(job)
    job.assert_tables(4 if landed_again else 3)


@pytest.mark.deep
def test_a_source_gets_another_log_under_another_name_once_a_checkpoint_has_read_the_first_one(job: LandedJob) -> None:
    edit_spec(
        spec(job), {"  feed:\n": "  clicks:\n", "inputs: [feed]": "inputs: [clicks]", "input: feed": "input: clicks"}
    )
    assert not job.land().failed
    assert logs(job) == {"clicks", "feed"}


@pytest.mark.deep
def test_the_floor_of_a_renamed_source_rises(tmp_path: Path) -> None:
    edits = {
        "retained: {last: 50}": "retained: {last: 1}",
        "    event_time: at": "    event_time: at\n    land: {retain: 0s}",
    }
    job = LandedJob.create(tmp_path / "job", edits)
    for key in (1, 2, 3):
        job.land_and_run(key)
    before = floor_of(job.context.head().state, "feed")
    job.rename("events")
    for key in (4, 5, 6):
        job.land_and_run(key)
    after = floor_of(job.context.head().state, "feed")
    assert before is not None and after is not None and after.next > before.next
    assert job.master.reports.fsck().exit_code == 0
    job.assert_tables(6)


@pytest.mark.deep
@pytest.mark.parametrize("other_name", ["events", "clicks"])
def test_a_savepoint_of_a_renamed_source_is_restored_elsewhere(job: LandedJob, tmp_path: Path, other_name: str) -> None:
    job.rename("events")
    job.land_and_run(3)
    job.produce(4)
    job.land()
    job.master.savepoints.export(2, str(tmp_path / "saved"), with_input=True)
    other = LandedJob(tmp_path / "other")
    shutil.copytree(job.folder / "config", other.folder / "config")
    shutil.copy(job.folder / "feed.json", other.folder)
    shutil.copy(job.folder / "produced.csv", other.folder)
    forget_former_name(other)
    edit_spec(spec(other), {str(job.folder): str(other.folder)})
    if other_name != "events":
        other.rename(other_name)
    other.master.restores.start(str(tmp_path / "saved"))
    assert not other.land().failed
    run_all(other)
    other.assert_tables(4)
    assert logs(other) == {"feed"}
    assert other.master.reports.fsck().exit_code == 0


def test_a_restore_never_gives_a_source_a_second_log(job: LandedJob, tmp_path: Path) -> None:
    job.rename("events")
    job.land_and_run(3)
    job.master.savepoints.export(2, str(tmp_path / "saved"))
    other = LandedJob.create(tmp_path / "other")
    other.rename("events")
    forget_former_name(other)
    other.produce(1)
    other.land()
    assert logs(other) == {"events"}
    with wording.raises(InvalidRequest):
        other.master.restores.start(str(tmp_path / "saved"))
    assert logs(other) == {"events"}


SECOND = """\
sources:
  feed:
    format: nexmark
    events: bid
"""


def test_a_new_source_cannot_take_the_name_of_the_log(job: LandedJob) -> None:
    job.rename("events")
    job.land_and_run(3)
    forget_former_name(job)
    edit_spec(spec(job), {"sources:\n": SECOND})
    failed = job.land().failed
    assert {item.source for item in failed} == {"events", "feed"}
    assert all("landed/feed/ is the log of source events" in item.message for item in failed)
    status = job.master.reports.status()
    assert status.condition is Condition.SPEC_REFUSED and "source feed: needs another name" in status.next_step
    with wording.raises(InvalidRequest):
        job.epoch()
    assert logs(job) == {"feed"}


@pytest.mark.deep
def test_a_renamed_source_without_its_former_name_would_be_read_twice(job: LandedJob) -> None:
    job.rename("events")
    forget_former_name(job)
    with wording.raises(InvalidRequest) as refused:
        job.land_and_run(3)
    assert "nothing is read twice" not in refused.value.full_message()
    shown = milepost("lint", spec(job))
    assert shown.exit_code == 2 and "write `renamed_from: feed` at source events" in " ".join(shown.stderr.split())


def test_a_former_name_that_no_checkpoint_has_needs_a_decision(job: LandedJob) -> None:
    job.rename("events")
    edit_spec(spec(job), {"renamed_from: feed": "renamed_from: typo"})
    with wording.raises(InvalidRequest):
        job.land_and_run(3)


def test_a_slot_has_the_name_under_which_the_log_is_stored(job: LandedJob) -> None:
    job.rename("events")
    assert job.context.stored_name("events") == "feed"
    assert slot_name("landed", job.context.stored_name("events"), "life") == slot_name("landed", "feed", "life")


def test_a_source_cannot_take_the_name_of_one_that_left(job: LandedJob) -> None:
    """Its former name would be ignored: it would continue the log of the other source."""
    job.rename("second")
    edit_spec(spec(job), {"    renamed_from: feed\n": ""})  # another source, which reads everything again
    job.land_and_run(3, allow_non_restored_state=True)
    assert logs(job) == {"feed", "second"}
    job.rename("feed")
    landed = job.land()
    assert [one.error for one in landed.failed] == ["InvalidRequest"]
    wording.matches("land", landed.failed[0].message)
    with pytest.raises(InvalidRequest, match="cannot be `renamed_from: second`"):
        job.epoch(allow_non_restored_state=True)
    job.rename("third")
    edit_spec(spec(job), {"    renamed_from: feed\n": "    renamed_from: second\n"})
    assert job.context.log_names()["third"] == "second"
