"""The quality gate: vetoed rows are never visible, and a veto leaves no trace once its cause is removed."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pytest

from milepost.errors import QualityGateFailed
from milepost.jobmaster import Session
from milepost.sinks.staging.table_staging import TableStaging
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.flights.flights import DAYS, day_body
from milepost_testkit.jobs.flights.flights_job import FLIGHTS_SPEC, FlightsJob, local_spec
from milepost_testkit.jobs.flights.recovering_job import RecoveringJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane, epochs_in_process
from milepost_testkit.runners.sparkless_runner import SparklessRunner

BETWEEN = "{type: expect_column_values_to_be_between, column: worst, min_value: -120, max_value: %s, severity: %s}"


def quality(expectation: str) -> str:
    return f"quality:\n  - {{sink: carriers, expectations: [{expectation}]}}\n"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FlightsJob:
    """A job with one completed epoch and no gate, to be copied."""
    with epochs_in_process():
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


@pytest.mark.deep
def test_a_critical_expectation_that_fails_publishes_nothing(recovering: RecoveringJob, in_process: Plane) -> None:
    job = recovering.job
    without = with_quality(job, BETWEEN % (1, "critical"))
    outcome = milepost("run", job.spec_path)
    assert_clear_error(outcome, 5, "carriers", "worst", "critical", golden="run")
    recovering.assert_nothing_happened(aborted="QUALITY_GATE_FAILED")
    (refusal,) = milepost("show", job.spec_path, "2", "--json").document()["veto"]["refusals"]
    assert refusal["rows"] and all(row.keys() == {"carrier", "worst"} and row["worst"] > 1 for row in refusal["rows"])
    job.spec_path.write_text(without)
    recovering.recover(failed=True)


@pytest.mark.deep
def test_an_expectation_that_raises_publishes_nothing_whatever_its_severity(
    recovering: RecoveringJob, in_process: Plane
) -> None:
    """An expectation that could not be decided is no pass: here two columns of which one may hold nulls."""
    job = recovering.job
    without = with_quality(
        job, "{type: expect_column_values_to_match_regex, column: carrier, regex: '([', severity: warning}"
    )
    outcome = milepost("run", job.spec_path)
    assert_clear_error(outcome, 5, "carriers", "expect_column_values_to_match_regex(carrier)", golden="run")
    recovering.assert_nothing_happened(aborted="QUALITY_GATE_ERROR")
    job.spec_path.write_text(without)
    recovering.recover(failed=True)


@pytest.mark.deep
def test_a_warning_is_published_and_recorded(recovering: RecoveringJob, in_process: Plane) -> None:
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


@pytest.mark.deep
@pytest.mark.parametrize(
    ("expectation", "says"),
    [
        ("", "expectations"),
        ("{type: expect_column_values_to_be_betwixt, column: worst}", "expect_column_values_to_be_between"),
        ("{type: expect_column_values_to_be_between, column: wurst, min_value: 0}", "wurst"),
    ],
    ids=["empty-suite", "unknown-type", "unknown-column"],
)
def test_a_suite_that_cannot_judge_is_a_bad_spec(
    expectation: str, says: str, recovering: RecoveringJob, in_process: Plane
) -> None:
    """An empty suite would pass everything: exit 2, before anything is planned."""
    job = recovering.job
    without = with_quality(job, expectation)
    assert_clear_error(milepost("run", job.spec_path), 2, says, golden="run")
    job.spec_path.write_text(without)
    recovering.assert_nothing_happened(aborted=None)
    recovering.recover(failed=False)


DEPARTURES = """operators:
  - uid: clean
    kind: sql
    inputs: [flights]
    sql: SELECT carrier, flight, dep_delay FROM flights WHERE dep_delay > -99
sinks:
  - {name: departures, input: clean, format: parquet, path: ../lake/departures, mode: append}
quality:
  - sink: departures
    expectations:
      - {type: expect_column_values_to_be_between, column: dep_delay, max_value: 2000, severity: critical}
