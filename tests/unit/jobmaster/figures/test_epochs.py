"""Every epoch of a real job stays in its series, no matter what retention and log compaction have removed."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from milepost.jobmaster import EpochFigures, Session
from milepost.jobmaster.figures.days import list_objects
from milepost.jobmaster.figures.update import FiguresUpdate
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store, hook_stores
from tests.unit.jobmaster.retention.test_pruning import at_hour
from tests.unit.jobmaster.retention.test_vetoes import vetoed

EPOCHS = 8
HOURS = 6


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """An epoch of now and seven from midnight on, six hours apart, of which one is retained.

    It must not be changed: `job` is a copy of it.
    """
    job = CountedJob.create(tmp_path_factory.mktemp("old") / "job", {"last: 20": "last: 1"})
    job.land(range(1, EPOCHS + 1))
    midnight = 24 - datetime.now(UTC).hour
    with pytest.MonkeyPatch.context() as patch:
        for hour in (0, *range(midnight, midnight + HOURS * (EPOCHS - 1), HOURS)):
            at_hour(patch, hour)
            job.run()
    return job


@pytest.fixture
def job(old: CountedJob, tmp_path: Path) -> CountedJob:
    return old.copy_to(tmp_path / "job")


def ids(job: CountedJob, limit: int = 100, **options: int) -> list[int]:
    series = job.master.reports.series(limit, **options)
    assert series.unreadable == ()
    return [epoch.checkpoint_id for epoch in series.epochs]


def figures_folder(job: CountedJob) -> Path:
    return job.small.folder / "store" / "small" / "figures"


@pytest.mark.deep
def test_a_series_has_every_epoch_after_the_log_is_compacted(job: CountedJob) -> None:
    assert job.small.context.head().state.compacted > 10
    assert len(job.master.reports.list_checkpoints()) == EPOCHS
    assert ids(job) == [*range(1, EPOCHS + 1)]
    assert ids(job, 3) == [6, 7, 8]
    days = [item.day for item in list_objects(job.small.context.store)]
    assert 1 < len(days) == len({*days}), "one object per day"


@pytest.mark.deep
def test_figures_of_an_epoch_are_the_same_when_it_is_no_longer_retained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = {"last: 20": "last: 2", "checkpointing:": "prices: {currency: EUR, core_hour: 36}\ncheckpointing:"}
    job = CountedJob.create(tmp_path / "job", edit)
    job.land(range(1, 6))
    retained: dict[int, EpochFigures] = {}
    for _ in range(5):
        job.run()
        (newest,) = job.master.reports.series(1).epochs
        retained[newest.checkpoint_id] = newest
    for epoch in job.master.reports.series(100).epochs:
        shown, before = asdict(epoch), asdict(retained[epoch.checkpoint_id])
        assert shown | _known(shown) == before | _known(before)
    assert [*retained] == ids(job) == [1, 2, 3, 4, 5]


def _known(figures: dict[str, object]) -> dict[str, object]:
    """A row has the phases that were measured, and no place for those that were not."""
    phases = figures["phases"]
    assert isinstance(phases, dict)
    return {"phases": {name: ms for name, ms in phases.items() if ms is not None}}


def test_a_limit_reads_only_as_many_days_as_it_needs(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    days = sorted(day.name for day in figures_folder(job).iterdir())
    read: list[str] = []

    def before(operation: str, key: str) -> None:
        if operation == "get" and key.startswith("figures/"):
            read.append(key.split("/")[1])

    hook_stores(monkeypatch, before=before)
    assert ids(job, 1) == [EPOCHS] and read == []
    assert ids(job, 2) == [EPOCHS - 1, EPOCHS] and read == days[:-2:-1]
    assert len(days) > 1


def test_a_span_of_time_has_the_epochs_that_were_triggered_within_it(job: CountedJob) -> None:
    epochs = job.master.reports.series(100).epochs
    for position in (0, 3, EPOCHS - 1):
        time = epochs[position].trigger_time
        assert time is not None
        since_ms = int(datetime.fromisoformat(time).timestamp() * 1000)
        assert ids(job, since_ms=since_ms) == [*range(position + 1, EPOCHS + 1)]
    document = milepost("plot", job.spec_path, "--since", "1ms", "--json").document()
    assert [epoch["checkpoint_id"] for epoch in document["epochs"]] == [*range(2, EPOCHS + 1)], "stores were ahead"
    refused = milepost("plot", job.spec_path, "--since", "soon")
    assert refused.exit_code == 2 and "--since" in refused.stderr


@pytest.mark.deep
def test_retained_epochs_beyond_the_limit_of_reads_have_the_figures_of_their_rows(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 4)
    whole, few = (job.master.reports.series(100, most_read=most).epochs for most in (None, 0))
    assert [epoch.rows_in for epoch in few] == [epoch.rows_in for epoch in whole]
    assert [epoch.left_out for epoch in few] == [False] * 4
    assert [(epoch.phases or {})["total_ms"] for epoch in few] == [(epoch.phases or {})["total_ms"] for epoch in whole]


@pytest.mark.deep
def test_rows_of_abandoned_epochs_stay_and_the_series_shows_the_live_ones(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 4, {"last: 20": "last: 3"})
    job.rollback(2)
    job.run(2)
    job.edit("last: 3", "last: 1")
    job.land(range(5, 12))
    job.run(6)
    assert ids(job) == job.live_ids and not {3, 4} & {*ids(job)}
    stored = f"'{figures_folder(job)}/*/*.parquet'"
    with duckdb.cursor() as db:
        rows = db.sql(f"SELECT checkpoint_id FROM {stored} WHERE status = 'completed' ORDER BY ALL").fetchall()
    assert [number for (number,) in rows] == [*range(1, 13)]


@pytest.mark.long
@pytest.mark.parametrize("retained", [1, 2])
def test_an_epoch_that_died_before_it_stored_its_row_gets_it_from_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retained: int
) -> None:
    """Also if that one drops its checkpoint: the row is stored before."""
    job = CountedJob.create(tmp_path / "job", {"last: 20": f"last: {retained}"})
    job.land(range(1, 9))
    job.run(2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FiguresUpdate, "store", _die)
        job.run(1)
    job.run(3)
    assert ids(job) == [*range(1, 7)]
    third = job.master.reports.series(100).epochs[2]
    assert third.rows_in == 3 and third.phases is not None and third.phases["total_ms"]


def _die(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.long
@pytest.mark.parametrize("operation", ["list", "get", "put", "delete"])
def test_a_store_that_refuses_figures_fails_no_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    job = CountedJob.create(tmp_path / "job", {"last: 20": "last: 1"})
    job.land(range(1, 8))
    job.run(2)
    with monkeypatch.context() as patch:

        def here(called: str, key: str) -> bool:
            return called == operation and key.startswith("figures/")

        break_store(patch, job.small.context.store_config.url, Fault(here, Effect.UNAVAILABLE, times=9))
        assert job.run_one().status == "completed"  # type: ignore[union-attr]
    assert "figures of past epochs are not stored now" in caplog.text
    job.run(1)
    assert job.run_one().status == "completed"  # type: ignore[union-attr]
    job.assert_tables_equal_the_oracle()
    assert ids(job) == [1, 2, 3, 4, 5]
    assert len(list_objects(job.small.context.store)) == 1


def test_an_audit_knows_figures_and_garbage_collection_leaves_them(job: CountedJob) -> None:
    foreign = figures_folder(job) / "notes.txt"
    foreign.write_text("not Milepost's")
    audit = job.master.reports.fsck()
    stored = [item.stat.key for item in list_objects(job.small.context.store)]
    assert audit.exit_code == 0 and audit.objects["figures"] == len(stored) > 0
    assert [item.key for item in audit.foreign] == ["figures/notes.txt"]
    assert not any(item.key.startswith("figures/") for item in audit.unreachable)
    job.master.collect_garbage()
    assert [item.stat.key for item in list_objects(job.small.context.store)] == stored and foreign.exists()


def test_a_damaged_day_is_named_and_hides_no_other_epoch(job: CountedJob) -> None:
    first = min(figures_folder(job).rglob("*.parquet"))
    of_that_day = len(duckdb.sql(f"FROM '{first}'").fetchall())
    first.write_bytes(b"PAR1 no longer")
    series = job.master.reports.series(100)
    assert [epoch.checkpoint_id for epoch in series.epochs] == [*range(of_that_day + 1, EPOCHS + 1)]
    assert len(series.unreadable) == 1 and first.name in series.unreadable[0]
    assert first.name in milepost("plot", job.spec_path, "--limit", "100").stderr
    audit = job.master.reports.fsck()
    assert (audit.exit_code, len(audit.unreadable_figures)) == (0, 1) and first.name in audit.unreadable_figures[0]
    assert first.name in milepost("fsck", job.spec_path).stdout


@pytest.mark.deep
def test_an_aborted_epoch_has_a_row_with_its_reason_and_the_rules_that_refused_it(tmp_path: Path) -> None:
    job = vetoed(tmp_path)
    with duckdb.cursor() as db:
        stored = f"'{tmp_path / 'store' / 'small' / 'figures'}/*/*.parquet'"
        (row,) = db.sql(
            f"SELECT checkpoint_id, reason, refused_by, parent FROM {stored} WHERE status = 'aborted'"
        ).fetchall()
    assert row == (2, "QUALITY_GATE_FAILED", ["table: expect_column_values_to_not_match_regex(v)"], 1)
    job.master.lifecycle.resume(Session.cli())
    assert [epoch.checkpoint_id for epoch in job.master.reports.series(9).epochs] == [1]
