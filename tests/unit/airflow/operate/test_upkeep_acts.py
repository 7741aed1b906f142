"""What realign, verify, fsck and gc from `<job>__operate` do to a job, one by one, without a scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from milepost.acts.why import NOT_PROVEN, traced
from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags.dag_factory import job_dags
from milepost.jobmaster.tracing.origin import OriginCut, OriginInput, Place, RowOrigin, StartState
from milepost.protocol.records.layout import token_prefix
from milepost.tables.records.table_heads import HEADS
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob

SECRET = pa.table({"k": [4711]})


def asked(job: SparklessJob, what: str, **form: Any) -> InProcessRun:
    """A run whose plan is made."""
    own = {name if name in ("approve", "dry_run") else f"{what}_{name}": value for name, value in form.items()}
    run = InProcessRun(job_dags(job.folder / "config")["small__operate"], what=what, **own)
    run.execute("plan")
    return run


def damaged(job: SparklessJob) -> None:
    """Delete an object that the head needs."""
    key = max(stat.key for stat in job.context.store.list("chk-") if not stat.key.endswith("_metadata"))
    job.context.store.delete([key])


@pytest.mark.parametrize(
    ("what", "form"),
    [
        ("verify", {}),
        ("verify", {"checkpoint": 2, "deep": True}),
        ("fsck", {}),
    ],
)
def test_read_only_acts_need_no_approval_and_change_nothing(job: SparklessJob, what: str, form: dict[str, Any]) -> None:
    history = job.master.reports.history()
    run = asked(job, what, **form)
    assert run.skipped == {"approve"}
    wording.matches(what, run.execute("act")["text"], replace=wording.SIZES)
    assert run.skipped == {"approve", "reconcile"}
    assert job.master.reports.history() == history


def test_a_traced_row_has_the_places_of_its_input_and_no_value(job: SparklessJob) -> None:
    history = job.master.reports.history()
    run = asked(job, "why", sink="table", row="k=1")
    assert run.skipped == {"approve"}
    done = run.execute("act")
    assert done["outcome"] == "proven"
    wording.matches("why", [*done["text"], *done["listed"]])
    assert job.master.reports.history() == history


def test_a_trace_that_is_not_proven_says_so_with_its_cut_and_how_many_rows_it_leaves_out(job: SparklessJob) -> None:
    places = tuple(Place("rows", 1, f"{number}.csv", line=2) for number in range(2))
    cut = OriginCut(1, "1 object cannot be read again: 0.csv", (StartState("totals", SECRET),))
    origin = RowOrigin(
        job="small", sink="table", checkpoint_id=2, row=SECRET, copies=1, epochs=1, is_proven=False, steps=(),
        problem="it differs", inputs=(OriginInput("rows", 3, SECRET, places),), not_narrowed=("rows",), cut=cut,
        late=("1 row was late",),
    )  # fmt: skip
    context: Any = None
    done = traced(context, origin)
    assert done.outcome == NOT_PROVEN and "4711" not in repr(done)
    assert done.text == (
        "it differs. The listed input rows are candidates",
        "cut: 1 object cannot be read again: 0.csv. What was read up to checkpoint 1 is not listed",
        "not part of it: 1 row was late",
        "no column of the row narrows rows: every row of it was replayed",
    )
    assert done.listed == (
        "3 input rows of rows, the first 2",
        "0.csv, line 2, read by checkpoint 1",
        "1.csv, line 2, read by checkpoint 1",
    )
    assert traced(context, replace(origin, is_proven=True, problem=None, cut=None)).outcome == "proven"


def test_a_row_that_the_table_does_not_have_fails_the_run(job: SparklessJob) -> None:
    with wording.raises(AirflowFailException):
        asked(job, "why", sink="table", row="k=4711").execute("act")


@pytest.mark.parametrize("row", ["k", "=1", "k='1", "", 1])
def test_words_that_name_no_row_are_refused_before_anything_is_read(job: SparklessJob, row: object) -> None:
    with wording.raises(AirflowFailException):
        asked(job, "why", sink="table", row=row)


def test_damage_fails_the_run_and_is_listed(job: SparklessJob) -> None:
    damaged(job)
    for what in ("verify", "fsck"):
        with wording.raises(AirflowFailException):
            asked(job, what).execute("act")


def test_garbage_is_listed_in_the_plan_before_it_is_collected(job: SparklessJob) -> None:
    first, second = job.context.head().state.checkpoints
    stray = token_prefix(second.checkpoint_id, first.token) + "state/latest/left.parquet"
    job.context.store.put(stray, b"late")
    history = job.master.reports.history()
    assert asked(job, "gc", dry_run=True).skipped == {"approve", "act", "reconcile"}
    assert job.master.reports.history() == history
    run = asked(job, "gc")
    wording.matches("gc", run.pushed["plan", "return_value"]["text"], replace=wording.SIZES)
    run.approve()
    wording.matches("gc", run.execute("act")["text"], replace=wording.SIZES)
    assert job.context.store.get(stray) == b"late", "it is listed first, and deleted after the grace"
    assert job.master.reports.history() != history
    assert asked(job, "gc").skipped == {"approve", "act", "reconcile"}, "there is nothing more to do"


def test_a_table_at_the_head_needs_no_realignment(job: SparklessJob) -> None:
    assert asked(job, "realign", sink="table").skipped == {"approve", "act", "reconcile"}


def taken_back(job: SparklessJob) -> None:
    """As after a failover: the newest commit of the table is lost."""
    min((job.folder / "lake" / "table" / HEADS).iterdir()).unlink()


def test_a_table_that_was_moved_shows_the_head_again(job: SparklessJob) -> None:
    taken_back(job)
    run = asked(job, "realign", sink="table")
    run.approve("ann")
    done = run.execute("act")
    run.execute("reconcile")
    assert (done["outcome"], done["checkpoint_id"]) == ("realigned", 2)
    ((_, extra),) = run.outlets.emitted
    assert extra["checkpoint_id"] == 2
    assert job.master.realignments.plan("table").fault is None
    wording.matches("realign", run.execute("act", try_number=2)["text"])


def test_a_table_that_moved_after_the_plan_is_not_touched(job: SparklessJob) -> None:
    """What is approved is what is done."""
    taken_back(job)
    run = asked(job, "realign", sink="table", approve=False)
    taken_back(job)
    with wording.raises(AirflowFailException):
        run.execute("act")
