"""A case runs a job as it is, in a folder of its own, and says how what came differs from what is expected."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.load.load import from_spec, load_job
from milepost.spark.local.local_runner import LocalRunner
from milepost.testing.case_file import load_cases
from milepost.testing.case_run import CaseResult, run_case
from milepost.testing.local_job import under_test
from milepost.testing.recording import record
from milepost_testkit import wording
from milepost_testkit.jobs.landed_messages import kafka_source
from milepost_testkit.specs.case_steps import Step, run_steps

SPEC = """\
name: counts
storage: s3://nobody/asks/for/it
sources:
  rows:
    format: csv
    path: s3://landing/rows/*.csv
    schema: {k: string, v: int64, t: "timestamp[us, UTC]", ok: bool, d: "decimal(8, 2)"}
    event_time: t
    limits_per_epoch: {max_files: 1}
operators:
  - {uid: sums, kind: aggregate, inputs: [rows], key: [k], aggregates: {n: count(*), total: sum(v), most: max(d)}}
  - {uid: hourly, kind: window, inputs: [rows], key: [k], window: {tumbling: 1h}, aggregates: {n: count(*)}}
sinks:
  - {name: sums, input: sums, format: delta, path: s3://lake/sums, mode: upsert}
  - {name: hourly, input: hourly, format: parquet, path: s3://lake/hourly, mode: append}
quality:
  - sink: sums
    expectations: [{type: expect_column_values_to_be_between, column: total, min_value: 0, severity: critical}]
"""
ROW = {"k": "a", "v": 1, "t": "2026-01-01T00:10:00Z", "ok": True, "d": "1.50"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counts.yaml").write_text(SPEC)
    return tmp_path


def run(folder: Path, *steps: Step, recording: bool = False, **options: Any) -> CaseResult:
    return run_steps(folder / "counts.yaml", *steps, recording=recording, **options)


def epoch(*rows: dict[str, Any], kill: str | None = None, **expect: Any) -> Step:
    step: Step = {"epoch": {"rows": [ROW | row for row in rows]}}
    return step | ({"kill": kill} if kill else {}) | ({"expect": expect} if expect else {})


def sums(**totals: int) -> dict[str, Any]:
    return {"tables": {"sums": [{"k": key, "total": total} for key, total in totals.items()]}}


def test_rows_that_equal_the_expected_ones_pass(folder: Path) -> None:
    state = {"sums": [{"k": "a", "total": 3}]}
    result = run(folder, epoch({}, {"v": 2}, **sums(a=3), state=state, verdict="passed"))
    assert result.passed and [step.number for step in result.steps] == [1]


def test_types_are_those_of_the_table(folder: Path) -> None:
    expected = {"k": "a", "n": 1, "total": 1, "most": "1.50"}
    assert run(folder, epoch({}, tables={"sums": [expected]})).faults == ()


@pytest.mark.parametrize(
    ("expect", "faults"),
    [
        (sums(a=2), ["sums", "- {k: a, total: 2}", "+ {k: a, total: 1}"]),
        (sums(a=1, b=1), ["sums", "- {k: b, total: 1}"]),
        ({"tables": {"sums": []}}, ["sums", "+ {'k': 'a', 'n': 1, 'total': 1, 'most':"]),
        ({"tables": {"sums": [{"q": 1}]}}, ["k, n, total, most"]),
        ({"tables": {"sums": [{"total": "x"}]}}, ["'x'"]),
        ({"tables": {"nothing": []}}, ["nothing"]),
        ({"state": {"sums": [{"total": 2}]}}, ["sums"]),
        ({"verdict": "vetoed"}, ["vetoed"]),
        ({"refused": "words"}, ["'words'"]),
    ],
    ids=["value", "row", "no rows", "no column", "wrong type", "no table", "state", "verdict", "refused"],
)
def test_differences_are_reported(folder: Path, expect: dict[str, Any], faults: list[str]) -> None:
    """Every key of `expect` can fail."""
    result = run(folder, epoch({}, **expect))
    assert not result.passed
    for fault, line in zip(faults, result.faults, strict=False):
        assert fault in line
    wording.matches("problems", result.faults)


@pytest.mark.deep
def test_late_rows_and_rows_of_an_operator_without_a_sink_can_be_expected(folder: Path) -> None:
    late = [{"k": "a", "v": 7}]
    first = epoch({"t": "2026-01-01T05:00:00Z"}, tables={"hourly.late": []})
    second = epoch({"v": 7}, tables={"hourly.late": late, "hourly": []})
    assert run(folder, first, second).faults == ()


def test_records_that_cannot_be_read_can_be_expected(folder: Path) -> None:
    (folder / "counts.yaml").write_text(SPEC.replace("event_time: t", "event_time: t\n    bad_records: dead_letter"))
    (folder / "some.csv").write_text("k,v,t,ok,d\na,5,2026-01-01T00:00:00Z,true,1\na,x,2026-01-01T00:00:00Z,true,1\n")
    bad = {"tables": {"rows.bad": [{"column": "v", "value": "x"}], "sums": [{"k": "a", "total": 5}]}}
    assert run(folder, {"epoch": {"rows": {"file": "some.csv"}}, "expect": bad}).faults == ()


@pytest.mark.long
def test_a_veto_is_a_verdict_and_publishes_nothing(folder: Path) -> None:
    steps = [epoch({"v": -5}, tables={"sums": []}, verdict="vetoed"), {"resume": True}, epoch({"v": 6}, **sums(a=1))]
    assert run(folder, *steps).faults == ()
    del steps[1]
    wording.matches("problems", run(folder, *steps).faults[0])
    assert "quality" in run(folder, epoch({"v": -5})).faults[0]


@pytest.mark.long
@pytest.mark.parametrize("kill", ["run", "complete"])
def test_an_epoch_whose_process_was_killed_counts_once(folder: Path, kill: str) -> None:
    shown = epoch({"v": 5}, kill=kill, **sums(a=1))  # nobody sees it yet
    assert run(folder, epoch({}), shown, epoch({"v": 7}, **sums(a=13))).faults == ()


@pytest.mark.deep
def test_a_job_goes_back_and_on(folder: Path) -> None:
    """What came after is read again."""
    steps = [epoch({}), epoch({"v": 5}), {"rollback": 1, "expect": sums(a=1)}, epoch({"v": 7}, **sums(a=13))]
    assert run(folder, *steps).faults == ()


@pytest.mark.deep
def test_a_backfill_processes_recorded_input_with_the_changed_spec(folder: Path) -> None:
    change = {"spec": {"total: sum(v)": "total: max(v)"}}
    again = {"backfill": {"from_checkpoint": 0}, "expect": sums(a=5)}
    assert run(folder, epoch({}), epoch({"v": 5}), change, again).faults == ()


@pytest.mark.deep
def test_a_change_that_the_state_does_not_fit_can_be_expected_to_be_refused(folder: Path) -> None:
    change = {"spec": {"total: sum(v)": "total: min(v)"}}
    assert run(folder, epoch({}), change, epoch({}, refused="sums")).faults == ()
    wording.matches("problems", run(folder, epoch({}), change, epoch({})).faults[0])


@pytest.mark.deep
@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_rows_land_in_the_source_s_format(folder: Path, format: str) -> None:
    (folder / "counts.yaml").write_text(SPEC.replace("format: csv", f"format: {format}").replace("*.csv", "*"))
    rows = [{"k": 'a, "b"', "ok": None}, {"k": 'a, "b"', "v": None, "d": "2.25"}]
    expected = [{"k": 'a, "b"', "n": 2, "total": 1, "most": "2.25"}]
    assert run(folder, epoch(*rows, tables={"sums": expected})).faults == ()


def test_partition_columns_come_from_where_rows_land(folder: Path) -> None:
    (folder / "counts.yaml").write_text(
        SPEC.replace("event_time: t", "event_time: t\n    partitions: {day: date}").replace(
            "key: [k], aggregates: {n", "key: [day], aggregates: {n"
        )
    )
    rows = [{"day": "2026-01-01"}, {"day": "2026-01-02"}, {"day": "2026-01-02"}]
    expected = [{"day": "2026-01-01", "n": 1}, {"day": "2026-01-02", "n": 2}]
    assert run(folder, epoch(*rows, tables={"sums": expected})).faults == ()


def test_a_file_lands_as_it_is(folder: Path) -> None:
    (folder / "some.csv.gz").write_bytes(gzip.compress(b"k,v,t,ok,d\na,5,2026-01-01T00:00:00Z,true,1\n"))
    assert run(folder, {"epoch": {"rows": {"file": "some.csv.gz"}}, "expect": sums(a=5)}).faults == ()
    wording.matches("problems", run(folder, {"epoch": {"rows": {"file": "other.csv"}}}).faults[0])


@pytest.mark.parametrize(
    "row",
    [
        {"vv": 1},
        {"v": "x"},
    ],
)
def test_a_row_that_its_source_cannot_have_is_a_fault_of_the_case(folder: Path, row: dict[str, Any]) -> None:
    wording.matches("problems", run(folder, epoch(row)).faults[0])


@pytest.mark.deep
def test_parallelism_is_the_case_file_s(folder: Path) -> None:
    rows = [{"k": str(k)} for k in range(20)]
    assert run(folder, epoch(*rows, **sums(**{str(k): 1 for k in range(20)})), parallelism=3).faults == ()


@pytest.mark.deep
def test_what_came_is_recorded_and_passes(folder: Path) -> None:
    result = run(folder, epoch({}, {"k": "yes"}), epoch({"v": 2}, tables={"hourly.late": []}), recording=True)
    path = folder / "case.yaml"
    path.write_text("# whose\n" + path.read_text().replace("milepost_test: 1\n", ""))
    path.write_text("milepost_test: 1\n" + path.read_text())
    record(path, [result])
    text = path.read_text()
    assert "# whose" in text and "- {k: 'yes', n: 1" in text.replace('"yes"', "'yes'").replace("{k: yes", "{k: 'yes'")
    assert run_case(load_cases(path), "it", LocalRunner()).faults == ()
    path.write_text(text.replace("total: 3", "total: 4"))
    assert not run_case(load_cases(path), "it", LocalRunner()).passed


LOOKUP = """\
name: counts
storage: s3://nobody/asks/for/it
sources:
  rows: {format: csv, path: "s3://landing/rows/*.csv", schema: {k: string}}
  names: {format: csv, path: "s3://names/*.csv", schema: {k: string, name: string}, static: true}
operators:
  - {uid: named, kind: lookup, inputs: [rows, names], key: [k], how: left}
sinks:
  - {name: named, input: named, format: parquet, path: s3://lake/named, mode: append}
"""


@pytest.mark.long
def test_rows_of_a_static_source_are_what_it_holds_from_then_on(folder: Path) -> None:
    """Each epoch is looked up in what was given last, and a backfill in what each of them had."""
    (folder / "counts.yaml").write_text(LOOKUP)
    first, *later = (
        {"epoch": {"rows": [{"k": "a"}]} | ({"names": [{"k": "a", "name": name}]} if name else {})}
        for name in ("one", None, "uno", "ichi")
    )
    names = ["one", "one", "uno", "ichi"]
    expected = [{"k": "a", "name": name} for name in names]
    backfill = {"backfill": {"from_checkpoint": 1}, "expect": {"tables": {"named": expected}}}
    result = run(folder, first | {"expect": {"tables": {"named": expected[:1]}}}, *later, backfill)
    assert result.passed, result.faults
    twice = {"epoch": {"rows": [{"k": "a"}], "names": [{"k": "a", "name": "x"}, {"k": "a", "name": "y"}]}}
    result = run(folder, twice | {"expect": {"refused": "several rows with one k: a"}})
    assert result.passed, result.faults


LANDED = """\
name: counts
storage: s3://nobody/asks/for/it
sources:
  feed:
    format: python
    source: "nowhere:Feed"
    schema: {k: string, v: int64, t: "timestamp[us, UTC]"}
    event_time: t
    limits_per_epoch: {max_records: 1}
operators:
  - {uid: sums, kind: aggregate, inputs: [feed], key: [k], aggregates: {n: count(*), total: sum(v)}}
sinks:
  - {name: sums, input: sums, format: delta, path: s3://lake/sums, mode: upsert}
  - {name: feed, input: feed, format: delta, path: s3://lake/feed, mode: append}
"""


def landed(**values: int) -> Step:
    return {"epoch": {"feed": [{"k": key, "v": value, "t": "2026-01-01T00:10:00Z"} for key, value in values.items()]}}


@pytest.mark.long
def test_rows_of_a_landed_source_are_a_record_of_the_cases_own_log(folder: Path) -> None:
    """Its class is not called. A rollback returns the position, and the next epoch reads the records after it again."""
    (folder / "counts.yaml").write_text(LANDED)
    (folder / "nowhere.py").write_text("raise RuntimeError('it was called')")
    result = run(
        folder,
        landed(a=1, b=2) | {"expect": sums(a=1, b=2)},
        landed(a=10) | {"kill": "run"},
        landed(b=20) | {"expect": sums(a=11, b=22)},
        {"rollback": 1, "expect": sums(a=1, b=2)},
        landed(a=100) | {"expect": sums(a=111, b=22) | {"verdict": "skipped"}},
        {"backfill": {"from_checkpoint": 1}, "expect": sums(a=111, b=22)},
        {"epoch": {"feed": []}, "expect": {"refused": "no epoch was run"}},
    )
    assert result.passed, result.faults


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"file": "rows.parquet"}, "a landed source has no files"),
        ([{"k": "a", "other": 1}], "there is no column other"),
        ([{"k": "a", "v": 1}], "column t"),
    ],
)
def test_what_cannot_be_landed_is_a_fault_of_the_case(folder: Path, given: Any, fault: str) -> None:
    (folder / "counts.yaml").write_text(LANDED)
    (found,) = run(folder, {"epoch": {"feed": given}}).faults
    assert fault in found


def test_a_case_of_a_job_with_a_source_of_messages_is_refused(folder: Path) -> None:
    (folder / "counts.yaml").write_text(LANDED)
    job = load_job(str(folder / "counts.yaml"))
    feed = kafka_source({"k": "string", "v": "int64", "t": "timestamp[us, UTC]"}, event_time="t")
    job = from_spec(job.spec.model_copy(update={"sources": {"feed": feed}}), job.spec_hash, job.text, job.path)
    with wording.raises(InvalidRequest):
        under_test(job, folder, 1, ())
