"""Streams of Nexmark and TPC-H: the same rows on every machine, and queries that each system can state."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bench.systems.contract import Folders
from bench.systems.flink import _statements
from bench.systems.milepost import write_spec
from bench.workloads.equality import Answer, changed_keys
from bench.workloads.feeds import write_epochs
from bench.workloads.shapes import Family, Shape
from bench.workloads.workloads import WORKLOADS, Workload
from milepost.api import load_job

SMALL = {
    Family.NEXMARK: Shape(1, rows=5_000, family=Family.NEXMARK),
    Family.TPCH: Shape(1_500, rows=15, seed=4, family=Family.TPCH),
}
STATED = [replace(one, shape=SMALL[one.shape.family]) for one in WORKLOADS.values() if one.shape.family in SMALL]


@pytest.fixture(scope="module")
def epochs(tmp_path_factory: pytest.TempPathFactory) -> dict[Family, list[Path]]:
    folder = tmp_path_factory.mktemp("input")
    return {family: written(shape, folder, range(3)) for family, shape in SMALL.items()}


def written(shape: Shape, folder: Path, numbers: range) -> list[Path]:
    paths = {number: folder / shape.name / f"epoch-{number:05d}" for number in numbers}
    streams = {stream for one in STATED if one.shape.family is shape.family for stream in one.streams}
    write_epochs(shape, streams, paths, lambda _: None)
    return list(paths.values())


def rows(epoch: Path, stream: str) -> pa.Table:
    return pa.concat_tables(pq.read_table(file) for file in sorted(epoch.glob(f"{stream}-*.parquet")))


@pytest.mark.parametrize("workload", STATED, ids=lambda workload: workload.name)
def test_each_query_has_an_answer_over_its_streams(workload: Workload, epochs: dict[Family, list[Path]]) -> None:
    inputs = epochs[workload.shape.family]
    assert Answer(workload, inputs).rows > 0
    read = [
        sum(rows(one, stream).num_rows for stream in workload.streams if list(one.glob(f"{stream}-*")))
        for one in inputs
    ]
    assert changed_keys(workload, inputs) == read
    assert Workload.from_json(workload.to_json()) == workload


@pytest.mark.parametrize("workload", STATED, ids=lambda workload: workload.name)
def test_each_query_is_a_job_of_milepost_and_of_flink(workload: Workload, tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    file = write_spec(workload, folders, spark={"master": "local[2]"}, retained=10)
    sources = json.loads(file.read_text())["sources"].values()
    assert {"event_time" in source for source in sources} == {workload.shape.family is Family.NEXMARK}
    (sink,) = load_job(str(file)).graph().sink_inputs
    assert workload.statement is not None and sink == workload.statement.table
    statements = _statements(workload, folders, None)
    created = [one.split()[2] for one in statements if one.startswith("CREATE TABLE")]
    assert created == [*workload.streams, "published"] and statements[-1].startswith("INSERT INTO published")


def test_events_follow_one_another_in_whole_milliseconds(epochs: dict[Family, list[Path]]) -> None:
    for kind, count in (("person", 100), ("auction", 300), ("bid", 4_600)):
        parts = [rows(epoch, kind)["event_time"].cast(pa.int64()) for epoch in epochs[Family.NEXMARK]]
        assert [len(part) for part in parts] == [count] * 3
        assert all(pc.max(first).as_py() < pc.min(second).as_py() for first, second in pairwise(parts))
        assert all(value % 1_000 == 0 for part in parts for value in part.to_pylist())


def test_an_epoch_is_the_same_without_those_before_it(epochs: dict[Family, list[Path]], tmp_path: Path) -> None:
    for family, shape in SMALL.items():
        (alone,) = written(shape, tmp_path, range(2, 3))
        whole = epochs[family][2]
        names = sorted(file.name for file in whole.iterdir())
        assert names == sorted(file.name for file in alone.iterdir()) and names
        assert all(pq.read_table(whole / name).equals(pq.read_table(alone / name)) for name in names)


def test_many_rows_of_a_stream_are_dealt_out_to_several_files(tmp_path: Path) -> None:
    shape = Shape(1, rows=110_000, files=3, family=Family.NEXMARK)
    (epoch,) = written(shape, tmp_path, range(1))
    assert len(list(epoch.glob("bid-*"))) == 3 and len(list(epoch.glob("auction-*"))) == 1
    assert rows(epoch, "bid").num_rows == 110_000 // 50 * 46
