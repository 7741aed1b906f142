"""A job with process functions: equal to DuckDB, edited between epochs, failing with the user's line (I13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from milepost.epoch.answers import EpochAnswers, EpochRunner
from milepost.epoch.code_hash import CODE_HASH
from milepost.epoch.gate_shares import GateShare
from milepost.epoch.plan import EpochPlan
from milepost.errors import NotFound, SubtaskDeclined
from milepost.jobmaster import JobMaster, Session, Triggered
from milepost.protocol.failure.abort_reasons import reason_for
from milepost.quality.partial_results import PartialResult
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane

SPEC = """\
name: flights
storage: ../store
sources:
  flights:
    format: csv
    path: ../landing/flights/**/*.csv
    settle: 0s
    options: {null_values: ["", "NA"], strings_can_be_null: true}
    schema: {tailnum: string, carrier: string, flight: int32, origin: string, time_hour: "timestamp[us, UTC]"}
    event_time: time_hour
    watermark_delay: 2h
operators:
  - {uid: clean, kind: sql, inputs: [flights], sql: "SELECT * FROM flights WHERE tailnum IS NOT NULL"}
  - {uid: unique, kind: deduplicate, inputs: [clean], key: [carrier, flight, origin, time_hour]}
  - {uid: turnaround, kind: process, inputs: [unique], key: [tailnum], function: "flights_ops:Turnaround"}
  - {uid: long, kind: sql, inputs: [turnaround], sql: "SELECT tailnum, time_hour FROM turnaround WHERE minutes > 600"}
  - {uid: per_tail, kind: aggregate, inputs: [turnaround], key: [tailnum],
     aggregates: {legs: count(*), longest: max(minutes)}}
  - {uid: quiet, kind: process, inputs: [unique], key: [tailnum], function: "flights_ops:Quiet"}
sinks:
  - {name: turnaround, input: turnaround, format: parquet, path: ../lake/turnaround, mode: append}
  - {name: long, input: long, format: parquet, path: ../lake/long, mode: append}
  - {name: per_tail, input: per_tail, format: parquet, path: ../lake/per_tail, mode: upsert}
  - {name: quiet, input: quiet, format: parquet, path: ../lake/quiet, mode: append}
spark: {master: "local[2]", parallelism: 2, buffer_size: 64KB}
"""

FUNCTIONS = """\
from datetime import timedelta

from units import minutes_between


class Turnaround:
    state = {"last": "timestamp[us, UTC]"}
    output = {"tailnum": "string", "time_hour": "timestamp[us, UTC]", "minutes": "int64"}

    def on_rows(self, key, rows, state, ctx):
        for moment in rows.column("time_hour").to_pylist():
            if state["last"] is not None:
                yield {"tailnum": key, "time_hour": moment, "minutes": minutes_between(state["last"], moment)}
            state["last"] = moment


class Quiet:
    state = {"last": "timestamp[us, UTC]"}
    output = {"tailnum": "string", "since": "timestamp[us, UTC]", "noticed": "timestamp[us, UTC]"}

    def on_rows(self, key, rows, state, ctx):
        moments = rows.column("time_hour").to_pylist()
        state["last"] = max([*moments, state["last"] or moments[0]])
        ctx.set_timer(state["last"] + timedelta(hours=12))

    def on_timer(self, key, time, state, ctx):
        yield {"tailnum": key, "since": state["last"], "noticed": time}
"""

UNITS = """\
def minutes_between(start, end):
    return round((end - start).total_seconds()) // 60
