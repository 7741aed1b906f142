"""A new table is reserved for one job before its first commit point, so no job learns of a conflict after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milepost.epoch.answers import EpochReport
from milepost.epoch.plan import EpochPlan
from milepost.errors import InvalidRequest, StateCorrupt
from milepost.jobmaster import Session
from milepost.storage.open import open_store
from milepost.tables.records.reservation import RESERVATION, Reservation, TableOwner, new_reservation, reserve
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at

OURS = new_reservation(TableOwner("small", "a" * 32, "table"), "parquet", "upsert", ("k",))


def by(job: str, identity: str, sink: str) -> Reservation:
    return replace(OURS, owner=TableOwner(job, identity, sink), table_id="f" * 32)


def job_at(folder: Path, name: str = "small") -> SparklessJob:
    """A job with its table outside its folder, where others may have theirs."""
    job = SparklessJob.create(folder, {"../lake/table": "../../lake/table", "name: small": f"name: {name}"})
    job.land("a.csv")
    return job


def judged(job: SparklessJob, session: Session) -> EpochReport:
    """Run an epoch up to its verdict: all that comes before the commit point."""
    job.master.triggers.trigger(session)
    return job.master.epochs.run_epoch(session, job.pending.checkpoint_id, SparklessRunner())


@pytest.mark.deep
@pytest.mark.parametrize("name", ["small", "other"])
def test_of_two_jobs_with_one_new_table_the_second_is_refused_before_its_commit_point(
    tmp_path: Path, name: str
) -> None:
    """Also of one with the same name in another storage, whose checkpoints and tokens are the same ones."""
    first, second = job_at(tmp_path / "first"), job_at(tmp_path / "second", name)
    session = Session.cli()
    report = judged(first, session)
    with wording.raises(InvalidRequest):
        second.master.epochs.run(Session.cli(), SparklessRunner())
    assert second.context.head().state.checkpoints == ()
    completed = first.master.epochs.complete(session, report.metadata.checkpoint_id)
    assert first.master.epochs.notify_complete(session, completed.checkpoint_id, "table").published


def test_a_crash_between_reservation_and_commit_does_not_keep_the_job_from_its_table(tmp_path: Path) -> None:
    job, session = job_at(tmp_path / "first"), Session.cli()
    job.master.triggers.trigger(session)

    def die(plan: EpochPlan) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.master.epochs.run_epoch(session, job.pending.checkpoint_id, SparklessRunner(after=die))
    assert job.context.sink("table").store.get(RESERVATION)
    assert job.master.epochs.run(Session.cli(), SparklessRunner(), take_over=True).status == "completed"
    assert job.master.reports.read("table").num_rows == 1


def test_a_reservation_is_part_of_the_table_to_an_audit(tmp_path: Path) -> None:
    job = job_at(tmp_path / "first")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    assert [item.permanent for item in job.context.sink("table").objects() if item.stat.key == RESERVATION] == [True]


def test_a_table_is_reserved_once_and_for_one_sink(tmp_path: Path) -> None:
    store = open_store(SparklessJob.create(tmp_path).context.sink_config("table"))
    reserve(store, OURS)
    reserve(store, by("small", "a" * 32, "table"))
    for other in (by("small", "b" * 32, "table"), by("other", "a" * 32, "rows")):
        with wording.raises(InvalidRequest):
            reserve(store, other)


@pytest.mark.parametrize("change", [{"table_format": "delta"}, {"mode": "append", "key": ()}, {"key": ("v",)}])
def test_a_table_keeps_its_format_mode_and_key(tmp_path: Path, change: dict[str, Any]) -> None:
    store = open_store(SparklessJob.create(tmp_path).context.sink_config("table"))
    reserve(store, OURS)
    with wording.raises(InvalidRequest):
        reserve(store, replace(OURS, **change))


def test_a_lost_reply_of_our_own_reservation_is_recognised(tmp_path: Path) -> None:
    inner = open_store(SparklessJob.create(tmp_path).context.sink_config("table"))
    reserve(FaultyStore(inner, [Fault(at("create", RESERVATION), Effect.LOST_REPLY)]), OURS)
    assert inner.get(RESERVATION)


def test_what_is_no_reservation_is_not_taken_for_one(tmp_path: Path) -> None:
    store = open_store(SparklessJob.create(tmp_path).context.sink_config("table"))
    store.put(RESERVATION, b"{}")
    with wording.raises(StateCorrupt) as refused:
        reserve(store, OURS)
    assert RESERVATION in str(refused.value)
