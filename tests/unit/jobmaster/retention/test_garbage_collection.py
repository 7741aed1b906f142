"""`milepost gc` deletes what is provably unreachable, in two phases, and nothing else ever (I8, DESIGN 9)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from milepost.errors import CommitConflict, StateCorrupt, StoreUnavailable
from milepost.jobmaster import Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention import subsumption
from milepost.jobmaster.retention.garbage_collection import collect_garbage
from milepost.jobmaster.retention.subsumption import (
    BACKLOG_EPOCHS,
    delete_garbage,
    plan_subsumption,
    subsume_old,
)
from milepost.protocol.log.log_entries import event_name
from milepost.protocol.manifest.transaction.events import GarbageListed
from milepost.protocol.manifest.upkeep.garbage import MAX_STATE_ENTRIES
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import (
    PROBE_PREFIX,
    SAVEPOINTS_PREFIX,
    savepoint_root,
    token_prefix,
    token_prefix_of_key,
)
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.log.manifest_log import ManifestLog
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import TIMEOUT_MS, SparklessJob
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at
from milepost_testkit.stores.hooked_store import HookedStore

DAY_MS = 24 * 3_600_000
SESSION = Session.cli().session_id


@dataclass(eq=False)
class LaterStore(HookedStore):
    """The same objects, some days later."""

    days: int = 1

    def clock_ms(self) -> int:
        return self.inner.clock_ms() + self.days * DAY_MS


def in_days(job: SparklessJob, days: int) -> JobContext:
    return on(job, LaterStore(job.context.store, days=days))


def in_a_day(job: SparklessJob) -> JobContext:
    return in_days(job, 1)


def on(job: SparklessJob, store: ObjectStore) -> JobContext:
    """The job as a process sees it that reaches its storage through this store."""
    context = job.context
    context.__dict__["store"] = store
    return context


def job_with_strays(folder: Path, epochs: int = 3) -> tuple[SparklessJob, list[str]]:
    """Some published epochs, and leftovers of fenced writers: below a dead token, and next to a winner's files."""
    job = SparklessJob.create(folder, {"retained: {last: 1}": "retained: {last: 9}"})
    for number in range(epochs):
        job.land(f"{number}.csv")
        job.epoch()
    first, second, *_ = job.context.head().state.checkpoints
    strays = [
        token_prefix(second.checkpoint_id, first.token) + "state/latest/a.parquet",
        token_prefix(second.checkpoint_id, first.token) + "state/latest/b.parquet",
        token_prefix(second.checkpoint_id, second.token) + "state/latest/c.parquet",
    ]
    for key in strays:
        job.context.store.put(key, b"late")
    return job, strays


def directory(key: str) -> str:
    """The token's directory that holds a key."""
    found = token_prefix_of_key(key)
    assert found is not None
    return found


def stored(job: SparklessJob) -> set[str]:
    return {stat.key for stat in job.context.store.list("") if not stat.key.startswith("manifest/")}


def needed(job: SparklessJob) -> set[str]:
    """What a restore at any retained checkpoint opens."""
    context = job.context
    checkpoints = context.head().state.checkpoints
    return {key for one in checkpoints for key in (one.metadata.key, *context.metadata(one).references())}


def published(job: SparklessJob) -> set[str]:
    return {str(path) for path in (job.folder / "lake").rglob("*") if path.is_file()}


def test_unreachable_objects_are_listed_now_and_deleted_once_listed_for_the_grace_period(tmp_path: Path) -> None:
    """I8: two phases; nothing else goes."""
    job, strays = job_with_strays(tmp_path)
    before, tables = stored(job), published(job)
    report = job.master.collect_garbage()
    assert report.deleted_objects == 0
    assert report.listed == (directory(strays[0]), strays[2]), "a dead token's directory is one entry"
    assert stored(job) == before, "listing deletes nothing"
    assert collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS).deleted_objects == len(strays)
    assert stored(job) == before - set(strays)
    assert published(job) == tables
    assert job.context.head().state.garbage == ()
    assert job.master.reports.fsck().unreachable == ()
    kinds = [event_name(entry) for entry in job.context.log.entries()]
    assert [kind for kind in kinds if kind.startswith("Garbage")] == ["GarbageDeleted", "GarbageListed"]