spark: {master: "local[2]", parallelism: 2}
"""


@pytest.mark.deep
def test_one_bad_row_among_300_000_is_caught_and_never_seen(tmp_path: Path, plane: Plane) -> None:
    """Issue: the last row of the last object of the last partition, and a reader that polls the table meanwhile."""
    job = FlightsJob(tmp_path)
    job.spec_path.parent.mkdir()
    job.edit(local_spec(FLIGHTS_SPEC.read_text()).partition("operators:")[0] + DEPARTURES, {})
    job.landing.put("flights/0.csv", day_body(1))
    assert milepost("run", job.spec_path).exit_code == 0
    bodies = {f"flights/{part}.csv": year_part(part) for part in (1, 2, 3, 4)}
    for key, body in bodies.items():
        job.landing.put(key, body)
    good = bodies["flights/4.csv"]
    job.landing.put("flights/4.csv", with_last_delay(good, b"9999"))
    with polling(job) as seen:
        outcome = milepost("run", job.spec_path)
    assert_clear_error(outcome, 5, "departures", "1 of 3", "critical", golden="run")
    assert len(seen) >= 3 and len(set(seen)) == 1, seen
    ((before, worst),) = set(seen)
    assert worst <= 2000
    newest = milepost("list", job.spec_path, "--json").document()["checkpoints"][0]
    assert newest["failure_reason"] == "QUALITY_GATE_FAILED"
    job.landing.put("flights/4.csv", good)
    assert milepost("resume", job.spec_path).exit_code == 0
    with polling(job) as seen:
        assert milepost("run", job.spec_path).exit_code == 0
    published = job.master().reports.read("departures")
    assert_same_rows(published, departures([day_body(1), *bodies.values()]), "departures")
    assert published.num_rows > 300_000
    # All or nothing: a poll sees the table before the epoch or after it.
    assert {rows for rows, _ in seen} <= {before, published.num_rows}


OF_ALL_KINDS = """    rows: 5
    expectations:
      - {type: expect_column_values_to_be_between, column: dep_delay, max_value: 100, severity: critical}
      - {type: expect_column_values_to_be_between, column: dep_delay, max_value: 60, mostly: 0.9, severity: warning}
      - {type: expect_compound_columns_to_be_unique, column_list: [carrier, flight, dep_delay], severity: critical}
      - {type: expect_column_distinct_values_to_contain_set, column: carrier, value_set: [UA, B6], severity: critical}
      - {type: expect_column_mean_to_be_between, column: dep_delay, min_value: 0, max_value: 60, severity: critical}
      - {type: expect_table_row_count_to_be_between, min_value: 1000, max_value: 2000, severity: info}
"""


def test_rows_that_stay_in_the_tasks_are_judged_as_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process only what is found: with the failing rows that the veto shows, and what is seen twice."""
    told = []
    for name, open_plane in (("here", partial(SparklessRunner, sql=True)), ("in tasks", SparkEpochRunner)):
        job = FlightsJob(tmp_path / name)
        job.spec_path.parent.mkdir(parents=True)
        text = local_spec(FLIGHTS_SPEC.read_text()).partition("operators:")[0] + DEPARTURES
        ours = text.partition("    expectations:")[0] + OF_ALL_KINDS + text[text.index("spark: {") :]
        job.edit(ours, {})
        job.land((1, 2, 3))
        with pytest.raises(QualityGateFailed):
            job.master().epochs.run(Session.cli(), open_plane())
        newest = milepost("show", job.spec_path, "1", "--json").document()
        told.append(newest["veto"]["refusals"])
        monkeypatch.setattr("milepost.epoch.gate_shares.DRIVER_ROWS", 100)
        monkeypatch.setattr("milepost.epoch.gate_shares._PARTITION_ROWS", 1_000)
        monkeypatch.setattr(TableStaging, "staged_table", None)
    (long, twice), (long_in_tasks, twice_in_tasks) = told
    assert long == long_in_tasks and len(long["rows"]) == 5
    assert {**twice, "rows": []} == {**twice_in_tasks, "rows": []} and len(twice["rows"]) == 5


