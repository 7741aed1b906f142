"""Savepoints are complete or absent, never overwrite, and are deleted only with what they name (issue: savepoints)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    InvalidRequest,
    NotFound,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.pins import HOLD_MS
from milepost.jobmaster.job.transactions import TransactResult
from milepost.jobmaster.leadership.outcomes import CheckpointCopy
from milepost.jobmaster.savepoints.reader import read_savepoint
from milepost.jobmaster.savepoints.savepoints import Savepoints
from milepost.protocol.manifest.decisions import Request
from milepost.protocol.manifest.transaction.events import CheckpointPinned, SavepointCreated, SavepointDisposed
from milepost.protocol.manifest.transaction.requests import ListGarbageRequest, RecordSavepointRequest, UnpinRequest
from milepost.protocol.records.ids import CheckpointId, SessionId
from milepost.protocol.records.layout import METADATA_NAME, SAVEPOINT_DOCUMENT
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.saved_job import stored
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store, hook_stores, later


@pytest.fixture(scope="module")
def three_epochs(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    return CountedJob.with_epochs(tmp_path_factory.mktemp("three"), 3)


@pytest.fixture
def job(three_epochs: CountedJob, tmp_path: Path) -> CountedJob:
    """A job of three epochs, all of it the test's own."""
    return three_epochs.copy_to(tmp_path / "job")


def folder_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


@pytest.mark.deep
def test_a_savepoint_holds_all_of_its_checkpoint_and_of_every_table(job: CountedJob) -> None:
    told: list[int] = []
    made = job.master.savepoints.create("before", at=2, copied=told.append)
    folder = folder_of(made.location)
    assert folder.parent == job.small.folder / "store" / "small" / "savepoints" / "before"
    files = stored(folder)
    document = json.loads(files.pop(SAVEPOINT_DOCUMENT))
    assert {one["key"]: (one["size"], one["sha256"]) for one in document["objects"]} == {
        key: (len(body), hashlib.sha256(body).hexdigest()) for key, body in files.items()
    }, "it names exactly what lies there"
    assert made.objects == len(files) == len(told) and made.bytes == sum(map(len, files.values())) == sum(told)
    context = job.small.context
    checkpoint = context.head().state.checkpoint(CheckpointId(2))
    assert checkpoint is not None
    assert files[METADATA_NAME] == context.store.get(checkpoint.metadata.key)
    saved = read_savepoint(open_store(StoreConfig(made.location)))
    assert set(saved.metadata.references()) <= set(files), "every reference leads to an object of the savepoint"
    assert {name: table.rows for name, table in saved.document.tables.items()} == {"table": 6, "seen": 6}
    assert (document["job"], document["checkpoint_id"], document["timeline"]) == ("small", 2, "main")
    assert document["spec_text"] == job.spec_path.read_text()


@pytest.mark.deep
def test_it_is_listed_and_its_checkpoint_is_kept(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path, 2, {"last: 20": "last: 1"})
    made = job.master.savepoints.create()
    assert made.name == "checkpoint-2"
    job.land([3, 4])
    job.run(2)
    (listed,) = job.master.list_savepoints()
    assert (listed.name, listed.kind, listed.checkpoint_id) == ("checkpoint-2", "savepoint", 2)
    assert listed.location == made.location
    kinds = {one.checkpoint_id: one.kind for one in job.master.reports.list_checkpoints(status="completed")}
    assert kinds == {2: "savepoint", 4: "checkpoint"}
    assert job.master.reports.show(2).savepoints == ("checkpoint-2",)


def test_fsck_walks_savepoints_and_finds_damaged_objects(job: CountedJob) -> None:
    folder = folder_of(job.master.savepoints.create("one").location)
    report = job.master.reports.fsck()
    assert report.exit_code == 0 and not report.unreachable and not report.foreign
    wording.matches("fsck", [root for root in report.roots if "savepoint one" in root])
    victim = next(folder.glob("tables/table/*"))
    body = victim.read_bytes()
    victim.unlink()
    (missing,) = job.master.reports.fsck().missing
    assert missing.key.endswith(victim.name) and "savepoint one" in missing.chain
    wording.matches("fsck", missing.chain)
    victim.write_bytes(body)
    (folder / SAVEPOINT_DOCUMENT).write_text("{}")
    report = job.master.reports.fsck()
    assert report.exit_code == 7 and not report.complete, "while its document is damaged nothing is unreachable"


