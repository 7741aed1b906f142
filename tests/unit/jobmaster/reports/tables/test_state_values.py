"""State is shown as aggregate results by name and as timestamps, without internal columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

EDIT = {
    "schema: {k: int64, v: string}": 'schema: {k: int64, v: int32, d: "decimal(38,2)", at: "timestamp[us, UTC]"}\n'
    "    event_time: at\n    watermark_delay: 0s",
    "aggregates: {rows: count(*)}}": "aggregates: {rows: count(*), sum_v: sum(v), mean: avg(v), "
    "cents: sum(d), low: min(v)}}\n"
    "  - {uid: hourly, kind: window, inputs: [rows], key: [k], window: {tumbling: 1h},\n"
    "     aggregates: {n: count(*), s: sum(v)}}\n"
    "  - {uid: recent, kind: window, inputs: [rows], key: [k], window: {sliding: {size: 2h, slide: 1h}},\n"
    "     aggregates: {n: count(*)}}\n"
    "  - {uid: visits, kind: window, inputs: [rows], key: [k], window: {session: {gap: 1h}},\n"
    "     aggregates: {n: count(*)}}\n"
    "  - {uid: once, kind: deduplicate, inputs: [rows], key: [k], ttl: 1d}",
    "sinks:\n": "sinks:\n  - {name: hours, input: hourly, format: parquet, path: ../lake/hours, mode: append}\n"
    "  - {name: recent, input: recent, format: parquet, path: ../lake/recent, mode: append}\n"
    "  - {name: visits, input: visits, format: parquet, path: ../lake/visits, mode: append}\n"
    "  - {name: firsts, input: once, format: parquet, path: ../lake/firsts, mode: append}\n",
    "retained: {last: 1}": "retained: {last: 5}",
}
FIRST = "k,v,d,at\n1,2,0.10,2026-01-01T00:10:00Z\n1,5,0.20,2026-01-01T00:20:00Z\n2,-7,,2026-01-01T00:30:00Z\n"


def job_of(folder: Path) -> SparklessJob:
    job = SparklessJob.create(folder, EDIT)
    job.land("a.csv", FIRST)
    job.master.epochs.run(Session.cli(), SparklessRunner())
    return job


def test_aggregates_show_their_results_and_windows_their_ends(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    rows = job.master.reports.state_values("latest").to_pylist()
    assert rows == [
        {"k": 1, "rows": 2, "sum_v": 7, "mean": 3.5, "cents": Decimal("0.30"), "low": 2},
        {"k": 2, "rows": 1, "sum_v": -7, "mean": -7.0, "cents": None, "low": -7},
    ]
    start, end = (dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC) for hour in (0, 1))
    windows = job.master.reports.state_values("hourly").to_pylist()
    assert windows[0] == {"k": 1, "window_start": start, "window_end": end, "n": 2, "s": 7}
    pane = {"k": 1, "pane_start": start, "first_window_end": end, "n": 2}
    assert job.master.reports.state_values("recent").to_pylist()[0] == pane
    visit = job.master.reports.state_values("visits").to_pylist()[0]
    assert [visit[name].minute for name in ("window_start", "window_end")] == [10, 20] and visit["n"] == 2
    firsts = job.master.reports.state_values("once")
    assert firsts.column_names == ["k", "expires"] and firsts.to_pylist()[0]["expires"].date() == dt.date(2026, 1, 2)


def test_values_are_sorted_by_key_and_stored_rows_by_key_hash(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, EDIT)
    job.land("a.csv", "k,v,d,at\n" + "".join(f"{key},1,0,2026-01-01T00:10:00Z\n" for key in range(20)))
    job.master.epochs.run(Session.cli(), SparklessRunner())
    keys = list(range(20))
    assert job.master.reports.state_values("latest").column("k").to_pylist() == keys
    assert job.master.reports.state("latest").column("k").to_pylist() != keys


@pytest.mark.deep
def test_each_checkpoint_is_read_by_its_own_spec(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    spec = job.folder / "config" / "small.yaml"
    text = spec.read_text().replace("mean: avg(v), ", "").replace("sum_v:", "total:")
    spec.write_text(text.replace("{name: table, input", "{name: other, input").replace("lake/table", "lake/other"))
    job.land("b.csv", "k,v,d,at\n1,1,0,2026-01-01T00:40:00Z\n")
    job.master.epochs.run(Session.cli(), SparklessRunner(), allow_non_restored_state=True)
    assert "mean" in job.master.reports.state_values("latest", 1).column_names
    assert job.master.reports.state_values("latest", 2).column_names == ["k", "rows", "total", "cents", "low"]
    (changed,) = job.master.reports.diff(1, 2, ("operator", "latest"))[0].changes.table.to_pylist()
    assert (changed["k"], changed["old_sum_v"], changed["new_total"], changed["old_mean"]) == (1, 7, 8, 3.5)


@pytest.mark.deep
def test_a_key_with_changed_state_and_equal_results_is_a_change(tmp_path: Path) -> None:
    """The stored state is compared, not its readable form."""
    job = SparklessJob.create(tmp_path, EDIT)
    spec = job.folder / "config" / "small.yaml"
    edit_spec(spec, {"{rows: count(*), sum_v: sum(v), mean: avg(v),": "{mean: avg(v),"})
    job.land("a.csv", "k,v,d,at\n1,2,0.00,2026-01-01T00:10:00Z\n")
    job.land("b.csv", "k,v,d,at\n1,2,0.00,2026-01-01T00:20:00Z\n")
    for _ in range(2):
        job.master.epochs.run(Session.cli(), SparklessRunner())
    (found,) = job.master.reports.diff(1, 2, ("operator", "latest"))
    assert found.changes.count("changed") == 1
    (row,) = found.changes.table.to_pylist()
    assert row["old_mean"] == row["new_mean"] == 2.0


def test_a_sum_that_overflows_its_result_type_is_refused_and_stored_state_is_shown(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, EDIT)
    spec = job.folder / "config" / "small.yaml"
    edit_spec(spec, {"v: int32": "v: int64"})
    job.land("a.csv", f"k,v,d,at\n1,{2**63 - 1},0,2026-01-01T00:10:00Z\n")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    wide = job.master.reports.state("latest")
    assert {"sum(v).low", "sum(v).high"} <= set(wide.column_names)
    told = milepost("state", spec, "latest", "--stored")
    assert told.exit_code == 0 and "sum(v).low" in told.stdout
    assert ".low" not in milepost("state", spec, "latest").stdout
    from milepost.jobmaster.reports.tables.state_values import state_values

    context = job.context
    metadata = context.metadata(context.head().state.checkpoints[-1])
    high = wide.set_column(wide.column_names.index("sum(v).high"), "sum(v).high", [[1]])
    with wording.raises(InvalidRequest) as caught:
        state_values(context, metadata, metadata.state_tables["latest"], high)
    assert "--stored" in caught.value.hint
