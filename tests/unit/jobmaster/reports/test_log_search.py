"""Reports about an old job search the log instead of walking it (I6), and read only what they show."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import NotFound
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.checkpoint.log_search import ending_entry, version_of_trigger
from milepost.protocol.log.entry_codec import encode_tombstone
from milepost.protocol.log.log_entries import LogEntry, tombstone_of
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import manifest_key
from milepost.storage.log.manifest_log import ManifestLog
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.job_log import A, StoredLog
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob

EPOCHS = 60
MANY = 30


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> SparklessJob:
    """Sixty epochs, of which the newest two are retained: only the log of real transitions."""
    job = SparklessJob.create(tmp_path_factory.mktemp("old") / "job")
    log = StoredLog()
    for number in range(1, EPOCHS + 1):
        log.epoch(A)
        if number > 2:
            log.subsume(A, (number - 2,), last=2)
    log.store_in(job.context.store)
    return job


def copied(job: SparklessJob, folder: Path) -> SparklessJob:
    return SparklessJob(Path(shutil.copytree(job.folder, folder, copy_function=shutil.copy2)))


@contextmanager
def counting() -> Iterator[list[int]]:
    """The versions whose entries are read meanwhile, whole or as far as their events go."""
    read: list[int] = []
    entry, event = ManifestLog.entry, ManifestLog.event

    def counted(log: ManifestLog, version: int) -> object:
        read.append(version)
        return entry(log, version)

    def counted_event(log: ManifestLog, version: int) -> object:
        read.append(version)
        return event(log, version)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManifestLog, "entry", counted)
        patch.setattr(ManifestLog, "event", counted_event)
        yield read


def test_a_checkpoint_of_an_unlisted_line_is_not_live_after_a_rollback_to_the_empty_state(
    tmp_path: Path,
) -> None:
    job, log = SparklessJob.create(tmp_path / "job"), StoredLog()
    log.epoch(A)
    for _ in range(2):
        log.rollback(A, 0)
        log.reconcile(A)
        log.epoch(A)
    log.subsume(A, (1, 2), last=1)
    log.rollback(A, 0)
    assert all(timeline.timeline_id != "main" for timeline in log.state.timelines)
    log.store_in(job.context.store)
    shown = job.master.reports.show(1)
    assert (shown.status, shown.live) == ("subsumed", False)


@pytest.mark.deep
def test_an_aborted_checkpoint_between_many_retained_ones_is_found(tmp_path: Path) -> None:
    """Retained checkpoints only choose the start of the search. The result does not depend on them."""
    job, log = SparklessJob.create(tmp_path / "job"), StoredLog()
    given_up = []
    for number in range(1, MANY + 1):
        if number % 10:
            log.epoch(A)
            continue
        log.trigger(A)
        log.rebind(A)
        given_up.append(int(log.pending.checkpoint_id))
        log.abort(A)
        log.resume(A)
    log.store_in(job.context.store)
    walked = {one.checkpoint_id: one for one in job.master.reports.list_checkpoints()}
    assert len(log.state.checkpoints) == MANY - len(given_up) and len(given_up) == MANY // 10
    for number in given_up:
        with counting() as read:
            shown = job.master.reports.show(number)
        assert shown == replace(walked[number], savepoints=()) and shown.status == "aborted"
        assert len(read) <= 10, "the head among them"
    newest = log.state.version
    triggers = [version_of_trigger(job.context.log, newest, CheckpointId(one)) for one in range(1, MANY + 1)]
    for retained in (log.state.checkpoints, log.state.checkpoints[::3], log.state.checkpoints[7:9]):
        beside = [
            version_of_trigger(job.context.log, newest, CheckpointId(one), retained) for one in range(1, MANY + 1)
        ]
        assert beside == triggers


def compact(context: JobContext, up_to: int) -> None:
    """Put tombstones in the place of the oldest entries, as the leader does."""
    for version in range(1, up_to + 1):
        entry = context.log.entry(version)
        assert isinstance(entry, LogEntry)
        context.store.put(manifest_key(version), encode_tombstone(tombstone_of(entry)))


@pytest.mark.deep
def test_every_checkpoint_is_found_by_a_few_reads_and_equals_that_of_the_walk(old: SparklessJob) -> None:
    master, versions = old.master, old.context.head().version
    walked = {one.checkpoint_id: one for one in master.reports.list_checkpoints()}
    assert sorted(walked) == list(range(1, EPOCHS + 1)) and versions > 4 * EPOCHS
    for checkpoint_id in (1, 2, 17, EPOCHS - 10):
        with counting() as read:
            shown = master.reports.show(checkpoint_id)
        assert shown == replace(walked[checkpoint_id], savepoints=())
        assert len(read) <= 12 + 10
    for unknown in (EPOCHS + 1, 10**6):
        with pytest.raises(NotFound):
            master.reports.show(unknown)


@pytest.mark.long
def test_a_compacted_checkpoint_shows_its_remaining_facts_and_that_it_is_compacted(
    old: SparklessJob, tmp_path: Path
) -> None:
    job = copied(old, tmp_path / "job")
    before = {number: job.master.reports.show(number) for number in (1, 5)}
    context = job.context
    ends = [ending_entry(context.log, context.head().version, CheckpointId(number)) for number in (5, 20)]
    assert ends[0] is not None and ends[1] is not None
    compact(context, ends[1].version - 1)
    for number, full in before.items():
        shown = job.master.reports.show(number)
        assert shown.compacted is True and full.compacted is None
        for name in ("checkpoint_id", "epoch", "status", "watermark"):
            assert getattr(shown, name) == getattr(full, name)
        assert (full.rows_in, shown.rows_in, shown.live) == (10, None, None), "not known, and not made up"
    assert job.master.reports.show(20).rows_in is not None
    spec = str(job.folder / "config" / "small.yaml")
    wording.matches("list", milepost("list", spec, "--all").stdout.splitlines()[-4:])
    assert milepost("show", spec, "5").exit_code == 0
    walked = {one.checkpoint_id: one.live for one in job.master.reports.list_checkpoints()}
    assert walked == dict.fromkeys(range(1, EPOCHS + 1), True), "the walk from parent to parent goes on through them"


@pytest.mark.deep
def test_a_trigger_is_found_among_entries_and_tombstones_alike(old: SparklessJob, tmp_path: Path) -> None:
    job = copied(old, tmp_path / "job")
    log, newest = job.context.log, job.context.head().version
    triggers = {number: version_of_trigger(log, newest, CheckpointId(number)) for number in range(1, EPOCHS + 1)}
    assert sorted(set(triggers.values())) == sorted(triggers.values())
    compact(job.context, triggers[40] + 1)
    log = job.context.log
    assert {number: version_of_trigger(log, newest, CheckpointId(number)) for number in triggers} == triggers


@pytest.mark.deep
def test_list_and_history_read_only_what_they_show_and_report_that_there_is_more(old: SparklessJob) -> None:
    spec = str(old.folder / "config" / "small.yaml")
    versions = old.context.head().version
    for command, name, every in (("list", "checkpoints", EPOCHS), ("history", "events", versions)):
        newest = milepost(command, spec, "--json").document()
        assert (len(newest[name]), newest["truncated"]) == (50, True)
        told = milepost(command, spec)
        wording.matches(command, told.stderr)
        few = milepost(command, spec, "--limit", "3", "--json").document()
        assert (few[name], few["truncated"]) == (newest[name][:3], True)
        whole = milepost(command, spec, "--all", "--json").document()
        assert (len(whole[name]), whole["truncated"], whole[name][:50]) == (every, False, newest[name])
        assert milepost(command, spec, "--all").stderr == ""
        with counting() as read:
            milepost(command, spec, "--limit", "3", "--json")
        assert len(read) < 80, "whatever the length of the log"
    with counting() as read:
        assert len(milepost("list", spec, "--status", "completed", "--json").document()["checkpoints"]) == 2
        assert milepost("list", spec, "--status", "pending", "--json").document()["checkpoints"] == []
    assert len(read) < 80