LONG = """  - {name: long, input: departures.rejected, format: parquet, path: ../lake/long, mode: append}
quality:
  - sink: departures
    expectations:
      - {type: expect_column_values_to_be_between, column: dep_delay, max_value: 60, on_fail: quarantine}
      - {type: expect_column_values_to_match_regex, column: carrier, regex: "^[A-T]", on_fail: drop}
      - {type: expect_column_max_to_be_between, column: dep_delay, max_value: 60, severity: critical}
spark: {master: "local[2]", parallelism: 2}
"""


def test_tasks_reject_the_rows_that_duckdb_does_and_name_their_objects(tmp_path: Path, plane: Plane) -> None:
    """Downstream of SQL, which on Spark runs in the JVM between the reader and the rules."""
    job = FlightsJob(tmp_path)
    job.spec_path.parent.mkdir()
    spec = local_spec(FLIGHTS_SPEC.read_text()).partition("operators:")[0] + DEPARTURES.partition("quality:")[0] + LONG
    job.edit(spec, {})
    job.land((1, 2, 3))
    assert milepost("run", job.spec_path, "--until-caught-up").exit_code == 0
    every = departures([day_body(day) for day in (1, 2, 3)])
    published, long = (job.master().reports.read(name) for name in ("departures", "long"))
    engine = duckdb.connect()
    for name, table in (("every", every), ("published", published), ("long", long)):
        engine.register(name, table)
    wanted = engine.sql("FROM every WHERE (dep_delay <= 60 OR dep_delay IS NULL) AND carrier SIMILAR TO '[A-T].*'")
    assert_same_rows(published, wanted.to_arrow_table(), "departures")
    rejected = engine.sql("SELECT * EXCLUDE (_rule, _object) FROM long").to_arrow_table()
    assert_same_rows(rejected, engine.sql("FROM every WHERE dep_delay > 60").to_arrow_table(), "long")
    assert len(set(long["_object"].to_pylist()) - {None}) == 3 and long["_object"].null_count == 0


def year_part(part: int) -> bytes:
    """A quarter of the year's days from day 2 on, as one CSV object."""
    days = range(2 + (part - 1) * 91, 2 + part * 91)
    assert days[-1] <= DAYS
    header, _, _ = day_body(1).partition(b"\n")
    return b"\n".join([header, *(day_body(day).partition(b"\n")[2].rstrip(b"\n") for day in days)]) + b"\n"


def with_last_delay(body: bytes, delay: bytes) -> bytes:
    rest, _, last = body.rstrip(b"\n").rpartition(b"\n")
    cells = last.split(b",")
    cells[5] = delay
    return rest + b"\n" + b",".join(cells) + b"\n"


def departures(bodies: list[bytes]) -> pa.Table:
    """What the sink must hold, by pyarrow alone."""
    types = {"carrier": pa.string(), "flight": pa.int32(), "dep_delay": pa.int32()}
    options = pacsv.ConvertOptions(include_columns=list(types), column_types=types, null_values=["", "NA"])
    tables = [pacsv.read_csv(io.BytesIO(body), convert_options=options) for body in bodies]
    rows = pa.concat_tables(tables)
    return rows.filter(pc.greater(rows["dep_delay"], -99))


@contextmanager
def polling(job: FlightsJob) -> Iterator[list[tuple[int, int]]]:
    """Read the table over and over while the block runs; yields (rows, largest delay) of every read."""
    seen: list[tuple[int, int]] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def poll() -> None:
        try:
            while not done.is_set():
                table = job.master().reports.read("departures")
                seen.append((table.num_rows, pc.max(table["dep_delay"]).as_py()))
        except BaseException as error:  # noqa: BLE001 - handed to the test below
            failures.append(error)

    thread = threading.Thread(target=poll, name="reader")
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
    assert not failures, failures
