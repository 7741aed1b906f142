"""A table of the latest rows is of one operator: rows of another one, or of an earlier life of it, never mix in."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.saved_job import OtherJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.deep

TABLE = "  - {name: table, input: latest, format: parquet, path: ../lake/table, mode: upsert}\n"
LATEST = "  - {uid: latest, kind: aggregate, inputs: [rows], key: [k], aggregates: {rows: count(*)}}\n"
FIRST = LATEST.replace("latest", "first").replace("[rows]", "[unique]")


@pytest.fixture(scope="module", params=["parquet", "delta"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Three epochs of a job whose second aggregate no sink reads, one object more. Only to be copied."""
    job = CountedJob.create(tmp_path_factory.mktemp("rows_of") / "job", {LATEST: LATEST + FIRST})
    job.edit("format: parquet, path: ../lake/table", f"format: {request.param}, path: ../lake/table")
    job.land(range(1, 5))
    job.run(3)
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def line_of(job: CountedJob, words: str) -> str:
    return next(line for line in job.spec_path.read_text().splitlines(keepends=True) if words in line)


def refused(job: CountedJob) -> InvalidRequest:
    """The next epoch is refused for the reason that lint reports, and nothing has changed."""
    before = job.small.context.head().state
    rows = {row["uid"]: row for row in job.master.reports.compatibility()}
    with wording.raises(InvalidRequest) as found:
        job.run_one()
    assert rows["sink table"]["detail"] in found.value.message
    assert rows["sink table"]["outcome"] == "refused"
    assert job.small.context.head().state == before
    return found.value


def test_another_input_of_the_same_key_is_refused_and_the_old_one_goes_on(job: CountedJob) -> None:
    job.edit("name: table, input: latest", "name: table, input: first")
    error = refused(job)
    assert "milepost backfill small --from-checkpoint 0" in error.hint
    job.edit("name: table, input: first", "name: table, input: latest")
    job.run()
    job.assert_tables_equal_the_oracle()


def test_a_backfill_from_nothing_makes_the_table_of_the_other_operator(job: CountedJob) -> None:
    job.edit("name: table, input: latest", "name: table, input: first")
    back_fill(job.master, SparklessRunner(), from_checkpoint=0)
    job.run()
    job.assert_tables_equal_the_oracle()


def test_an_operator_that_was_renamed_is_the_same_one(job: CountedJob) -> None:
    job.edit("uid: latest,", "uid: counts, renamed_from: latest,")
    job.edit("name: table, input: latest", "name: table, input: counts")
    job.run()
    job.edit(", renamed_from: latest", "")
    job.land([5])
    job.run()
    assert_same_rows(job.master.reports.read("table"), job.expected()["table"], "table")


def test_a_savepoint_of_a_renamed_operator_is_of_the_same_one(job: CountedJob) -> None:
    job.edit("uid: latest,", "uid: counts, renamed_from: latest,")
    job.edit("name: table, input: latest", "name: table, input: counts")
    made = job.master.savepoints.create("renamed")
    other = OtherJob.beside(job)
    other.master.restores.start(made.location)
    other.run(1)
    job.run(1)
    assert_same_rows(other.master.reports.read("table"), job.master.reports.read("table"), "table")


def test_a_table_that_comes_back_is_still_of_the_operator_that_it_was_of(job: CountedJob) -> None:
    table = line_of(job, "name: table,")
    seen = line_of(job, "name: seen,")
    job.edit(table, "")
    job.run()
    job.land([5])
    job.edit(seen, table.replace("input: latest", "input: first") + seen)
    refused(job)
    job.edit("name: table, input: first", "name: table, input: latest")
    job.run()
    job.assert_tables_equal_the_oracle()


def test_an_operator_that_begins_empty_does_not_go_on_with_its_old_table(job: CountedJob) -> None:
    """Its state was left behind: the keys of its table would be those of two lives."""
    table = line_of(job, "name: table,")
    operator = line_of(job, "uid: latest,")
    job.edit(table, "")
    job.edit(operator, "")
    job.master.epochs.run(Session.cli(), SparklessRunner(), allow_non_restored_state=True)
    job.land([5])
    job.edit("sinks:\n", operator + "sinks:\n" + table)
    refused(job)
