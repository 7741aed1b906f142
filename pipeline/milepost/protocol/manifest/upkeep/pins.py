"""A pin holds a checkpoint for its reader, so that nothing of it is subsumed meanwhile (I8)."""

from __future__ import annotations

from dataclasses import replace

from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance
from milepost.protocol.manifest.transaction.events import CheckpointPinned, CheckpointUnpinned
from milepost.protocol.manifest.transaction.requests import PinRequest, UnpinRequest
from milepost.protocol.records.errors import InvalidRequest, NotFound
from milepost.protocol.records.manifest_state import ManifestState, Pin

MAX_PINS = 256
"""How many readers may hold a checkpoint at once: the manifest stays small."""


def live_pins(state: ManifestState, now_ms: int) -> tuple[Pin, ...]:
    """Return the pins whose time is not over."""
    return tuple(pin for pin in state.pins if pin.until_ms > now_ms)


def without_overdue(state: ManifestState, now_ms: int) -> ManifestState:
    """Return the state without the pins whose time is over: who held one has died, or is too late."""
    return replace(state, pins=live_pins(state, now_ms))


def pin(state: ManifestState, request: PinRequest, now_ms: int) -> Answer:
    """Hold a retained checkpoint for a time, or for longer.

    Raises:
        NotFound: it is not retained (any more). InvalidRequest: no name, no time, or too many readers.
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
    kept = tuple(one for one in live_pins(state, now_ms) if one.name != request.name)
    if len(kept) >= MAX_PINS:
        raise InvalidRequest(f"pin {request.name!r} refused: {len(kept)} readers hold checkpoints of job {state.job}.")
    held = Pin(request.name, request.checkpoint_id, now_ms + request.hold_ms)
    pins = tuple(sorted((*kept, held), key=lambda one: one.name))
    return advance(state, CheckpointPinned(now_ms, held, request.session_id), pins=pins)


def unpin(state: ManifestState, request: UnpinRequest, now_ms: int) -> Answer:
    """Let go of a checkpoint; a pin that is gone was let go before, or its time was over."""
    held = next((one for one in state.pins if one.name == request.name), None)
    if held is None:
        return AlreadyDone(Outcome.NOT_PINNED, f"nothing is pinned as {request.name}")
    return advance(
        state,
        CheckpointUnpinned(now_ms, held.name, held.checkpoint_id, request.session_id),
        pins=tuple(one for one in state.pins if one is not held),
    )
