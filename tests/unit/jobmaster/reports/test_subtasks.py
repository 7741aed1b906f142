"""A checkpoint reports the work of each subtask per source, operator and sink, consistent with its files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest

from milepost.codec.records import to_json
from milepost.jobmaster import CheckpointDetails, Session, SubtaskDetails
from milepost.spark.worker.worker_memory import MemoryBudget
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

EDIT = {
    "    schema: {k: int64, v: string}\n": "    schema: {k: int64, v: string, at: 'timestamp[us]'}\n"
    "    event_time: at\n    bad_records: dead_letter\n",
    "limits_per_epoch: {max_files: 1}": "limits_per_epoch: {max_files: 3}",
    "  - {uid: latest, kind: aggregate, inputs: [rows],": "  - {uid: small, kind: sql, inputs: [rows], "
    "sql: 'SELECT k, v, at FROM rows WHERE k < 40'}\n"
    "  - {uid: middle, kind: sql, inputs: [small], sql: 'SELECT k, at FROM small WHERE k < 35'}\n"
    "  - {uid: twice, kind: sql, inputs: [middle], sql: 'SELECT k, at FROM middle WHERE k < 30'}\n"
    "  - {uid: hourly, kind: window, inputs: [twice], key: [k], window: {tumbling: 1h}, aggregates: {rows: count(*)}}\n"
    "  - {uid: latest, kind: aggregate, inputs: [small],",
    "mode: upsert}\n": "mode: upsert}\n"
    "  - {name: late, input: hourly.late, format: parquet, path: ../lake/late, mode: append}\n"
    "  - {name: unread, input: rows.bad, format: parquet, path: ../lake/unread, mode: append}\n",
    "retained: {last: 1}": "retained: {last: 9}",
}
EPOCHS = 3


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> SparklessJob:
    """Three epochs, of three objects each; the second one's rows are late, and each has a bad record."""
    job = SparklessJob.create(tmp_path_factory.mktemp("job"), EDIT)
    for epoch, hour in enumerate((9, 5, 12)):
        for part in range(3):
            rows = "".join(f"{k},x,2024-01-01 {hour:02d}:{part:02d}:00\n" for k in range(50))
            job.land(f"{epoch}-{part}.csv", f"k,v,at\n{rows}" + "none,x,2024-01-01 00:00:00\n" * (part == 1))
        job.master.epochs.run(Session.cli(), SparklessRunner(sql=True))
    return job


def shown(job: SparklessJob, checkpoint_id: int) -> CheckpointDetails:
    report = job.master.reports.show(checkpoint_id)
    assert isinstance(report, CheckpointDetails)
    return report


def total(subtasks: Iterable[SubtaskDetails], figure: str) -> int:
    return sum(getattr(one, figure) for one in subtasks)


def landed(job: SparklessJob, epoch: int, condition: str) -> int:
    """Rows of an epoch's objects, as DuckDB reads them."""
    files = str(job.folder / "landing" / f"{epoch - 1}-*.csv")
    query = f"SELECT count(*) FROM read_csv('{files}', ignore_errors=true, types={{'k': 'BIGINT'}}) WHERE {condition}"
    (count,) = duckdb.sql(query).fetchall()[0]
    return int(count)


@pytest.mark.deep
@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
def test_rows_of_subtasks_add_up_to_the_rows_of_the_epoch(job: SparklessJob, epoch: int) -> None:
    """Node by node; DuckDB says how many rows each has."""
    report = shown(job, epoch)
    source, latest, hourly = report.sources["rows"], report.operators["latest"], report.operators["hourly"]
    assert total(source.subtasks, "rows_in") == source.rows == report.rows_in == landed(job, epoch, "k IS NOT NULL")
    assert total(source.subtasks, "files") == source.objects == 3
    assert total(source.subtasks, "bad_records") == source.bad.records == report.bad_records == 1
    for operator, condition in ((latest, "k < 40"), (hourly, "k < 30")):
        assert total(operator.subtasks, "rows_in") == operator.rows_in == landed(job, epoch, condition)
        assert total(operator.subtasks, "rows_out") == operator.rows_out
        assert total(operator.subtasks, "late_rows") == operator.late_rows
    assert report.published is not None
    for name, sink in report.published.items():
        assert total(sink.subtasks, "rows_in") == sink.rows == report.sink_rows[name]
        assert total(sink.subtasks, "bytes") == sink.bytes and total(sink.subtasks, "files") == sink.files
        assert sink.confirmed is not None and sink.table is not None and name in sink.table
    assert sum(sink.rows for sink in report.published.values()) == report.rows_out


def test_operators_are_in_the_order_of_the_graph_and_sql_has_its_rows(job: SparklessJob) -> None:
    """Each with its kind. SQL runs in the reading tasks. Spark merges SQL over SQL, so rows between are not counted."""
    report = shown(job, 1)
    kinds = {"small": "sql", "middle": "sql", "latest": "aggregate", "twice": "sql", "hourly": "window"}
    assert {uid: one.kind for uid, one in report.operators.items()} == kinds
    assert list(report.operators) == list(job.context.graph.nodes)[1:]
    small, between, twice = (report.operators[uid] for uid in ("small", "middle", "twice"))
    assert (small.rows_in, small.rows_out) == (landed(job, 1, "k IS NOT NULL"), landed(job, 1, "k < 40"))
    assert (between.rows_in, between.rows_out) == (landed(job, 1, "k < 40"), None)
    assert (twice.rows_in, twice.rows_out) == (None, landed(job, 1, "k < 30"))
    assert len(small.subtasks) == len(report.sources["rows"].subtasks) == 2
    assert (small.late_rows, small.state_rows, small.full_bytes) == (None, None, None)


