"""A rollback that is killed between any two writes, raced, or whose sinks do not answer: finished later, never lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest

from milepost.errors import (
    Busy,
    CheckpointError,
    CommitConflict,
    Fenced,
    InvalidRequest,
    StoreUnavailable,
)
from milepost.jobmaster import Session
from milepost.tables.records.table_heads import HEADS
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import SEEN_SINK, CountedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.hooked_store import Hook
from milepost_testkit.stores.job_stores import break_store, hook_stores

pytestmark = pytest.mark.long

EPOCHS = 4
TARGET = 2


class Killed(BaseException):
    """The process ends here: nothing of it catches this."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    return CountedJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", EPOCHS)


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def writes_of(job: CountedJob, act: Callable[[], object], *, die_after: int | None = None) -> list[str]:
    """Do it, and return the keys that were written; killed once `die_after` of them are."""
    written: list[str] = []

    def after(operation: str, key: str) -> None:
        if operation in WRITES:
            written.append(key)
            if len(written) == die_after:
                raise Killed

    with pytest.MonkeyPatch.context() as patch:
        hook_stores(patch, after=after)
        if die_after is None:
            act()
        else:
            with pytest.raises(Killed):
                act()
    return written


def next_run(job: CountedJob) -> None:
    job.run()


def next_rollback(job: CountedJob) -> None:
    job.rollback(TARGET)


def next_cancel_and_start(job: CountedJob) -> None:
    job.master.savepoints.cancel()
    job.master.restores.start()


def test_killed_after_any_of_its_writes_the_next_command_finishes_it(prepared: CountedJob, tmp_path: Path) -> None:
    """Order: the switch in the manifest -> per sink its new head, then the fact. Each stop is a state on its own."""
    whole = prepared.copy_to(tmp_path / "whole")
    written = writes_of(whole, lambda: whole.rollback(TARGET))
    heads = [index for index, key in enumerate(written) if key.startswith(HEADS)]
    assert written[0].startswith("manifest/") and len(heads) == 2
    assert all(written[index + 1].startswith("manifest/") for index in heads)
    for count, recover in zip(range(1, len(written)), cycle((next_run, next_rollback, next_cancel_and_start))):
        job = prepared.copy_to(tmp_path / str(count))
        writes_of(job, lambda job=job: job.rollback(TARGET), die_after=count)  # type: ignore[misc]
        waiting = job.small.context.head().state.reconciliation
        assert waiting is not None and waiting.checkpoint_id == TARGET
        status = job.master.reports.status()
        assert (status.exit_code, status.reconciling) == (1, tuple(waiting.sinks))
        wording.matches("status", status.next_step)
        recover(job)
        assert job.small.context.head().state.reconciliation is None
        assert job.live_ids[:TARGET] == [1, 2] and not {3, 4} & set(job.live_ids)
        job.assert_tables_equal_the_oracle()
        job.run()
        job.assert_tables_equal_the_oracle()
        assert job.master.reports.fsck().exit_code == 0


def test_killed_between_the_take_over_and_the_switch_nothing_is_rolled_back(job: CountedJob) -> None:
    job.land([5])
    session = Session.cli()
    job.small.trigger(session)
    written = writes_of(job, lambda: job.rollback(TARGET, take_over=True), die_after=1)
    assert written[0].startswith("manifest/")
    assert job.master.reports.show(5).status == "aborted" and job.live_ids == [1, 2, 3, 4]
    job.run()
    job.assert_tables_equal_the_oracle()


def down(job: CountedJob, sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = job.small.context.sink_config(sink).url
    break_store(monkeypatch, url, Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=10_000))


def test_a_sink_that_is_down_delays_the_next_epoch_and_loses_nothing(job: CountedJob) -> None:
    with pytest.MonkeyPatch.context() as outage:
        down(job, "seen", outage)
        plan = job.master.rollbacks.plan(TARGET)
        wording.matches("plan", [line for line in plan.text if "sink seen" in line])
        with wording.raises(StoreUnavailable):
            job.rollback(TARGET)
        job.assert_tables_equal_the_oracle("table")
        with wording.raises(StoreUnavailable):
            job.run_one()
        with wording.raises(StoreUnavailable):
            job.master.savepoints.cancel()
        with wording.raises(StoreUnavailable):
            job.run_one()
    assert job.master.savepoints.cancel().outcome == "already_canceled"
    job.assert_tables_equal_the_oracle()
    job.master.restores.start()
    job.run(2)
    job.assert_tables_equal_the_oracle()


def test_another_rollback_replaces_one_that_still_waits_for_a_sink(job: CountedJob) -> None:
    with pytest.MonkeyPatch.context() as outage:
        down(job, "seen", outage)
        with pytest.raises(StoreUnavailable):
            job.rollback(1)
        with wording.raises(StoreUnavailable):
            job.rollback(3)
    assert job.master.rollbacks.finish_reconciliation(Session.cli()) == ("seen",)
    assert job.live_ids == [1, 2, 3]
    job.assert_tables_equal_the_oracle()
    assert job.master.rollbacks.finish_reconciliation(Session.cli()) == ()


