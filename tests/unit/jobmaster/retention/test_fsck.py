"""`milepost fsck`: what is missing, with the chain that needs it, and what nothing needs, with proof (I6, I8)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.plan import EpochPlan
from milepost.errors import StoreUnavailable
from milepost.jobmaster import Session
from milepost.protocol.records.layout import metadata_key, token_prefix
from milepost.tables.records.table_keys import DATA
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.saved_job import stored
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.job_stores import later


def job_with_epochs(folder: Path, count: int, last: int = 3) -> SparklessJob:
    job = SparklessJob.create(folder, {"retained: {last: 1}": f"retained: {{last: {last}}}"})
    for number in range(count):
        job.land(f"{number}.csv")
        job.epoch()
    return job


def with_other_checksum(metadata: CheckpointMetadata, key: str) -> CheckpointMetadata:
    """The same metadata, which describes one shared run differently."""
    rows = metadata.sources["rows"]
    runs = tuple(replace(run, sha256="0" * 64) if run.key == key else run for run in rows.consumed)
    return replace(metadata, sources={"rows": replace(rows, consumed=runs)})


def spec(job: SparklessJob) -> str:
    return str(job.folder / "config" / "small.yaml")


def test_a_sound_job_has_nothing_missing_and_nothing_unreachable(tmp_path: Path) -> None:
    job = job_with_epochs(tmp_path, 3)
    report = job.master.reports.fsck()
    assert report.exit_code == 0
    assert report.complete
    assert (report.damaged, report.missing, report.unreachable, report.foreign) == ((), (), (), ())
    assert report.manifest_version == job.context.head().version
    # Of the newest checkpoint 7 objects: metadata, input record, of each epoch a run, two records of the table.
    wording.matches("fsck", report.roots)
    stored = sum(1 for _ in job.context.store.list("")) + sum(1 for p in (tmp_path / "lake").rglob("*") if p.is_file())
    assert sum(report.objects.values()) == stored, "every stored object is placed, each once"


def test_a_missing_run_is_reported_with_the_chain_that_needs_it(tmp_path: Path) -> None:
    """I8: damage, exit 7; the chain leads from the manifest's head to the object."""
    job = job_with_epochs(tmp_path, 2)
    newest = job.context.head().state.checkpoints[-1]
    run = job.context.metadata(newest).sources["rows"].consumed[0]
    job.context.store.delete([run.key])
    report = job.master.reports.fsck()
    assert report.exit_code == 7
    (missing,) = report.missing
    assert (missing.key, missing.where) == (run.key, "job small")
    first = job.context.head().state.checkpoints[0]
    assert str(job.context.head().version) in missing.chain[0] and missing.chain[-1] == first.metadata.key
    wording.matches("fsck", [missing.problem, *missing.chain])


def test_the_input_record_of_a_running_epoch_is_needed_by_it(tmp_path: Path) -> None:
    job = job_with_epochs(tmp_path, 1)
    job.land("running.csv")
    plan = job.trigger(Session.cli()).plan
    job.context.store.delete([plan.key])
    (missing,) = job.master.reports.fsck().missing
    assert missing.key == plan.key and str(job.context.head().version) in missing.chain[0]
    wording.matches("fsck", missing.chain)


def test_an_object_of_another_size_is_damage(tmp_path: Path) -> None:
    job = job_with_epochs(tmp_path, 1)
    plan = job.context.head().state.checkpoints[0].plan
    job.context.store.put(plan.key, b"short")
    (missing,) = job.master.reports.fsck().missing
    assert missing.key == plan.key and str(plan.size) in missing.problem
    wording.matches("fsck", missing.problem, replace={rf"\b{plan.size}\b": "{size}"})


def test_the_input_record_of_a_subsumed_epoch_is_still_needed(tmp_path: Path) -> None:
    """DESIGN 6: a replay reads it; the log entry that completed the epoch is what refers to it."""
    job = job_with_epochs(tmp_path, 2, last=1)
    session = Session.cli()
    job.land("last.csv")
    completed = job.complete(session, job.trigger(session))
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    first = job.context.head().state.checkpoints[0]
    job.master.epochs.subsume(session)
    assert job.context.head().state.checkpoint(first.checkpoint_id) is None
    job.context.store.delete([first.plan.key])
    (missing,) = job.master.reports.fsck().missing
    assert missing.key == first.plan.key
    wording.matches("fsck", missing.chain)


def test_a_damaged_metadata_object_is_damage_and_nothing_is_called_unreachable(tmp_path: Path) -> None:
    """I8: while a root cannot be walked, nothing is proven unreachable."""
    job = job_with_epochs(tmp_path, 2)
    newest = job.context.head().state.checkpoints[-1]
    job.context.store.put(newest.metadata.key, b"x" * newest.metadata.size)
    report = job.master.reports.fsck()
    assert report.exit_code == 7
    assert not report.complete
    assert report.unreachable == ()
    assert any("checkpoint 2" in line and newest.metadata.key in line for line in report.damaged)


