"""The axis of time has every epoch of a job, merged where they are too close, and what changed between them."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from milepost.errors import NotFound, QualityGateFailed
from milepost.jobmaster import AXIS_COLUMNS, AxisColumn, FlagKind, Outcome, Span, TimeAxis
from milepost.jobmaster.figures.stored_rows import StoredRows
from milepost.storage import OBJECT_CACHE
from milepost.views import comparison_view
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.jobs.stored_figures import epoch_rows, store_rows
from tests.unit.jobmaster.retention.test_pruning import at_hour

GATE = """quality:
  - sink: table
    expectations: [{type: expect_column_values_to_be_between, column: k, max_value: 90, severity: critical}]
checkpointing:"""


def columns(axis: TimeAxis) -> list[AxisColumn]:
    return [column for lane in axis.lanes for column in lane.columns]


def figures_of(job: CountedJob) -> Path:
    return job.small.folder / "store" / "small" / "figures"


def test_each_timeline_is_a_lane_that_shows_its_live_part_and_its_branch_point(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 4)
    timeline = job.rollback(2).timeline
    job.run(2)
    job.master.savepoints.create("kept")
    axis = job.master.reports.time_axis(Span.ALL)
    assert [(lane.timeline, lane.live, lane.branched_at, lane.branched_from) for lane in axis.lanes] == [
        ("main", False, 0, None),
        (timeline, True, 2, "main"),
    ]
    assert axis.epochs == 6 == sum(column.epochs for column in columns(axis))
    assert {column.checkpoint_id for column in columns(axis) if column.live and column.epochs == 1} <= {*job.live_ids}
    assert sum(column.epochs for column in columns(axis) if not column.live) <= 2
    kinds = [(flag.kind, flag.who, flag.checkpoint_id) for flag in axis.flags]
    assert kinds == [(FlagKind.ROLLBACK, "tester", None), (FlagKind.SAVEPOINT, None, job.live_ids[-1])]
    assert 0 < axis.flags[0].share <= axis.flags[1].share <= 1 and axis.running is None


@pytest.mark.deep
def test_a_vetoed_epoch_names_the_rule_and_an_edit_is_a_flag(tmp_path: Path) -> None:
    edit = {"checkpointing:": GATE, "timeout: 10m": "timeout: 10m, tolerable_failures: 3"}
    job = CountedJob.with_epochs(tmp_path / "job", 2, edit)
    job.land([95])
    with pytest.raises(QualityGateFailed):
        job.run()
    job.edit("max_value: 90", "max_value: 99")
    job.run()
    axis = job.master.reports.time_axis(Span.DAY)
    worst = min(columns(axis), key=lambda column: [*Outcome].index(column.outcome))
    assert (worst.outcome, worst.checkpoint_id, worst.reason) == (Outcome.VETOED, 3, "QUALITY_GATE_FAILED")
    assert [rule for rule in worst.refused_by if "expect_column_values_to_be_between" in rule]
    assert [(flag.kind, flag.checkpoint_id) for flag in axis.flags] == [(FlagKind.SPEC, 4)]


@pytest.mark.long
def test_a_span_has_the_epochs_that_began_within_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.create(tmp_path / "job")
    job.land(range(1, 6))
    for hours in (0, 24 * 5, 24 * 8, 24 * 8 + 23):
        at_hour(monkeypatch, hours)
        job.run()
    shown = {span: job.master.reports.time_axis(span) for span in Span}
    assert {span: axis.epochs for span, axis in shown.items()} == {Span.DAY: 2, Span.WEEK: 3, Span.ALL: 4}
    at_hour(monkeypatch, 24 * 20)
    quiet = job.master.reports.time_axis(Span.DAY)
    assert quiet.lanes == () and quiet.newest == shown[Span.ALL].newest is not None


@pytest.mark.deep
def test_without_stored_figures_retained_epochs_are_shown_and_before_the_first_there_are_none(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    whole = job.master.reports.time_axis(Span.ALL)
    shutil.rmtree(figures_of(job))
    alone = job.master.reports.time_axis(Span.ALL)
    assert alone.epochs == whole.epochs == 3 and all(column.phases == {} for column in columns(alone))
    assert sum(column.rows_in for column in columns(alone)) == 9
    assert SparklessJob.create(tmp_path / "new").master.reports.time_axis(Span.DAY).newest is None


@pytest.mark.long
def test_ten_thousand_epochs_are_merged_per_column_without_a_row_lost(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    context = job.small.context
    shutil.rmtree(figures_of(job))
    store_rows(context, epoch_rows(10_000, context.store.clock_ms() - 60_000, 300_000, version=1))
    axis = job.master.reports.time_axis(Span.ALL)
    found = columns(axis)
    with duckdb.cursor() as db:
        stored = db.sql(
            f"SELECT count(*), sum(rows_in), sum(late_rows) FROM '{figures_of(job)}/*/*.parquet'"
        ).fetchall()[0]
    assert stored == tuple(
        sum(values) for values in zip(*((c.epochs, c.rows_in, c.late_rows) for c in found), strict=True)
    )
    assert len(found) <= AXIS_COLUMNS and max(column.epochs for column in found) < 40


def test_rows_of_an_earlier_life_of_the_job_are_left_out(tmp_path: Path) -> None:
    """A job whose folder was emptied but for its figures begins again at version 1."""
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    store_rows(job.small.context, epoch_rows(50, job.small.context.store.clock_ms(), 1_000, version=10**6))
    assert job.master.reports.time_axis(Span.ALL).epochs == 2


@pytest.mark.deep
def test_times_by_phase_of_a_merged_bar_are_those_of_its_longest_epoch(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 5)
    axis = job.master.reports.time_axis(Span.DAY)
    epochs = {epoch.checkpoint_id: epoch for epoch in job.master.reports.series(10).epochs}
    for column in columns(axis):
        phases = epochs[column.checkpoint_id].phases
        assert phases is not None and column.duration_ms == epochs[column.checkpoint_id].duration_ms
        inside = sum(ms or 0 for name, ms in phases.items() if name not in ("total_ms", "subsume_ms"))
        assert sum(column.phases.values()) == inside


def test_damaged_figures_are_named(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    for damaged in figures_of(job).rglob("*.parquet"):
        damaged.write_bytes(b"<script>")
    axis = job.master.reports.time_axis(Span.DAY)
    assert axis.epochs == 2 and damaged.name in axis.unreadable[0]


@pytest.mark.long
def test_two_epochs_are_compared_also_when_they_are_no_longer_retained(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 5, {"last: 20": "last: 1"})
    compared = job.master.reports.compare_epochs(1, 5)
    assert (compared.before.checkpoint_id, compared.after.checkpoint_id) == (1, 5)
    rows = {figure.name: (figure.before, figure.after) for figure in compared.figures}
    assert rows["rows_in"] == (3, 3) and compared.before.spec_hash == compared.after.spec_hash is not None
    state = next(one for one in compared.nodes if (one.node, one.name) == ("seen", "table_rows"))
    assert (state.before, state.after) == (3, 15)
    view = comparison_view(compared)
    assert [section.title for section in view.sections] == ["", "Figures", "Time by phase", "Nodes"]
    with pytest.raises(NotFound, match="no figures of checkpoint 9"):
        job.master.reports.compare_epochs(1, 9)


def test_compact_rows_and_full_rows_of_an_epoch_agree(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    store = job.small.context.store
    OBJECT_CACHE.clear()
    full = [row for day in StoredRows(store).days() for row in day]
    compact = [row for day in StoredRows(store).epochs_by_phase() for row in day]
    for one, other in zip(full, compact, strict=True):
        shared = set(other._fields) & set(one.__slots__)
        assert {name: getattr(one, name) for name in shared} == {name: getattr(other, name) for name in shared}