def test_a_sink_that_was_dropped_before_it_followed_must_come_back_first(job: CountedJob) -> None:
    with pytest.MonkeyPatch.context() as outage:
        down(job, "seen", outage)
        with pytest.raises(StoreUnavailable):
            job.rollback(TARGET)
    job.edit(SEEN_SINK, "")
    with wording.raises(InvalidRequest):
        job.run_one()
    job.edit("sinks:\n", "sinks:\n" + SEEN_SINK)
    job.run()
    job.assert_tables_equal_the_oracle()


def test_a_reply_that_is_lost_at_any_write_is_recognised(prepared: CountedJob, tmp_path: Path) -> None:
    """The outcome of a write is unknown, and it had landed: nothing is done twice, nothing is left undone."""
    urls = {name: prepared.small.context.sink_config(name).url for name in ("seen", "table")}
    for name in urls:
        job = prepared.copy_to(tmp_path / name)
        url = job.small.context.sink_config(name).url
        with pytest.MonkeyPatch.context() as patch:
            break_store(patch, url, Fault(lambda operation, key: key.startswith(HEADS) and operation == "create",
                                          Effect.LOST_REPLY))  # fmt: skip
            job.rollback(TARGET)
        job.assert_tables_equal_the_oracle()
    job = prepared.copy_to(tmp_path / "manifest")
    with pytest.MonkeyPatch.context() as patch:
        point = Fault(lambda operation, key: operation == "create" and key.startswith("manifest/"), Effect.LOST_REPLY)
        break_store(patch, job.small.context.store_config.url, point)
        assert job.rollback(TARGET).outcome == "rolled_back"
    assert len([one for one in job.master.reports.history() if one["event"] == "TimelineSwitched"]) == 1
    job.assert_tables_equal_the_oracle()


def before_write(prefix: str, act: Callable[[], None]) -> Hook:
    """Act once, right before the first write below a prefix; what the act itself writes does not count."""
    pending: Iterator[Callable[[], None]] = iter([act])

    def before(operation: str, key: str) -> None:
        if operation in WRITES and key.startswith(prefix):
            for due in pending:
                due()

    return before


def test_of_two_rollbacks_at_once_one_is_refused(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other lands right before the first one's switch: the head that the first had looked at is left."""
    hook_stores(monkeypatch, before=before_write("manifest/", lambda: job.rollback(3) and None))
    with wording.raises(CommitConflict):
        job.rollback(1)
    assert job.live_ids == [1, 2, 3]
    job.assert_tables_equal_the_oracle()
    job.run()
    job.assert_tables_equal_the_oracle()


def test_a_rollback_that_is_overtaken_while_its_sinks_follow_says_so_and_the_newer_one_counts(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook_stores(monkeypatch, before=before_write(HEADS, lambda: job.rollback(3) and None))
    with wording.raises(Fenced) as overtaken:
        job.rollback(1)
    assert overtaken.value.exit_code == 4
    assert job.live_ids == [1, 2, 3]
    job.assert_tables_equal_the_oracle()
    job.run()
    job.assert_tables_equal_the_oracle()


def test_two_sessions_that_finish_the_same_rollback_write_each_head_once(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(list((job.small.folder / "lake" / "seen" / HEADS).iterdir()))
    other = before_write(HEADS, lambda: job.master.rollbacks.finish_reconciliation(Session.cli()) and None)
    hook_stores(monkeypatch, before=other)
    assert job.rollback(TARGET).outcome == "rolled_back"
    assert len(list((job.small.folder / "lake" / "seen" / HEADS).iterdir())) == before + 1
    job.assert_tables_equal_the_oracle()


def test_an_epoch_that_is_triggered_while_a_rollback_decides_makes_it_busy(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.land([5])
    session = Session.cli()
    hook_stores(monkeypatch, before=before_write("manifest/", lambda: job.master.triggers.trigger(session) and None))
    with wording.raises(Busy):
        job.rollback(TARGET)
    monkeypatch.undo()
    job.master.epochs.run_epoch(session, 5, SparklessRunner())
    job.master.epochs.complete(session, 5)
    for sink in ("seen", "table"):
        job.master.epochs.notify_complete(session, 5, sink)
    assert job.live_ids == [1, 2, 3, 4, 5]
    job.assert_tables_equal_the_oracle()


def test_an_epoch_that_completes_while_a_rollback_takes_it_over_wins_or_is_fenced_and_never_both(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I9: its complete lands right before the rollback's abort; then the head has moved, and nothing is discarded."""
    job.land([5])
    session = Session.cli()
    job.master.triggers.trigger(session)
    job.master.epochs.run_epoch(session, 5, SparklessRunner())
    hook_stores(monkeypatch, before=before_write("manifest/", lambda: job.master.epochs.complete(session, 5) and None))
    with pytest.raises(CheckpointError) as refused:
        job.rollback(TARGET, take_over=True)
    assert refused.value.exit_code == 4
    monkeypatch.undo()
    assert job.live_ids == [1, 2, 3, 4, 5]
    for sink in ("seen", "table"):
        job.master.epochs.notify_complete(session, 5, sink)
    job.assert_tables_equal_the_oracle()
    job.rollback(TARGET)
    job.run(3)
    job.assert_tables_equal_the_oracle()
