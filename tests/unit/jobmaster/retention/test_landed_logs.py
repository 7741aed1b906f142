"""`fsck` walks the log of each landed source, and `gc` deletes only what no record can ever name (I8, L1, L2, L9)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.errors import StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.landing.lander import Lander
from milepost.jobmaster.landing.object_writer import ObjectWriter
from milepost.jobmaster.retention.garbage_collection import collect_garbage
from milepost.jobmaster.retention.landed_logs import LandedLogs
from milepost.protocol.landed.records import encode_record
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.layout import landed_object_place, landed_record_key, landed_source_of_key
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.log.source_log import SourceLog
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.models.data.expiring_system import ExpiringSystem
from milepost_testkit.stores.hooked_store import HookedStore
from milepost_testkit.stores.job_stores import LaterStore
from milepost_testkit.stores.memory_store import MemoryStore

SESSION = SessionId("collector")
DAY_MS = 86_400_000


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    job = LandedJob.create(tmp_path / "job")
    job.land_and_run(1, 2)
    job.land_and_run(3)
    return job


def in_a_day(job: LandedJob) -> JobContext:
    context = job.context
    context.__dict__["store"] = LaterStore(context.store, later_ms=DAY_MS)
    return context


def keys(job: LandedJob, part: str = "") -> set[str]:
    return {stat.key for stat in job.context.store.list("landed/") if part in stat.key}


def write_objects(job: LandedJob, sequence: int) -> str:
    """Write an object for a record, as a landing that then dies. Returns its key."""
    before = keys(job)
    rows = pa.record_batch({"k": [7], "n": [7]})
    with ObjectWriter(job.context.store, "feed", sequence, "ab" * 16) as writer:
        writer.write(0, iter([(0, rows)]))
        writer.finish()
    (key,) = keys(job) - before
    return key


def newest(job: LandedJob) -> int:
    stored = SourceLog(job.context.store, "feed").newest()
    assert stored is not None
    return stored.record.sequence


@pytest.mark.deep
def test_a_log_and_all_its_objects_are_the_jobs_own_and_needed(job: LandedJob) -> None:
    audit = job.master.reports.fsck()
    assert (audit.exit_code, audit.foreign, audit.unreachable, audit.damaged) == (0, (), (), ())
    assert f"log of source feed (3 records, {len(keys(job, '/objects/'))} objects)" in audit.roots


def test_the_log_of_a_source_that_the_spec_no_longer_has_is_still_the_jobs_and_stays(job: LandedJob) -> None:
    """L9: a dropped source keeps its log."""
    spec = job.folder / "config" / "landed.yaml"
    renamed = spec.read_text().replace("  feed:", "  other:").replace("[feed]", "[other]")
    spec.write_text(renamed.replace("input: feed,", "input: other,"))
    before = keys(job)
    audit = job.master.reports.fsck()
    assert (audit.exit_code, audit.foreign, audit.unreachable) == (0, (), ())
    collect_garbage(in_a_day(job), SESSION, 1)
    assert keys(job) == before


@pytest.mark.deep
def test_an_object_that_a_record_names_and_that_is_missing_or_cut_is_damage(job: LandedJob) -> None:
    first, second, *_ = sorted(keys(job, "/objects/"))
    job.context.store.delete([first])
    job.context.store.put(second, b"cut")
    audit = job.master.reports.fsck()
    assert audit.exit_code == 7
    assert {item.key: item.chain for item in audit.missing} == {
        first: ("log of source feed",),
        second: ("log of source feed",),
    }


def test_a_missing_record_is_damage_and_nothing_is_called_unreachable(job: LandedJob) -> None:
    write_objects(job, 2)
    job.context.store.delete([landed_record_key("feed", 2)])
    audit = job.master.reports.fsck()
    assert (audit.exit_code, audit.complete, audit.unreachable) == (7, False, ())
    assert "record 2 of its log is missing although newer records exist" in audit.damaged[0]
    with pytest.raises(StateCorrupt, match="nothing is provably unreachable"):
        collect_garbage(in_a_day(job), SESSION, 1)


def test_a_record_that_does_not_follow_the_one_before_is_damage(job: LandedJob) -> None:
    record = SourceLog(job.context.store, "feed").record(2).record
    job.context.store.put(landed_record_key("feed", 2), encode_record(replace(record, landed_at_ms=1)))
    audit = job.master.reports.fsck()
    assert audit.exit_code == 7
    assert "it does not follow the record 2 that was read before it" in audit.damaged[0]


@pytest.mark.deep
def test_a_checkpoint_whose_position_is_not_on_the_log_is_damage(job: LandedJob) -> None:
    """A log that was restored from an older copy is a sound chain, and yet not the one that was read."""
    record = SourceLog(job.context.store, "feed").record(newest(job)).record
    key = landed_record_key("feed", record.sequence)
    job.context.store.delete([key])
    (fault,) = job.master.reports.fsck().damaged
    assert fault.endswith("was read up to record 3, and it ends at record 2 now")
    job.context.store.create(key, encode_record(replace(record, write_id="another landing")))
    (fault,) = job.master.reports.fsck().damaged
    assert fault.endswith("was read up to record 3, and that record is another one now")


def test_a_log_that_was_deleted_is_damage_if_a_checkpoint_has_read_it(job: LandedJob) -> None:
    job.context.store.delete(sorted(keys(job)))
    audit = job.master.reports.fsck()
    assert audit.exit_code == 7
    assert [fault.rpartition(", and ")[2] for fault in audit.damaged] == ["there is no log now"] * 2


def test_what_a_landing_that_lost_wrote_is_unreachable_and_deleted_after_the_grace_period(job: LandedJob) -> None:
    before = keys(job)
    lost = write_objects(job, newest(job))
    (item,) = job.master.reports.fsck().unreachable
    assert item.key == lost and "another one appended the record" in item.proof
    assert collect_garbage(job.context, SESSION, 1).landings == ()
    assert lost in keys(job), "younger than the grace period"
    plan = collect_garbage(in_a_day(job), SESSION, 1, dry_run=True)
    assert plan.landings == (lost,) and lost in keys(job)
    assert collect_garbage(in_a_day(job), SESSION, 1).landings == (lost,)
    assert keys(job) == before


def test_objects_written_for_the_next_record_are_retained_however_old_they_are(job: LandedJob) -> None:
    """The outcome of that landing is unknown: it may be running, or the store may answer its create late."""
    running = write_objects(job, newest(job) + 1)
    audit = job.master.reports.fsck()
    assert (audit.unreachable, audit.foreign, audit.objects["in_use"]) == ((), (), 1)
    collect_garbage(in_a_day(job), SESSION, 1)
    assert running in keys(job)
    job.produce(5)
    job.land()
    collect_garbage(in_a_day(job), SESSION, 1)
    assert running not in keys(job), "another landing took its place in the log"
    assert job.master.reports.fsck().exit_code == 0
    job.epoch()
    job.assert_tables(4)


@pytest.mark.deep
def test_what_is_no_part_of_a_log_is_foreign_and_never_deleted(job: LandedJob) -> None:
    for key in ("landed/notes.txt", "landed/feed/notes.txt", "landed/feed/objects/notes.parquet"):
        job.context.store.put(key, b"mine")
        assert (landed_source_of_key(key), landed_object_place(key)) == (None, None)
    assert len(job.master.reports.fsck().foreign) == 3
    before = keys(job)
    collect_garbage(in_a_day(job), SESSION, 1)
    assert keys(job) == before


def test_a_log_of_an_earlier_life_of_the_job_is_named_as_such(job: LandedJob) -> None:
    """L9: the job was deleted and made anew in the same storage."""
    store = job.context.store
    store.delete([stat.key for stat in store.list("") if not stat.key.startswith("landed/")])
    job.land()  # refused by name, and begins the job's new life
    audit = job.master.reports.fsck()
    assert audit.exit_code == 0
    assert any(root.startswith("log of source feed (") and "earlier life" in root for root in audit.roots)


def landed(store: ObjectStore, system: ExpiringSystem) -> None:
    Lander(SourceLog(store, "numbers"), system.open(), "life 1").land()


def test_a_repeated_walk_reads_only_the_new_records() -> None:
    space, system = MemoryStore("memory://job"), ExpiringSystem(produced=40)
    read: list[str] = []
    landed(space, system)

    def record(operation: str, key: str) -> None:
        if operation == "get":
            read.append(key)

    logs = LandedLogs(HookedStore(space, before=record))
    assert logs.walk("numbers", None).newest == 9
    assert len(read) == 10, "each record once, and the newest one to begin with"
    read.clear()
    system.produced = 43
    landed(space, system)
    walked = logs.walk("numbers", None)
    assert (walked.newest, len(walked.objects), len(read)) == (10, 18, 2)


def test_a_log_that_was_replaced_between_two_walks_is_damage_not_a_mixture() -> None:
    space, system = MemoryStore("memory://job"), ExpiringSystem(produced=3)
    landed(space, system)
    logs = LandedLogs(space)
    logs.walk("numbers", None)
    space.delete([stat.key for stat in space.list("")])
    with pytest.raises(StateCorrupt, match="there is none"):
        logs.walk("numbers", None)
    landed(space, ExpiringSystem(produced=5))
    with pytest.raises(StateCorrupt, match="what is stored is not that log"):
        logs.walk("numbers", None)
