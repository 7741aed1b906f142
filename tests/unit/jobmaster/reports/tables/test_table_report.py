"""The report of a table says what readers see and what epochs did to it, from a bounded number of small objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milepost.errors import NotFound, StoreUnavailable
from milepost.jobmaster.reports.tables import table_files, table_report
from milepost.sinks.table.table_sink import TableSink
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.stores.job_stores import hook_stores

RULE = "      - {type: expect_column_values_to_be_between, column: k, max_value: 90}\n"
GATE = {"checkpointing:": f"quality:\n  - sink: table\n    expectations:\n{RULE}checkpointing:"}
DELTA = {"format: parquet, path: ../lake/table": "format: delta, path: ../lake/table"}


@pytest.mark.long
def test_the_report_equals_the_table(tmp_path: Path) -> None:
    """Of an upsert table in buckets and of one that is appended to, both with the rows of each epoch."""
    job = CountedJob.with_epochs(tmp_path / "job", 3, DELTA)
    expected = job.expected()
    for name, rows in expected.items():
        report = job.master.reports.table(name, sample=True)
        read = job.master.reports.read(name)
        assert (report.rows, report.rows_exact, report.shows, report.head) == (rows.num_rows, True, 3, 3)
        assert [(column.name, column.type) for column in report.columns] == [
            (field.name, str(field.type)) for field in read.schema
        ]
        files = list((tmp_path / "job" / "lake" / name / "_milepost" / "data").rglob("*.parquet"))
        sizes = {str(file.relative_to(tmp_path / "job" / "lake" / name)): file.stat().st_size for file in files}
        assert report.bytes is not None and report.bytes <= sum(sizes.values())
        assert all(sizes[file.key] == file.bytes for file in report.newest_files)
        assert report.epochs[-1].table_rows == report.rows and len(report.epochs) == 3
        assert report.sample is not None and report.sample.checkpoint_id == 3
        known = {tuple(str(value) for value in row.values()) for row in rows.to_pylist()}
        assert report.sample.rows and set(report.sample.rows) <= known
        assert (report.sample.version is None) is (report.format == "parquet")


@pytest.mark.deep
def test_readers_of_a_table_that_is_down_see_the_checkpoint_before(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    job.land([2])

    def is_down(self: TableSink, *args: object) -> bool:
        raise StoreUnavailable("the table's store is down")

    with pytest.MonkeyPatch.context() as down:
        down.setattr(TableSink, "move", is_down)
        with wording.raises(StoreUnavailable):
            job.run()
    report = job.master.reports.table("seen")
    assert (report.shows, report.head, report.rows) == (1, 2, 3)
    assert report.waits is not None and report.waits.endswith(": 2")


@pytest.mark.deep
def test_after_a_rollback_the_epochs_are_those_of_the_live_lineage(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    job.rollback(1)
    report = job.master.reports.table("seen")
    assert (report.shows, report.rows) == (1, 3)
    assert [epoch.checkpoint_id for epoch in report.epochs] == [1]


@pytest.mark.long
def test_a_bounded_number_of_checkpoints_and_records_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table with too many files, its bytes are unknown and the newest files are those of the newest record."""
    job = CountedJob.with_epochs(tmp_path / "job", 4, GATE)
    whole = job.master.reports.table("table")
    monkeypatch.setattr(table_report, "MAX_VERDICTS", 2)
    read: list[str] = []
    with pytest.MonkeyPatch.context() as hooked:
        hook_stores(hooked, before=lambda operation, key: read.append(key))
        report = job.master.reports.table("table")
    assert [result.checkpoint_id for result in report.rules[0].results] == [4, 3]
    assert sum(key.endswith("/_metadata") for key in read) <= 2
    contents = job.small.context.metadata(job.small.context.head().state.checkpoints[-1]).tables["table"]
    sizes = [record.size for record in contents.records]
    monkeypatch.setattr(table_files, "MAX_RECORD_BYTES", sum(sizes) - 1)
    report = job.master.reports.table("table")
    assert report.bytes is None and not report.rows_exact and report.rows == whole.rows
    if len(sizes) > 1:
        assert set(report.newest_files) < set(whole.newest_files)
    monkeypatch.setattr(table_files, "MAX_RECORD_BYTES", 1)
    assert job.master.reports.table("table").newest_files == ()


def test_a_rule_whose_bounds_changed_keeps_its_history_and_a_new_one_has_none(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2, GATE)
    job.edit(RULE, RULE.replace("90", "80") + RULE.replace("column: k", "column: rows"))
    first, second = job.master.reports.table("table").rules
    assert first.bounds == {"max_value": 80} and [result.met for result in first.results] == [True, True]
    assert second.columns == ("rows",) and second.results == ()


def test_a_sink_that_the_spec_does_not_have_is_not_found(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    with wording.raises(NotFound):
        job.master.reports.table("seen.")
    with wording.raises(NotFound):
        job.master.reports.table_sample("nothing")


@pytest.mark.long
def test_the_command_prints_the_report_and_folds_code_and_results(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2, GATE)
    document = milepost("table", job.spec_path, "table", "--json").document()
    report = job.master.reports.table("table", sample=True)
    assert document["rows"] == report.rows and document["sample"]["rows"] == json.loads(json.dumps(report.sample.rows))
    brief, whole = (milepost("table", job.spec_path, "table", *more).stdout for more in ([], ["--code", "--results"]))
    assert "Read it with Polars" not in brief and "Read it with Polars" in whole
    assert "newest first" not in brief and "2 results, newest first" in whole
    assert milepost("table", job.spec_path, "nothing").exit_code == 3
    for file in (tmp_path / "job" / "lake" / "table").rglob("*.parquet"):
        file.unlink()
    damaged = milepost("table", job.spec_path, "table")
    assert damaged.exit_code == 0 and "The table cannot be read now" in damaged.stdout
