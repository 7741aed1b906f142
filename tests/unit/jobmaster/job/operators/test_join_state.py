"""A job whose operator has two tables: changed, renamed, rolled back, replayed, copied and audited like any other."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import JobMaster, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.law.job import LawJob
from milepost_testkit.rows.tables import assert_same_rows

MINUTE_US = 60_000_000
TYPES = {"k": "string", "v": "int32", "t": "timestamp[us, UTC]"}
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32()), ("t", pa.timestamp("us", "UTC"))])
JOIN = {"uid": "pairs", "kind": "join", "inputs": ["a", "b"], "key": ["k"], "within": ["-10m", "10m"],
        "columns": {"w": "right.v", "then": "right.t"}}  # fmt: skip
DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {
        name: {"format": "parquet", "path": f"../landing/{name}/*.parquet", "schema": TYPES, "event_time": "t"}
        for name in ("a", "b")
    },
    "operators": [JOIN],
    "sinks": [{"name": "pairs", "input": "pairs", "format": "parquet", "path": "../lake/pairs", "mode": "append"}],
    "spark": {"buffer_size": "64KB"},
    "checkpointing": {"max_parallelism": 8},
}


def rows(*found: tuple[str | None, int, int], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = [[k for k, _, _ in found], [v for _, v, _ in found], [minute * MINUTE_US for _, _, minute in found]]
    table = pa.table([*columns[:2], pa.array(columns[2]).cast(SCHEMA.field("t").type)], schema=SCHEMA)
    return table.select([name for name in schema.names if name in table.column_names])


@pytest.fixture
def job(tmp_path: Path) -> LawJob:
    """Two checkpoints: left rows of minute 1 wait, then a right one pairs with both of them."""
    job = LawJob.create(tmp_path / "job", deepcopy(DOCUMENT))
    job.land("a", rows(("x", 1, 1), ("x", 1, 1), ("y", 2, 1), (None, 3, 1)))
    job.run()
    job.land("b", rows(("x", 7, 2)))
    job.set_parallelism(3)
    job.run()
    return job


def pairs(job: LawJob) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["v"], row["w"]) for row in job.master.reports.read("pairs").to_pylist())


def changed(job: LawJob, **operator: Any) -> None:
    job.document["operators"] = [JOIN | operator]
    job.document["sinks"][0]["input"] = job.document["operators"][0]["uid"]
    job.set_parallelism(2)


@pytest.mark.deep
def test_equal_rows_pair_as_often_as_they_came_and_are_kept_once(job: LawJob) -> None:
    assert pairs(job) == [("x", 1, 7), ("x", 1, 7)]
    left = job.master.reports.state("pairs.left")
    assert sorted((row["k"], row["__weight"]) for row in left.to_pylist()) == [("x", 2), ("y", 1)]
    shown = job.master.reports.state_values("pairs.left")
    assert shown.column_names == ["k", "v", "t", "rows", "expires"]
    assert [(row["k"], row["rows"]) for row in shown.to_pylist()] == [("x", 2), ("y", 1)]
    told = milepost("state", job.folder / "config" / "law.yaml", "pairs")
    assert told.exit_code != 0 and "pairs.left, pairs.right" in told.stderr
    wording.matches("state", told.error)


def test_the_diff_distinguishes_tables(job: LawJob) -> None:
    told = {(one.kind, one.name): one.changes.table.num_rows for one in job.master.reports.diff(1, 2)}
    assert told["operator", "pairs.left"] == 0 and told["operator", "pairs.right"] == 1


@pytest.mark.deep
def test_a_rollback_a_backfill_and_an_audit_take_all_tables_along(job: LawJob) -> None:
    before = job.master.reports.read("pairs")
    job.rollback(1)
    assert not job.master.reports.state("pairs.right").num_rows and not job.master.reports.read("pairs").num_rows
    job.run()
    assert_same_rows(job.master.reports.read("pairs"), before)
    job.backfill(2, ranges_per_epoch=1)
    assert_same_rows(job.master.reports.read("pairs"), before)
    spec = job.folder / "config" / "law.yaml"
    for command in (("verify", "--deep"), ("fsck",), ("gc",)):
        told = milepost(command[0], spec, *command[1:])
        assert told.exit_code == 0, told.stderr


@pytest.mark.deep
def test_a_savepoint_has_all_tables(job: LawJob, tmp_path: Path) -> None:
    job.master.savepoints.create("two")
    document = deepcopy(job.document) | {"storage": "../other", "name": "law"}
    document["sinks"][0]["path"] = "../lake/other"
    (job.folder / "config" / "other.yaml").write_text(json.dumps(document))
    other = JobMaster(load_job(str(job.folder / "config" / "other.yaml")))
    location = next(one.location for one in JobContext(job.loaded).head().state.savepoints if one.name == "two")
    folder = location or next((job.folder / "store" / "law" / "savepoints" / "two").iterdir()).as_uri()
    other.restores.start(folder)
    for table in ("pairs.left", "pairs.right"):
        assert_same_rows(other.reports.state(table), job.master.reports.state(table))


@pytest.mark.deep
def test_a_renamed_join_keeps_its_tables(job: LawJob) -> None:
    changed(job, uid="near", renamed_from="pairs")
    job.land("b", rows(("y", 8, 3)))
    job.run()
    assert ("y", 2, 8) in sorted((row["k"], row["v"], row["w"]) for row in job.master.reports.read("pairs").to_pylist())


@pytest.mark.deep
def test_an_input_that_loses_a_column_goes_on_and_one_that_gains_one_is_refused(job: LawJob) -> None:
    """Waiting rows have no value for a new column, and lose a dropped one."""
    lost = {name: type_ for name, type_ in TYPES.items() if name != "v"}
    job.document["sources"]["b"]["schema"] = TYPES | {"more": "int64"}
    changed(job)
    with wording.raises(InvalidRequest):
        job.run()
    job.document["sources"]["b"]["schema"] = lost
    job.document["sinks"].append(
        {"name": "again", "input": "pairs", "format": "parquet", "path": "../lake/again", "mode": "append"}
    )
    del job.document["sinks"][0]
    changed(job, columns={"then": "right.t"})
    job.document["sinks"][0]["input"] = "pairs"
    job.set_parallelism(2)
    job.land("a", rows(("x", 5, 3)))
    job.run()
    assert [(row["v"], row["then"].minute) for row in job.master.reports.read("again").to_pylist()] == [(5, 2)]


@pytest.mark.deep
@pytest.mark.parametrize("operator", [{"within": ["-20m", "10m"]}, {"how": "left"}])
def test_another_interval_and_other_rows_need_a_new_uid(job: LawJob, operator: dict[str, Any]) -> None:
    """Forgotten rows, and the set of rows that have paired, can no longer be known."""
    changed(job, **operator)
    with wording.raises(InvalidRequest):
        job.master.epochs.run(Session.cli(), job.runner())


def test_an_unmatched_row_is_emitted_once_through_rollbacks_and_backfills(tmp_path: Path) -> None:
    document = deepcopy(DOCUMENT) | {"operators": [JOIN | {"how": "left"}]}
    job = LawJob.create(tmp_path / "job", document)
    job.land("a", rows(("x", 1, 1), ("y", 2, 1), ("y", 2, 1), (None, 3, 1)))
    job.run()
    assert [row["k"] for row in job.master.reports.read("pairs").to_pylist()] == [None]
    job.land("b", rows(("x", 7, 2), ("z", 9, 30)))
    job.land("a", rows(("z", 4, 30)))
    job.set_parallelism(3)
    job.run()
    told = job.master.reports.read("pairs")
    found = [(row["k"], row["w"]) for row in told.to_pylist()]
    assert sorted(found, key=repr) == [("x", 7), ("y", None), ("y", None), ("z", 9), (None, None)]
    job.rollback(1)
    job.run()
    assert_same_rows(job.master.reports.read("pairs"), told)
    job.backfill(2, ranges_per_epoch=1)
    assert_same_rows(job.master.reports.read("pairs"), told)