def test_late_rows_are_those_of_the_late_output(job: SparklessJob) -> None:
    """All of the second epoch below 30 are older than the first one's watermark; their sink has each."""
    counts = [shown(job, epoch).operators["hourly"].late_rows for epoch in range(1, EPOCHS + 1)]
    assert counts == [0, landed(job, 2, "k < 30"), 0]
    assert job.master.reports.read("late").num_rows == counts[1]


def test_bytes_of_state_are_those_of_the_files_that_it_refers_to(job: SparklessJob) -> None:
    """Full: each file once, as stored. Written: those below the epoch's own token."""
    context = job.context
    for epoch in range(1, EPOCHS + 1):
        report = shown(job, epoch)
        checkpoint = context.head().state.checkpoint(epoch)
        assert checkpoint is not None and report.leader is not None
        metadata, full, written = context.metadata(checkpoint), 0, 0
        for uid, operator in metadata.operators.items():
            keys = {run.key for handle in operator.handles for run in handle.runs}
            sizes = {key: (job.folder / "store" / "small" / key).stat().st_size for key in keys}
            own = sum(size for key, size in sizes.items() if f"/t{report.leader.token:020d}/" in key)
            told = report.operators[uid]
            assert (told.full_bytes, told.uploaded_bytes) == (sum(sizes.values()), own)
            assert (total(told.subtasks, "full_bytes"), total(told.subtasks, "uploaded_bytes")) == (
                told.full_bytes, told.uploaded_bytes,
            )  # fmt: skip
            assert total(told.subtasks, "state_rows") == told.state_rows
            full, written = full + sum(sizes.values()), written + own
        assert (report.full_bytes, report.checkpointed_bytes) == (full, written)


def test_the_objects_that_were_read_are_named_with_version_and_size(job: SparklessJob) -> None:
    read = shown(job, 2).sources["rows"].read
    assert read is not None and (read.objects, read.left) == (3, 0)
    files = sorted((job.folder / "landing").glob("1-*.csv"))
    assert [(one.object, one.bytes) for one in read.first] == [(file.name, file.stat().st_size) for file in files]
    assert read.bytes == sum(file.stat().st_size for file in files)


def test_times_of_an_operator_are_part_of_its_task(job: SparklessJob) -> None:
    """Two operators share each task of their level: what each took adds up to no more than the task did."""
    report = shown(job, 3)
    tasks = {task.subtask: task for task in report.tasks if task.level == 1}
    for subtask, task in tasks.items():
        hosted = [report.operators[uid].subtasks[subtask].times for uid in ("hourly", "latest")]
        for part in ("restore_ms", "process_ms", "emit_ms", "sync_ms"):
            assert sum(times[part] for times in hosted) <= (getattr(task, part) or 0) + len(hosted)
        assert all(times["total_ms"] == task.total_ms for times in hosted)
    assert "process_ms" in report.operators["latest"].spread and not report.operators["small"].subtasks[0].times


def test_a_spread_is_minimum_median_and_maximum(job: SparklessJob) -> None:
    for uid in ("hourly", "latest"):
        operator = shown(job, 1).operators[uid]
        rows = duckdb.sql(
            f"SELECT min(r), median(r), max(r) FROM (SELECT unnest({[one.rows_in for one in operator.subtasks]}) r)"
        ).fetchall()[0]
        spread = operator.spread["rows_in"]
        assert (spread.min, spread.median, spread.max) == rows


def test_the_report_of_an_epoch_that_has_just_run_reads_no_store(job: SparklessJob) -> None:
    """The output of a run omits what would need reads. The rest of the document is the same."""
    job.land("3-0.csv", "k,v,at\n1,x,2024-01-01 12:30:00\n")
    ran = to_json(job.master.epochs.run(Session.cli(), SparklessRunner(sql=True)))
    read = to_json(job.master.reports.show(EPOCHS + 1))
    assert "published" not in ran and "published" in read
    assert {uid: one["rows_in"] for uid, one in ran["operators"].items()} == {
        uid: one["rows_in"] for uid, one in read["operators"].items()
    }


def test_the_command_has_a_line_for_each_subtask_and_names_no_level(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    spec = job.folder / "config" / "small.yaml"
    text = milepost("show", spec, "2", "--tasks").stdout
    assert "level" not in text and "slices" not in text, "no subtask worked in slices"
    report = shown(job, 2)
    for uid, operator in report.operators.items():
        _, _, table = text.partition(re.search(rf"\d+ subtasks? of {uid}\b.*\n", text)[0])
        rows = table.split("\n\n")[0].splitlines()[2:]
        assert [row.split()[0] for row in rows] == [*map(str, range(len(operator.subtasks))), "min", "median", "max"]


def test_a_subtask_that_worked_in_slices_has_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slice of a first epoch writes its own state."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv", "k,v\n" + "".join(f"{k},x\n" for k in range(400)))
    job.master.epochs.run(Session.cli(), SparklessRunner(budget=MemoryBudget(4_000)))
    subtasks = shown(job, 1).operators["latest"].subtasks
    slices = [subtask.slices for subtask in subtasks if subtask.slices is not None]
    of_first = [*(job.folder / "store" / "small").glob("chk-*1/t*/state/latest/*")]
    assert len(slices) == len(subtasks) and min(slices) > 1
    assert sum(slices) == len(of_first)
    monkeypatch.setenv("COLUMNS", "240")
    text = milepost("show", job.folder / "config" / "small.yaml", "1", "--tasks").stdout
    assert "slices" in text, text