def test_savepoints_that_were_never_completed_are_listed_however_many_are_listed_already(tmp_path: Path) -> None:
    """Their roots stay in the state, so none of them is named by a stored list."""
    job = SparklessJob.create(tmp_path)
    job.land("0.csv")
    job.epoch()
    roots = [savepoint_root("broken", f"{number:032x}") for number in range(MAX_STATE_ENTRIES + 5)]
    for root in roots:
        job.context.store.put(root + "chk-00000000000000000001/a.parquet", b"copied")
    listed: list[str] = []
    while found := job.master.collect_garbage().listed:  # a few at a time
        listed += found
    assert listed == roots
    state = job.context.head().state
    assert {*roots} <= {entry.prefix for entry in state.garbage} and state.garbage_lists == ()
    collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS)
    assert not {key for key in stored(job) if key.startswith(SAVEPOINTS_PREFIX)}


def test_an_epoch_deletes_a_share_of_the_backlog_so_that_it_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many subtasks leave how much in each epoch: else lists, which the manifest names, would only grow."""
    monkeypatch.setattr(subsumption, "MAX_DELETED_KEYS", 2)
    job, _ = job_with_strays(tmp_path)
    _, second, *_ = job.context.head().state.checkpoints
    for number in range(94):
        late = f"state/latest/{number}.parquet"
        job.context.store.put(token_prefix(second.checkpoint_id, second.token) + late, b"late")
    job.master.collect_garbage()
    (named,) = job.context.head().state.garbage_lists
    assert named.count == 96, "a dead token's directory among them"
    job.land("next.csv")
    job.epoch()
    leader = job.context.head().state.timeline().leader
    assert leader is not None
    assert delete_garbage(in_a_day(job), leader.session_id, TIMEOUT_MS) >= 96 // BACKLOG_EPOCHS
    assert delete_garbage(in_a_day(job), leader.session_id, TIMEOUT_MS) >= 90 // BACKLOG_EPOCHS
    (left,) = job.context.head().state.garbage_lists
    assert left.done == 96 // BACKLOG_EPOCHS + 90 // BACKLOG_EPOCHS


def test_a_dry_run_prints_the_plan_and_changes_nothing(tmp_path: Path) -> None:
    job, strays = job_with_strays(tmp_path)
    before, version = stored(job), job.context.head().version
    plan = collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS, dry_run=True)
    assert {item.key for item in plan.unreachable} == set(strays)
    assert list(plan.due) == sorted(entry.prefix for entry in job.context.head().state.garbage)
    assert (stored(job), job.context.head().version) == (before, version)


@pytest.mark.deep
def test_nothing_of_a_pending_checkpoint_is_touched_however_old_it_is(tmp_path: Path) -> None:
    """I8: everything below `chk-<id>/` with id >= the lowest pending one is live, also at the sinks."""
    job, strays = job_with_strays(tmp_path)
    job.land("pending.csv")
    session = Session.cli()
    pending = job.trigger(session)
    own = token_prefix(pending.checkpoint_id, pending.token) + "state/latest/run.parquet"
    old = token_prefix(pending.checkpoint_id, pending.prefixes[0]) + "state/latest/run.parquet"
    for key in (own, old):
        job.context.store.put(key, b"work")
    staged = job.stage(pending).files
    for _ in range(2):
        collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS)
    assert {own, old} <= stored(job)
    assert len(job.staged_files(pending.checkpoint_id)) == len(staged)
    assert set(strays) <= stored(job), "an epoch that began before they were listed may still look at them"
    job.complete(session, pending)
    job.master.epochs.notify_complete(session, pending.checkpoint_id, "table")
    collect_garbage(in_days(job, 2), SESSION, TIMEOUT_MS)
    assert not set(strays) & stored(job)
    assert needed(job) <= stored(job)


@pytest.mark.deep
def test_an_epoch_that_moves_the_head_during_the_walk_makes_it_walk_again(tmp_path: Path) -> None:
    """I1, I8: the listing lands on the very version that was walked, or not at all."""
    job, strays = job_with_strays(tmp_path)
    job.land("concurrent.csv")
    ran: list[int] = []

    def epoch_in_between(operation: str, key: str) -> None:
        if operation == "create" and not ran:
            ran.append(0)
            ran.append(job.epoch())

    context = on(job, HookedStore(job.context.store, before=epoch_in_between))
    context.__dict__["log"] = ManifestLog(context.store, lambda: "write-gc")
    report = collect_garbage(context, SESSION, TIMEOUT_MS)
    assert ran[1:] == [4]
    assert set(report.listed) == {directory(strays[0]), strays[2]}
    assert needed(job) <= stored(job)
    assert job.master.reports.fsck().missing == ()
    assert job.context.head().state.timeline().head == 4


def test_a_head_that_keeps_moving_ends_the_collection_with_a_conflict(tmp_path: Path) -> None:
    job, strays = job_with_strays(tmp_path)
    job.land("pending.csv")
    session = Session.cli()
    job.trigger(session)

    def rebind_in_between(operation: str, key: str) -> None:
        if operation == "create":
            job.rebind(session)

    moving = on(job, HookedStore(job.context.store, before=rebind_in_between))
    moving.__dict__["log"] = ManifestLog(moving.store, lambda: "write-gc")
    with wording.raises(CommitConflict):
        collect_garbage(moving, SESSION, TIMEOUT_MS)
    assert set(strays) <= stored(job)


@pytest.mark.deep
def test_an_object_that_cannot_be_deleted_stays_listed_and_the_others_go(tmp_path: Path) -> None:
    """One failed drop is logged, not fatal."""
    job, strays = job_with_strays(tmp_path)
    job.master.collect_garbage()
    fault = Fault(at("delete", strays[2]), Effect.UNAVAILABLE)
    broken = LaterStore(FaultyStore(job.context.store, [fault]))
    collect_garbage(on(job, broken), SESSION, TIMEOUT_MS)
    assert fault.reached.is_set()
    assert [entry.prefix for entry in job.context.head().state.garbage] == [strays[2]]
    assert set(strays) & stored(job) == {strays[2]}
    collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS)
    assert not set(strays) & stored(job)


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.long
@pytest.mark.parametrize("operation", ["create", "delete"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("skip", [0, 1])
def test_a_crash_anywhere_loses_nothing_and_the_next_collection_goes_on(
    tmp_path: Path, operation: str, moment: str, skip: int
) -> None:
    """I8: what is listed and absent is forgotten later; what is unlisted and present is listed later."""
    job, strays = job_with_strays(tmp_path)
    kept = stored(job) - set(strays)
    for round_ in range(2):
        hook = _kill_at(operation, skip)
        hooks: dict[str, Callable[[str, str], None]] = {moment: hook}
        dying = on(job, LaterStore(job.context.store, **hooks))
        dying.__dict__["log"] = ManifestLog(dying.store, lambda round_=round_: f"write-gc-{round_}")
        with suppress(_Killed):
            collect_garbage(dying, SESSION, TIMEOUT_MS)
        assert needed(job) <= stored(job)
    for days in (2, 3):
        collect_garbage(in_days(job, days), SESSION, TIMEOUT_MS)
    assert stored(job) == kept
    assert job.context.head().state.garbage == ()
    report = job.master.reports.fsck()
    assert (report.missing, report.damaged, report.unreachable) == ((), (), ())


def _kill_at(operation: str, skip: int) -> Callable[[str, str], None]:
    left = [skip]

    def hook(called: str, key: str) -> None:
        if called == operation:
            left[0] -= 1
            if left[0] < 0:
                raise _Killed

    return hook


def test_a_lost_reply_of_the_listing_is_our_own_success(tmp_path: Path) -> None:
    """I1: the write id is read back."""
    job, strays = job_with_strays(tmp_path)
    store = FaultyStore(job.context.store, [Fault(at("create", "manifest/"), Effect.LOST_REPLY)])
    collect_garbage(on(job, store), SESSION, TIMEOUT_MS)
    listed = [entry.event for entry in job.context.log.entries() if isinstance(entry.event, GarbageListed)]
    assert [event.garbage[-1] for event in listed] == [strays[2]]


def test_while_a_root_cannot_be_walked_nothing_is_listed_or_deleted(tmp_path: Path) -> None:
    """I8: unknown means keep."""
    job, _ = job_with_strays(tmp_path)
    job.master.collect_garbage()
    newest = job.context.head().state.checkpoints[-1]
    job.context.store.put(newest.metadata.key, b"x" * newest.metadata.size)
    before = stored(job)
    with wording.raises(StateCorrupt):
        collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS)
    assert stored(job) == before


def test_a_store_that_does_not_answer_ends_it_before_anything_changes(tmp_path: Path) -> None:
    job, _ = job_with_strays(tmp_path)
    version = job.context.head().version
    store = FaultyStore(job.context.store, [Fault(at("list", ""), Effect.UNAVAILABLE)])
    with pytest.raises(StoreUnavailable):
        collect_garbage(on(job, store), SESSION, TIMEOUT_MS)
    assert job.context.head().version == version


def test_foreign_objects_are_never_deleted(tmp_path: Path) -> None:
    """DESIGN 9: no delete leaves the job's prefix, or takes what no session of the job can have written."""
    job, _ = job_with_strays(tmp_path)
    outside = tmp_path / "store" / "other.txt"
    outside.write_text("?")
    foreign = {
        "notes.txt",
        "chk-7/x",
        token_prefix(CheckpointId(77), FencingToken(1)) + "x",
        "inputs/" + "a" * 64 + ".json",
    }
    for key in foreign:
        job.context.store.put(key, b"?")
    for days in (1, 2):
        collect_garbage(in_days(job, days), SESSION, TIMEOUT_MS)
    assert foreign <= stored(job)
    assert outside.exists()


