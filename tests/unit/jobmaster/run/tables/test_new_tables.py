"""A new table at another's location is refused before an epoch is opened for it: the job stays ready to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.saved_job import OtherJob

ANOTHERS = "is reserved for sink table of job small"


@pytest.fixture
def job(tmp_path: Path) -> CountedJob:
    return CountedJob.with_epochs(tmp_path / "job", 1)


@pytest.mark.deep
def test_anothers_table_is_refused_before_an_epoch_is_opened(job: CountedJob) -> None:
    other = OtherJob.beside(job, {"../lake/other-table": "../lake/table"})
    with wording.raises(InvalidRequest):
        other.run(1)
    state = other.context.head().state
    assert (state.status.value, state.timeline().pending, state.checkpoints) == ("running", None, ())
    text = other.spec_path.read_text()
    other.spec_path.write_text(text.replace("../lake/table", "../lake/other-table"))
    other.run(1)
    other.assert_equals(job)


def test_lint_and_doctor_say_what_run_would_refuse_of_a_new_table(job: CountedJob) -> None:
    """Only a note: `start --claim` may take the table over."""
    other = OtherJob.beside(job, {"../lake/other-table": "../lake/table"})
    result = milepost("lint", str(other.spec_path))
    assert result.exit_code == 0
    wording.matches("lint", result.stderr)
    warnings = [line for line in milepost("doctor", str(other.spec_path)).stdout.splitlines() if line[:4] == "warn"]
    wording.matches("doctor", [line for line in warnings if "sink table" in line])
    assert other.context.log.head() is None
    assert milepost("lint", str(job.spec_path)).stderr == ""


def test_doctor_says_that_the_head_is_damaged_and_goes_on(job: CountedJob) -> None:
    damaged = [path for path in job.spec_path.parent.parent.rglob("_metadata*") if path.is_file()]
    for path in damaged:
        path.write_bytes(b"x")
    assert damaged
    result = milepost("doctor", str(job.spec_path))
    assert result.exit_code == 8 and "source rows: " in result.stdout
    wording.matches("doctor", [line for line in result.stdout.splitlines() if line.startswith("FAIL")])


@pytest.mark.deep
def test_a_sink_that_is_new_to_a_job_with_state_is_looked_at_too(job: CountedJob) -> None:
    other = OtherJob.beside(job)
    other.run(1)
    text = other.spec_path.read_text()
    second = "sinks:\n  - {name: second, input: latest, format: parquet, path: ../lake/table, mode: upsert}\n"
    other.spec_path.write_text(text.replace("sinks:\n", second))
    job.land([2])
    with wording.raises(InvalidRequest):
        other.run(1)
    assert other.context.head().state.timeline().pending is None


def test_an_unreachable_new_table_hides_nothing_else_from_lint(job: CountedJob) -> None:
    """The rest of the spec is compared with the head, which is stored elsewhere."""
    catalog = "table: a.b, catalog: {type: rest, uri: 'http://127.0.0.1:1'}"
    second = f"  - {{name: second, input: unique, format: iceberg, path: ../lake/second, mode: append, {catalog}}}\n"
    job.edit("checkpointing:", second + "checkpointing:")
    job.edit("{rows: count(*)}", "{rows: count(*), least: min(v)}")
    result = milepost("lint", str(job.spec_path))
    assert result.exit_code == 2
    wording.matches("lint", wording.paragraphs(result.stdout, "min(v)"))
    wording.matches("lint", result.stderr, replace={r"\b127\.0\.0\.1:1\b.*": "{address} {cause}"})
