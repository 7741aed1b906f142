"""Savepoints: copies of completed checkpoints, owned by people. A listed one retains its checkpoint."""

from __future__ import annotations

from milepost.errors import CommitConflict, InvalidRequest, NotFound
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance, with_garbage
from milepost.protocol.manifest.transaction.events import SavepointCreated, SavepointDisposed
from milepost.protocol.manifest.transaction.requests import DisposeSavepointRequest, RecordSavepointRequest
from milepost.protocol.records.layout import copy_pin_name, key_fault, savepoint_name_fault
from milepost.protocol.records.locations import SCHEME, location_problem
from milepost.protocol.records.manifest_state import ManifestState, Savepoint
from milepost.protocol.retention.retention import root_in_job

MAX_SAVEPOINTS = 256
"""How many savepoints a job may list: the manifest stays small."""


def record_savepoint(state: ManifestState, request: RecordSavepointRequest, now_ms: int) -> Answer:
    """List a savepoint after its copy is complete. Before that it does not exist, and nothing of it is read.

    Returns:
        A transition, or AlreadyDone ALREADY_RECORDED: this savepoint is listed already.
    Raises:
        NotFound: its checkpoint is not retained: hold it with a pin during the copy.
        InvalidRequest: invalid name or URL, the name is taken, or there are too many.
        CommitConflict: the copy's pin is missing, so a collection may have listed its files.
    """
    name_fault = savepoint_name_fault(request.name)
    if name_fault is not None:
        raise InvalidRequest(f"savepoint name {request.name!r} refused: {name_fault}. Nothing was written.")
    fault = key_fault(request.document.key) or _location_fault(request.location)
    if fault is not None:
        raise InvalidRequest(
            f"savepoint {request.name}: document {request.document.key!r} at {request.location!r} refused: {fault}."
        )
    new_savepoint = Savepoint(request.name, request.checkpoint_id, request.location, request.document, now_ms)
    listed = _savepoint(state, request.name)
    if listed is not None:
        listed_values = (listed.checkpoint_id, listed.location, listed.document)
        if listed_values == (request.checkpoint_id, request.location, request.document):
            return AlreadyDone(Outcome.ALREADY_RECORDED, f"savepoint {request.name} is listed", listed.checkpoint_id)
        raise InvalidRequest(
            f"savepoint {request.name} refused: job {state.job} has one of that name, of checkpoint"
            f" {listed.checkpoint_id}. Nothing was written.",
            hint="Choose another name, or dispose of the old one first.",
        )
    if state.checkpoint(request.checkpoint_id) is None:
        retained = [int(checkpoint.checkpoint_id) for checkpoint in state.checkpoints]
        raise NotFound(
            f"savepoint {request.name}: job {state.job} retains no completed checkpoint {request.checkpoint_id};"
            f" retained: {retained}. Nothing was written.",
            checkpoint_id=request.checkpoint_id,
        )
    root = root_in_job(new_savepoint)
    if root is not None and not _is_held(state, root):
        raise CommitConflict(
            f"savepoint {request.name} refused: its copy is no longer pinned, so its files may be listed as garbage or"
            " deleted. No savepoint was created.",
            hint="create it again",
        )
    if len(state.savepoints) >= MAX_SAVEPOINTS:
        raise InvalidRequest(
            f"savepoint {request.name} refused: job {state.job} lists {len(state.savepoints)} savepoints, at most"
            f" {MAX_SAVEPOINTS}. Nothing was written.",
            hint=f"milepost savepoint dispose {state.job} --name NAME makes room",
        )
    return advance(
        state,
        SavepointCreated(now_ms, new_savepoint, request.session_id),
        savepoints=tuple(sorted((*state.savepoints, new_savepoint), key=lambda savepoint: savepoint.name)),
    )


def _is_held(state: ManifestState, root: str) -> bool:
    """Return whether a pin protects the copy below a root, and the root is not garbage."""
    has_pin = any(pin.name == copy_pin_name(root) for pin in state.pins)
    return has_pin and all(entry.prefix != root for entry in state.garbage)


def dispose_savepoint(state: ManifestState, request: DisposeSavepointRequest, now_ms: int) -> Answer:
    """Remove a savepoint from the list. Only then may its copy be deleted; a copy below the job becomes garbage.

    Returns:
        A transition, or AlreadyDone NO_SAVEPOINT.
    """
    listed = _savepoint(state, request.name)
    if listed is None:
        return AlreadyDone(Outcome.NO_SAVEPOINT, f"job {state.job} has no savepoint {request.name}")
    root = root_in_job(listed)
    return advance(
        state,
        SavepointDisposed(now_ms, listed, request.session_id),
        savepoints=tuple(savepoint for savepoint in state.savepoints if savepoint is not listed),
        garbage=state.garbage if root is None else with_garbage(state, [root], now_ms),
    )


def _savepoint(state: ManifestState, name: str) -> Savepoint | None:
    return next((savepoint for savepoint in state.savepoints if savepoint.name == name), None)


def _location_fault(location: str | None) -> str | None:
    if location is None:
        return None
    if SCHEME.fullmatch(location) is None:
        return "expected an absolute URL, s3://bucket/… or file:///abs/…"
    return location_problem(location)
