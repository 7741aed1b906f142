"""The page of a run: progress, the plan and its approval, the result and its undo, each for those who may."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from milepost.acts import ACTS, ActResult, ShownPlan
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.task_output.outcome import FAILURE_KEY
from milepost.codec import to_json
from milepost_testkit import wording
from milepost_testkit.airflow.kept_runs import keep_run
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob

OPERATE = "small__operate"
RUN = f"/jobs/{OPERATE}/run?job=small&run=manual__1"
FIGURES = {r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?": "{time}"}


@pytest.fixture
def job(tmp_path: Path) -> CountedJob:
    return CountedJob.with_epochs(tmp_path / "job", 2)


@pytest.fixture
def pages(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> PageClient:
    return page_client(monkeypatch, *job_dags(job.small.folder / "config").values())


@pytest.fixture
def plan(job: CountedJob) -> ShownPlan:
    return planned(job, "rollback", to="1", take_over=False)


def planned(job: CountedJob, what: str, **form: Any) -> ShownPlan:
    return ACTS[what].plan(job.small.master, form).shown


def requests_of(page: str) -> list[tuple[str, str, Any]]:
    """Return method, URL and body of each request that a button of the page sends."""
    found = re.findall(r'data-method="(\w+)" data-url="([^"]+)" data-about="[^"]+" data-body="([^"]+)"', page)
    return [(method, html.unescape(url), json.loads(html.unescape(body))) for method, url, body in found]


def test_a_waiting_plan_is_shown_with_the_two_answers_of_airflows_api(pages: PageClient, plan: ShownPlan) -> None:
    keep_run(OPERATE, tasks={"plan": "success"}, xcoms={("plan", "return_value"): to_json(plan)}, asks=plan)
    page = pages.get(RUN).text
    wording.matches("page_run", page_text(page, "#run"), replace=FIGURES)
    url = f"/api/v2/dags/{OPERATE}/dagRuns/manual__1/taskInstances/approve/-1/hitlDetails"
    assert requests_of(page) == [
        ("PATCH", url, {"chosen_options": [option], "params_input": {}}) for option in ("Approve", "Reject")
    ]
    assert 'id="run" data-refresh' in page


def test_a_viewer_sees_the_plan_and_no_button(pages: PageClient, plan: ShownPlan) -> None:
    keep_run(OPERATE, xcoms={("plan", "return_value"): to_json(plan)}, asks=plan)
    page = pages.with_role("viewer").get(RUN).text
    assert plan.subject in page and "<button" not in page and requests_of(page) == []
    wording.matches("page_run", page_text(page, "p.soft"))


def test_a_plan_can_be_answered_once_the_scheduler_has_seen_its_task_wait(pages: PageClient, plan: ShownPlan) -> None:
    """Airflow takes the end of the requesting process for a kill if the answer came earlier."""
    keep_run(OPERATE, xcoms={("plan", "return_value"): to_json(plan)}, asks=plan, parked=False)
    page = pages.get(RUN).text
    assert requests_of(page) == [] and "data-refresh" in page
    wording.matches("page_run", page_text(page, "p.soft"))


@pytest.mark.deep
def test_a_plan_that_was_edited_after_the_request_cannot_be_approved(pages: PageClient, plan: ShownPlan) -> None:
    edited = to_json(plan) | {"text": ["nothing is changed"]}
    keep_run(OPERATE, xcoms={("plan", "return_value"): edited}, asks=plan)
    page = pages.get(RUN).text
    assert requests_of(page) == []
    wording.matches("page_run", page_text(page, ".banner"))


def test_a_finished_rollback_offers_its_undo(pages: PageClient, plan: ShownPlan) -> None:
    done = ActResult("rolled_back", ("job small is back at checkpoint 1",), 1, "t9", follows=True)
    xcoms = {("plan", "return_value"): to_json(plan), ("act", "return_value"): to_json(done)}
    keep_run(OPERATE, state="success", tasks=dict.fromkeys(("plan", "approve", "act"), "success"), xcoms=xcoms)
    page = pages.get(RUN).text
    wording.matches("page_run", page_text(page, ".banner", "#run h2"), replace=FIGURES)
    assert 'href="/jobs/small__operate/form?job=small&amp;what=rollback&amp;rollback_to=2">Undo</a>' in page
    assert "data-refresh" not in page and ">Undo<" not in pages.with_role("viewer").get(RUN).text


FROM_START = {"from": None, "to": None, "from_checkpoint": 0, "ranges_per_epoch": 1, "allow_non_restored_state": False}


@pytest.mark.parametrize(
    ("what", "form", "result", "undo"),
    [
        ("rollback", {"to": "1"}, ActResult("rolled_back", follows=True), ("rollback", {"to": "2"})),
        ("rollback", {"to": "2"}, ActResult("nothing_to_roll_back"), None),
        ("cancel", {"savepoint": False}, ActResult("canceled"), ("start", {})),
        ("savepoint_create", {"name": "v1", "at": 1, "with_input": False}, ActResult("created"), ("v1",)),
        ("resume", {}, ActResult("resumed"), None),
        ("backfill", FROM_START, ActResult("fast_forwarded", previous_head=2), ("rollback", {"to": "2"})),
        ("backfill", FROM_START, ActResult("fast_forwarded"), None),
    ],
)
def test_an_act_names_the_act_that_undoes_it(
    job: CountedJob, what: str, form: dict[str, Any], result: ActResult, undo: Any
) -> None:
    expected = ("savepoint_dispose", {"name": "v1"}) if undo == ("v1",) else undo
    found = ACTS[what].undo(planned(job, what, **form), result)
    assert found == expected
    if found is not None:
        assert ACTS[found[0]].is_complete(found[1])


@pytest.mark.deep
@pytest.mark.parametrize(
    ("outcome", "banner"), [("proven", ("good", "Done")), ("not_proven", ("warn", "Done: the list is not proven"))]
)
def test_a_trace_that_proves_nothing_is_no_success(
    pages: PageClient, job: CountedJob, outcome: str, banner: tuple[str, str]
) -> None:
    made = planned(job, "why", sink="seen", row="k=1", at=None)
    done = ActResult(outcome, ("it differs",), listed=("1 input row of rows",))
    xcoms = {("plan", "return_value"): to_json(made), ("act", "return_value"): to_json(done)}
    keep_run(OPERATE, state="success", tasks={"act": "success"}, xcoms=xcoms)
    page = pages.get(RUN).text
    tone, heading = banner
    assert re.search(rf'class="banner {tone}"[^§]*?{heading}<', page) and "1 input row of rows" in page


def test_the_result_of_an_earlier_version_has_no_undo_of_a_backfill(pages: PageClient, job: CountedJob) -> None:
    before = to_json(ActResult("fast_forwarded", ("job small continues",), 4, "t9", follows=True))
    assert "previous_head" not in before
    named = ActResult.from_xcom(before | {"previous_head": 2}, "the XCom")
    assert named.previous_head == 2 and named == ActResult.from_xcom(before | {"left": 2}, "an earlier XCom")
    plan = to_json(planned(job, "backfill", **FROM_START))
    xcoms = {("plan", "return_value"): plan, ("act", "return_value"): before}
    keep_run(OPERATE, state="success", xcoms=xcoms)
    keep_run(OPERATE, "manual__2", state="success", xcoms=xcoms | {("act", "return_value"): before | {"left": 2}})
    assert ">Undo<" not in pages.get(RUN).text
    page = pages.get(RUN.replace("manual__1", "manual__2")).text
    assert 'href="/jobs/small__operate/form?job=small&amp;what=rollback&amp;rollback_to=2">Undo</a>' in page


def test_a_rejected_or_failed_run_shows_what_happened(pages: PageClient, plan: ShownPlan) -> None:
    xcoms: dict[tuple[str, str], Any] = {("plan", "return_value"): to_json(plan)}
    keep_run(OPERATE, state="success", xcoms=xcoms | {("approve", "return_value"): {"rejected_by": "<b>bo</b>"}})
    failure = {"reason": "PLAN_OUTDATED", "detail": "the <b>head</b> moved", "step": "Plan again.", "runbook": ""}
    keep_run(OPERATE, "manual__2", state="failed", xcoms=xcoms | {("act", FAILURE_KEY): failure})
    for run_id in ("manual__1", "manual__2"):
        page = pages.get(RUN.replace("manual__1", run_id)).text
        assert "<b>" not in page and ">Undo<" not in page
        wording.matches("page_run", page_text(page, ".banner"), replace=FIGURES)


def test_a_run_of_a_paused_dag_says_so_and_offers_to_unpause_it(pages: PageClient) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    keep_run("small__epoch", state="queued")
    with create_session() as session:
        session.get_one(DagModel, "small__epoch").is_paused = True
    address = RUN.replace(OPERATE, "small__epoch")
    page = pages.get(address).text
    assert requests_of(page) == [("PATCH", "/api/v2/dags/small__epoch?update_mask=is_paused", {"is_paused": False})]
    wording.matches("page_run", page_text(page, ".banner"))
    assert requests_of(pages.with_role("viewer").get(address).text) == []


@pytest.mark.deep
def test_a_run_that_airflow_does_not_have_is_not_found(pages: PageClient) -> None:
    assert pages.get(RUN).status_code == 404
    keep_run("small__epoch")
    assert pages.get(RUN).status_code == 404, "the run of another DAG"


def test_a_damaged_plan_is_a_problem_of_the_run_and_has_no_button(pages: PageClient, plan: ShownPlan) -> None:
    keep_run(OPERATE, xcoms={("plan", "return_value"): {"what": "<b>rollback</b>"}}, asks=plan)
    page = pages.get(RUN)
    assert page.status_code == 200 and requests_of(page.text) == [] and "XCom of plan" in page.text