def test_a_gap_in_the_manifest_log_is_damage(tmp_path: Path) -> None:
    """I6: a key of the log is never freed."""
    job = job_with_epochs(tmp_path, 1)
    second = next(stat.key for index, stat in enumerate(job.context.store.list("manifest/")) if index == 2)
    job.context.store.delete([second])
    report = job.master.reports.fsck()
    assert report.exit_code == 7
    wording.matches("fsck", report.damaged)


def test_a_missing_published_file_is_reported_with_the_mark_that_names_it(tmp_path: Path) -> None:
    job = job_with_epochs(tmp_path, 2)
    file = next(path for path in (tmp_path / "lake").rglob("*.parquet"))
    key = str(file.relative_to(tmp_path / "lake" / "table"))
    file.unlink()
    (missing,) = job.master.reports.fsck().missing
    assert (missing.where, missing.key) == ("sink table", key)
    wording.matches("fsck", missing.chain)


def test_a_staged_file_that_waits_for_its_commit_is_needed(tmp_path: Path) -> None:
    """I8, I14: a completed checkpoint's staged files are published later; without them its rows were lost."""
    job = job_with_epochs(tmp_path, 1)
    job.land("last.csv")
    session = Session.cli()
    job.complete(session, job.trigger(session))
    assert job.master.reports.fsck().unreachable == ()
    (file,) = (tmp_path / "lake" / "table" / DATA / f"chk-{2:020d}").rglob("*.parquet")
    file.unlink()
    (missing,) = job.master.reports.fsck().missing
    wording.matches("fsck", missing.chain)


def test_what_a_fenced_writer_leaves_is_unreachable_with_proof(tmp_path: Path) -> None:
    """I3, I8: a zombie writes below its own token; the proof names the version that decided against it."""
    job = job_with_epochs(tmp_path, 2)
    first, second = job.context.head().state.checkpoints
    stray = token_prefix(second.checkpoint_id, first.token) + "state/latest/stray.parquet"
    beside = token_prefix(second.checkpoint_id, second.token) + "state/latest/beside.parquet"
    for key in (stray, beside):
        job.context.store.put(key, b"late")
    report = job.master.reports.fsck()
    assert report.exit_code == 0, "it costs space, and is no damage"
    proofs = {item.key: item.proof for item in report.unreachable}
    assert set(proofs) == {stray, beside}
    assert str(second.token) in proofs[stray]
    wording.matches("fsck", [proofs[stray], proofs[beside]])


def test_what_an_aborted_epoch_stages_late_is_unreachable_once_its_garbage_is_forgotten(tmp_path: Path) -> None:
    job = job_with_epochs(tmp_path, 1)
    job.land("more.csv")
    session = Session.cli()
    pending = job.trigger(session)
    job.stage(pending)
    report = job.master.reports.fsck()
    assert report.unreachable == (), "everything below a pending checkpoint is in use"
    assert report.objects["in_use"] == 1
    job.master.epochs.abort(session, pending.checkpoint_id, "LEADER_LOST", "gone")
    job.stage(pending)
    report = job.master.reports.fsck()
    assert report.unreachable == ()
    notices = 2  # below each token, of the trigger and of the rebind
    assert report.garbage.objects == 1 + notices, "it goes with the garbage entry of its token"


def test_objects_that_no_session_can_have_written_are_foreign(tmp_path: Path) -> None:
    """DESIGN 9: no delete ever takes what is not the job's own."""
    job = job_with_epochs(tmp_path, 1)
    keys = ["notes.txt", "chk-1/x", "manifest/readme", token_prefix(99, 1) + "x", metadata_key(1, 999)]  # type: ignore[arg-type]
    for key in keys:
        job.context.store.put(key, b"?")
    report = job.master.reports.fsck()
    assert sorted(item.key for item in report.foreign) == sorted(keys)
    assert report.unreachable == ()


def test_two_checkpoints_that_describe_one_key_differently_are_damage(tmp_path: Path) -> None:
    """Flink's registry: a different handle under an existing key is illegal."""
    job = job_with_epochs(tmp_path, 2)
    shared = job.context.metadata(job.context.head().state.checkpoints[0]).sources["rows"].consumed[0]
    job.land("other.csv")
    session = Session.cli()
    job.complete(session, job.trigger(session), lambda metadata: with_other_checksum(metadata, shared.key))
    report = job.master.reports.fsck()
    assert report.exit_code == 7
    assert any(shared.key in line and "checkpoint 1 says" in line for line in report.damaged)


