"""A subtask that cannot take part declines: typed, once, with nothing acknowledged and nothing left of its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.epoch.plan import EpochAlignment
from milepost.errors import CheckpointError, EnvironmentUnusable, StateCorrupt, SubtaskDeclined
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.manifest.transaction.lease import HEARTBEAT_INTERVAL_MS
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.task_lifecycle import Notifications
from milepost.spark.task.processing import Processing
from milepost.storage.local.store import LocalStore
from milepost.storage.notices import AbortNotice, write_notice
from milepost_testkit import wording
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at
from milepost_testkit.tasks.clocks import ticking
from milepost_testkit.tasks.dataplane import FIRST, DataPlane
from tests.unit.spark.test_unaligned_epochs import SMALL, cut, events, nothing


@pytest.fixture
def inner(tmp_path: Path) -> LocalStore:
    return LocalStore(StoreConfig(tmp_path.as_uri()))


def declined(plane: DataPlane, error: type[CheckpointError] = SubtaskDeclined) -> list[Decline]:
    """Run an epoch that leaves rows in flight and must fail."""
    before, outputs = plane.epochs, {name: len(tables) for name, tables in plane.outputs.items()}
    with pytest.raises(error):
        plane.epoch(events(7, 0, 60), alignment=cut(1), clock=ticking(10_000), limits=SMALL)
    assert plane.epochs == before and outputs == {name: len(tables) for name, tables in plane.outputs.items()}
    return [answer for answer in plane.answers if isinstance(answer, Decline)]


@pytest.mark.parametrize("what", ["state/", "channel/"])
def test_an_upload_that_fails_declines_the_checkpoint(inner: LocalStore, what: str) -> None:
    """DESIGN 4.2: a value that travels to the driver, not an exception; the reason is the upload's own."""
    fault = Fault(at("put", f"{FIRST}{what}"), Effect.UNAVAILABLE)
    declines = declined(DataPlane(FaultyStore(inner, [fault])))
    assert fault.reached.is_set() and declines
    assert all(one.reason is CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION for one in declines)
    assert "planned outage" in declines[0].detail


def test_an_unusable_machine_is_reported_as_unusable(inner: LocalStore) -> None:
    error = EnvironmentUnusable("the disk is full", hint="free some space")
    fault = Fault(at("put", f"{FIRST}state/"), Effect.UNAVAILABLE, error=error)
    declines = declined(DataPlane(FaultyStore(inner, [fault])), EnvironmentUnusable)
    assert declines[0].reason is CheckpointFailureReason.ENVIRONMENT_UNUSABLE
    assert declines[0].payload == {"hint": "free some space"}


@pytest.mark.deep
def test_the_epoch_runs_again_after_a_decline_as_if_it_had_not_happened(inner: LocalStore) -> None:
    plane = DataPlane(FaultyStore(inner, [Fault(at("put", f"{FIRST}channel/"), Effect.UNAVAILABLE)]))
    declined(plane)
    plane.epoch(events(7, 0, 60), alignment=cut(1), clock=ticking(10_000), limits=SMALL)
    other = DataPlane(inner)
    other.epoch(events(7, 0, 60), alignment=cut(1), clock=ticking(10_000), limits=SMALL)
    assert plane.acks == other.acks


def test_channel_state_that_cannot_be_read_declines_as_corrupt(inner: LocalStore) -> None:
    plane = DataPlane(inner)
    plane.epoch(events(7, 0, 60), alignment=cut(1), clock=ticking(10_000), limits=SMALL)
    for stat in list(inner.list(f"{FIRST}channel/")):
        inner.delete([stat.key])
    with wording.raises(StateCorrupt):
        plane.epoch(nothing())
    declines = [answer for answer in plane.answers if isinstance(answer, Decline)]
    assert {one.reason for one in declines} == {CheckpointFailureReason.STATE_CORRUPT}


def test_a_cancel_marker_is_passed_on_with_the_reason_of_the_sender(inner: LocalStore) -> None:
    """Level 1 declines, level 2 takes the marker: its own answer names who declined first, and why."""
    fault = Fault(at("put", f"{FIRST}state/unique/"), Effect.UNAVAILABLE)
    declines = declined(DataPlane(FaultyStore(inner, [fault])))
    assert {(one.level, one.subtask) for one in declines} == {(1, 0)} and len(declines) == 2


