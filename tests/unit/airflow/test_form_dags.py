"""The DAG of forms: what its fields take and refuse, and which task follows which (DESIGN 8.3)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from milepost.acts import ACTS
from milepost.airflow.compat import ParamValidationError
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.operate.form import operate_form, parse_form
from milepost.airflow.operators.approval import as_markdown
from milepost.errors import InvalidRequest, NotFound
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost_testkit.airflow.kept_dags import jobs_on_the_page, keep_dags
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


@pytest.fixture
def dags(tmp_path: Path) -> dict[str, DAG]:
    SparklessJob.create(tmp_path)
    return job_dags(tmp_path / "config")


def refuses(dag: DAG, name: str, value: Any) -> bool:
    """Say whether Airflow does, before a run exists; its dialog does not say why."""
    try:
        dag.params.get_param(name).resolve(value=value)
    except ParamValidationError:
        return True
    return False


def refusal(job: LoadedJob, name: str, value: Any) -> str:
    """Return why the first task refuses a field of an act, whose required fields are filled in; "": it does not."""
    presets = {field: param.value for field, param in operate_form(job).items()}
    act = next(act for act in ACTS.values() if name.startswith(f"{act.name}_"))
    needed = {name: REQUIRED[name] for name, field in act.form_fields.items() if field.required}
    if name == "backfill_to":
        needed["backfill_from"] = "2026-01-01"
    try:
        parse_form(presets | needed | {"what": act.name, name: value}, job)
    except InvalidRequest as error:
        return error.message
    return ""


REQUIRED = {
    "rollback_to": "41",
    "savepoint_dispose_name": "v1",
    "land_source": "feed",
    "quarantine_source": "rows",
    "quarantine_object": "0001.csv",
    "release_source": "rows",
    "release_object": "0001.csv",
    "realign_sink": "table",
    "why_sink": "table",
    "why_row": "k=1",
}

MOMENTS = (
    ["2026-03-01", "2026-03-01T06:00Z"],
    ["", "march", "now", "2026-03", "41", "2026-03-01\n", "2026-02-30", "2026-03-01T25:00", "٢٠٢٦-03-01"],
    [41],
)
NAMES = (["v1", "before-the-fix"], ["", "12", "V1", "../x", "a/b", "-a", "a" * 64, "sp one!", "v1\n"], [1])
IDS = ([None, 1, 41], [0, -1], ["41", 1.5, True])
SWITCH: tuple[list[Any], list[Any], list[Any]] = ([True, False], [], ["yes", None])

OBJECTS: tuple[list[Any], list[Any], list[Any]] = (
    ["0001.csv", "2026/é, 2.csv", "../x; rm"],
    ["", "a\n", "a\x00b", "é" * 1_025],
    [1],
)
FORM: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
    "what": (["rollback", "savepoint_create", "gc"], [], ["", "undo", "list", None]),
    "rollback_to": (
        ["0", "41", "2026-07-01", "2026-07-01T12:00", "2026-07-01 12:00:07.5", "2026-07-01T12:00:00+02:00"],
        ["", "head", "-1", "4.0", "41; rm", "2026-7-1", "2026-07-01T", "2026-07-01T12", "{{ ds }}", "4" * 19, "41\n"],
        [41],
    ),
    "rollback_take_over": SWITCH,
    "backfill_from": MOMENTS,
    "backfill_to": ([None, *MOMENTS[0]], *MOMENTS[1:]),
    "backfill_from_checkpoint": ([0, 41], [-1], ["41", 1.5]),
    "savepoint_create_name": ([None, *NAMES[0]], *NAMES[1:]),
    "savepoint_create_at": IDS,
    "savepoint_create_with_input": SWITCH,
    "savepoint_dispose_name": NAMES,
    "cancel_savepoint": SWITCH,
    "start_from": ([None, "41", "v1"], ["", "s3://elsewhere/savepoint", "../x", "V1", "4" * 19, "v1\n"], [41]),
    "land_source": ([], [], ["", "feed", 1]),
    "land_resume_from": (["earliest", "latest", *MOMENTS[0]], ["newest", *MOMENTS[1]], [41]),
    "land_void_from": (["auto", "3", "41"], ["", "newest", "-1", "4" * 19, "41\n"], [41]),
    "land_accept_void": ([True], [], ["yes", None]),
    "quarantine_source": (["rows"], [], ["", "feed", 1]),
    "quarantine_object": OBJECTS,
    "release_source": (["rows"], [], ["", "feed", 1]),
    "release_object": OBJECTS,
    "realign_sink": (["table"], [], ["", "tables", 1]),
    "why_sink": (["table"], [], ["", "tables", 1]),
    "why_row": (["k=1", "city='New York' day=2026-07-01", "k=", "v=null"], ["", " ", "k", "=1", "k='1", "k=1 v"], [1]),
    "why_at": IDS,
    "verify_checkpoint": IDS,
    "verify_deep": SWITCH,
    "dry_run": SWITCH,
    "approve": SWITCH,
}
"""Field -> values that it takes, that the first task refuses, and that Airflow refuses: another type, no known word."""


@pytest.mark.deep
@pytest.mark.parametrize("name", FORM)
def test_airflow_refuses_only_wrong_types_and_unknown_choices(dags: dict[str, DAG], name: str) -> None:
    good, bad, untyped = FORM[name]
    assert [value for value in [*good, *bad] if refuses(dags["small__operate"], name, value)] == []
    assert [value for value in untyped if not refuses(dags["small__operate"], name, value)] == []


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name, (_, bad, _) in FORM.items() if bad])
def test_the_first_task_refuses_other_invalid_values_by_field_name_and_title(
    dags: dict[str, DAG], tmp_path: Path, name: str
) -> None:
    job = load_job(tmp_path / "config" / "small.yaml")
    good, bad, _ = FORM[name]
    title = re.escape(dags["small__operate"].params.get_param(name).schema["title"])
    assert [value for value in good if refusal(job, name, value)] == []
    for value in bad:
        told = rf"field {name} \({title}\): expected .+, got {re.escape(repr(value))}\. Nothing was done\."
        assert re.fullmatch(told, refusal(job, name, value)), (value, refusal(job, name, value))


def test_each_field_without_choices_has_a_rule(tmp_path: Path, dags: dict[str, DAG]) -> None:
    """None has what Airflow's dialog would refuse without a reason."""
    params = operate_form(load_job(tmp_path / "config" / "small.yaml"))
    for act in ACTS.values():
        own = {name: params[name].schema for name in act.form_fields}
        free = {name for name, schema in own.items() if schema["type"] != "boolean" and "enum" not in schema}
        assert free == {name for name, field in act.form_fields.items() if field.kind.expected}
        assert not {"pattern", "minimum", "maximum"} & {word for schema in own.values() for word in schema}