"""

EPOCH_OF_ROWS = """
CREATE TABLE landed AS
SELECT min(epoch) AS epoch, tailnum, epoch_us(CAST(time_hour AS TIMESTAMP)) AS t
FROM read_csv($files, all_varchar = true, nullstr = ['', 'NA'], filename = true) JOIN object USING (filename)
WHERE tailnum IS NOT NULL GROUP BY carrier, flight, origin, tailnum, time_hour;
CREATE TABLE watermark AS
SELECT epoch, max(max(t)) OVER (ORDER BY epoch) - 7200000000 AS us FROM landed GROUP BY epoch;
CREATE TABLE pairs AS
SELECT tailnum, t, lag(t) OVER (PARTITION BY tailnum ORDER BY epoch, t) AS before FROM landed;
CREATE TABLE turnaround AS
SELECT tailnum, t AS time_hour, CAST((t - before) // 60000000 AS BIGINT) AS minutes FROM pairs WHERE before IS NOT NULL;
CREATE TABLE long AS SELECT tailnum, time_hour FROM turnaround WHERE minutes > 600;
CREATE TABLE per_tail AS
SELECT tailnum, CAST(count(*) AS BIGINT) AS legs, max(minutes) AS longest FROM turnaround GROUP BY tailnum;
CREATE TABLE arrived AS
SELECT tailnum, epoch, max(max(t)) OVER (PARTITION BY tailnum ORDER BY epoch) AS last,
    lead(epoch) OVER (PARTITION BY tailnum ORDER BY epoch) AS next
FROM landed GROUP BY tailnum, epoch;
CREATE TABLE quiet AS
SELECT tailnum, last AS since, last + 43200000000 AS noticed
FROM (SELECT *, (SELECT min(w.epoch) FROM watermark w WHERE w.epoch >= a.epoch AND w.us >= last + 43200000000) AS fires
      FROM arrived a)
WHERE fires < coalesce(next, 1000000);
"""
"""Rows, turnarounds and alarms from the landed files alone, knowing only which epoch read which file."""


class TailsJob(FlightsJob):
    """The flights by tail number, through two process functions in modules next to the spec."""

    @classmethod
    def create(cls, folder: Path, edit: dict[str, str] | None = None) -> TailsJob:
        job = cls(folder)
        (folder / "config").mkdir(parents=True)
        job.edit(SPEC, edit or {})
        job.module.write_text(FUNCTIONS)
        job.helper.write_text(UNITS)
        return job

    @property
    def module(self) -> Path:
        return self.folder / "config" / "flights_ops.py"

    @property
    def helper(self) -> Path:
        return self.folder / "config" / "units.py"

    def change(self, file: Path, old: str, new: str) -> None:
        text = file.read_text()
        assert text.count(old) == 1, f"{file.name} does not contain {old!r} once"
        file.write_text(text.replace(old, new))

    def assert_sinks_equal_duckdb(self) -> dict[str, pa.Table]:
        """Every sink holds, row for row, what DuckDB's window functions compute from the landed files."""
        db = duckdb.connect()
        landing = self.folder / "landing" / "flights"
        files = {str(landing / key): epoch for epoch, keys in enumerate(self.epochs()) for key in keys}
        files = {name: epoch for name, epoch in files.items() if Path(name).stat().st_size}
        db.register("object", pa.table({"filename": list(files), "epoch": list(files.values())}))
        for statement in EPOCH_OF_ROWS.split(";\n"):
            if statement.strip():
                db.execute(statement, {"files": list(files)} if "$files" in statement else None)
        published = {}
        for name in ("turnaround", "long", "per_tail", "quiet"):
            published[name] = self.master().reports.read(name)
            assert_same_rows(published[name], db.table(name).to_arrow_table(), name)
            assert published[name].num_rows > 0
        return published


@pytest.fixture
def job(tmp_path: Path) -> TailsJob:
    return TailsJob.create(tmp_path)


@pytest.mark.deep
def test_process_functions_equal_another_engine_across_epochs_and_parallelism(job: TailsJob, plane: Plane) -> None:
    """State and timers of a key survive checkpoints and rescaling; the emitted rows feed SQL, an aggregate, sinks."""
    before = 2
    for first, parallelism in ((1, 2), (4, 1), (7, 3), (10, 2)):
        job.change(job.spec_path, f"parallelism: {before}", f"parallelism: {parallelism}")
        before = parallelism
        job.land(range(first, first + 3))
        document = job.run()
        assert document.status == "completed" and document.code_hash != CODE_HASH
    published = job.assert_sinks_equal_duckdb()
    assert min(published["turnaround"].column("minutes").to_pylist()) < 0, "flights came after later ones of their tail"
    assert job.master().reports.state("quiet").num_rows > 1000


VERSION = """\
import os

import units


class Turnaround:
    state = {"epochs": "int64"}
    output = {"minutes": "int64", "pid": "int64"}

    def on_rows(self, key, rows, state, ctx):
        state["epochs"] = (state["epochs"] or 0) + 1
        yield {"minutes": units.VALUE + state["epochs"], "pid": os.getpid()}
"""
OPERATORS, SINKS = SPEC.index("  - {uid: clean"), SPEC.index("sinks:")
ONE_FUNCTION = {
    SPEC[OPERATORS:SINKS]: "  - {uid: turnaround, kind: process, inputs: [flights], key: [carrier], "
    'function: "flights_ops:Turnaround"}\n',
    SPEC[SPEC.index("  - {name: long") : SPEC.index("spark:")]: "",
}


@pytest.mark.deep
def test_a_module_edited_between_two_epochs_of_one_session_runs_in_its_new_form(tmp_path: Path) -> None:
    """I13: one process, one JobMaster, one Spark session, the same Python workers; class and helper are edited."""
    job = TailsJob.create(tmp_path, ONE_FUNCTION)
    job.module.write_text(VERSION)
    job.helper.write_text("VALUE = 100\n")
    loaded = job.load()
    master, runner = JobMaster(loaded), SparkEpochRunner()
    rows: list[pa.Table] = []
    hashes: list[str] = []

    def epoch(day: int) -> set[int]:
        job.land([day])
        document = master.epochs.run(Session.cli(), runner)
        hashes.append(document.code_hash)
        table = master.reports.read("turnaround")
        rows.append(table.slice(sum(part.num_rows for part in rows)))
        return set(rows[-1].column("pid").to_pylist())

    def minutes(part: int) -> set[int]:
        return set(rows[part].column("minutes").to_pylist())

    # Spark hands its idle workers out in turn: three epochs of each form, so that a worker serves more than one.
    first = epoch(1) | epoch(2) | epoch(3)
    assert minutes(0) == {101} and all(minutes(part) <= {101, 102, 103} for part in (1, 2))
    job.helper.write_text("VALUE = 200\n")
    second = epoch(4) | epoch(5) | epoch(6)
    assert all(minutes(part) <= set(range(201, 207)) for part in (3, 4, 5))
    job.change(job.module, "units.VALUE +", "1000 + units.VALUE +")
    third = epoch(7) | epoch(8) | epoch(9)
    assert all(minutes(part) <= set(range(1201, 1210)) for part in (6, 7, 8))
    assert first & second and second & third, "no worker served two forms: the test would prove nothing"
    assert 204 in minutes(3) and 1207 in minutes(6), "the state of the old form goes on in the new one"
    assert hashes == [hashes[0]] * 3 + [hashes[3]] * 3 + [hashes[6]] * 3 and len(set(hashes)) == 3


@pytest.mark.deep
def test_what_a_function_raises_aborts_the_epoch_with_its_line_and_nothing_is_lost(job: TailsJob, plane: Plane) -> None:
    job.land([1])
    job.run()
    job.land([2])
    good = job.module.read_text()
    job.change(job.module, '            state["last"] = moment\n', '            state["last"] = moment / 2\n')
    failed = milepost("run", job.spec_path)
    assert_clear_error(
        failed,
        1,
        "turnaround",
        "TypeError: unsupported operand",
        "flights_ops.py",
        "14",
        golden="run",
        replace=wording.FIRST_DECLINE,
    )
    assert job.master().reports.show(2).failure_reason.startswith("OPERATOR_ERROR")
    job.change(job.module, "moment / 2", "moment")
    job.change(job.module, '"minutes": minutes_between', '"minutes": 0.5 * minutes_between')
    assert milepost("resume", job.spec_path).exit_code == 0
    failed = milepost("run", job.spec_path)
    assert_clear_error(
        failed, 1, "minutes", "int64", "float", "flights_ops.py", "13", golden="run", replace=wording.FIRST_DECLINE
    )
    job.module.write_text(good)
    assert milepost("resume", job.spec_path).exit_code == 0
    assert milepost("run", job.spec_path).exit_code == 0
    job.assert_sinks_equal_duckdb()


@pytest.mark.deep
@pytest.mark.parametrize("edit", ["class", "helper", "gone"])
def test_code_that_changes_between_trigger_and_run_epoch_declines_the_epoch(
    job: TailsJob, plane: Plane, edit: str
) -> None:
    """Airflow runs the two in separate processes; the checkpoint records what the trigger saw (I13)."""
    job.land([1])
    session = Session.cli()
    triggered = job.master().triggers.trigger(session)
    assert isinstance(triggered, Triggered)
    if edit == "gone":
        job.module.rename(job.folder / "kept.py")
    else:
        file = job.module if edit == "class" else job.helper
        file.write_text(file.read_text() + "\n# edited\n")
    loaded = job.load()
    with wording.raises(SubtaskDeclined) as declined:
        JobMaster(loaded).epochs.run_epoch(session, triggered.checkpoint_id, plane())
    assert reason_for(declined.value).value == "CODE_MISMATCH" and declined.value.exit_code == 1
    job.master().epochs.abort(
        session, triggered.checkpoint_id, reason_for(declined.value).value, declined.value.message
    )
    with pytest.raises(NotFound):
        job.master().reports.read("turnaround")
    job.master().lifecycle.resume()
    if edit == "gone":
        (job.folder / "kept.py").rename(job.module)
    assert job.run().status == "completed"
    job.assert_sinks_equal_duckdb()


class OtherCodeRunner:
    """Gives the workers another text than the one whose hash the plan carries."""

    def __init__(self, runner: EpochRunner) -> None:
        self._runner = runner

    def run(self, plan: EpochPlan) -> EpochAnswers:
        function = plan.functions["turnaround"]
        files = tuple(replace(file, text=file.text + "\n") for file in function.code.files)
        changed = replace(function, code=replace(function.code, files=files))
        return self._runner.run(replace(plan, functions={**plan.functions, "turnaround": changed}))

    def prepare(self, plan: EpochPlan) -> None:
        self._runner.prepare(plan)

    def judge(self, plan: EpochPlan, shares: Sequence[GateShare]) -> Mapping[str, PartialResult]:
        return self._runner.judge(plan, shares)

    def stop(self) -> None:
        self._runner.stop()


def test_a_worker_with_other_code_than_the_plan_declines(job: TailsJob, plane: Plane) -> None:
    """I13: the worker hashes what it was given, whatever the driver says it is."""
    job.land([1])
    loaded = job.load()
    with wording.raises(SubtaskDeclined, replace=wording.FIRST_DECLINE) as declined:
        JobMaster(loaded).epochs.run(Session.cli(), OtherCodeRunner(plane()))
    assert reason_for(declined.value).value == "CODE_MISMATCH"


def test_lint_runs_no_user_code_and_run_checks_what_depends_on_it(job: TailsJob, in_process: Plane) -> None:
    """DESIGN 9: `lint` and DAG files load no module; a mistake that only the class shows is found by run."""
    job.land([1])
    marker = job.folder / "was-loaded"
    job.module.write_text(f"open({str(marker)!r}, 'w').close()\n" + FUNCTIONS)
    linted = milepost("lint", job.spec_path)
    assert linted.exit_code == 0 and not marker.exists()
    wording.matches("lint", linted.stderr)
    job.change(job.spec_path, "WHERE minutes >", "WHERE minuts >")
    assert milepost("lint", job.spec_path).exit_code == 0 and not marker.exists()
    assert_clear_error(milepost("run", job.spec_path), 2, "minuts", '"minutes"', golden="run")
    assert marker.exists()
    job.change(job.spec_path, "WHERE minuts >", "WHERE minutes >")
    job.module.write_text("raise RuntimeError('no')\n")
    assert_clear_error(milepost("run", job.spec_path), 2, "RuntimeError: no", "flights_ops.py", golden="run")
    assert milepost("list", job.spec_path, "--json").document()["checkpoints"] == []


@pytest.mark.deep
def test_another_declared_state_is_refused_before_anything_is_planned(job: TailsJob, in_process: Plane) -> None:
    job.land([1])
    job.run()
    job.land([2])
    job.module.write_text(FUNCTIONS.replace('{"last": "timestamp[us, UTC]"}', '{"last": "int64"}', 1))
    refused = milepost("run", job.spec_path)
    assert_clear_error(refused, 2, "turnaround", "last", "timestamp[us, tz=UTC]", "int64", golden="run")
    assert [row.status for row in job.master().reports.list_checkpoints()] == ["completed"]