def test_an_aborted_checkpoint_is_not_uploaded(inner: LocalStore) -> None:
    """Ray: JobWorker.notifyCheckpointTimeout: a subtask of a fenced job that still runs skips its late work."""
    store = FaultyStore(inner)
    notice = AbortNotice(CheckpointFailureReason.CHECKPOINT_EXPIRED, CheckpointId(0))
    write_notice(inner, CheckpointId(1), FencingToken(1), notice)
    declines = declined(DataPlane(store))
    assert {one.reason for one in declines} == {CheckpointFailureReason.CHECKPOINT_EXPIRED}
    wording.matches("declines", declines[0].detail)
    assert not store.writes


def test_an_epoch_that_has_just_begun_does_not_ask_whether_it_was_aborted(inner: LocalStore) -> None:
    """A query costs a round trip or two; a late upload writes below its own token, where nothing reads."""
    asked = Fault(lambda operation, key: operation == "get" and "aborted" in key, Effect.UNAVAILABLE)
    plane, now_ms = DataPlane(FaultyStore(inner, [asked])), 1_000_000
    begun = EpochAlignment(None, None, now_ms - HEARTBEAT_INTERVAL_MS + 1, False)
    plane.epoch(events(7, 0, 60), alignment=begun, clock=lambda: now_ms)
    assert plane.epochs == 1
    with pytest.raises(SubtaskDeclined):
        plane.epoch(events(7, 1, 60), alignment=begun, clock=lambda: now_ms + 1)


def test_a_notice_that_cannot_be_read_declines(inner: LocalStore) -> None:
    fault = Fault(lambda operation, key: operation == "get" and "aborted" in key, Effect.UNAVAILABLE)
    declines = declined(DataPlane(FaultyStore(inner, [fault])))
    assert declines[0].reason is CheckpointFailureReason.IO_EXCEPTION


def test_the_fate_of_other_checkpoints_is_notified_at_the_start_and_stops_nothing(inner: LocalStore) -> None:
    """I11: notifications are at-least-once; the plan repeats the last word on each."""
    plane = DataPlane(inner)
    plane.epoch(events(7, 0, 30))
    plane.epochs = 3
    aborted = (CheckpointId(2), CheckpointId(3))
    plane.epoch(events(7, 1, 30), notifications=Notifications(completed=CheckpointId(1), aborted=aborted))
    assert plane.epochs == 4 and not [answer for answer in plane.answers if isinstance(answer, Decline)]


@pytest.mark.deep
def test_the_node_forgets_what_an_aborted_checkpoint_staged_there(inner: LocalStore, tmp_path: Path) -> None:
    """Level 1 is uploaded and in the cache when level 2 declines."""
    fault = Fault(lambda operation, key: operation == "put" and "state/totals/" in key, Effect.UNAVAILABLE)
    plane = DataPlane(FaultyStore(inner, [fault]), epochs=1)
    declined(plane)
    cache = tmp_path.parent / f"{tmp_path.name}-cache"
    assert list(cache.glob("*/*.2.arrow"))
    plane.epochs = 0
    plane.epoch(events(7, 1, 30), notifications=Notifications(aborted=(CheckpointId(2),)))
    assert list(cache.glob("*/*.1.arrow")) and not list(cache.glob("*/*.2.arrow"))


def test_a_state_that_cannot_be_frozen_declines_behind_its_barrier(
    inner: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The barrier is on its way: the level below gets it, then the cancel marker, and snapshots nothing."""

    def full(processing: Processing) -> None:
        raise EnvironmentUnusable("the disk is full", hint="free some space")

    monkeypatch.setattr(Processing, "freeze", full)
    plane = DataPlane(inner)
    declines = declined(plane, EnvironmentUnusable)
    assert {one.reason for one in declines} == {CheckpointFailureReason.ENVIRONMENT_UNUSABLE}
    assert "the disk is full" in declines[0].detail and not list(inner.list(f"{FIRST}state/"))
