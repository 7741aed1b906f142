"""Pins: a reader's hold on a checkpoint, which is not subsumed until then (I8)."""

from __future__ import annotations

from dataclasses import replace

from milepost.errors import InvalidRequest, NotFound
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance
from milepost.protocol.manifest.transaction.events import CheckpointPinned, CheckpointUnpinned
from milepost.protocol.manifest.transaction.requests import PinRequest, UnpinRequest
from milepost.protocol.records.manifest_state import ManifestState, Pin

MAX_PINS = 256
"""How many readers may hold checkpoints at a time: the manifest stays small."""


def live_pins(state: ManifestState, now_ms: int) -> tuple[Pin, ...]:
    """Return the pins that have not expired."""
    return tuple(pin for pin in state.pins if pin.until_ms > now_ms)


def without_expired_pins(state: ManifestState, now_ms: int) -> ManifestState:
    """Return the state without expired pins: their readers have died, or are too late."""
    return replace(state, pins=live_pins(state, now_ms))


def pin(state: ManifestState, request: PinRequest, now_ms: int) -> Answer:
    """Hold a retained checkpoint for a time, or extend the hold.

    Raises:
        NotFound: it is not retained. InvalidRequest: no name, no duration, or too many readers.
    """
    if not request.name or request.hold_ms <= 0:
        raise InvalidRequest(
            f"pin {request.name!r} refused: expected a name and more than 0 ms, got {request.hold_ms} ms."
        )
    if state.checkpoint(request.checkpoint_id) is None:
        retained = ", ".join(str(checkpoint.checkpoint_id) for checkpoint in state.checkpoints) or "none"
        raise NotFound(
            f"job {state.job} retains no completed checkpoint {request.checkpoint_id}; retained: {retained}."
            " Nothing was changed.",
            checkpoint_id=request.checkpoint_id,
        )
    others = tuple(other for other in live_pins(state, now_ms) if other.name != request.name)
    if len(others) >= MAX_PINS:
        count = len(others)
        raise InvalidRequest(f"pin {request.name!r} refused: {count} readers hold checkpoints of job {state.job}.")
    new_pin = Pin(request.name, request.checkpoint_id, now_ms + request.hold_ms)
    pins = tuple(sorted((*others, new_pin), key=lambda pin: pin.name))
    return advance(state, CheckpointPinned(now_ms, new_pin, request.session_id), pins=pins)


def unpin(state: ManifestState, request: UnpinRequest, now_ms: int) -> Answer:
    """Release a checkpoint. If the pin does not exist, it was released before or has expired."""
    released = next((pin for pin in state.pins if pin.name == request.name), None)
    if released is None:
        return AlreadyDone(Outcome.NOT_PINNED, f"nothing is pinned as {request.name}")
    return advance(
        state,
        CheckpointUnpinned(now_ms, released.name, released.checkpoint_id, request.session_id),
        pins=tuple(pin for pin in state.pins if pin is not released),
    )
