"""A table, epoch by epoch: a commit that stalls can harm nothing, however late it comes (I14)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from milepost.codec.records import decode
from milepost.errors import CommitOutcomeUnknown
from milepost.jobmaster import JobMaster, Session, Triggered
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost.tables.records.marks import Mark, MarkRecords
from milepost.tables.records.table_heads import HEADS, TableHead, head_key
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import SINKS, without_quality
from milepost_testkit.runners.planes import Plane
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at


@pytest.mark.parametrize(
    "effect", [Effect.HOLD, Effect.LATE], ids=["its leader stalls before the write", "its write is under way for long"]
)
def test_a_stalled_commit_lands_neither_after_a_newer_one_nor_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: Effect, plane: Plane
) -> None:
    """I14: the commit of checkpoint 2 is held back; the next leader publishes 2 itself, then 3; then 2 goes on."""
    job = FlightsJob.create(tmp_path, {without_quality(): "", "max_files: 4": "max_files: 1"})
    job.land(range(1, 4))
    job.run()
    fault = Fault(at("create", HEADS), effect)
    opened: list[FaultyStore] = []

    def stalling(config: StoreConfig) -> ObjectStore:
        if not config.url.endswith("/lake/carriers"):
            return open_store(config)
        opened.append(FaultyStore(open_store(config), [fault]))
        return opened[-1]

    monkeypatch.setattr("milepost.jobmaster.job.context.open_store", stalling)
    master, session = JobMaster(job.load()), Session.cli()
    assert isinstance(master.triggers.trigger(session), Triggered)
    master.epochs.run_epoch(session, 2, plane())
    master.epochs.complete(session, 2)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(master.epochs.notify_complete, session, 2, "carriers")
        assert fault.reached.wait(240)
        try:
            if effect is Effect.LATE:
                with pytest.raises(CommitOutcomeUnknown):
                    commit.result()
            assert job.master().reports.show(2).sinks == dict.fromkeys(SINKS, "unconfirmed")
            mark = newest_mark(job)
            assert mark.checkpoint_id == 2 and len(heads(job)) == 1
            assert job.run().checkpoint_id == 3  # its first act was to publish checkpoint 2
            published = heads(job)
            assert len(published) == 3 and newest_mark(job).checkpoint_id == 3
            assert (published[1].number, published[1].write_id) == (mark.number, mark.write_id), "nobody decides again"
        finally:
            fault.release.set()
        if effect is Effect.HOLD:
            assert commit.result().published is False
    for store in opened:
        for thread in store.late:
            thread.join(240)
            assert not thread.is_alive()
    assert heads(job) == published, "the stalled commit moved the table"
    assert master.epochs.notify_complete(session, 2, "carriers").published is False
    assert heads(job) == published
    job.assert_tables_equal_the_oracle()
    assert job.master().reports.verify(deep=True).discarded == ()


def heads(job: FlightsJob) -> list[TableHead]:
    """Commits of the carriers table, oldest first; no two have the same version."""
    store = job.sink_store("carriers")
    keys = [stat.key for stat in store.list(HEADS)][::-1]
    found = [decode(TableHead, store.get(key), key) for key in keys]
    assert keys == [head_key(version) for version in range(1, len(found) + 1)]
    return found


def newest_mark(job: FlightsJob) -> Mark:
    """The newest mark of the carriers table, whether a commit carries it yet or not."""
    marks = MarkRecords(JobContext(job.load()).store, "carriers")
    mark = marks.at(marks.numbers()[-1])
    assert mark is not None
    return mark
