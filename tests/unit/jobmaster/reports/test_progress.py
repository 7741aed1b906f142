"""The progress of a running epoch is what the store shows of it: its stage, its ended tasks, the usual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import EpochProgress, Session, Stage, percentiles_of
from milepost.protocol.records import heartbeat_key, token_prefix
from milepost.views import progress_text
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.job_stores import hook_stores, later

FIGURES = {r"\d[\d.]* (?:ms|s)": "{duration}"}


def progress_of(job: CountedJob) -> EpochProgress:
    progress = job.master.reports.progress()
    assert progress is not None
    return progress


def test_nothing_runs_before_after_and_between_epochs(tmp_path: Path) -> None:
    assert SparklessJob.create(tmp_path / "new").master.reports.progress() is None
    assert CountedJob.with_epochs(tmp_path / "job", 1).master.reports.progress() is None


def test_stages_follow_from_the_objects_of_the_running_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    usual = round(percentiles_of(job.master.reports.series(10).epochs)["duration_ms"].p90)  # as the summary has it
    job.land([9])
    pending = job.master.triggers.trigger(Session.airflow("small__epoch", "manual__1", "manual", None))
    later(monkeypatch, 12_000)
    waiting = progress_of(job)
    assert (waiting.checkpoint_id, waiting.stage, waiting.tries, waiting.heartbeat_ms) == (4, Stage.WAITING, 1, None)
    assert (waiting.usual_ms, waiting.usual_epochs, waiting.run.run_id) == (usual, 3, "manual__1")
    assert waiting.elapsed_ms >= 12_000 and waiting.nodes == ()
    store, directory = job.small.context.store, token_prefix(pending.checkpoint_id, pending.token)
    (expected,) = (state.timeline().pending for state in [job.small.context.head().state])
    assert expected is not None
    by_level = {level: [task for task in expected.expected if task.level == level] for level in (0, 1)}
    texts, stages = [progress_text(waiting)], []
    for key in (
        heartbeat_key(pending.checkpoint_id, pending.token),
        f"{directory}metrics/0-0-a0-incomplete.json",
        *(f"{directory}metrics/0-{task.subtask}-a0.json" for task in by_level[0]),
        f"{directory}state/latest/{'0' * 64}.parquet",
        f"{directory}consumed/rows-{'0' * 64}.parquet",
        f"{directory}_metadata",
    ):
        store.put(key, b"{}")
        now = progress_of(job)
        stages.append((now.stage, now.nodes, now.tasks_done, now.stored))
        texts.append(progress_text(now))
    tasks = len(expected.expected)
    assert stages[:2] == [(Stage.STARTING, (), 0, ())] * 2, "measurements of a task that was lost are not its end"
    assert stages[-4][:3] == (Stage.PROCESSING, ("latest", "unique"), len(by_level[0]))
    assert stages[-3][3] == ("latest",)
    assert [stage[::2] for stage in stages[-2:]] == [(Stage.CHECKING, tasks), (Stage.COMMITTING, tasks)]
    wording.matches("progress", list(dict.fromkeys(texts)), replace=FIGURES)


def test_a_committed_epoch_is_being_published_until_every_table_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    publishing = job.master.reports.progress()
    assert publishing is not None
    assert (publishing.stage, publishing.nodes) == (Stage.PUBLISHING, ("table",))
    assert (publishing.tasks_done, publishing.tasks) == (0, 1)
    wording.matches("progress", progress_text(publishing), replace=FIGURES)
    with monkeypatch.context() as much_later:
        later(much_later, 3_600_000)
        assert job.master.reports.progress() is None, "an outage is no progress"
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    assert job.master.reports.progress() is None


def test_while_a_real_epoch_runs_each_look_is_at_the_same_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    job.land([2])
    seen: list[Stage] = []

    def look(operation: str, key: str) -> None:
        if operation == "put" and key.startswith("chk-") and (progress := job.master.reports.progress()) is not None:
            assert progress.checkpoint_id == 2
            seen.append(progress.stage)

    hook_stores(monkeypatch, before=look)
    job.master.epochs.run(Session.cli(), SparklessRunner())
    order = [*Stage]
    assert seen == sorted(seen, key=order.index) and {Stage.WAITING, Stage.CHECKING} <= {*seen}
