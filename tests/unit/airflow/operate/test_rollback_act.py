"""What a rollback from `<job>__operate` does to a job, one by one, without a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.operators.shown_plan import PLAN_DIGEST, digest_of
from milepost.errors import StoreUnavailable
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store

KEYS = {"a": [1], "b": [1, 2], "c": [3]}
TABLES = {0: {}, 1: {1: 1}, 2: {1: 2, 2: 1}, 3: {1: 2, 2: 1, 3: 1}}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> SparklessJob:
    """Three epochs of one object each. Only to be copied."""
    job = SparklessJob.create(tmp_path_factory.mktemp("prepared") / "job", {"last: 1": "last: 20"})
    for name, keys in KEYS.items():
        job.land(f"{name}.csv", "k,v\n" + "".join(f"{key},x\n" for key in keys))
        epoch(job)
    assert table(job) == TABLES[3]
    return job


@pytest.fixture
def job(prepared: SparklessJob, tmp_path: Path) -> SparklessJob:
    return prepared.copy_to(tmp_path / "job")


def epoch(job: SparklessJob) -> None:
    job.master.epochs.run(Session.cli(), SparklessRunner())


def table(job: SparklessJob) -> dict[int, int]:
    return {row["k"]: row["rows"] for row in job.master.reports.read("table").to_pylist()}


def asked(job: SparklessJob, **form: Any) -> InProcessRun:
    own = {name if name in ("approve", "dry_run") else f"rollback_{name}": value for name, value in form.items()}
    return InProcessRun(job_dags(job.folder / "config")["small__operate"], what="rollback", **own)


@pytest.mark.deep
def test_an_approved_plan_is_carried_out_and_emits_asset_events(job: SparklessJob) -> None:
    run = asked(job, to="1")
    plan = run.execute("plan")
    assert (plan["checkpoint_id"], plan["approved"]["head"], run.skipped) == (1, 3, set())
    wording.matches("rollback", plan["text"])
    run.approve("ann")
    done = run.execute("act")
    run.execute("reconcile")
    assert (done["outcome"], table(job)) == ("rolled_back", TABLES[1])
    (uri, extra) = run.outlets.emitted[0]
    assert uri == f"file://{job.folder}/lake/table"
    assert extra == {"checkpoint_id": 1, "timeline": done["timeline"], "watermark": None, "rows": 1}
    switch = next(entry for entry in job.master.reports.history() if entry["event"] == "TimelineSwitched")
    assert all(value in switch["detail"] for value in ("small__operate/manual__1", "bea", "ann"))
    wording.matches("history", switch["detail"])
    epoch(job)
    assert table(job) == TABLES[2], "the next epoch takes up what the rollback gave back"


@pytest.mark.parametrize("approve", [True, False])
def test_a_run_that_only_plans_does_nothing_either_when_its_act_is_cleared(job: SparklessJob, approve: bool) -> None:
    """Airflow runs a task that a person clears, also one that its plan had skipped."""
    run = asked(job, to="1", dry_run=True, approve=approve)
    run.execute("plan")
    run.skipped.clear()
    for task in ("act", "reconcile"):
        with wording.raises(AirflowFailException):
            run.execute(task, try_number=2)
    assert table(job) == TABLES[3]


def test_only_planning_changes_nothing_and_skips_what_would(job: SparklessJob) -> None:
    history = job.master.reports.history()
    run = asked(job, to="2", dry_run=True)
    run.execute("plan")
    assert run.skipped == {"approve", "act", "reconcile"}
    assert job.master.reports.history() == history


def test_without_approval_the_plan_is_carried_out_at_once(job: SparklessJob) -> None:
    run = asked(job, to="0", approve=False)
    run.execute("plan")
    assert run.skipped == {"approve"}
    run.execute("act")
    run.execute("reconcile")
    assert table(job) == TABLES[0]


def test_a_plan_whose_head_has_moved_is_refused_for_good(job: SparklessJob) -> None:
    """What is approved is what is done."""
    run = asked(job, to="1", approve=False)
    run.execute("plan")
    job.land("d.csv", "k,v\n9,x\n")
    epoch(job)
    history = job.master.reports.history()
    with wording.raises(AirflowFailException):
        run.execute("act")
    assert job.master.reports.history() == history


@pytest.mark.parametrize(
    "edit", [{"checkpoint_id": 2}, {"approved": {"head": 2}}, {"rows": {"table": 2}}], ids=lambda edit: str(*edit)
)
@pytest.mark.parametrize("when", ["while it waits for an answer", "after it was approved"])
def test_a_plan_that_was_edited_after_it_was_shown_is_refused(
    job: SparklessJob, edit: dict[str, Any], when: str
) -> None:
    """Its digest is what is approved; Airflow keeps it with the parked task, not in an XCom."""
    history = job.master.reports.history()
    run = asked(job, to="1")
    plan = run.execute("plan")
    run.ask()
    assert digest_of(plan) in run.shown["body"]
    if when == "after it was approved":
        run.answer()
    run.pushed["plan", "return_value"] = plan | edit
    with wording.raises(AirflowFailException):
        run.execute("act") if when == "after it was approved" else run.answer()
    assert job.master.reports.history() == history


@pytest.mark.parametrize("approve", [True, False])
def test_a_plan_that_the_form_does_not_ask_for_is_refused_whatever_xcom_says(job: SparklessJob, approve: bool) -> None:
    """A person who edits the plan and the approval alike, or a plan without approval, still has to match the form."""
    history = job.master.reports.history()
    run = asked(job, to="1", approve=approve)
    plan = run.execute("plan")
    edited = run.pushed["plan", "return_value"] = plan | {"checkpoint_id": 2}
    if approve:
        run.pushed["approve", "return_value"] = {PLAN_DIGEST: digest_of(edited)}
    with wording.raises(AirflowFailException):
        run.execute("act")
    assert job.master.reports.history() == history


@pytest.mark.parametrize(
    "edit",
    [{"checkpoint_id": "2"}, {"more": 1}, {"approved": {"head": 3}}],
    ids=["wrong type", "unknown key", "missing keys"],
)
def test_a_plan_of_another_shape_is_refused_and_says_where(job: SparklessJob, edit: dict[str, Any]) -> None:
    """Of another version, or edited in XCom."""
    history = job.master.reports.history()
    run = asked(job, to="1", approve=False)
    run.pushed["plan", "return_value"] = run.execute("plan") | edit
    with wording.raises(AirflowFailException):
        run.execute("act")
    assert job.master.reports.history() == history


def test_without_a_recorded_approval_nothing_is_done(job: SparklessJob) -> None:
    """A task marked as successful by hand, or an XCom that was cleared."""
    run = asked(job, to="1")
    run.execute("plan")
    with wording.raises(AirflowFailException):
        run.execute("act")
    assert table(job) == TABLES[3]


def test_a_running_epoch_is_left_alone_unless_the_form_says_to_take_it_over(job: SparklessJob) -> None:
    """Red, not skipped: a person requested it, and it did not happen."""
    job.land("d.csv")
    other = Session.cli()
    job.master.triggers.trigger(other)
    run = asked(job, to="1", approve=False)
    run.execute("plan")
    with wording.raises(AirflowFailException):
        run.execute("act")
    assert table(job) == TABLES[3]
    taking = asked(job, to="1", approve=False, take_over=True)
    taking.execute("plan")
    taking.execute("act")
    assert table(job) == TABLES[1]


@pytest.mark.parametrize(
    "to",
    [
        "99",
        "2020-01-01",
        "2026-02-31",
    ],
)
def test_an_unknown_checkpoint_fails_in_the_first_task_in_one_line(job: SparklessJob, to: str) -> None:
    history = job.master.reports.history()
    with wording.raises(AirflowFailException) as failed:
        asked(job, to=to).execute("plan")
    assert "\n" not in str(failed.value)
    assert job.master.reports.history() == history


def test_a_retried_rollback_that_had_landed_is_done_even_if_epochs_went_on(job: SparklessJob) -> None:
    """I3: the answer was lost, not the switch; the next epoch has moved the head, and the plan's head is history."""
    run = asked(job, to="1", approve=False)
    run.execute("plan")
    first = run.execute("act")
    epoch(job)
    history = job.master.reports.history()
    again = run.execute("act", try_number=2)
    assert (again["checkpoint_id"], again["timeline"]) == (1, first["timeline"])
    assert job.master.reports.history() == history
    assert table(job) == TABLES[2]


def test_a_sink_that_is_down_delays_its_reconciliation_and_the_retry_ends_it(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: the switch has landed; each task is retried until the table has followed."""
    run = asked(job, to="1", approve=False)
    run.execute("plan")
    with monkeypatch.context() as outage:
        url = job.context.sink_config("table").url
        break_store(outage, url, Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=10_000))
        with wording.raises(StoreUnavailable):
            run.execute("act")
        run.execute("act", try_number=2)
        with wording.raises(StoreUnavailable):
            run.execute("reconcile")
    run.execute("reconcile", try_number=2)
    assert table(job) == TABLES[1]
    assert len(run.outlets.emitted) == 1