def test_fsck_looks_for_savepoints_at_their_original_location_too(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner may have moved it, or lost it: a listed savepoint does not exist any longer."""
    folder = folder_of(job.master.savepoints.create("away", target="../others").location)
    assert job.master.reports.fsck().exit_code == 0
    victim = next(folder.glob("tables/table/*"))
    victim.write_bytes(victim.read_bytes() + b"x")
    report = job.master.reports.fsck()
    (missing,) = report.missing
    assert report.exit_code == 7 and report.complete, "what is unreachable in the job does not depend on it"
    assert f"file://{folder}" in missing.where and missing.key.endswith(victim.name)
    sizes = {str(victim.stat().st_size - less): "{size}" for less in (0, 1)}
    assert all(size in missing.problem for size in sizes)
    wording.matches("fsck", [missing.where, missing.problem], replace=sizes)
    document = (folder / SAVEPOINT_DOCUMENT).read_bytes()
    (folder / SAVEPOINT_DOCUMENT).write_bytes(document[:-1] + b" ")
    wording.matches("fsck", job.master.reports.fsck().missing[0].problem)
    (folder / SAVEPOINT_DOCUMENT).unlink()
    wording.matches("fsck", job.master.reports.fsck().missing[0].problem)
    break_store(monkeypatch, f"file://{folder}", Fault(at("stat", ""), Effect.UNAVAILABLE, times=99))
    report = job.master.reports.fsck()
    assert report.exit_code == 0
    wording.matches("fsck", report.unasked)


@pytest.mark.parametrize(
    "target",
    [
        "../store/small",
        "../store/small/mine",
        "../lake/table",
        "../lake/seen/deep/down",
    ],
)
def test_a_copy_is_written_where_it_cannot_be_mistaken(job: CountedJob, target: str) -> None:
    before = stored(job.small.folder)
    for write in (
        lambda: job.master.savepoints.export(2, target),
        lambda: job.master.savepoints.create("one", target=target),
    ):
        with wording.raises(InvalidRequest):
            write()
    assert stored(job.small.folder) == before
    assert job.master.savepoints.export(2, "../store/small-copy").objects > 0, "beside it is not below it"


def test_a_copy_is_not_written_where_a_source_would_read_its_tables_as_input(job: CountedJob) -> None:
    job.edit("*.csv", "**/*")
    with wording.raises(InvalidRequest):
        job.master.savepoints.export(2, "../landing/copy")
    job.edit("**/*", "*.csv")
    assert job.master.savepoints.export(2, "../landing/copy").objects > 0
    assert job.master.reports.status().unread_objects == 0


def test_a_name_is_given_once_and_nothing_is_overwritten(job: CountedJob) -> None:
    job.master.savepoints.create("one", at=1)
    before = stored(job.small.folder / "store")
    with wording.raises(CommitConflict) as caught:
        job.master.savepoints.create("one")
    assert caught.value.exit_code == 4 and stored(job.small.folder / "store") == before


def test_a_place_that_has_a_savepoint_is_left_as_it_is(job: CountedJob) -> None:
    made = job.master.savepoints.export(1, "../copy")
    before = stored(job.small.folder / "copy")
    with wording.raises(CommitConflict):
        job.master.savepoints.export(2, "../copy")
    assert stored(job.small.folder / "copy") == before and made.location == f"file://{job.small.folder}/copy"
    assert job.master.list_savepoints() == [], "an export is nobody's but its owner's"
    made = job.master.savepoints.create("two", target="../others")
    assert made.location == f"file://{job.small.folder}/others/two" == job.master.list_savepoints()[0].location


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "-a", "x" * 64, "42", "a b", "a.b"])
def test_a_name_that_is_none_is_refused(job: CountedJob, name: str) -> None:
    with wording.raises(InvalidRequest):
        job.master.savepoints.create(name)


def test_a_checkpoint_that_is_not_retained_cannot_be_copied(tmp_path: Path) -> None:
    job = CountedJob.create(tmp_path)
    with pytest.raises(NotFound):
        job.master.savepoints.create()
    job.land([1])
    job.run(1)
    for missing in (0, 7):
        with wording.raises(NotFound):
            job.master.savepoints.create("x", at=missing)


def test_a_damaged_checkpoint_gives_no_savepoint(job: CountedJob) -> None:
    run = next((job.small.folder / "store").rglob("state/latest/*.parquet"))
    run.write_bytes(b"x" * run.stat().st_size)
    for save in (lambda: job.master.savepoints.create("one"), lambda: job.master.savepoints.export(3, "../copy")):
        with wording.raises(StateCorrupt):
            save()
    assert job.master.list_savepoints() == []
    assert not list((job.small.folder / "store" / "small").glob("savepoints/**/*.parquet")), (
        "what was copied is cleared away"
    )
    assert job.small.context.head().state.pins == ()


READS = [("get", "chk-", 0), ("get", "chk-", 3), ("get", "inputs/", 0), ("get", "manifest/", 1), ("stat", "chk-", 0)]
WRITES = [("create", "savepoints/", 0), ("create", "savepoints/", 5), *(("create", "manifest/", n) for n in range(3))]
FAULTS = [
    *((*point, Effect.UNAVAILABLE) for point in (*READS, ("list", "manifest/", 0))),
    *((*point, effect) for point in WRITES for effect in (Effect.UNAVAILABLE, Effect.LOST_REPLY, Effect.LOST_REQUEST)),
]


@pytest.mark.long
@pytest.mark.parametrize(("operation", "prefix", "skip", "effect"), FAULTS)
def test_a_fault_anywhere_leaves_a_whole_savepoint_or_none(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch, operation: str, prefix: str, skip: int, effect: Effect
) -> None:
    """No matter what was reported, a listed savepoint can be read completely, and nothing refers to an unlisted one."""
    fault = Fault(at(operation, prefix), effect, skip=skip)
    with monkeypatch.context() as patch:
        break_store(patch, f"file://{job.small.folder}/store/small", fault)
        try:
            job.master.savepoints.create("one")
        except CheckpointError as error:
            told = error
        else:
            told = None
    listed = job.master.list_savepoints()
    assert told is not None or listed, "success is told only of what is listed"
    for one in listed:
        saved = read_savepoint(open_store(StoreConfig(one.location)))
        files = stored(folder_of(one.location))
        assert {item.key: item.sha256 for item in saved.document.objects} == {
            key: hashlib.sha256(body).hexdigest() for key, body in files.items() if key != SAVEPOINT_DOCUMENT
        }
    report = job.master.reports.fsck()
    assert report.exit_code == 0 and not report.foreign
    if not listed:
        job.master.savepoints.create("one")


def test_what_a_killed_creation_left_is_unreachable_and_can_be_collected(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "milepost.jobmaster.savepoints.savepoints.Savepoints._clear", lambda self, prefix: None
    )  # as if it had died
    with monkeypatch.context() as patch:
        break_store(
            patch,
            f"file://{job.small.folder}/store/small",
            Fault(lambda what, key: what == "create" and key.endswith(SAVEPOINT_DOCUMENT), Effect.UNAVAILABLE),
        )
        with pytest.raises(StoreUnavailable):
            job.master.savepoints.create("one")
    report = job.master.reports.fsck()
    left = [one for one in report.unreachable if "savepoints/one/" in one.key]
    assert left
    wording.matches("fsck", {one.proof for one in left})
    (entry,) = job.master.collect_garbage().listed
    assert entry.startswith("savepoints/one/") and entry.endswith("/")
    job.master.savepoints.create("one")
    later(monkeypatch, 24 * 3_600_000)
    assert job.master.collect_garbage().deleted_objects >= len(left)
    report = job.master.reports.fsck()
    assert report.exit_code == 0 and not report.unreachable and not report.garbage.entries
    assert len(list(job.small.folder.glob("store/small/savepoints/one/*"))) == 1, "the new one is whole"


def test_half_a_copy_goes_also_when_the_job_was_canceled_after_its_creator_was_killed(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pin holds it for as long as it may be copied, and no longer: no trigger comes to take it off the list."""

    def killed(size: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("milepost.jobmaster.job.pins._unpin", lambda context, request: None)  # who is killed says nothing
        with pytest.raises(KeyboardInterrupt):
            job.master.savepoints.create("one", copied=killed)
    half = list(job.small.folder.glob("store/small/savepoints/one/*/**/*"))
    assert half and [pin.name for pin in job.small.context.head().state.pins] != []
    job.master.savepoints.cancel()
    later(monkeypatch, HOLD_MS - 60_000)
    assert job.master.reports.fsck().objects["in_use"] and job.master.collect_garbage().listed == ()
    later(monkeypatch, HOLD_MS + 60_000)
    assert {one.key.split("/")[1] for one in job.master.reports.fsck().unreachable} == {"one"}
    assert len(job.master.collect_garbage().listed) == 1
    later(monkeypatch, HOLD_MS + 24 * 3_600_000)
    assert job.master.collect_garbage().deleted_objects > 0
    assert not [one for one in job.small.folder.glob("store/small/savepoints/one/*/**/*") if one.is_file()]
    report = job.master.reports.fsck()
    assert report.exit_code == 0 and not report.unreachable and not report.garbage.entries
    assert job.small.context.head().state.pins == ()


def test_a_copy_in_progress_is_in_use(job: CountedJob) -> None:
    """A collection during a creation must not list objects that are being copied."""
    seen: list[dict[str, int]] = []

    def copied(size: int) -> None:
        if not seen:
            seen.append(job.master.reports.fsck().objects)
            assert job.master.collect_garbage().listed == ()

    job.master.savepoints.create("one", copied=copied)
    assert seen[0]["in_use"] > 0
    assert "unreachable" not in seen[0]


def test_files_that_a_collection_has_listed_meanwhile_never_become_a_savepoint(job: CountedJob) -> None:
    """The pin of a creation that takes too long runs out; the record is refused then, and nothing is half there."""
    context = job.small.context
    done: list[bool] = []

    def copied(size: int) -> None:
        if done:
            return
        done.append(True)
        (pin,) = context.head().state.pins
        root = pin.name.removeprefix("copy to ")
        session = SessionId("cli:gc")
        over = UnpinRequest(session, pin.name)
        context.transact(over)
        request = ListGarbageRequest(session, context.head().version, (root,))
        context.transact(request)

    with wording.raises(CommitConflict):
        job.master.savepoints.create("one", copied=copied)
    assert job.master.list_savepoints() == []


def test_a_copy_that_stood_still_until_its_files_were_collected_is_no_savepoint(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a machine that slept: listed, deleted and forgotten by then, nothing else would report their deletion."""
    creator, collected = job.master, list[int]()

    def copied(size: int) -> None:
        if collected:
            return
        later(monkeypatch, HOLD_MS + 60_000)
        (root,) = job.master.collect_garbage().listed
        assert root.startswith("savepoints/one/")
        later(monkeypatch, HOLD_MS + 24 * 3_600_000)
        collected.append(job.master.collect_garbage().deleted_objects)
        assert not job.small.context.head().state.garbage

    with wording.raises(CommitConflict):
        creator.savepoints.create("one", copied=copied)
    assert collected[0] > 0
    assert job.master.list_savepoints() == []


def test_a_copy_that_takes_long_is_held_for_longer_or_ends_once_it_is_not(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("milepost.jobmaster.job.pins.monotonic", lambda: clock[0])
    copied = list[int]()

    def slowly(size: int) -> None:
        copied.append(size)
        clock[0] += HOLD_MS / 2000

    job.master.savepoints.create("slow", copied=slowly)
    events = [type(entry.event) for entry in job.small.context.log.entries()]
    assert events.count(CheckpointPinned) == 1 + len(copied)
    monkeypatch.setattr("milepost.jobmaster.job.pins.HOLD_MS", 1)
    copied.clear()

    def collected(size: int) -> None:
        slowly(size)
        if len(copied) == 1:
            later(monkeypatch, HOLD_MS)
            job.master.collect_garbage()

    with wording.raises(CommitConflict):
        job.master.savepoints.create("stopped", copied=collected)
    assert [one.name for one in job.master.list_savepoints()] == ["slow"]


def test_disposal_deletes_what_the_document_names_and_nothing_else(job: CountedJob) -> None:
    keep = job.master.savepoints.create("keep", at=1)
    made = job.master.savepoints.create("gone", target="../others")
    stranger = folder_of(made.location) / "notes.txt"
    stranger.write_text("mine")
    before = stored(job.small.folder / "lake")
    answer = job.master.savepoints.dispose("gone")
    assert (answer.deleted_objects, answer.left) == (made.objects + 1, None)
    assert stored(folder_of(made.location)) == {"notes.txt": b"mine"}
    assert stored(job.small.folder / "lake") == before
    assert [one.location for one in job.master.list_savepoints()] == [keep.location]
    assert job.master.reports.fsck().exit_code == 0
    with wording.raises(NotFound):
        job.master.savepoints.dispose("gone")
    events = [type(entry.event) for entry in job.small.context.log.entries()]
    assert events.count(SavepointCreated) == 2 and events.count(SavepointDisposed) == 1


@pytest.mark.long
@pytest.mark.parametrize(("operation", "prefix"), [("delete", "savepoints/"), ("create", "manifest/")])
@pytest.mark.parametrize("effect", [Effect.UNAVAILABLE, Effect.LOST_REPLY])
def test_a_disposal_that_fails_leaves_the_savepoint_or_garbage(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch, operation: str, prefix: str, effect: Effect
) -> None:
    """The list first: what is still listed is whole."""
    job.master.savepoints.create("one")
    with monkeypatch.context() as patch:
        break_store(patch, f"file://{job.small.folder}/store/small", Fault(at(operation, prefix), effect, times=40))
        try:
            answer = job.master.savepoints.dispose("one")
            assert answer.left or operation == "create"
        except CheckpointError:
            assert operation == "create"
    report = job.master.reports.fsck()
    assert report.exit_code == 0 and not report.missing and not report.unreachable
    state = job.small.context.head().state
    assert state.savepoints or any(entry.prefix.startswith("savepoints/one/") for entry in state.garbage)


def test_a_savepoint_whose_document_is_lost_can_still_be_disposed_of(job: CountedJob) -> None:
    made = job.master.savepoints.create("one", target="../others")
    (folder_of(made.location) / SAVEPOINT_DOCUMENT).unlink()
    before = stored(job.small.folder / "others")
    answer = job.master.savepoints.dispose("one")
    assert answer.deleted_objects == 0
    wording.matches("savepoint", answer.left)
    assert stored(job.small.folder / "others") == before and job.master.list_savepoints() == []


def test_a_savepoint_of_a_discarded_checkpoint_shows_the_tables_of_that_lineage(job: CountedJob) -> None:
    """After a rollback the old lineage can still be saved: its tables, not those of today."""
    job.rollback(1)
    job.master.savepoints.create("old", at=3)
    saved = read_savepoint(open_store(StoreConfig(job.master.list_savepoints()[0].location)))
    assert saved.document.tables["seen"].rows == 9
    job.master.savepoints.create("now")
    assert job.master.reports.read("seen").num_rows == 3


def test_cancel_with_a_savepoint_ends_at_what_it_saved(job: CountedJob) -> None:
    result = job.master.savepoints.cancel(savepoint=True)
    assert (result.outcome, result.head, result.savepoint.checkpoint_id) == ("canceled", 3, 3)
    again = job.master.savepoints.cancel(savepoint=True)
    assert again.outcome == "already_canceled" and again.savepoint.checkpoint_id == 3


def test_an_epoch_that_completes_while_the_savepoint_is_taken_is_saved_too(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends at exactly the checkpoint that is saved; the one that was overtaken does not stay behind."""
    job.land([4])
    first = Savepoints.create
    raced: list[int] = []

    def racing(self: Savepoints, *args: Any, **options: Any) -> CheckpointCopy:
        made = first(self, *args, **options)
        if not raced:
            raced.extend(job.run(1))
        return made

    monkeypatch.setattr(Savepoints, "create", racing)
    result = job.master.savepoints.cancel(savepoint=True)
    assert raced == [4] and (result.head, result.savepoint.checkpoint_id) == (4, 4)
    assert [one.checkpoint_id for one in job.master.list_savepoints()] == [4]


def test_a_savepoint_that_fails_leaves_the_job_running(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fault = Fault(at("create", "savepoints/"), Effect.UNAVAILABLE)
        break_store(patch, f"file://{job.small.folder}/store/small", fault)
        with pytest.raises(StoreUnavailable):
            job.master.savepoints.cancel(savepoint=True)
    job.land([4])
    assert job.run(1) == [4]


def test_a_job_without_a_checkpoint_is_not_canceled_with_a_savepoint(tmp_path: Path) -> None:
    job = CountedJob.create(tmp_path)
    with pytest.raises(NotFound):
        job.master.savepoints.cancel(savepoint=True)


def test_of_two_creations_under_one_name_one_is_listed_and_the_other_leaves_nothing(job: CountedJob) -> None:
    """Neither can have written over the other: each has a folder of its own, and the record decides."""
    raced: list[str] = []

    def copied(size: int) -> None:
        if not raced:
            raced.append("")
            raced[0] = str(job.master.savepoints.create("one", at=2).location)

    with wording.raises(CommitConflict):
        job.master.savepoints.create("one", at=1, copied=copied)
    (listed,) = job.master.list_savepoints()
    assert listed.location == raced[0]
    report = job.master.reports.fsck()
    assert report.exit_code == 0 and not report.unreachable


def test_a_savepoint_that_was_replaced_meanwhile_is_not_disposed_of(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at one and its disposal another of the same name takes its place."""
    job.master.savepoints.create("one", at=2)
    due = [True]

    def after(operation: str, key: str) -> None:
        if operation == "get" and key.endswith(f"/{SAVEPOINT_DOCUMENT}") and due and due.pop():
            job.master.savepoints.dispose("one")
            job.master.savepoints.create("one", at=3)

    hook_stores(monkeypatch, after=after)
    with wording.raises(CommitConflict):
        job.master.savepoints.dispose("one")
    (kept,) = job.master.list_savepoints()
    assert (kept.name, kept.checkpoint_id) == ("one", 3)
    assert read_savepoint(open_store(StoreConfig(kept.location))).document.checkpoint_id == 3
    assert job.master.reports.fsck().exit_code == 0


def test_a_savepoint_that_landed_keeps_its_objects_whatever_is_read_afterwards(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing that does not show the entry yet says nothing of the entry: what may be listed is kept."""
    transact = JobContext.transact

    def unread(context: JobContext, request: Request, **options: Any) -> TransactResult:
        result = transact(context, request, **options)
        if isinstance(request, RecordSavepointRequest):
            raise StateCorrupt("it was written, but the listing after it ends before it")
        return result

    monkeypatch.setattr(JobContext, "transact", unread)
    with pytest.raises(StateCorrupt):
        job.master.savepoints.create("kept")
    monkeypatch.undo()
    assert [one.name for one in job.master.list_savepoints()] == ["kept"]
    assert list(job.small.context.store.list("savepoints/kept/"))
