"""`bad_records: dead_letter`: what cannot be read is a row of its own, once, and goes back and forth with the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.errors import CheckpointError, SubtaskDeclined
from milepost.jobmaster import CheckpointDetails, Session
from milepost_testkit import wording
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SINKS = (
    "sinks:\n  - {name: all, input: rows, format: parquet, path: ../lake/all, mode: append}\n"
    "  - {name: bad, input: rows.bad, format: parquet, path: ../lake/bad, mode: append}\n"
)
SETTLE = "    settle: 0s\n"
KEEP = {"sinks:\n": SINKS, "last: 1": "last: 20"}
MANY = {"    limits_per_epoch: {max_files: 1}\n": ""}


def made(folder: Path, edit: Mapping[str, str] | None = None, **keys: Any) -> SparklessJob:
    """A job whose source has these keys in addition to `bad_records: dead_letter`."""
    said = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in keys.items())
    return SparklessJob.create(folder, KEEP | {SETTLE: f"{SETTLE}    bad_records: dead_letter\n{said}"} | (edit or {}))


def run(job: SparklessJob, **options: Any) -> CheckpointDetails:
    result = job.master.epochs.run(Session.cli(), SparklessRunner(), **options)
    assert isinstance(result, CheckpointDetails)
    return result


def land(job: SparklessJob, number: int, rows: int = 20, bad: int = 3) -> None:
    """File `number`: so many rows, of which every so many-th cannot be read."""
    lines = [f"{'x' if bad and n % bad == 1 else n},{number}" for n in range(rows)]
    job.land(f"{number}.csv", "\n".join(["k,v", *lines]) + "\n")


def bad_table(job: SparklessJob) -> pa.Table:
    return job.master.reports.read("bad")


def test_bad_records_are_rows_of_their_own_and_the_others_are_read(tmp_path: Path) -> None:
    job = made(tmp_path)
    job.land("a.csv", "k,v\n1,a\nx,secret\n2,b\n3\n")
    shown = run(job)
    assert job.master.reports.read("all").to_pylist() == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]
    rows = bad_table(job).to_pylist()
    wording.matches("bad_rows", [row.pop("reason") for row in rows])
    assert rows == [
        {"object": "a.csv", "line": 3, "column": "k", "value": "x", "raw": b"x,secret"},
        {"object": "a.csv", "line": 5, "column": None, "value": "3", "raw": b"3"},
    ]
    bad = shown.sources["rows"].bad
    assert (shown.rows_in, shown.bad_records, bad.records, bad.objects, bad.total) == (2, 2, 2, 0, 2)
    assert [(one.object, one.line, one.column) for one in bad.first] == [("a.csv", 3, "k"), ("a.csv", 5, None)]
    assert "secret" not in json.dumps([one.describe() for one in bad.first])
    told = job.master.reports.status().sources["rows"].bad_records
    assert (told.count, told.total) == (2, 2)


def test_a_job_that_fails_on_bad_records_publishes_nothing_of_the_epoch(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv", "k,v\n1,a\nx,b\n")
    with wording.raises(SubtaskDeclined):
        run(job)


@pytest.mark.long
@pytest.mark.parametrize("parallelism", [1, 3])
def test_how_many_subtasks_read_changes_nothing(tmp_path: Path, parallelism: int) -> None:
    job = made(tmp_path, MANY | {"checkpointing:": f"spark: {{parallelism: {parallelism}}}\ncheckpointing:"})
    for number in range(7):
        land(job, number, rows=50, bad=number)
    bad = run(job).sources["rows"].bad
    files = f"read_csv('{tmp_path}/landing/*.csv', all_varchar=true, filename='object')"
    wanted = duckdb.sql(
        f"SELECT v, k = 'x' AS bad, count(*) AS rows FROM {files} GROUP BY ALL ORDER BY ALL"
    ).to_arrow_table()
    letters = bad_table(job)
    with duckdb.connect() as engine:
        engine.register("good", job.master.reports.read("all"))
        engine.register("letters", letters)
        found = engine.sql(
            "SELECT v, false AS bad, count(*) AS rows FROM good GROUP BY ALL UNION ALL "
            "SELECT object[1:1], true, count(*) FROM letters GROUP BY ALL ORDER BY ALL"
        ).to_arrow_table()
    assert_same_rows(found, wanted, "rows of each file")
    assert bad.records == letters.num_rows and [one.object for one in bad.first] == ["2.csv"] * 5


def test_a_retry_writes_the_same_bad_rows(tmp_path: Path) -> None:
    """I12: the second attempt's staged files have the first one's bytes."""
    job = made(tmp_path)
    land(job, 1)
    staged: list[dict[str, bytes]] = []

    def look(_: object) -> None:
        files = sorted((tmp_path / "lake" / "bad").rglob("*.parquet"))
        staged.append({path.name: path.read_bytes() for path in files})
        if len(staged) == 1:
            raise CheckpointError("the machine went away")

    with wording.raises(CheckpointError):
        job.master.epochs.run(Session.cli(), SparklessRunner(after=look))
    job.master.epochs.run(Session.cli(), SparklessRunner(after=look))
    first, second = staged
    assert first and set(first.values()) == {body for name, body in second.items()}
    assert bad_table(job).num_rows == 7


@pytest.mark.deep
@pytest.mark.parametrize("ranges_per_epoch", [1, 3])
def test_a_rollback_takes_bad_rows_back_and_a_backfill_gives_the_same(tmp_path: Path, ranges_per_epoch: int) -> None:
    """The limit is of each trigger: three epochs' bad records in one replay are no more than they were."""
    job = made(tmp_path, max_bad_records=7, max_bad_ratio=0.36)
    for number in range(1, 4):
        land(job, number)
        run(job)
    tables = {name: job.master.reports.read(name) for name in ("all", "bad", "table")}
    assert tables["bad"].num_rows == 21
    back_fill(job.master, SparklessRunner(), from_checkpoint=0, ranges_per_epoch=ranges_per_epoch)
    for name, table in tables.items():
        assert_same_rows(job.master.reports.read(name), table, name)
    assert job.master.reports.status().sources["rows"].bad_records.total == 21
    roll_back(job.master, 1)
    assert bad_table(job)["object"].to_pylist() == ["1.csv"] * 7
    assert job.master.reports.status().sources["rows"].bad_records.total == 7


