"""The one form of a job's acts: what belongs together is parse_form before anything is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.acts import ACTS
from milepost.airflow.operate.form import operate_form, parse_form
from milepost.airflow.task_output.form_links import FIELDS, SWITCHES
from milepost.errors import InvalidRequest
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    return SparklessJob.create(tmp_path)


def presets(job: SparklessJob) -> dict[str, Any]:
    return {name: param.value for name, param in operate_form(job.master.job).items() if name != "what"}


def test_the_form_has_the_choice_of_act_then_sections_then_run_options(job: SparklessJob) -> None:
    form = operate_form(job.master.job)
    assert next(iter(form)) == "what" and list(form)[-2:] == ["dry_run", "approve"]
    assert form["what"].schema["enum"] == list(ACTS) == list(form["what"].schema["values_display"])
    first, *sections, last = dict.fromkeys(param.schema["section"] for param in form.values())
    assert sections == [act.title for act in ACTS.values() if act.form_fields]
    assert {name for name, param in form.items() if param.schema["section"] == first} == {"what"}
    assert {name for name, param in form.items() if param.schema["section"] == last} == {"dry_run", "approve"}
    wording.matches("page_form", [first, *sections, last])


def test_the_form_takes_every_act_with_its_own_fields(job: SparklessJob) -> None:
    filled = {
        "to": "1",
        "from": "2026-03-01",
        "name": "v1",
        "sink": "table",
        "source": "feed",
        "object": "0001.csv",
        "resume_from": "earliest",
        "row": "k=1",
    }
    for act in ACTS.values():
        own = {name: filled[field.name] for name, field in act.form_fields.items() if field.name in filled}
        if act.name == "backfill":
            own.pop("backfill_to")
        request = parse_form(presets(job) | own | {"what": act.name}, job.master.job)
        assert (request.act, request.approve) == (act, act.needs_approval)
        assert set(request.form) == {field.name for field in act.fields}


@pytest.mark.parametrize(
    "form",
    [
        {"what": "undo"},
        {"what": "rollback"},
        {"what": "realign"},
        {"what": "verify", "rollback_to": "41", "cancel_savepoint": True},
        {"what": "verify", "verify_depth": 1},
    ],
)
def test_fields_of_another_act_are_refused_by_name(job: SparklessJob, form: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        parse_form(presets(job) | form, job.master.job)


def test_hints_lead_to_every_act_that_is_a_command_too_by_fields_that_it_has(job: SparklessJob) -> None:
    form = operate_form(job.master.job)
    assert set(FIELDS) == {name for name in ACTS if not name.startswith("savepoint_")}
    assert (FIELDS["rollback"], FIELDS["start"], FIELDS["verify"]) == (("to", "take_over"), ("from",), ("deep",))
    assert FIELDS["backfill"] == ("from", "to", "from_checkpoint"), "the others are options of the command alone"
    types = {name: form[ACTS[act].form_name(name)].schema["type"] for act in FIELDS for name in FIELDS[act]}
    switches = {name for name, kind in types.items() if kind == "boolean"}
    assert switches == {"take_over", "savepoint", "deep", "accept_void"}
    assert SWITCHES - switches == {"with_input"}, "of savepoint_create"
