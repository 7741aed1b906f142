"""The quality gate: what it vetoes is never visible, not for a moment, and costs nothing once the cause is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.flights_job import FlightsJob
from tests.harness.milepost_cli import assert_clear_error, milepost
from tests.harness.recovering_job import RecoveringJob

BETWEEN = "{type: expect_column_values_to_be_between, column: worst, min_value: -120, max_value: %s, severity: %s}"
NEVER = 10_000


def quality(expectation: str) -> str:
    return f"quality:\n  - {{sink: carriers, expectations: [{expectation}]}}\n"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FlightsJob:
    """A job with one completed epoch and no gate, to be copied."""
    return RecoveringJob.healthy(tmp_path_factory.mktemp("healthy") / "job").job


@pytest.fixture
def recovering(healthy: FlightsJob, tmp_path: Path) -> RecoveringJob:
    """A copy of the healthy job, with new input landed: days 3 and 4."""
    return RecoveringJob.copy_of(healthy, tmp_path / "job")


def with_quality(job: FlightsJob, expectation: str) -> str:
    """Give the job's spec a gate. Returns the text without."""
    text = job.spec_path.read_text()
    job.edit(text, {"checkpointing:": f"{quality(expectation)}\ncheckpointing:"})
    return text


def test_a_critical_expectation_that_fails_publishes_nothing(recovering: RecoveringJob) -> None:
    job = recovering.job
    without = with_quality(job, BETWEEN % (1, "critical"))
    outcome = milepost("run", job.spec_path)
    assert_clear_error(outcome, 5, "sink carriers", "worst", "critical", "Nothing of this epoch is published")
    recovering.assert_nothing_happened(aborted="QUALITY_GATE_FAILED")
    job.spec_path.write_text(without)
    recovering.recover(failed=True)


def test_an_expectation_that_raises_publishes_nothing_whatever_its_severity(recovering: RecoveringJob) -> None:
    """An expectation that could not be decided is no pass: here two columns of which one may hold nulls."""
    job = recovering.job
    without = with_quality(
        job, "{type: expect_column_values_to_match_regex, column: carrier, regex: '([', severity: warning}"
    )
    outcome = milepost("run", job.spec_path)
    assert_clear_error(outcome, 5, "sink carriers", "expect_column_values_to_match_regex(carrier) raised")
    recovering.assert_nothing_happened(aborted="QUALITY_GATE_ERROR")
    job.spec_path.write_text(without)
    recovering.recover(failed=True)


def test_a_warning_is_published_and_recorded(recovering: RecoveringJob) -> None:
    job = recovering.job
    with_quality(job, BETWEEN % (1, "warning"))
    outcome = milepost("run", job.spec_path)
    assert outcome.exit_code == 0
    job.assert_tables_equal_the_oracle()
    shown = milepost("show", job.spec_path, "2", "--json").document()
    assert shown["status"] == "completed" and shown["quality"] == "warning"
    (verdict,) = shown["verdict"]["verdicts"]
    (result,) = verdict["expectations"]
    assert (verdict["sink"], result["column"], result["severity"], result["success"]) == (
        "carriers",
        "worst",
        "warning",
        False,
    )
    assert result["observed"]["unexpected_count"] > 0


@pytest.mark.parametrize(
    ("expectation", "says"),
    [
        ("", "expectations"),
        ("{type: expect_column_values_to_be_betwixt, column: worst}", "expect_column_values_to_be_between"),
        ("{type: expect_column_values_to_be_between, column: wurst, min_value: 0}", "wurst"),
    ],
    ids=["empty-suite", "unknown-type", "unknown-column"],
)
def test_a_suite_that_cannot_judge_is_a_bad_spec(expectation: str, says: str, recovering: RecoveringJob) -> None:
    """An empty suite would pass everything: exit 2, before anything is planned."""
    job = recovering.job
    without = with_quality(job, expectation)
    assert_clear_error(milepost("run", job.spec_path), 2, says)
    job.spec_path.write_text(without)
    recovering.assert_nothing_happened(aborted=None)
    recovering.recover(failed=False)
