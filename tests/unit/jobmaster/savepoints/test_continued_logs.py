"""A savepoint that is restored elsewhere continues its landed sources in logs of their own (L9)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from milepost.errors import CommitConflict, InvalidRequest, PositionExpired, StateCorrupt
from milepost.jobmaster import JobMaster, NothingToDo
from milepost.jobmaster.job.savepoint_document import decode_document
from milepost.protocol.records.layout import SAVEPOINT_DOCUMENT
from milepost.storage.log.source_log import SourceLog
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.hooked_store import HookedStore


class Killed(BaseException):
    """The process ended here."""


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    """A job that has read five rows in two epochs; three more are landed, in two records, and not processed."""
    job = LandedJob.create(tmp_path / "job")
    job.land_and_run(1, 2)
    job.land_and_run(3, 3, 1)
    for keys in ((4, 1), (2,)):
        job.produce(*keys)
        job.land()
    return job


def saved(job: LandedJob, name: str = "saved", *, with_input: bool = False) -> str:
    folder = job.folder.parent / "savepoints"
    job.master.savepoints.create(name, target=str(folder), with_input=with_input)
    return str(folder / name)


def other_job(job: LandedJob, name: str = "other") -> LandedJob:
    """A job of another name over the same external system, with its own storage and tables."""
    folder = job.folder.parent / name
    shutil.copytree(job.folder / "config", folder / "config")
    shutil.copy(job.folder / "produced.csv", folder)
    spec = folder / "config" / "landed.yaml"
    spec.write_text(spec.read_text().replace("name: landed", f"name: {name}"))
    return Elsewhere(folder, job.folder)


class Elsewhere(LandedJob):
    """Reads the feed of the first job."""

    def __init__(self, folder: Path, feed: Path) -> None:
        super().__init__(folder)
        object.__setattr__(self, "feed", feed)

    feed: Path

    def produce(self, *keys: int) -> None:
        LandedJob(self.feed).produce(*keys)
        shutil.copy(self.feed / "produced.csv", self.folder)


def run_all(job: LandedJob) -> None:
    while not isinstance(job.epoch(), NothingToDo):
        pass


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def give_back(job: LandedJob, first: int) -> None:
    """Let the external system have its rows from this one on again."""
    rows = [int(line) for line in (job.folder / "produced.csv").read_text().split()]
    (job.folder / "feed.json").write_text(json.dumps({"deleted": first, "rows": rows[first:]}))


def delete_system(job: LandedJob) -> None:
    (job.folder / "feed.json").unlink()


def log_of(job: LandedJob) -> SourceLog:
    return SourceLog(job.context.store, "feed")


def assert_whole(job: LandedJob) -> None:
    audit = job.master.reports.fsck()
    assert (audit.exit_code, audit.foreign, audit.damaged) == (0, (), ()), audit
    job.master.reports.verify(deep=True)


@pytest.mark.deep
def test_a_new_log_begins_at_the_position_and_its_numbers_and_totals_go_on(job: LandedJob) -> None:
    location, position = saved(job), job.position()
    give_back(job, 5)
    other = other_job(job)
    other.master.restores.start(location)
    other.assert_tables(5)
    now = other.position()
    assert position is not None and now is not None
    assert (
        replace(now, log="", digest="0" * 64) == replace(position, log="", digest="0" * 64) and now.log != position.log
    )
    begin = log_of(other).record(position.next - 1).record
    assert (begin.first, begin.continues, begin.rows) == (position.next - 1, position, 0)
    assert not other.land().failed
    other.produce(5, 1)
    assert not other.land().failed
    run_all(other)
    other.assert_tables(10)
    assert other.master.landings.rows("feed").record.total_rows == 10
    assert_whole(other)


def test_with_input_no_external_system_is_needed_for_landed_rows(job: LandedJob) -> None:
    location = saved(job, with_input=True)
    numbers = range(log_of(job).record(4).record.sequence, 6)
    delete_system(job)
    shutil.rmtree(job.folder / "store")
    other = other_job(job)
    other.master.restores.start(location)
    run_all(other)
    other.assert_tables(8)
    assert [log_of(other).record(number).record.sequence for number in numbers] == [*numbers]
    assert_whole(other)
    (failed,) = other.land().failed
    assert failed.error == "SourceUnreachable"


@pytest.mark.deep
def test_the_log_goes_on_after_the_copied_records_if_the_external_system_is_there(job: LandedJob) -> None:
    location = saved(job, with_input=True)
    other = other_job(job)
    other.master.restores.start(location)
    other.produce(7, 7)
    assert not other.land().failed
    run_all(other)
    other.assert_tables(10)
    saved(other, "again", with_input=True)
    assert_whole(other)


@pytest.mark.deep
def test_a_savepoint_in_the_job_and_an_export_have_the_input_too(job: LandedJob, tmp_path: Path) -> None:
    job.master.savepoints.create("inside", with_input=True)
    job.master.savepoints.create("outside", target=str(tmp_path / "savepoints"), with_input=True)
    job.master.savepoints.export(1, str(tmp_path / "export"), with_input=True)
    assert_whole(job)
    delete_system(job)
    (root,) = (job.folder / "store" / "landed" / "savepoints" / "inside").iterdir()
    for name, location, rows in (("one", str(root), 5), ("two", str(tmp_path / "export"), 2)):
        other = other_job(job, name)
        other.master.restores.start(location)
        other.assert_tables(rows)
        run_all(other)
        other.assert_tables(8)
    (lost, *_) = (tmp_path / "savepoints" / "outside" / "landed").rglob("*.parquet")
    lost.unlink()
    assert "missing" in str(job.master.reports.fsck())
    job.master.savepoints.dispose("outside")
    job.master.savepoints.dispose("inside")
    assert not [*root.rglob("landed/**/*.*")] and not [*(tmp_path / "savepoints").rglob("*.parquet")]
    assert_whole(job)


@pytest.mark.long
def test_a_savepoint_without_input_is_refused_elsewhere_if_the_source_cannot_serve_its_position(job: LandedJob) -> None:
    location, other = saved(job), other_job(job)
    (job.folder / "feed.json").write_text(json.dumps({"deleted": 8, "rows": [1]}))
    before = contents(other.folder)
    with wording.raises(PositionExpired) as refused:
        other.master.restores.start(location)
    assert "--with-input" in (refused.value.hint or "")
    assert contents(other.folder) == before


@pytest.mark.long
def test_a_savepoint_without_input_is_refused_where_the_source_is_another_one(job: LandedJob) -> None:
    location, other = saved(job), other_job(job)
    give_back(job, 5)
    spec = other.folder / "config" / "landed.yaml"
    spec.write_text(spec.read_text().replace("feeds:Feed", "others:Feed"))
    (other.folder / "config" / "feeds.py").rename(other.folder / "config" / "others.py")
    before = contents(other.folder)
    with wording.raises(InvalidRequest) as refused:
        other.master.restores.start(location)
    assert "cannot serve what follows" in refused.value.message
    after = contents(other.folder)
    assert {key: body for key, body in after.items() if "__pycache__" not in key} == {
        key: body for key, body in before.items() if "__pycache__" not in key
    }


@pytest.mark.long
def test_a_job_with_another_log_of_the_source_refuses_the_savepoint(job: LandedJob) -> None:
    location, other = saved(job, with_input=True), other_job(job)
    other.produce(9)
    other.land()
    before = contents(other.folder)
    with wording.raises(InvalidRequest) as refused:
        other.master.restores.start(location)
    assert "another log of that source" in refused.value.message
    assert contents(other.folder) == before


@pytest.mark.long
def test_a_savepoint_of_an_earlier_version_does_not_say_what_its_log_is_of(job: LandedJob) -> None:
    location = saved(job)
    document = Path(location) / SAVEPOINT_DOCUMENT
    document.write_bytes(replace(decode_document(document.read_bytes(), location), logs={}).encode())
    assert b"logs" not in document.read_bytes()
    with wording.raises(InvalidRequest) as refused:
        other_job(job).master.restores.start(location)
    assert "of an earlier version" in refused.value.message


@pytest.mark.long
@pytest.mark.parametrize("change", ["a record is missing", "a record is damaged", "an object is missing"])
def test_a_savepoint_whose_input_is_damaged_begins_nothing(job: LandedJob, change: str) -> None:
    location, other = saved(job, with_input=True), other_job(job)
    records, objects = (sorted(Path(location).rglob(f"landed/feed/{part}/**/*.*")) for part in ("records", "objects"))
    if change == "a record is damaged":
        body = records[0].read_bytes()
        records[0].write_bytes(body[:-10] + bytes([body[-10] ^ 1]) + body[-9:])
    else:
        (objects if "object" in change else records)[0].unlink()
    with pytest.raises(StateCorrupt):
        other.master.restores.start(location)
    assert not [*(other.folder / "store").rglob("landed/feed/records/*")]


@pytest.mark.deep
def test_the_restored_job_returns_to_its_savepoint_and_reads_its_own_log_again(job: LandedJob) -> None:
    location, other = saved(job, with_input=True), other_job(job)
    other.master.restores.start(location)
    run_all(other)
    other.master.savepoints.cancel()
    delete_system(job)
    other.master.restores.start(location)
    other.assert_tables(5)
    run_all(other)
    other.assert_tables(8)
    assert_whole(other)


def is_killed(job: LandedJob, write: int, act: Callable[[JobMaster], object]) -> bool:
    """Run an act whose process ends before (even) or after (odd numbers) a write. Returns whether it got that far."""
    seen = 0

    def kill(operation: str, key: str) -> None:
        nonlocal seen
        seen += operation in WRITES
        if operation in WRITES and seen > write // 2:
            raise Killed

    master = job.master
    hooks = {"after" if write % 2 else "before": kill}
    master.context.__dict__["store"] = HookedStore(master.context.store, **hooks)
    try:
        act(master)
    except Killed:
        return True
    return False


def _has_head(job: LandedJob) -> bool:
    head = job.context.log.head()
    return head is not None and head.state.timeline().head > 0


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that left something open are dead."""
    monkeypatch.setattr("milepost.jobmaster.rollback.imported_checkpoint.is_provably_dead", lambda holder: True)


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize(
    "lands",
    [pytest.param(False, marks=pytest.mark.deep, id="restored again"), pytest.param(True, id="a landing in between")],
)
def test_a_restore_that_is_killed_at_any_write_is_repeated_and_loses_nothing(job: LandedJob, lands: bool) -> None:
    """A landing in between is refused: not all records are copied, and the external system may have forgotten them."""
    location = saved(job, with_input=True)
    if not lands:
        delete_system(job)
    for write in count():
        other = other_job(job, f"job-{write}")
        if not is_killed(other, write, lambda master: master.restores.start(location)):
            break
        if lands and log_of(other).newest() is not None:
            assert [failed.error for failed in other.land().failed] == ([] if _has_head(other) else ["InvalidRequest"])
        if not _has_head(other):
            other.master.restores.start(location)
            other.assert_tables(5)
        run_all(other)
        other.assert_tables(8)
        assert_whole(other)
    assert write > 20