@pytest.mark.long
@pytest.mark.parametrize(
    ("keys", "rows", "bad", "declined"),
    [
        ({"max_bad_records": 6}, 20, 3, True),
        ({"max_bad_records": 7}, 20, 3, False),
        ({"max_bad_ratio": 0.34}, 20, 3, True),
        ({"max_bad_ratio": 0.35}, 20, 3, False),
        ({"max_bad_ratio": 0.1, "min_rows": 21}, 20, 3, False),
        ({"max_bad_ratio": 0.1, "min_rows": 20}, 20, 3, True),
        ({"max_bad_records": 0}, 20, 0, False),
    ],
)
def test_beyond_its_limits_the_epoch_is_declined_with_counts_and_places(
    tmp_path: Path, keys: dict[str, Any], rows: int, bad: int, declined: bool
) -> None:
    job = made(tmp_path, **keys)
    land(job, 1, rows, bad)
    if not declined:
        run(job)
        return
    with wording.raises(SubtaskDeclined) as raised:
        run(job)
    assert raised.value.details["reason"] == "BAD_RECORD"
    assert "'x'" not in raised.value.message
    (aborted,) = job.master.reports.list_checkpoints()
    assert (aborted.status, aborted.failure_reason) == ("aborted", "BAD_RECORD")
    assert str(aborted.failure_detail) in raised.value.message


def test_limits_count_over_all_subtasks(tmp_path: Path) -> None:
    job = made(tmp_path, MANY | {"checkpointing:": "spark: {parallelism: 3}\ncheckpointing:"}, max_bad_records=20)
    for number in range(3):
        land(job, number)
    with wording.raises(SubtaskDeclined):
        run(job)


UNCLOSED = 'k,v\n1,a\n2,"b\n3,c\n'


@pytest.mark.parametrize("on_bad_object", ["fail", "dead_letter"])
def test_a_broken_quote_makes_the_object_bad_and_none_of_its_rows_count(tmp_path: Path, on_bad_object: str) -> None:
    job = made(tmp_path, MANY, on_bad_object=on_bad_object)
    land(job, 1, rows=3, bad=0)
    job.land("2.csv", UNCLOSED)
    land(job, 3, rows=3, bad=2)
    if on_bad_object == "fail":
        with wording.raises(SubtaskDeclined):
            run(job)
        return
    bad = run(job).sources["rows"].bad
    assert (bad.records, bad.objects) == (2, 1)
    assert sorted(job.master.reports.read("all")["v"].to_pylist()) == ["1", "1", "1", "3", "3"]
    of_object, of_record = bad_table(job).to_pylist()
    assert (of_object["object"], of_object["line"], of_object["column"]) == ("2.csv", 3, None)
    wording.matches("bad_rows", of_object["reason"])
    assert (of_object["value"], of_object["raw"]) == ('2,"b\n3,c\n', b'2,"b\n3,c')
    assert of_record["object"] == "3.csv"
    (tmp_path / "landing" / "2.csv").write_text("k,v\n9,9\n")
    with wording.raises(CheckpointError):
        run(job)


@pytest.mark.deep
@pytest.mark.parametrize("body", [b"PAR1", b"no parquet at all"])
def test_a_parquet_object_that_is_none_goes_to_the_dead_letters(tmp_path: Path, body: bytes) -> None:
    job = made(tmp_path, {"format: csv": "format: parquet", "*.csv": "*.parquet"}, on_bad_object="dead_letter")
    (tmp_path / "landing" / "1.parquet").write_bytes(body)
    run(job)
    pq.write_table(pa.table({"k": [1, None, 3], "v": ["a", "b", "c"]}), tmp_path / "landing" / "2.parquet")
    run(job)
    assert job.master.reports.read("all").num_rows == 3
    (row,) = bad_table(job).to_pylist()
    assert (row["object"], row["raw"]) == ("1.parquet", None)
    wording.matches("bad_rows", row["reason"])


@pytest.mark.long
def test_rows_of_a_large_object_wait_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.spark.task.dead_letter_reader._PENDING_BYTES", 1_000)
    job = made(tmp_path)
    job.land("1.csv", "k,v\n" + "".join(f"{n},text {n}\n" for n in range(20_000)) + "x,y\n")
    assert run(job).sources["rows"].bad.records == 1
    assert job.master.reports.read("all")["k"].to_pylist() == list(range(20_000))


def test_a_bad_record_moves_no_watermark(tmp_path: Path) -> None:
    timed = {
        "{k: int64, v: string}": '{k: int64, v: string, t: "timestamp[us, UTC]"}',
        SETTLE: f"{SETTLE}    event_time: t\n    bad_records: dead_letter\n",
    }
    job = SparklessJob.create(tmp_path, KEEP | timed)
    job.land("1.csv", "k,v,t\n1,a,2026-01-01T00:00:00Z\nx,a,2026-01-02T00:00:00Z\n")
    assert run(job).sources["rows"].newest_event_time == "2026-01-01T00:00:00+00:00"
