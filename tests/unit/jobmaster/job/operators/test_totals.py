"""A job with totals over all rows: its tables in every format, replays, its state, and a changed key."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from milepost.errors import InvalidRequest
from milepost.jobspec.load.explain import explained_edges, explained_node
from milepost_testkit import wording
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.law.job import LawJob

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
CALLS = {"n": "count(*)", "total": "sum(v)", "values": "count(distinct v)"}
OPERATORS: list[dict[str, Any]] = [
    {"uid": "totals", "kind": "aggregate", "inputs": ["a"], "key": [], "aggregates": CALLS},
    {"uid": "by_k", "kind": "aggregate", "inputs": ["a"], "key": ["k"], "aggregates": {"n": "count(*)"}},
    {"uid": "keys", "kind": "aggregate", "inputs": ["by_k"], "key": [], "aggregates": {"keys": "count(*)"}},
    {"uid": "often", "kind": "aggregate", "inputs": ["keys"], "key": ["keys"], "aggregates": {"n": "count(*)"}},
]
DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {
        "a": {"format": "parquet", "path": "../landing/a/*.parquet", "schema": {"k": "string", "v": "int64"}},
        "b": {"format": "parquet", "path": "../landing/b/*.parquet", "schema": {"k": "string", "v": "int64"}},
    },
    "operators": OPERATORS,
    "sinks": [
        {"name": "b", "input": "b", "format": "parquet", "path": "../lake/b", "mode": "append"},
        {"name": "totals", "input": "totals", "format": "parquet", "path": "../lake/totals", "mode": "upsert"},
        {"name": "open", "input": "totals", "format": "delta", "path": "../lake/open", "mode": "upsert"},
        {"name": "changes", "input": "totals", "format": "parquet", "path": "../lake/changes", "mode": "changelog"},
        {"name": "keys", "input": "keys", "format": "parquet", "path": "../lake/keys", "mode": "upsert"},
        {"name": "often", "input": "often", "format": "parquet", "path": "../lake/often", "mode": "upsert"},
    ],
    "spark": {"buffer_size": "64KB"},
    "checkpointing": {"max_parallelism": 8},
}


def rows(*found: tuple[str, int | None]) -> pa.Table:
    return pa.table([list(column) for column in zip(*found, strict=True)], schema=SCHEMA)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> LawJob:
    """An epoch without a row for the totals, and two with some."""
    job = LawJob.create(tmp_path_factory.mktemp("prepared") / "job", deepcopy(DOCUMENT))
    job.land("b", rows(("nothing", 0)))
    job.run()
    job.land("a", rows(("x", 1), ("y", 2), ("x", None)))
    job.set_parallelism(3)
    job.run()
    job.land("a", rows(("y", 2), ("z", 5)))
    job.run()
    return job


@pytest.fixture
def job(prepared: LawJob, tmp_path: Path) -> LawJob:
    return prepared.copy_to(tmp_path / "job")


def shown(job: LawJob, sink: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in job.master.reports.read(sink).to_pylist()]


@pytest.mark.deep
def test_the_table_has_one_row_at_each_checkpoint_in_each_format(job: LawJob) -> None:
    open_table = str(job.folder / "lake" / "open")
    for checkpoint, expected in ((3, (5, 10, 3)), (2, (3, 3, 2)), (1, (0, None, 0))):
        assert shown(job, "totals") == shown(job, "open") == [expected]
        assert [tuple(row.values()) for row in DeltaTable(open_table).to_pyarrow_table().to_pylist()] == [expected]
        assert shown(job, "keys") == [({1: 0, 2: 2, 3: 3}[checkpoint],)]
        if checkpoint > 1:
            job.rollback(1)
    job.check()


@pytest.mark.long
def test_a_changelog_has_each_value_of_the_row(job: LawJob) -> None:
    assert shown(job, "changes") == [(0, None, 0, "upsert", 1), (3, 3, 2, "upsert", 2), (5, 10, 3, "upsert", 3)]


@pytest.mark.long
def test_operators_read_the_changes_of_totals(job: LawJob) -> None:
    assert shown(job, "often") == [(3, 1)], "the numbers of keys that there were are taken back"


@pytest.mark.deep
def test_a_replay_comes_to_the_same_row(job: LawJob) -> None:
    job.backfill(2, ranges_per_epoch=2)
    assert shown(job, "totals") == shown(job, "open") == [(5, 10, 3)]
    job.check()


@pytest.mark.long
def test_state_shows_one_row_without_a_key(job: LawJob) -> None:
    master = job.master
    assert master.reports.state_values("totals").to_pylist() == [{"n": 5, "total": 10, "values": 3}]
    assert sorted(row["value"] for row in master.reports.state_values("totals.distinct(v)").to_pylist()) == [1, 2, 5]
    (changes,) = [one.changes for one in master.reports.diff(2, 3) if (one.kind, one.name) == ("operator", "totals")]
    assert changes.table.to_pylist() == [
        {"change": "changed", "old_n": 3, "new_n": 5, "old_total": 3, "new_total": 10, "old_values": 2, "new_values": 3}
    ]


@pytest.mark.deep
def test_a_new_sink_shows_the_row_at_once(job: LawJob) -> None:
    more = {"name": "more", "input": "totals", "format": "parquet", "path": "../lake/more", "mode": "upsert"}
    job.document["sinks"].append(more)
    job.land("b", rows(("nothing", 1)))
    job.set_parallelism(2)
    job.run()
    assert shown(job, "more") == [(5, 10, 3)]


@pytest.mark.long
def test_state_of_totals_is_not_that_of_a_key(job: LawJob) -> None:
    job.document["operators"][0]["key"] = ["k"]
    job.land("b", rows(("nothing", 1)))
    job.set_parallelism(2)
    with pytest.raises(InvalidRequest, match="totals"):
        job.run()


def test_rows_that_are_only_counted_are_counted(tmp_path: Path) -> None:
    document = deepcopy(DOCUMENT) | {"sinks": [DOCUMENT["sinks"][1]]}
    document["operators"] = [OPERATORS[0] | {"aggregates": {"n": "count(*)"}}]
    job = LawJob.create(tmp_path / "job", document)
    job.land("a", rows(("x", 1), ("y", 2)))
    job.run()
    assert shown(job, "totals") == [(2,)]


@pytest.mark.long
def test_lint_says_that_totals_are_bounded(job: LawJob) -> None:
    spec, graph = job.loaded.spec, job.loaded.graph()
    explained = {uid: explained_node(spec, graph, node)["state"] for uid, node in graph.nodes.items()}
    bounds = {uid: [one["bound"] for one in state] for uid, state in explained.items()}
    wording.matches("explain", [*bounds["totals"], *bounds["keys"]])
    modes = {edge["to"]: edge["mode"] for edge in explained_edges(spec, graph) if edge["from"] in ("totals", "by_k")}
    wording.matches("explain", [modes["open"], modes["keys"]])


@pytest.mark.long
def test_totals_are_deleted_from_no_table(job: LawJob) -> None:
    graph = job.loaded.graph()
    assert not any(graph.nodes[uid].deletes for uid in ("totals", "keys"))


@pytest.mark.long
def test_postgres_is_refused_by_name(job: LawJob) -> None:
    job.document["sinks"][1] = {"name": "totals", "input": "totals", "format": "postgres", "dsn": "${env:DSN}",
                                "table": "public.totals", "mode": "upsert"}  # fmt: skip
    job.set_parallelism(1)
    with wording.raises(InvalidRequest):
        job.loaded.graph()


@pytest.mark.long
def test_an_epoch_that_is_tried_twice_counts_once(job: LawJob) -> None:
    job.land("a", rows(("z", 1)))
    job.run(cut_short=True)
    assert shown(job, "totals") == shown(job, "open") == [(6, 11, 3)]


@pytest.mark.deep
def test_the_whole_job_goes_back_to_nothing_and_begins_anew(job: LawJob) -> None:
    roll_back(job.master, 0)
    job.run()
    job.run()
    assert shown(job, "totals") == [(5, 10, 3)]
    job.check()