@pytest.mark.long
@pytest.mark.usefixtures("dead")
def test_a_job_does_not_begin_without_the_rows_before_a_savepoint_whose_restore_was_killed(job: LandedJob) -> None:
    location, other = saved(job, with_input=True), other_job(job)
    log_folder = "landed/feed/records"
    for write in count():
        other = other_job(job, f"job-{write}")
        assert is_killed(other, write, lambda master: master.restores.start(location))
        if [*other.context.store.list(log_folder)]:
            break
    with wording.raises(InvalidRequest) as refused:
        other.epoch()
    assert "does not have the rows before" in refused.value.message
    other.master.restores.start(location)
    run_all(other)
    other.assert_tables(8)


@pytest.mark.deep
def test_a_savepoint_that_is_killed_at_any_write_is_made_again(job: LandedJob) -> None:
    for write in count():
        name = f"saved-{write}"
        if not is_killed(job, write, lambda master, name=name: master.savepoints.create(name, with_input=True)):
            break
        if all(one.name != name for one in job.master.list_savepoints()):
            job.master.savepoints.create(name, with_input=True)
        (listed,) = (one for one in job.master.list_savepoints() if one.name == name)
        other = other_job(job, f"job-{write}")
        other.master.restores.start(listed.location)
        run_all(other)
        other.assert_tables(8)
    assert write > 10
    audit = job.master.reports.fsck()
    assert (audit.foreign, audit.damaged) == ((), ())


