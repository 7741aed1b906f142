"""The data flow of a job: the graph of its spec with the rows of its newest epochs."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from milepost.jobmaster import DataFlow, Session
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from tests.unit.jobmaster.reports.test_verdict import SPEC, land


def rows_by_edge(flow: DataFlow) -> dict[str, tuple[int | None, ...]]:
    return {f"{edge.source}{edge.part} {edge.to}": edge.rows for edge in flow.edges}


def figures_of(job: CountedJob) -> Path:
    return job.small.folder / "store" / "small" / "figures"


@pytest.mark.deep
def test_edges_have_the_rows_of_the_newest_epochs_of_the_live_lineage(tmp_path: Path) -> None:
    """Rows, bytes and rules are those of the stored figures, as an independent engine reads them."""
    job = CountedJob.with_epochs(tmp_path / "job", 4, {"last: 20": "last: 2"})
    job.rollback(3)
    job.run(1)
    flow = job.master.reports.data_flow()
    assert flow.newest is not None and flow.newest.checkpoint_id == job.live_ids[-1] and flow.epochs == 4
    assert (flow.removed, flow.without_figures, flow.unreadable) == ((), (), ())
    with duckdb.cursor() as db:
        stored = db.sql(
            f"SELECT sources['rows'].rows, operators['latest'].rows_out, operators['latest'].state_bytes, "
            f"sinks['table'].rows, sinks['table'].table_rows FROM '{figures_of(job)}/*/*.parquet' "
            f"WHERE status = 'completed' AND checkpoint_id IN {tuple(job.live_ids)} ORDER BY checkpoint_id"
        ).fetchall()
    rows = rows_by_edge(flow)
    assert rows["rows latest"] == tuple(row[0] for row in stored)
    assert rows["latest table"] == tuple(row[3] for row in stored) == tuple(row[1] for row in stored)
    (latest,) = (node for node in flow.nodes if node.name == "latest")
    (table,) = (one for one in flow.tables if one.name == "table")
    assert (latest.state_bytes, table.rows, table.shows) == (*stored[-1][2::2], flow.newest.checkpoint_id)
    shares = [node.time_share for node in flow.nodes if node.time_share is not None]
    assert 0 < sum(shares) <= 1


@pytest.mark.deep
def test_without_stored_figures_the_newest_epoch_has_those_of_its_metadata(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    whole = job.master.reports.data_flow()
    shutil.rmtree(figures_of(job))
    alone = job.master.reports.data_flow()
    assert alone.epochs == 1 and alone.nodes == whole.nodes and alone.tables == whole.tables
    assert rows_by_edge(alone) == {name: rows[-1:] for name, rows in rows_by_edge(whole).items()}


@pytest.mark.deep
def test_figures_that_cannot_be_read_are_named_and_the_newest_epoch_is_shown(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    for damaged in figures_of(job).rglob("*.parquet"):
        damaged.write_bytes(b"<script>")
    flow = job.master.reports.data_flow()
    assert flow.epochs == 1 and len(flow.unreadable) == 1 and damaged.name in flow.unreadable[0]


def test_before_the_first_epoch_the_flow_is_the_graph_alone(tmp_path: Path) -> None:
    flow = SparklessJob.create(tmp_path).master.reports.data_flow()
    assert flow.newest is None and [node.name for node in flow.nodes] == ["rows", "latest"]
    assert rows_by_edge(flow) == {"rows latest": (), "latest table": ()}
    assert all(node.rows_out is None and node.state_bytes is None for node in flow.nodes)


@pytest.mark.deep
def test_nodes_that_an_edit_removed_or_added_are_named(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    job.edit("uid: unique,", "uid: distinct,")
    job.edit("input: unique", "input: distinct")
    flow = job.master.reports.data_flow()
    assert flow.removed == ("unique",) and flow.without_figures == ("distinct",)
    rows = rows_by_edge(flow)
    assert rows["rows distinct"] == (3, 3) and "unique seen" not in rows


@pytest.mark.deep
def test_rows_that_no_table_has_are_counted_per_epoch(tmp_path: Path) -> None:
    """12 rows are late for the hours, which no table has. Of the days, 11 late rows are in a table."""
    job = SparklessJob.create(tmp_path)
    (job.folder / "config" / "small.yaml").write_text(SPEC)
    for number, times in enumerate([["05T12:00"], [*(f"01T00:{at:02}" for at in range(11)), "05T01:00", "05T13:00"]]):
        land(job, f"{number}.csv", *times)
        job.master.epochs.run(Session.cli(), SparklessRunner())
    flow = job.master.reports.data_flow()
    lost = [(node.name, node.loses, node.late_rows, node.dropped_rows) for node in flow.nodes if node.loses]
    assert lost == [("hours", (0, 12), 12, 12)]
    assert rows_by_edge(flow)["days.late late_days"] == (0, 11)
