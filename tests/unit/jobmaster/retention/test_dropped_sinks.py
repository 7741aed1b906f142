"""Files of a sink that left the spec, in the job's own storage: needed while a checkpoint names them, then they go."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.protocol.records.layout import staged_files_prefix
from milepost.sinks.staging import compaction
from milepost.tables.records.table_keys import DATA, staged_prefix
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import IN_POSTGRES, CountedJob
from milepost_testkit.servers.postgres_server import Database
from milepost_testkit.stores.job_stores import later

pytestmark = pytest.mark.long

SINK = '  - {name: table, input: latest, format: postgres, dsn: "${env:PG_DSN}", table: public.totals, mode: upsert}\n'
HOUR_MS = 3_600_000
HOURS = 2
"""Between two epochs: more than the grace period, so each of them looks at the tables."""


def at_hour(monkeypatch: pytest.MonkeyPatch, hour: int) -> None:
    """From now on it is so many hours later for every store that is opened for the master."""
    later(monkeypatch, hour * HOUR_MS)


@pytest.fixture
def job(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedJob:
    """Four epochs, of which two are retained; then the sink of the table in Postgres leaves the spec."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 1)
    made = CountedJob.create(tmp_path / "job", {**IN_POSTGRES, "last: 1": "last: 2"})
    made.land(range(1, 12))
    for number in range(4):
        at_hour(monkeypatch, HOURS * number)
        made.run()
    made.edit(SINK, "")
    return made


def files(job: CountedJob) -> set[str]:
    prefix = staged_files_prefix("table")
    return {stat.key.removeprefix(prefix) for stat in job.small.context.store.list(f"{prefix}{DATA}")}


def needed(job: CountedJob) -> set[str]:
    """What the table consists of as of each retained checkpoint."""
    context = job.small.context
    kept = [context.metadata(one).tables["table"] for one in context.head().state.checkpoints]
    return {file.key for one in kept for file in context.table_records.files(one)}


def assert_sound(job: CountedJob) -> None:
    report = job.master.reports.fsck()
    assert (report.exit_code, report.missing, report.damaged, report.foreign) == (0, (), (), ())


def assert_shown(job: CountedJob, database: Database) -> None:
    """The table as SQL reads it, and as the checkpoint says it, equals DuckDB's answer over what was consumed."""
    job.assert_tables_equal_the_oracle()
    counted = job.expected()["table"]
    expected = dict(zip(counted.column("k").to_pylist(), counted.column("rows").to_pylist(), strict=True))
    assert dict(database.run("SELECT k, rows FROM public.totals")) == expected  # type: ignore[arg-type]


@pytest.mark.deep
def test_files_of_a_dropped_sink_are_retained_by_checkpoints_and_then_pruned(
    job: CountedJob, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: what the head carries on stays, and the sink that comes back goes on with it."""
    assert files(job) > needed(job), "there is something to collect"
    assert_sound(job)
    for number in range(4, 9):
        at_hour(monkeypatch, HOURS * number)
        job.run()
        assert needed(job) <= files(job)
        assert_sound(job)
    assert files(job) == needed(job) != set()
    job.edit("sinks:\n", f"sinks:\n{SINK}")
    job.run()
    assert_sound(job)
    assert_shown(job, database)


def test_a_returning_sink_finds_its_files_after_a_rollback_to_before_it_was_dropped(
    job: CountedJob, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is retained, so its objects are retained alongside what is collected."""
    at_hour(monkeypatch, HOURS * 4)
    job.run()
    for hour in (9, 11):
        at_hour(monkeypatch, hour)
        job.master.collect_garbage()
    assert files(job) == needed(job)
    job.edit("sinks:\n", f"sinks:\n{SINK}")
    job.rollback(4)
    assert_sound(job)
    job.assert_tables_equal_the_oracle()
    assert len(database.run("SELECT k FROM public.totals")) == 9


@pytest.mark.deep
def test_a_sink_dropped_before_a_rollback_shows_the_head_when_it_returns(
    job: CountedJob, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records and files of what its table shows until then are collected with what the rollback left."""
    job.rollback(3)
    for number in range(4, 10):
        at_hour(monkeypatch, HOURS * number)
        job.run()
    assert files(job) == needed(job)
    job.edit("sinks:\n", f"sinks:\n{SINK}")
    context = job.small.context
    shown = context.sink("table").position().contents
    assert shown is not None and shown.checkpoint_id == 4 and not context.table_records.are_stored(shown)
    job.run()
    assert_sound(job)
    assert_shown(job, database)


def test_missing_files_of_a_dropped_sink_are_damage(job: CountedJob) -> None:
    """No rollback could bring its table back."""
    gone = sorted(needed(job))[0]
    job.small.context.store.delete([staged_files_prefix("table") + gone])
    broken = job.master.reports.fsck()
    assert broken.exit_code == 7
    (missing,) = broken.missing
    assert missing.key == gone
    wording.matches("fsck", missing.where)


@pytest.mark.deep
def test_gc_lists_and_deletes_unneeded_files_of_a_dropped_sink(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what an epoch staged that did not complete; in two phases, a grace period apart; nothing else goes."""
    store, prefix = job.small.context.store, staged_files_prefix("table")
    lost = f"{staged_prefix(2, 1)}0-{'a' * 64}.parquet"
    store.put(prefix + lost, b"x")
    store.put(f"{prefix}notes.txt", b"x")
    before, kept = files(job), needed(job)
    assert lost in before > kept
    at_hour(monkeypatch, 7)
    (_, found) = job.master.collect_garbage().tables
    wording.matches("gc", found.sink)
    assert lost in {*found.listed, *found.due} and files(job) >= kept
    for hour in (9, 11):
        at_hour(monkeypatch, hour)
        job.master.collect_garbage()
    assert files(job) == kept
    report = job.master.reports.fsck()
    assert [(one.where, one.key) for one in report.foreign] == [(f"sink {found.sink}", "notes.txt")]


@pytest.mark.deep
def test_a_sink_of_the_same_name_in_files_takes_nothing_of_them(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoints say which table they are of, not the name."""
    kept = needed(job)
    job.edit("sinks:\n", "sinks:\n  - {name: table, input: latest, format: parquet, path: ../lake/t, mode: upsert}\n")
    assert job.master.reports.fsck().foreign == ()
    for hour in (7, 9, 11):
        at_hour(monkeypatch, hour)
        job.master.collect_garbage()
    assert files(job) == kept