def test_every_field_of_the_form_has_a_title_a_description_a_section_and_a_test(dags: dict[str, DAG]) -> None:
    params = dags["small__operate"].params
    assert set(params) == set(FORM)
    for name in params:
        param = params.get_param(name)
        assert param.schema["title"] and param.schema["section"] and param.description


def test_each_dag_of_a_job_leads_to_its_job(dags: dict[str, DAG], monkeypatch: pytest.MonkeyPatch) -> None:
    """The Checkpoints page is a tab of all of them, and needs none of the files that they were made of."""
    keep_dags(monkeypatch, *dags.values())
    assert {name for dag_id in dags for name in jobs_on_the_page(dag_id)} == {"small"}
    with pytest.raises(NotFound, match="small__other"):
        jobs_on_the_page("small__other")


def test_the_operate_dag_has_no_schedule_and_allows_concurrent_runs(dags: dict[str, DAG]) -> None:
    """Nobody who has to abort wants to find the DAG paused, or behind a plan that waits for its approval."""
    dag = dags["small__operate"]
    assert (dag.schedule, dag.is_paused_upon_creation) == (None, False)
    assert dag.max_active_runs > 1


def test_a_plan_is_shown_before_the_act_and_approved_once(dags: dict[str, DAG]) -> None:
    dag = dags["small__operate"]
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "approve", "act", "reconcile"]
    approve = dag.get_task("approve")
    assert (approve.retries, approve.ignore_downstream_trigger_rules, approve.fail_on_reject) == (0, True, False)
    assert dag.get_task("act").trigger_rule == "none_failed", "the approval may be left out, never fail"
    assert dag.get_task("reconcile").trigger_rule == "all_success"


def test_the_text_of_a_plan_is_never_markup() -> None:
    """DESIGN 9: text from data is escaped."""
    shown = as_markdown(["sink <b>: 3 -> 1 rows", "`[x](javascript:alert(1))`", "**"])
    assert shown == "* `sink <b>: 3 -> 1 rows`\n* `'[x](javascript:alert(1))'`\n* `**`"
