"""A backfill that is killed between any two writes, or raced by the schedule before any of them: nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.errors import Busy
from milepost.protocol.records.layout import SINKS_PREFIX
from milepost.protocol.records.manifest_state import TimelineRole
from milepost.protocol.retention.ancestry import open_forks
from milepost.tables.records.table_heads import HEADS
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob, mortal_session
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.job_stores import hook_stores

pytestmark = pytest.mark.long

DAYS = 3


class Killed(BaseException):
    """The process ends here: nothing that it still tries has an effect."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> BackfillJob:
    """Three days with the wrong rule, corrected since; the backfill has one range to replay. Only to be copied."""
    job = BackfillJob.create(tmp_path_factory.mktemp("prepared") / "job", DAYS)
    job.fix()
    return job


def writes_of(job: BackfillJob) -> list[str]:
    """Backfill, and return the keys that the master wrote, in order."""
    written: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        hook_stores(patch, after=lambda operation, key: written.append(key) if operation in WRITES else None)
        job.backfill()
    return written


def die_after(job: BackfillJob, writes: int) -> None:
    """Backfill in a process that ends once so many writes have taken effect."""
    done = 0

    def before(operation: str, key: str) -> None:
        if done >= writes:
            raise Killed

    def after(operation: str, key: str) -> None:
        nonlocal done
        done += operation in WRITES
        if done >= writes:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, mortal_session() as session:
        hook_stores(patch, before=before, after=after)
        with pytest.raises(Killed):
            job.backfill(session=session)


def test_killed_after_any_write_the_schedule_goes_on_and_the_same_command_finishes_it(
    prepared: BackfillJob, tmp_path: Path
) -> None:
    """Before the fast-forward the live timeline is as it was; after it the next epoch lets the sinks follow first."""
    whole = prepared.copy(tmp_path / "whole")
    written = writes_of(whole)
    follows = [index for index, key in enumerate(written) if key.startswith((SINKS_PREFIX, HEADS))]
    assert follows == list(range(len(written) - 3, len(written) - 1)), "the sink follows last, before its fact"
    assert written[0].startswith("manifest/") and written[follows[0] - 1].startswith("manifest/")
    for count in range(1, len(written)):
        job = prepared.copy(tmp_path / str(count))
        die_after(job, count)
        switched = job.state.live != "main"
        assert switched == (count >= follows[0]), written[:count]
        frozen = job.state.timeline().frozen
        if count % 2 and frozen is None:
            job.next_day(DAYS + 1)
            job.assert_table(DAYS + 1, fixed=switched, fixed_from=None if switched else DAYS + 1)
        days = DAYS + (count % 2 and frozen is None)
        job.backfill()
        job.assert_table(days, fixed=True)
        assert open_forks(job.state) == ()
        assert job.next_day(days + 1) > 0
        job.assert_table(days + 1, fixed=True)
        assert job.master.reports.fsck().exit_code == 0


def test_a_schedule_that_completes_an_epoch_before_any_write_is_caught_up_with(
    prepared: BackfillJob, tmp_path: Path
) -> None:
    """Whatever main completes before the fast-forward is replayed; a trigger in the last stretch is Busy."""
    manifest_writes = [key for key in writes_of(prepared.copy(tmp_path / "whole")) if key.startswith("manifest/")]
    outcomes = []
    for number in range(len(manifest_writes)):
        job = prepared.copy(tmp_path / str(number))
        outcomes.append(race(job, number))
        if outcomes[-1] == "busy":
            assert job.epoch().status == "completed", "the schedule goes on after the last stretch"
        job.assert_table(DAYS + 1, fixed=True)
        roles = sorted(one.role.value for one in job.state.timelines)
        assert roles == [TimelineRole.ABANDONED.value, TimelineRole.LIVE.value]
        assert job.master.reports.fsck().exit_code == 0
    assert outcomes.count("busy") >= 2 and outcomes.count("completed") >= 2


def race(job: BackfillJob, number: int) -> str:
    """Backfill; before its manifest write of that number the schedule's next epoch runs. Returns how that ended."""
    seen, outcome = 0, ""
    job.land(DAYS + 1)

    def scheduled() -> str:
        try:
            return str(job.epoch().status)
        except Busy:
            return "busy"

    def before(operation: str, key: str) -> None:
        nonlocal seen, outcome
        if operation == "create" and key.startswith("manifest/") and not outcome:
            seen += 1
            if seen == number + 1:
                outcome = "running"
                outcome = unhooked(patch, scheduled)

    with pytest.MonkeyPatch.context() as patch:
        hook_stores(patch, before=before)
        job.backfill()
    return outcome


def unhooked(patch: pytest.MonkeyPatch, act: Callable[[], str]) -> str:
    """Do it with the stores as they are, as another process would."""
    with pytest.MonkeyPatch.context() as inner:
        hook_stores(inner)
        return act()
