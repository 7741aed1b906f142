"""The sink chain, epoch by epoch: a commit that stalls can harm nothing, however late it comes (I14)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from milepost.dataflow.sinks.sink_head import HEADS, head_from_bytes, head_key

from milepost.jobmaster.jobmaster import JobMaster, Session, Triggered
from milepost.protocol.records.errors import CommitOutcomeUnknown
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.spark.driver.runner import SparkEpochRunner
from milepost.storage.open import open_store
from tests.harness.jobs.flights_job import FlightsJob
from tests.harness.jobs.kill_chain import SINKS, without_quality
from tests.harness.stores.faulty_store import Effect, Fault, FaultyStore, at


@pytest.mark.parametrize(
    "effect", [Effect.HOLD, Effect.LATE], ids=["its leader stalls before the write", "its write is under way for long"]
)
def test_a_stalled_commit_lands_neither_after_a_newer_one_nor_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: Effect
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
    assert isinstance(master.trigger(session), Triggered)
    master.run_epoch(session, 2, SparkEpochRunner())
    master.complete(session, 2)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(master.notify_complete, session, 2, "carriers")
        assert fault.reached.wait(240)
        try:
            if effect is Effect.LATE:
                with pytest.raises(CommitOutcomeUnknown):
                    commit.result()
            assert job.master().show(2).sinks == dict.fromkeys(SINKS, "unconfirmed")
            assert job.run().checkpoint_id == 3  # its first act was to publish checkpoint 2
            published = chain(job)
            assert list(published.values()) == [1, 2, 3]
        finally:
            fault.release.set()
        if effect is Effect.HOLD:
            assert commit.result().published is False
    for store in opened:
        for thread in store.late:
            thread.join(240)
            assert not thread.is_alive()
    assert chain(job) == published, "the stalled commit changed the chain"
    assert master.notify_complete(session, 2, "carriers").published is False
    assert chain(job) == published
    job.assert_tables_equal_the_oracle()
    job.master().verify(deep=True)


def chain(job: FlightsJob) -> dict[str, int]:
    """Heads of the carriers table, oldest first: key -> checkpoint that it marks."""
    store = job.sink_store("carriers")
    heads = [head_from_bytes(stat.key, store.get(stat.key)) for stat in store.list(HEADS)]
    return {head_key(head.version): int(head.mark.checkpoint_id) for head in reversed(heads)}