def meeting(job: LandedJob, act: Callable[[], object]) -> JobMaster:
    """Return the job's master, in which `act` happens right before the first record of a log is created."""
    met: list[str] = []

    def meet(operation: str, key: str) -> None:
        if operation == "create" and "feed/records" in key and not met:
            met.append(key)
            act()

    master = job.master
    master.context.__dict__["store"] = HookedStore(master.context.store, before=meet)
    return master


@pytest.mark.long
def test_a_first_landing_that_meets_a_restore_lands_and_acknowledges_nothing(job: LandedJob) -> None:
    """They begin the log at different records, so both creates succeed."""
    location, other = saved(job, with_input=True), other_job(job)
    other.produce(7)
    (failed,) = meeting(other, lambda: other.master.restores.start(location)).landings.land().failed
    assert (failed.error, job.left) == ("CommitConflict", 1)
    assert not other.land().failed
    run_all(other)
    other.assert_tables(9)
    assert_whole(other)
    other.master.savepoints.cancel()
    other.master.restores.start(location)
    run_all(other)
    other.assert_tables(9)


@pytest.mark.long
def test_a_restore_that_meets_a_first_landing_gives_way_to_its_log(job: LandedJob) -> None:
    location, other = saved(job, with_input=True), other_job(job)
    other.produce(7)
    with wording.raises(CommitConflict):
        meeting(other, other.land).restores.start(location)
    newest = log_of(other).newest()
    assert newest is not None and (newest.record.sequence, newest.record.rows, job.left) == (2, 1, 0)
    assert other.master.landings.rows("feed").rows.num_rows == 1
