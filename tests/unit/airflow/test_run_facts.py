"""The report of an ended run: one line, and why it failed, from what its tasks left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milepost.airflow.operators.tasks import epoch_figures
from milepost.airflow.operators.xcom import RanEpoch
from milepost.airflow.runs.facts import XComs, run_facts, xcom_keys
from milepost.airflow.runs.notes import MAX_NOTE_CHARS, with_line
from milepost.airflow.task_output.outcome import FAILURE_KEY, failure_of
from milepost.codec.records import to_json
from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import QualityGateFailed
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob

VALUE = "return_value"
IDLE = {("trigger_checkpoint", VALUE): {"nothing_to_do": "up_to_date"}}
DOWN = {("notify_complete", FAILURE_KEY): {"reason": "IO_EXCEPTION", "detail": "down", "step": "", "runbook": ""}}
TRIGGERED = {("trigger_checkpoint", VALUE): {"checkpoint_id": 41}}
RAN = {("run_epoch", VALUE): to_json(RanEpoch(41, "main", 7, "2,200 rows in, 40 out, 3 late, 0 bad, lag 2 min"))}
VETO = {("validate", FAILURE_KEY): to_json(failure_of(QualityGateFailed("too high.", hint="milepost resume flights")))}
PLAN: dict[str, Any] = {
    "what": "rollback", "checkpoint_id": 41, "timeline": "main", "token": "none", "text": [],
    "subject": "flights: roll back to checkpoint 41", "manifest_version": 9, "approved": {}, "rows": {}, "idle": False,
}  # fmt: skip
DONE: dict[str, Any] = {
    "outcome": "rolled_back",
    "text": ["discarded: 42"],
    "checkpoint_id": 41,
    "timeline": "x",
    "follows": True,
}


@pytest.mark.parametrize(
    ("dag_id", "failed", "left", "named"),
    [
        ("flights__epoch", False, TRIGGERED | RAN, ["41", "2,200 rows in, 40 out, 3 late, 0 bad, lag 2 min"]),
        ("flights__epoch", False, IDLE, []),
        ("flights__epoch", False, {}, []),
        ("flights__epoch", True, TRIGGERED | VETO, ["41", "QUALITY_GATE_FAILED: too high."]),
        ("flights__epoch", True, TRIGGERED | RAN | DOWN, ["41", "IO_EXCEPTION: down"]),
        ("flights__operate", False, {("plan", VALUE): PLAN}, [PLAN["subject"]]),
        (
            "flights__operate",
            False,
            {("plan", VALUE): PLAN, ("approve", VALUE): {"rejected_by": "ann"}},
            [PLAN["subject"], "ann"],
        ),
        ("flights__operate", False, {("plan", VALUE): PLAN, ("act", VALUE): DONE}, [PLAN["subject"], *DONE["text"]]),
    ],
    ids=["ran", "idle", "held", "vetoed", "unpublished", "planned", "rejected", "rolled back"],
)
def test_a_run_is_summarized_in_one_line(dag_id: str, failed: bool, left: XComs, named: list[str]) -> None:
    facts = run_facts(dag_id, failed, left)
    assert facts.job == "flights" and "\n" not in facts.line and all(one in facts.line for one in named)
    wording.matches("run_facts", facts.line)


def test_of_a_failed_run_the_reason_comes_from_the_task_that_failed_not_from_the_one_that_aborted() -> None:
    aborted = {
        ("abort_checkpoint", FAILURE_KEY): {"reason": "TASK_FAILURE", "detail": "is aborted", "step": "", "runbook": ""}
    }
    facts = run_facts("flights__epoch", True, TRIGGERED | VETO | aborted)
    assert (facts.reason, facts.checkpoint_id) == ("QUALITY_GATE_FAILED", 41)
    assert facts.runbook == "milepost runbook quality-gate-failed"
    assert "flights__operate: resume" in facts.step and "milepost resume flights" in facts.step
    wording.matches("run_facts", facts.step)


def test_the_step_of_a_veto_that_failed_the_job_ends_with_its_resume() -> None:
    resume = "the job is FAILED now: once that is done, trigger flights__operate: resume"
    veto = {("validate", FAILURE_KEY): {"reason": "QUALITY_GATE_FAILED", "detail": "d", "step": "look", "runbook": ""}}
    aborted = {
        ("abort_checkpoint", FAILURE_KEY): {"reason": "TASK_FAILURE", "detail": "", "step": resume, "runbook": ""}
    }
    assert run_facts("flights__epoch", True, TRIGGERED | veto | aborted).step == f"look; {resume}"
    assert run_facts("flights__epoch", True, TRIGGERED | aborted).step == resume


def test_a_run_whose_tasks_left_nothing_says_so() -> None:
    facts = run_facts("flights__epoch", True, {})
    wording.matches("run_facts", facts.detail)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("behind_ms", "lag"), [(0, "0 ms"), (-5, "0 ms"), (120_000, "2 min"), (436_568_820_000, "5,052 d 21 h")]
)
def test_the_lag_of_an_epoch_has_at_most_two_units(tmp_path: Path, behind_ms: int, lag: str) -> None:
    job, kept = SparklessJob.create(tmp_path), []

    def change(metadata: CheckpointMetadata) -> CheckpointMetadata:
        started = 2_000_000_000_000
        source = replace(metadata.sources["rows"], watermark_us=(started - behind_ms) * 1000)
        kept.append(replace(metadata, sources={"rows": source}, started_ms=started))
        return kept[0]

    job.land("a.csv")
    job.epoch(change)
    figures = epoch_figures(kept[0])
    assert figures.endswith(f" {lag}")
    wording.matches("run_facts", figures)


def test_nothing_is_read_of_other_dags() -> None:
    assert xcom_keys("nightly") == []


def test_a_note_keeps_text_of_others_and_has_one_line_of_ours() -> None:
    ours = "milepost: "
    first = with_line("ask ann", "checkpoint 41 failed")
    assert first == f"{ours}checkpoint 41 failed\n\nask ann"
    assert with_line(first, "checkpoint 41: 3 rows in") == f"{ours}checkpoint 41: 3 rows in\n\nask ann"
    assert len(with_line("x" * 900, "y" * 500)) == len(with_line(None, "y" * 5_000)) == MAX_NOTE_CHARS
    assert with_line("x" * MAX_NOTE_CHARS, "y") == "x" * MAX_NOTE_CHARS
