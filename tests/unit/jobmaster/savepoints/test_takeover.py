"""`start --from SAVEPOINT --claim` takes the tables of the savepoint's job over where they are (TABLES 1.9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import CheckpointError, InvalidRequest, StoreUnavailable
from milepost.jobmaster import Session
from milepost.protocol.records.layout import SAVEPOINT_DOCUMENT
from milepost.protocol.retention.ancestry import open_forks
from milepost.tables.records.reservation import SUCCESSORS
from milepost.tables.records.table_heads import HEADS
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.saved_job import SINKS, OtherJob, moved, stored
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store, hook_stores, later

pytestmark = pytest.mark.long

SAME_PLACES = {"../lake/other-": "../lake/"}
DELTA = {"format: parquet, path: ../lake/table": "format: delta, path: ../lake/table"}


def heir_of(job: CountedJob) -> OtherJob:
    """Another job with its sinks at this job's locations."""
    return OtherJob.beside(job, SAME_PLACES)


def saved(job: CountedJob, tmp_path: Path) -> str:
    """A savepoint of the job's head, elsewhere."""
    job.master.savepoints.create("last")
    (listed,) = job.master.list_savepoints()
    return moved(listed, tmp_path / "elsewhere" / "copy")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    return CountedJob.with_epochs(tmp_path_factory.mktemp("saved"), 3, DELTA)


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    """A job of three epochs, with a Delta table and one of our own."""
    return prepared.copy_to(tmp_path / "job")


def test_the_tables_are_taken_where_they_are_and_the_old_job_is_refused(job: CountedJob, tmp_path: Path) -> None:
    """No file of a table is copied; what the heir does from there on is what the old one would have done."""
    location = saved(job, tmp_path)
    twin = job.copy_to(tmp_path / "twin")
    files = set(stored(job.small.folder / "lake"))
    heir = heir_of(job)
    result = heir.master.restores.start(location, claim=True)
    assert (result.outcome, result.status) == ("started", "running")
    added = {name for name in stored(job.small.folder / "lake") if name not in files}
    assert not [name for name in added if "/data/" in name], "nothing but logs and owners"
    assert not (tmp_path / "elsewhere" / "copy" / SAVEPOINT_DOCUMENT).exists()
    heir.assert_equals(twin)
    for one in (job, twin):
        one.land([4, 5])
    with wording.raises(InvalidRequest):
        job.run(1)
    with wording.raises(InvalidRequest):
        job.master.reports.read("table")
    heir.run(2)
    twin.run(2)
    heir.assert_equals(twin)
    assert (verified := heir.master.reports.verify(deep=True)).unasked == verified.discarded == ()
    report = heir.master.reports.fsck()
    assert report.exit_code == 0 and not report.foreign


@pytest.mark.deep
def test_without_claim_they_are_never_touched(job: CountedJob, tmp_path: Path) -> None:
    """NO_CLAIM needs other paths."""
    location, before = saved(job, tmp_path), stored(job.small.folder / "lake")
    with wording.raises(InvalidRequest) as refused:
        heir_of(job).master.restores.start(location)
    assert "--claim" in refused.value.hint
    assert stored(job.small.folder / "lake") == before
    job.land([4])
    job.run(1)


@pytest.mark.deep
def test_tables_that_have_moved_on_are_refused_before_anything_is_written(job: CountedJob, tmp_path: Path) -> None:
    location = saved(job, tmp_path)
    job.land([4])
    job.run(1)
    before, heir = stored(job.small.folder), heir_of(job)
    with wording.raises(InvalidRequest):
        heir.master.restores.start(location, claim=True)
    (job.small.folder / "config" / "other.yaml").unlink()
    assert stored(job.small.folder) == before


@pytest.mark.deep
def test_after_a_cancel_with_a_savepoint_they_are_taken(job: CountedJob, tmp_path: Path) -> None:
    """What the refusal names."""
    job.land([4])
    job.run(1)
    canceled = job.master.savepoints.cancel(savepoint="final")
    assert canceled.savepoint is not None
    heir = heir_of(job)
    heir.master.restores.start(canceled.savepoint.location, claim=True)
    job.land([5])
    heir.run(1)
    assert (verified := heir.master.reports.verify(deep=True)).unasked == verified.discarded == ()


