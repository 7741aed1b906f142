"""What may happen between two tasks of an epoch, or between two epochs: noticed before the commit point, or delayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import InvalidRequest, StateCorrupt, StoreUnavailable, Subsumed, SubtaskDeclined
from milepost.jobmaster import JobMaster, NothingToDo, Session, Triggered
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.layout import metadata_key
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.spark.driver.runner import SparkEpochRunner
from milepost.storage.open import open_store
from milepost.tables.records.table_heads import HEADS
from milepost_testkit import wording
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import SINKS, without_quality
from milepost_testkit.stores.hooked_store import HookedStore


def _job(folder: Path, edit: dict[str, str] | None = None) -> FlightsJob:
    return FlightsJob.create(folder, {without_quality(): "", "max_files: 4": "max_files: 1", **(edit or {})})


def _trigger(job: FlightsJob, session: Session) -> Triggered:
    triggered = job.master().triggers.trigger(session)
    assert isinstance(triggered, Triggered)
    return triggered


@pytest.mark.deep
def test_a_spec_edited_after_the_trigger_declines_the_epoch_and_the_next_one_takes_it(tmp_path: Path) -> None:
    """I13: what the epoch was planned with is what it runs with; the window would else emit the state of another."""
    job = _job(tmp_path)
    job.land(range(1, 3))
    session = Session.cli()
    triggered = _trigger(job, session)
    job.edit(job.spec_path.read_text(), {"watermark_delay: 2h": "watermark_delay: 3h"})
    with wording.raises(SubtaskDeclined) as caught:
        job.master().epochs.run_epoch(session, triggered.checkpoint_id, SparkEpochRunner())
    job.master().epochs.abort(session, triggered.checkpoint_id, str(caught.value.details["reason"]), "spec changed")
    job.master().lifecycle.resume()
    assert job.run().checkpoint_id == 2
    job.assert_tables_equal_the_oracle()


def test_a_sink_whose_path_leads_elsewhere_is_refused_before_anything_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: the text of the spec is the same, its environment is not; after the commit point it would be too late."""
    monkeypatch.setenv("LAKE", str(tmp_path / "lake"))
    job = _job(tmp_path, {"path: ../lake/carriers": 'path: "${env:LAKE}/carriers"'})
    job.land(range(1, 3))
    job.run()
    monkeypatch.setenv("LAKE", str(tmp_path / "other"))
    with wording.raises(InvalidRequest):
        job.run()
    assert [item.status for item in job.master().reports.list_checkpoints()] == ["completed"]
    monkeypatch.setenv("LAKE", str(tmp_path / "lake"))
    assert job.run().checkpoint_id == 2


@pytest.mark.deep
def test_a_table_that_was_deleted_is_noticed_before_the_commit_point(tmp_path: Path) -> None:
    job = _job(tmp_path)
    job.land(range(1, 3))
    job.run()
    store = job.sink_store("hourly")
    store.delete([stat.key for stat in store.list("")])
    with wording.raises(InvalidRequest):
        job.run()
    newest = job.master().reports.list_checkpoints()[0]
    assert (newest.checkpoint_id, newest.status) == (2, "aborted")
    assert newest.failure_reason == "SINK_PREPARE_FAILED"


def test_a_pending_checkpoint_with_unreadable_metadata_is_given_up_not_the_job(tmp_path: Path) -> None:
    job = _job(tmp_path)
    job.land(range(1, 3))
    first = Session.cli()
    triggered = _trigger(job, first)
    context = JobContext(job.load())
    context.store.put(metadata_key(triggered.checkpoint_id, triggered.token), b'{"format": 999}')
    assert isinstance(job.master().triggers.trigger(Session.cli(), take_over=True), Triggered)
    aborted = job.master().reports.list_checkpoints(status="aborted")
    assert [item.failure_reason for item in aborted] == ["LEADER_TAKEN_OVER"]


def test_metadata_of_another_token_is_never_completed(tmp_path: Path) -> None:
    """I7: the token inside `_metadata` is the pending one, or nothing is completed."""
    job = _job(tmp_path)
    job.land(range(1, 3))
    session = Session.cli()
    triggered = _trigger(job, session)
    master = job.master()
    report = master.epochs.run_epoch(session, triggered.checkpoint_id, SparkEpochRunner())
    store = JobContext(job.load()).store
    key = metadata_key(triggered.checkpoint_id, report.metadata.token)
    body = store.get(key)
    store.put(key, body.replace(f'"token":{report.metadata.token}'.encode(), f'"token":{triggered.token}'.encode()))
    with wording.raises(StateCorrupt):
        master.epochs.complete(session, triggered.checkpoint_id)
    store.put(key, body)
    assert master.epochs.complete(session, triggered.checkpoint_id).checkpoint_id == triggered.checkpoint_id


@pytest.mark.deep
def test_a_sink_that_is_down_after_the_commit_point_delays_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 7: after the commit point a sink that is down delays, never loses."""
    job = _job(tmp_path)
    job.land(range(1, 2))

    def refuse(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(HEADS):
            raise StoreUnavailable("the lake does not answer")

    def opened(config: StoreConfig) -> ObjectStore:
        inner = open_store(config)
        return HookedStore(inner, before=refuse) if config.url.endswith("/lake/carriers") else inner

    with monkeypatch.context() as patched:
        patched.setattr("milepost.jobmaster.job.context.open_store", opened)
        with wording.raises(Exception):
            job.run()
        states = job.master().reports.show(1).sinks
        assert states == {name: "unconfirmed" if name == "carriers" else "committed" for name in SINKS}
    again = job.master().triggers.trigger(Session.cli())
    assert isinstance(again, NothingToDo) and "carriers" in again.message
    wording.matches("run", again.message)
    job.assert_tables_equal_the_oracle()


def test_a_cleared_task_of_a_run_that_was_subsumed_has_nothing_left_to_do(tmp_path: Path) -> None:
    """I3: transitions are idempotent per session and checkpoint, even long after the checkpoint was dropped."""
    job = _job(tmp_path, {"retained: {last: 10}": "retained: {last: 1}"})
    job.land(range(1, 4))
    session = Session.cli()
    job.master().epochs.run(session, SparkEpochRunner())
    job.run_until_caught_up()
    master = JobMaster(job.load())
    for ask in (
        lambda: master.epochs.run_epoch(session, 1, SparkEpochRunner()),
        lambda: master.epochs.validate(session, 1),
        lambda: master.epochs.complete(session, 1),
        lambda: master.epochs.notify_complete(session, 1, "carriers"),
    ):
        with wording.raises(Subsumed):
            ask()