def test_files_of_a_killed_probe_are_deleted_after_the_grace_period(tmp_path: Path) -> None:
    """A probe may be running now; nothing refers to its objects, so they need not be listed first."""
    job, _ = job_with_strays(tmp_path)
    key = f"{PROBE_PREFIX}0123/created"
    job.context.store.put(key, b"?")
    assert key in {item.key for item in job.master.reports.fsck().unreachable}
    collect_garbage(job.context, SESSION, TIMEOUT_MS)
    assert key in stored(job)
    assert collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS).probes == (key,)
    assert key not in stored(job)


def test_staged_files_of_dead_tokens_are_deleted_by_the_sinks_own_abort(tmp_path: Path) -> None:
    """I9, I14: after the garbage entry is forgotten a late worker stages again; the log proves that it lost."""
    job, _ = job_with_strays(tmp_path)
    job.land("aborted.csv")
    session = Session.cli()
    pending = job.trigger(session)
    job.master.epochs.abort(session, pending.checkpoint_id, "LEADER_LOST", "gone")
    for _ in range(2):
        collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS)
    job.stage(pending)
    tables = published(job)
    assert job.staged_files(pending.checkpoint_id)
    collect_garbage(job.context, SESSION, TIMEOUT_MS)
    assert job.staged_files(pending.checkpoint_id), "younger than the grace period"
    report = collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS)
    wording.matches("gc", report.staged)
    assert job.staged_files(pending.checkpoint_id) == []
    assert len(published(job)) == len(tables) - 1
    assert (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()


@pytest.mark.deep
def test_staged_files_of_a_completed_checkpoint_wait_for_their_commit(tmp_path: Path) -> None:
    """I8: an unconfirmed checkpoint is a root, at its sinks too."""
    job, _ = job_with_strays(tmp_path)
    job.land("waiting.csv")
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    staged = job.staged_files(completed.checkpoint_id)
    for days in (1, 2):
        collect_garbage(in_days(job, days), SESSION, TIMEOUT_MS)
    assert job.staged_files(completed.checkpoint_id) == staged
    assert job.master.epochs.notify_complete(session, completed.checkpoint_id, "table").published


def test_a_leftover_does_not_take_files_with_it_that_wait_for_their_commit(tmp_path: Path) -> None:
    """I8, I14: a sink's abort takes all that a token staged, so it never comes for a token that won its checkpoint."""
    job, _ = job_with_strays(tmp_path)
    job.land("waiting.csv")
    session = Session.cli()
    pending = job.trigger(session)
    completed = job.complete(session, pending)
    job.stage(pending, k=77)
    staged = job.staged_files(completed.checkpoint_id)
    assert len(staged) == 2
    collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS)
    assert job.staged_files(completed.checkpoint_id) == staged
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    assert [item.where for item in job.master.reports.fsck().unreachable].count("sink table") == 1
    collect_garbage(in_a_day(job), SESSION, TIMEOUT_MS)
    (leftover,) = job.context.sink("table").garbage().lists().files
    assert any(leftover.endswith(name) for name in staged)
    assert (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()


def test_the_command_prints_what_it_did(tmp_path: Path) -> None:
    _, strays = job_with_strays(tmp_path)
    path = str(tmp_path / "config" / "small.yaml")
    planned = milepost("gc", path, "--dry-run")
    assert planned.exit_code == 0, planned.stderr
    assert all(stray in planned.stdout for stray in strays)
    wording.matches("gc", planned.stdout, replace={r"\b[\d.]+ h old": "{age} h old"})
    done = milepost("gc", path, "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["data"]["listed"] == [directory(strays[0]), strays[2]]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_whatever_sessions_and_zombies_do_nothing_needed_ever_goes(tmp_path: Path, seed: int) -> None:
    """I8 over random histories: epochs, aborts, zombies, subsumption, collections by several hands, days between."""
    draw = random.Random(seed)
    job = SparklessJob.create(
        tmp_path, {"{last: 1}": "{last: 2}", "timeout: 10m": "timeout: 10m, tolerable_failures: 9"}
    )
    tokens: list[tuple[CheckpointId, FencingToken]] = []
    days = 0
    for step in range(30):
        days += draw.choice([0, 0, 1])
        match draw.choice(["epoch", "epoch", "abort", "zombie", "zombie", "gc", "subsume"]):
            case "epoch" | "abort" | "subsume" as what:
                job.land(f"{step}.csv")
                session = Session.cli()
                pending = job.trigger(session)
                tokens += [(pending.checkpoint_id, token) for token in pending.prefixes]
                if draw.random() < 0.5:
                    pending = job.rebind(session)
                    tokens.append((pending.checkpoint_id, pending.token))
                    collect_garbage(in_days(job, days), SESSION, TIMEOUT_MS)
                if what == "abort":
                    job.master.epochs.abort(session, pending.checkpoint_id, "SQL_ERROR", "broken")
                    continue
                completed = job.complete(session, pending)
                if draw.random() < 0.8:
                    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
                if what == "subsume":
                    subsume_old(
                        in_days(job, days), session.session_id, plan_subsumption(in_days(job, days), session.session_id)
                    )
                    delete_garbage(in_days(job, days), session.session_id, TIMEOUT_MS)
            case "zombie" if tokens:
                checkpoint_id, token = draw.choice(tokens)
                job.context.store.put(f"{token_prefix(checkpoint_id, token)}state/latest/{step}.parquet", b"late")
            case "gc" if tokens:
                collect_garbage(in_days(job, days), SESSION, TIMEOUT_MS)
        if tokens:
            report = job.master.reports.fsck()
            assert (report.missing, report.damaged) == ((), ()), f"step {step}"
    job.land("last.csv")
    job.epoch()
    for later in (days + 1, days + 2):
        collect_garbage(in_days(job, later), SESSION, TIMEOUT_MS)
    report = job.master.reports.fsck()
    assert (report.missing, report.unreachable, report.garbage.entries) == ((), (), 0)
    assert needed(job) <= stored(job)
    assert (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()
