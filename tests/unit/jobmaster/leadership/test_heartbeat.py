"""A running epoch shows that it lives, and stops when its session was fenced (I4, I10)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.errors import (
    NEW_RUN,
    NEWER_TRY,
    Fenced,
    StateCorrupt,
    StoreUnavailable,
    SubtaskDeclined,
)
from milepost.jobmaster import Session
from milepost.jobmaster.leadership.heartbeat import Heartbeat
from milepost.protocol.records.layout import heartbeat_key
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.stores.hooked_store import HookedStore

SOON_S = 0.01
LONG_S = 240.0


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.epoch()
    job.land("b.csv")
    return job


REVOKED: dict[str, Callable[[SparklessJob, Session], object]] = {
    "aborted": lambda job, session: job.master.lifecycle.abort_running(),
    "canceled": lambda job, session: job.master.savepoints.cancel(),
    "rebound": lambda job, session: job.rebind(session),
    "taken over": lambda job, session: job.master.triggers.trigger(Session.cli(), take_over=True),
}


@pytest.mark.parametrize("how", sorted(REVOKED))
def test_an_epoch_whose_session_was_fenced_is_stopped_and_ends_as_fenced(job: SparklessJob, how: str) -> None:
    """A revoke closes the running process; what it fails with then is no failure of its own."""
    revoke = REVOKED[how]
    session = Session.cli()
    pending = job.trigger(session)
    stopped = threading.Event()
    with (
        wording.raises(Fenced) as fenced,
        Heartbeat(job.context, pending, stopped.set, SOON_S) as heartbeat,
    ):
        assert heartbeat.lost is None
        revoke(job, session)
        assert stopped.wait(LONG_S)
        raise SubtaskDeclined("its Spark job was cancelled")
    assert isinstance(fenced.value.__cause__, SubtaskDeclined)
    assert fenced.value.hint == (NEWER_TRY if how == "rebound" else NEW_RUN)


def test_it_is_asked_to_stop_until_it_has(job: SparklessJob) -> None:
    """A Spark job that begins a moment after the first cancellation is cancelled by the next."""
    pending = job.trigger(Session.cli())
    told: list[int] = []
    twice = threading.Event()

    def stop() -> None:
        told.append(1)
        if len(told) > 2:
            twice.set()

    with Heartbeat(job.context, pending, stop, SOON_S):
        job.master.lifecycle.abort_running()
        assert twice.wait(LONG_S)


@pytest.mark.parametrize("error", [SubtaskDeclined("bad row"), KeyboardInterrupt()])
def test_an_epoch_that_still_leads_fails_with_its_own_error(job: SparklessJob, error: BaseException) -> None:
    pending = job.trigger(Session.cli())
    with (
        pytest.raises(type(error)) as raised,
        Heartbeat(job.context, pending, lambda: pytest.fail("it was told to stop"), SOON_S),
    ):
        raise error
    assert raised.value is error


def test_a_checkpoint_that_a_sweep_has_adopted_is_nothing_to_stop_for(job: SparklessJob) -> None:
    session = Session.cli()
    pending = job.trigger(session)
    looked = threading.Event()
    context = job.context
    store = context.store

    def after(operation: str, key: str) -> None:
        if operation in ("list", "stat") and len(completed) and key.startswith("manifest/"):
            looked.set()

    completed: list[object] = []
    context.__dict__["store"] = HookedStore(store, after=after)
    with Heartbeat(context, pending, lambda: pytest.fail("it was told to stop"), SOON_S) as heartbeat:
        completed.append(job.complete(session, pending))
        assert looked.wait(LONG_S)
    assert heartbeat.lost is None


def test_a_store_that_does_not_answer_for_a_while_stops_nothing(job: SparklessJob) -> None:
    """The lease is courtesy: a heartbeat that is lost is written again."""
    pending = job.trigger(Session.cli())
    context = job.context
    beats: list[str] = []
    again = threading.Event()

    def before(operation: str, key: str) -> None:
        if operation == "put" and key == heartbeat_key(pending.checkpoint_id, pending.token):
            beats.append(key)
            if len(beats) == 2:
                raise StoreUnavailable("no answer")
            if len(beats) == 4:
                again.set()

    context.__dict__["store"] = HookedStore(context.store, before=before)
    with Heartbeat(context, pending, lambda: pytest.fail("it was told to stop"), SOON_S):
        assert again.wait(LONG_S)
    assert context.heartbeat_ms(pending) is not None


def test_an_epoch_given_up_between_two_signs_of_life_ends_as_fenced(job: SparklessJob) -> None:
    """Whoever gave it up has deleted what it staged: that is no corruption."""
    pending = job.trigger(Session.cli())
    with (
        wording.raises(Fenced) as fenced,
        Heartbeat(job.context, pending, lambda: pytest.fail("there was no time to"), LONG_S),
    ):
        job.master.lifecycle.abort_running()
        raise StateCorrupt("staged file is missing")
    assert isinstance(fenced.value.__cause__, StateCorrupt)


def test_an_epoch_that_fails_while_the_head_cannot_be_read_keeps_its_own_error(job: SparklessJob) -> None:
    pending = job.trigger(Session.cli())
    context = job.context
    down: list[bool] = []

    def before(operation: str, key: str) -> None:
        if down:
            raise StoreUnavailable("no answer")

    context.__dict__["store"] = HookedStore(context.store, before=before)
    error = SubtaskDeclined("bad row")
    with (
        pytest.raises(SubtaskDeclined) as raised,
        Heartbeat(context, pending, lambda: pytest.fail("it was told to stop"), LONG_S),
    ):
        down.append(True)
        raise error
    assert raised.value is error
