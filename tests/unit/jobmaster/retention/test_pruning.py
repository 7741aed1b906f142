"""Published files that no retained checkpoint's table needs are listed, then deleted; all others stay (I8)."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import pytest

from milepost.errors import CheckpointError, StoreUnavailable
from milepost.jobmaster import Session
from milepost.protocol.records.layout import SINKS_PREFIX, marks_prefix
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sinks.staging import compaction
from milepost.storage.open import open_store
from milepost.tables.records.table_garbage import GARBAGE, TableGarbageList
from milepost.tables.records.table_heads import HEADS
from milepost.tables.records.table_keys import DATA, OWN
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.hooked_store import Hook
from milepost_testkit.stores.job_stores import LaterStore

pytestmark = pytest.mark.long

HOUR_MS = 3_600_000
HOURS = 2
"""Between two epochs: more than the grace period, so each of them looks at the tables."""


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch but the first compacts."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 1)


def at_hour(monkeypatch: pytest.MonkeyPatch, hour: int, before: Hook | None = None, after: Hook | None = None) -> None:
    """From now on it is so many hours later for every store that is opened for the master."""

    def nothing(operation: str, key: str) -> None:
        return None

    def opener(config: StoreConfig) -> ObjectStore:
        return LaterStore(open_store(config), before or nothing, after or nothing, later_ms=hour * HOUR_MS)

    monkeypatch.setattr("milepost.jobmaster.job.context.open_store", opener)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Seven epochs, two hours apart, of which two are retained; not to be changed: `job` is a copy of it."""
    job = CountedJob.create(tmp_path_factory.mktemp("prepared") / "job", {"last: 1": "last: 2"})
    job.land(range(1, 8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "COMPACT_FILES", 1)
        for number in range(7):
            at_hour(patch, HOURS * number)
            job.run()
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedJob:
    at_hour(monkeypatch, HOURS * 7)
    return prepared.copy_to(tmp_path / "job")


def store(job: CountedJob, sink: str) -> ObjectStore:
    return job.small.context.sink(sink).store


def files(job: CountedJob, sink: str) -> set[str]:
    return {stat.key for stat in store(job, sink).list(DATA)}


def lists(job: CountedJob, sink: str) -> set[str]:
    return {stat.key for stat in store(job, sink).list(GARBAGE)}


def listed(job: CountedJob, sink: str) -> set[str]:
    return {file for file in job.small.context.sink(sink).garbage().lists().files if file.startswith(DATA)}


def needed(job: CountedJob, sink: str) -> set[str]:
    """What the table consists of at its head and as of each retained checkpoint, all of which it has shown."""
    context = job.small.context
    table = context.sink(sink)
    kept = [context.metadata(one).tables[sink] for one in context.head().state.checkpoints]
    return {file.key for one in (table.position().contents, *kept) for file in table.files(one)}


def assert_whole(job: CountedJob) -> None:
    """Every retained checkpoint can be read, and nothing that is needed is missing."""
    job.assert_tables_equal_the_oracle()
    assert (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()
    report = job.master.reports.fsck()
    assert (report.exit_code, report.missing, report.damaged, report.foreign) == (0, (), (), ())


@pytest.mark.deep
def test_what_compaction_replaced_is_listed_and_then_deleted_once_no_retained_checkpoint_has_it(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upsert table costs what its retained checkpoints need; of an append table nothing goes."""
    seen = files(job, "seen")
    assert not any(f"chk-{1:020d}" in key for key in files(job, "table")), "the first epoch's files are gone"
    for number in range(8, 10):
        at_hour(monkeypatch, HOURS * number)
        job.land([number])
        before = {
            int(one.checkpoint_id): job.master.reports.read("table", at=int(one.checkpoint_id)) for one in job.live[-2:]
        }
        job.run()
        retained = [int(one.checkpoint_id) for one in job.small.context.head().state.checkpoints]
        assert len(retained) == 2
        for checkpoint_id in set(before) & set(retained):
            assert job.master.reports.read("table", at=checkpoint_id) == before[checkpoint_id]
        assert files(job, "table") == needed(job, "table") | listed(job, "table")
        assert not needed(job, "table") & listed(job, "table")
        assert_whole(job)
    assert seen < files(job, "seen") and listed(job, "seen") == set()
    for sink in ("seen", "table"):
        marks = list(job.small.context.store.list(marks_prefix(sink)))
        assert len(marks) == 1, "of nine epochs; each look forgets those that the table is beyond"
    assert files(job, "seen") == needed(job, "seen")


def test_pruning_costs_few_requests_and_runs_once_per_grace_period(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two small tables and two retained checkpoints; an epoch right after asks the tables nothing for this."""
    calls: list[tuple[str, str]] = []

    def count(operation: str, key: str) -> None:
        calls.append((operation, key))

    at_hour(monkeypatch, HOURS * 8, before=count)
    session = subsuming(job, 8)
    calls.clear()
    job.master.epochs.subsume(session)
    looked = [call for call in calls if call[1].startswith(OWN)]
    assert any(call == ("list", GARBAGE) for call in looked)
    assert len(looked) <= 40, looked
    session = subsuming(job, 9)
    calls.clear()
    job.master.epochs.subsume(session)
    assert [call for call in calls if call[1].startswith(OWN)] == []


@pytest.mark.deep
def test_a_job_that_retains_one_checkpoint_prunes_no_more_often(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that is subsumed together with its sinks' confirmation is already dropped when pruning plans."""
    listings: list[str] = []

    def count(operation: str, key: str) -> None:
        listings.extend(key for _ in range(operation == "list" and key in (DATA, GARBAGE)))

    job.edit("last: 2", "last: 1")
    at_hour(monkeypatch, HOURS * 8, before=count)
    job.land([8, 9])
    job.run()
    assert listings, "the first of a grace period looks"
    listings.clear()
    job.run()
    assert listings == []


def subsuming(job: CountedJob, number: int) -> Session:
    """A session whose epoch is published, and whose subsumption is still to come."""
    job.land([number])
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    checkpoint_id = triggered.checkpoint_id  # type: ignore[union-attr]
    job.master.epochs.run_epoch(session, checkpoint_id, SparklessRunner())
    job.master.epochs.complete(session, checkpoint_id)
    for sink in ("seen", "table"):
        job.master.epochs.notify_complete(session, checkpoint_id, sink)
    return session


def is_prune_write(operation: str, key: str) -> bool:
    return operation in ("put", "delete") and key.startswith((GARBAGE, DATA, SINKS_PREFIX))


@pytest.mark.parametrize("moments", [("before", "after"), pytest.param(("after", "before"), marks=pytest.mark.deep)])
def test_a_scan_killed_around_any_write_is_finished_by_the_next_one(
    prepared: CountedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moments: tuple[str, str]
) -> None:
    """I8: what is listed and absent is forgotten later; what is unlisted and present is listed later."""
    whole = prepared.copy_to(tmp_path / "whole")
    written: list[str] = []

    def note(operation: str, key: str) -> None:
        if is_prune_write(operation, key):
            written.append(f"{operation} {key}")

    at_hour(monkeypatch, HOURS * 8)
    session = subsuming(whole, 8)
    at_hour(monkeypatch, HOURS * 8, after=note)
    told = whole.master.epochs.subsume(session)
    deleted = sum(one.startswith(f"delete {DATA}") for one in written)
    assert told.pruned_files == deleted > 0
    assert any(one.startswith(f"put {GARBAGE}") for one in written)
    for number, moment in zip(range(len(written)), cycle(moments)):
        job = prepared.copy_to(tmp_path / str(number))
        at_hour(monkeypatch, HOURS * 8)
        session = subsuming(job, 8)
        hooks: dict[str, Hook] = {moment: kill_at(number)}
        at_hour(monkeypatch, HOURS * 8, **hooks)
        with pytest.raises(Killed):
            job.master.epochs.subsume(session)
        at_hour(monkeypatch, HOURS * 8)
        assert job.master.reports.fsck().exit_code == 0
        job.land([9])
        at_hour(monkeypatch, HOURS * 9)
        job.run()
        assert files(job, "table") == needed(job, "table") | listed(job, "table")
        assert_whole(job)


def kill_at(nth: int) -> Hook:
    left = [nth]

    def hook(operation: str, key: str) -> None:
        if is_prune_write(operation, key):
            left[0] -= 1
            if left[0] < 0:
                raise Killed

    return hook


@pytest.mark.parametrize("operation", ["get", "put", "delete"])
def test_a_table_that_cannot_be_read_never_fails_the_epoch_and_is_pruned_later(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    at_hour(monkeypatch, HOURS * 8)
    session = subsuming(job, 8)
    before, kept = files(job, "table"), lists(job, "table")

    def fail(called: str, key: str) -> None:
        if called == operation and key.startswith((GARBAGE, DATA)):
            raise StoreUnavailable("no answer")

    at_hour(monkeypatch, HOURS * 8, before=fail)
    assert job.master.epochs.subsume(session).subsumed == (6,)
    at_hour(monkeypatch, HOURS * 8)
    assert files(job, "table") == before
    assert kept <= lists(job, "table")
    assert_whole(job)
    job.land([9])
    at_hour(monkeypatch, HOURS * 9)
    job.run()
    assert files(job, "table") < before | files(job, "table")
    assert_whole(job)


@pytest.mark.deep
def test_a_session_that_was_replaced_prunes_nothing(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """I3: it may have an older look at what is retained."""
    at_hour(monkeypatch, HOURS * 8)
    session = subsuming(job, 8)
    job.land([9])
    job.master.triggers.trigger(Session.cli())
    free = listed(job, "table")
    assert free
    store(job, "table").delete(lists(job, "table"))
    before = {sink: (files(job, sink), lists(job, sink)) for sink in ("seen", "table")}
    assert job.master.epochs.subsume(session).pruned_files == 0
    assert {sink: (files(job, sink), lists(job, sink)) for sink in before} == before


@pytest.mark.deep
def test_files_of_discarded_checkpoints_are_pruned_with_the_last_checkpoint_that_needs_them(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.land([8])
    at_hour(monkeypatch, HOURS * 8)
    job.run()
    job.rollback(7)
    left = files(job, "seen") - needed_now(job, "seen")
    assert left, "checkpoint 8's"
    for number in (9, 10, 11):
        at_hour(monkeypatch, HOURS * number)
        job.land([number])
        retained = {int(one.checkpoint_id) for one in job.small.context.head().state.checkpoints}
        if 8 in retained:
            assert left <= files(job, "seen")
            assert job.master.reports.read("seen", at=8).num_rows == 3 * 8
        job.run()
    assert not left & files(job, "seen")
    assert {key for sink in ("seen", "table") for key in files(job, sink)} == {
        key for sink in ("seen", "table") for key in needed(job, sink) | listed(job, sink)
    }
    assert_whole(job)


def needed_now(job: CountedJob, sink: str) -> set[str]:
    table = job.small.context.sink(sink)
    return {file.key for file in table.files(table.position().contents)}


@pytest.mark.deep
def test_nothing_is_pruned_while_a_sink_has_yet_to_follow_a_switch(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: a session may be about to show content that only the switch's checkpoint needs."""

    def down(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(HEADS):
            raise StoreUnavailable("no answer")

    at_hour(monkeypatch, HOURS * 8, before=down)
    with pytest.raises(CheckpointError):
        job.rollback(6)
    at_hour(monkeypatch, HOURS * 9)
    before = {sink: (files(job, sink), lists(job, sink)) for sink in ("seen", "table")}
    for table in job.master.collect_garbage().tables:
        wording.matches("gc", f"{table.sink}: {table.kept_because}")
        assert (table.listed, table.due) == ((), ())
        assert table.waiting == len(job.small.context.sink(table.sink).garbage().lists().files)
    assert {sink: (files(job, sink), lists(job, sink)) for sink in before} == before
    job.run()
    assert_whole(job)


@pytest.mark.deep
def test_a_table_that_another_copy_of_the_job_has_moved_is_not_pruned(
    prepared: CountedJob, job: CountedJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A copy of the job's storage knows nothing of the checkpoints that the other one retains."""
    copy = prepared.copy_to(tmp_path / "copy")
    for text in ("../lake/table", "../lake/seen"):
        copy.edit(text, str(job.small.folder / text[3:]))
    job.land([8])
    at_hour(monkeypatch, HOURS * 6)  # in the grace period of the last look
    job.run()
    free = files(job, "table") - needed(job, "table")
    free_of_both = free | (files(job, "seen") - needed(job, "seen"))
    store(job, "table").delete(lists(job, "table"))
    at_hour(monkeypatch, HOURS * 12)
    for table in copy.master.collect_garbage().tables:
        wording.matches("gc", f"{table.sink}: {table.kept_because}")
        assert table.listed == ()
    assert 0 < copy.master.reports.fsck().objects["kept"] <= len(free_of_both)
    assert lists(job, "table") == set()
    job.master.collect_garbage()
    assert listed(job, "table") == free


@pytest.mark.deep
def test_what_milepost_did_not_write_is_never_touched(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 9."""
    table = store(job, "table")
    old = f"{DATA}chk-{2:020d}/"
    foreign = [
        "readme.md",
        f"{DATA}part-0.parquet",
        f"{old}notes.txt",
        f"{old}t3/part-0.parquet",
        f"{DATA}chk-{99:020d}/t1/0-{'a' * 64}.parquet",
        f"{old}t99999/0-{'a' * 64}.parquet",
        f"{GARBAGE}readme.md",
    ]
    for key in foreign:
        table.put(key, b"?")
    for number in (8, 9, 10):
        job.land([number])
        at_hour(monkeypatch, HOURS * number)
        job.run()
        job.master.collect_garbage()
    assert all(table.get(key) == b"?" for key in foreign)
    report = job.master.reports.fsck()
    assert sorted(item.key for item in report.foreign) == sorted(foreign)


def test_gc_prints_lists_and_deletes_per_table_alongside_the_schedule(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a job whose schedule has ended: no session leads, and only `gc` runs."""
    at_hour(monkeypatch, HOURS * 9)
    spec = str(job.spec_path)
    (seen, table) = job.master.collect_garbage(dry_run=True).tables
    assert seen.sink == "seen" and seen.kept_because is None
    assert (seen.listed, seen.due) == ((), ()), "its rows all stay"
    due = listed(job, "table")
    assert {key for key in table.due if key.startswith(DATA)} == due and due
    before = files(job, "table")
    planned = milepost("gc", spec, "--dry-run")
    assert planned.exit_code == 0, planned.stderr
    assert all(key in planned.stdout for key in due)
    wording.matches("gc", [line for line in planned.stdout.splitlines() if not line.startswith("  ")])
    assert files(job, "table") == before
    done = milepost("gc", spec, "--json")
    assert json.loads(done.stdout)["data"]["pruned_files"] == len(seen.due) + len(table.due)
    assert files(job, "table") == before - due
    for hour in (11, 13):
        at_hour(monkeypatch, HOURS * hour)
        job.master.collect_garbage()
    assert files(job, "table") == needed(job, "table")
    assert lists(job, "table") == set()
    assert_whole(job)


def test_a_file_is_missing_only_when_a_retained_checkpoint_or_the_head_needs_it(job: CountedJob) -> None:
    """The audit knows which files may be deleted, however many heads still name them."""
    assert job.master.reports.fsck().exit_code == 0
    free = sorted(listed(job, "table"))
    store(job, "table").delete(free)
    assert job.master.reports.fsck().exit_code == 0
    older, _ = job.small.context.head().state.checkpoints
    of_older = job.small.context.metadata(older).tables["table"]
    only_older = {file.key for file in job.small.context.sink("table").files(of_older)} - needed_now(job, "table")
    key = sorted(only_older or needed_now(job, "table"))[0]
    store(job, "table").delete([key])
    report = job.master.reports.fsck()
    assert report.exit_code == 7
    (missing,) = report.missing
    assert (missing.where, missing.key) == ("sink table", key)
    with pytest.raises(CheckpointError):
        job.master.reports.verify(deep=False)


def test_needed_files_in_a_garbage_list_are_not_deleted(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is no authority: before a file is deleted, it is proven again that nothing needs it."""
    free = listed(job, "table")
    forged = TableGarbageList(1, 0, tuple(sorted(files(job, "table"))))
    job.small.context.sink("table").garbage().add(forged)
    job.land([8])
    at_hour(monkeypatch, HOURS * 8)
    told = job.run_one()
    assert told.status == "completed"
    assert forged.key not in lists(job, "table")
    assert not free & files(job, "table")
    assert needed(job, "table") <= files(job, "table")
    assert_whole(job)


def test_files_staged_for_an_abandoned_checkpoint_stay_while_it_can_be_rolled_back_to(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: it was never published, and a follow to it would name its files."""

    def down(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(HEADS):
            raise StoreUnavailable("no answer")

    job.land([8, 9])
    at_hour(monkeypatch, HOURS * 8, before=down)
    with wording.raises(CheckpointError):
        job.run()
    at_hour(monkeypatch, HOURS * 8)
    assert job.rollback(7).discarded == (8,)
    at_hour(monkeypatch, HOURS * 9)
    assert job.run() == [9]
    at_hour(monkeypatch, HOURS * 10)
    for table in job.master.collect_garbage().tables:
        assert table.kept_because is None
    assert job.rollback(8).discarded == (9,)
    assert_whole(job)


@pytest.mark.parametrize("who", ["a leader", "gc"])
def test_a_damaged_garbage_list_is_reported_and_its_files_are_listed_again(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """It proves no age: its files get the whole grace period again. Nobody deletes what he does not understand."""
    table = store(job, "table")
    (key,) = lists(job, "table")
    named = listed(job, "table")
    assert named
    body = table.get(key)[:-1]
    table.put(key, body)
    report = job.master.reports.fsck()
    assert (report.exit_code, report.complete, report.damaged) == (0, True, ())
    (unreadable,) = report.unreadable_lists
    assert unreadable.startswith(f"sink table: {key}: ")
    wording.matches("fsck", unreadable, replace={rf"\b{len(body)}\b": "{size}", rf"\b{len(body) + 1}\b": "{column}"})
    job.land([8])
    at_hour(monkeypatch, HOURS * 8)
    assert job.run() == [8]
    if who == "gc":
        (told,) = [one for one in job.master.collect_garbage().tables if one.sink == "table"]
        assert [f"sink table: {one}" for one in told.unreadable_lists] == [unreadable]
    assert named <= listed(job, "table") & files(job, "table")
    at_hour(monkeypatch, HOURS * 9)
    if who == "gc":
        job.master.collect_garbage()
    else:
        job.land([9])
        assert job.run() == [9]
    assert not named & files(job, "table")
    assert key in lists(job, "table")
    assert needed(job, "table") <= files(job, "table")
    assert_whole(job)


@pytest.mark.deep
def test_epochs_keep_a_retained_checkpoints_file_that_was_copied_to_the_new_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rollback to 0 the sink has a new path, and retained checkpoints still list files of the old one."""
    job = CountedJob.with_epochs(tmp_path, 2)
    job.rollback(0)
    job.edit("path: ../lake/table", "path: ../lake/other")
    old, new = tmp_path / "lake" / "table", tmp_path / "lake" / "other"
    copied = min(old.rglob("*.parquet")).relative_to(old)
    job.run()
    for hours in range(HOURS, 4 * HOURS, HOURS):
        (new / copied).parent.mkdir(parents=True, exist_ok=True)
        (new / copied).write_bytes((old / copied).read_bytes())
        at_hour(monkeypatch, hours)
        job.land([10 + hours])
        job.run()
        assert str(copied) not in listed(job, "table")
    assert (new / copied).exists()
    job.assert_tables_equal_the_oracle()
    assert job.master.reports.fsck().exit_code == 0