def test_the_command_prints_the_report_and_exits_as_it_says(tmp_path: Path) -> None:
    job = job_with_epochs(tmp_path, 1)
    clean = milepost("fsck", spec(job))
    assert clean.exit_code == 0, clean.stderr
    wording.matches("fsck", clean.stdout)
    run = job.context.metadata(job.context.head().state.checkpoints[0]).sources["rows"].consumed[0]
    job.context.store.delete([run.key])
    broken = milepost("fsck", spec(job), "--json")
    assert broken.exit_code == 7
    document = json.loads(broken.stdout)
    assert not document["ok"]
    assert document["data"]["missing"][0]["key"] == run.key
    shown = milepost("fsck", spec(job))
    wording.matches("fsck", shown.stdout)


def test_a_job_that_has_never_run_is_not_found(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    assert milepost("fsck", spec(job)).exit_code == 3


@pytest.mark.deep
def test_whole_epochs_aborts_and_rescales_leave_nothing_that_is_not_accounted_for(tmp_path: Path) -> None:
    """Everything that an epoch writes has a root, an owner or a place in the garbage list."""
    edit = {"{last: 1}": "{last: 2}", "timeout: 10m": "timeout: 10m, tolerable_failures: 9"}
    job = SparklessJob.create(tmp_path, edit)
    path = job.folder / "config" / "small.yaml"
    text = path.read_text()
    for number, parallelism in enumerate((2, 2, 3, 1)):
        path.write_text(f"{text}spark: {{parallelism: {parallelism}}}\n")
        job.land(f"{number}.csv", "k,v\n" + "".join(f"{key},x\n" for key in range(20 * (number + 1))))
        job.master.epochs.run(Session.cli(), SparklessRunner())
        job.land(f"{number}-broken.csv")
        with pytest.raises(StoreUnavailable):
            job.master.epochs.run(Session.cli(), SparklessRunner(after=_broken))
        report = job.master.reports.fsck()
        assert (report.missing, report.damaged, report.unreachable, report.foreign) == ((), (), (), ())
    measured = 2 * (1 + 1)
    assert report.objects["owned"] == measured, "of each retained epoch: by the driver, and by the subtask that reads"
    assert report.objects["unclaimed"] >= 1, "what an aborted epoch was to read is in the input record of no epoch"
    assert report.garbage.objects > 0


def _broken(plan: EpochPlan) -> None:
    raise StoreUnavailable("the epoch breaks after everything is written")


def test_a_table_whose_path_was_changed_in_the_spec_is_reported_and_is_no_damage(tmp_path: Path) -> None:
    """As `run` refuses it: its files are where they were left, so nothing is missing; nothing is collected either."""
    job = job_with_epochs(tmp_path, 3)
    path = tmp_path / "config" / "small.yaml"
    text = path.read_text()
    path.write_text(text.replace("../lake/table", "../lake/other"))
    report = job.master.reports.fsck()
    assert (report.exit_code, report.missing, report.damaged, report.foreign) == (0, (), (), ())
    (told,) = report.unasked
    wording.matches("fsck", told)
    assert told in milepost("fsck", spec(job)).stdout
    (table,) = job.master.collect_garbage(dry_run=True).tables
    assert table.kept_because is not None and not table.listed
    path.write_text(text)
    assert job.master.reports.fsck().unasked == ()


@pytest.mark.long
def test_a_table_that_starts_anew_at_another_path_is_sound_despite_checkpoints_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rollback to 0 a sink may move; files of its old table that retained checkpoints name stay."""
    job = CountedJob.with_epochs(tmp_path, 2)
    job.rollback(0)
    job.edit("path: ../lake/table", "path: ../lake/other")
    report = job.master.reports.fsck()
    assert (report.exit_code, report.missing, report.unasked) == (0, (), ())
    before = stored(tmp_path / "lake" / "table")
    job.run(2)
    report = job.master.reports.fsck()
    assert (report.exit_code, report.missing, report.unasked, report.unreachable) == (0, (), (), ())
    wording.matches("fsck", report.roots)
    job.assert_tables_equal_the_oracle()
    moved = next(name for name in before if name.endswith(".parquet"))
    place = tmp_path / "lake" / "other" / moved
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(before[moved])
    for hours in (24, 48, 72):
        later(monkeypatch, hours * 3_600_000)
        job.master.collect_garbage()
    assert place.exists(), "a retained checkpoint names it, wherever a hand has moved it to"
    assert stored(tmp_path / "lake" / "table") == before != {}, "the old table is nobody's garbage"
    assert job.master.reports.fsck().exit_code == 0
    place.unlink()
    next((tmp_path / "lake" / "other").rglob("*.parquet")).unlink()
    assert job.master.reports.fsck().exit_code == 7, "what the new one needs is looked for"