def test_rows_that_a_restore_brought_back_are_not_taken_over(tmp_path: Path) -> None:
    """TABLES 1.7: the heir would read their input again, and after its first commit nothing tells them from its own."""
    job = CountedJob.with_epochs(tmp_path / "job", 3, {"parquet, path: ../lake/seen": "delta, path: ../lake/seen"})
    seen = job.small.folder / "lake" / "seen"
    before = DeltaTable(seen).version()
    job.rollback(1)
    DeltaTable(seen).restore(before)
    heir = heir_of(job)
    with wording.raises(InvalidRequest):
        heir.master.restores.start(saved(job, tmp_path), claim=True)
    job.master.realignments.run(Session.cli(), job.master.realignments.plan("seen"))
    job.master.savepoints.dispose("last")
    canceled = job.master.savepoints.cancel(savepoint=True)
    assert canceled.savepoint is not None
    heir.master.restores.start(canceled.savepoint.location, claim=True)
    heir.run(2)
    assert heir.master.reports.read("seen").num_rows == 9
    assert DeltaTable(seen).to_pyarrow_table().num_rows == 9


@pytest.mark.parametrize("last", ["/owners/", "/_metadata"], ids=["one table was taken", "both were"])
def test_a_takeover_that_failed_is_done_again_also_when_its_checkpoint_was_collected(
    job: CountedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """The tables carry a mark with records below that checkpoint: they are written again, for the next session."""

    class Killed(BaseException):
        pass

    def fail(operation: str, key: str) -> None:
        if operation in ("create", "put") and last in key:
            raise StoreUnavailable("planned")

    def die(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("sinks/seen/"):
            died.append(key)
        if died:
            raise Killed

    died: list[str] = []
    location = saved(job, tmp_path)
    twin, heir = job.copy_to(tmp_path / "twin"), heir_of(job)
    with monkeypatch.context() as patch, pytest.raises(StoreUnavailable):
        hook_stores(patch, before=fail)
        heir.master.restores.start(location, claim=True)
    with monkeypatch.context() as patch:
        later(patch, 30 * 3_600_000)
        heir.master.collect_garbage()
    assert not list((job.small.folder / "store" / "other").glob("chk-*/*/contents/*"))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        hook_stores(patch, before=die)
        heir.master.restores.start(location, claim=True)
    assert heir.master.reports.fsck().missing == ()
    heir.master.restores.start()
    for one in (job, twin):
        one.land([4])
    heir.run(1)
    twin.run(1)
    heir.assert_equals(twin)
    assert (verified := heir.master.reports.verify(deep=True)).unasked == verified.discarded == ()
    with pytest.raises(InvalidRequest):
        job.run(1)


FAULTS = [
    ("job", "create", "manifest/", 0), ("job", "create", "manifest/", 3), ("job", "create", "manifest/", 4),
    ("job", "create", "manifest/", 5), ("job", "create", "sinks/", 0), ("job", "list", "manifest/", 4),
    ("table", "create", SUCCESSORS, 0), ("seen", "create", SUCCESSORS, 0), ("seen", "create", HEADS, 0),
    ("seen", "create", HEADS, 1),
]  # fmt: skip
IN_MAKE_TEST = {
    Effect.LOST_REPLY: (FAULTS[1], FAULTS[4], FAULTS[6], FAULTS[9]),
    Effect.UNAVAILABLE: (FAULTS[2], FAULTS[8]),
}
"""Each store loses a reply. A write that does not land leaves what the lost reply before it leaves."""


@pytest.mark.parametrize(
    ("store", "operation", "prefix", "skip", "effect"),
    [
        pytest.param(*fault, effect, marks=() if fault in faults else pytest.mark.deep)
        for effect, faults in IN_MAKE_TEST.items()
        for fault in FAULTS
    ],
)
def test_a_fault_anywhere_leaves_tables_that_a_retry_of_the_heir_takes_over(
    job: CountedJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
    operation: str,
    prefix: str,
    skip: int,
    effect: Effect,
) -> None:
    """The savepoint is there until all is; no table is ever both jobs'."""
    location = saved(job, tmp_path)
    twin = job.copy_to(tmp_path / "twin")
    heir, root = heir_of(job), f"file://{job.small.folder}"
    url = f"{root}/store/other" if store == "job" else f"{root}/lake/{store}"
    with monkeypatch.context() as patch:
        break_store(patch, url, Fault(at(operation, prefix), effect, skip=skip))
        try:
            heir.master.restores.start(location, claim=True)
        except CheckpointError:
            assert (tmp_path / "elsewhere" / "copy" / SAVEPOINT_DOCUMENT).exists()
    head = heir.context.log.head()
    if head is None or head.state.timeline().head == 0:
        heir.master.restores.start(location, claim=True)
    for one in (job, twin):
        one.land([4])
    heir.run(1)
    twin.run(1)
    heir.assert_equals(twin)
    assert not open_forks(heir.context.head().state)
    for name in SINKS:
        owner = heir.context.sink(name).owner()
        assert owner is not None and owner.job == "other"
    with pytest.raises(InvalidRequest):
        job.run(1)
