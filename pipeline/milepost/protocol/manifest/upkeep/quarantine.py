"""Quarantine objects of file sources: no epoch and no replay reads them until they are released."""

from __future__ import annotations

from milepost.errors import InvalidRequest
from milepost.protocol.failure.failures import printable_decision
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance
from milepost.protocol.manifest.transaction.events import ObjectQuarantined, ObjectReleased
from milepost.protocol.manifest.transaction.requests import QuarantineRequest, ReleaseRequest
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.quarantined import QuarantinedObject

MAX_QUARANTINED = 256
"""How many objects may be quarantined at a time: the manifest stays small."""


def quarantine(state: ManifestState, request: QuarantineRequest, now_ms: int) -> Answer:
    """Quarantine one version of an object. It replaces another version under the same key.

    Raises:
        InvalidRequest: too many objects are quarantined.
    """
    new = QuarantinedObject(request.source, request.key, request.etag, request.size, now_ms)
    held = state.quarantined_object(request.source, request.key)
    if held is not None and held.version == new.version:
        message = f"object {request.key} of source {request.source} is already quarantined"
        return AlreadyDone(Outcome.ALREADY_QUARANTINED, message)
    others = tuple(one for one in state.quarantined if one is not held)
    if len(others) >= MAX_QUARANTINED:
        raise InvalidRequest(
            f"object {request.key} of source {request.source} refused: {len(others)} objects of job {state.job} are"
            f" quarantined, and {MAX_QUARANTINED} is the limit. Nothing was changed.",
            hint="delete objects that must never be read, and release them; or exclude them by the path of the source",
        )
    objects = tuple(sorted((*others, new), key=lambda one: one.place))
    decided_by = printable_decision(request.decided_by)
    return advance(state, ObjectQuarantined(now_ms, new, request.session_id, decided_by), quarantined=objects)


def release(state: ManifestState, request: ReleaseRequest, now_ms: int) -> Answer:
    """Release a quarantined object. The next epoch reads it if its timeline has not consumed it."""
    released = state.quarantined_object(request.source, request.key)
    if released is None:
        message = f"object {request.key} of source {request.source} is not quarantined"
        return AlreadyDone(Outcome.NOT_QUARANTINED, message)
    return advance(
        state,
        ObjectReleased(now_ms, released, request.session_id, printable_decision(request.decided_by)),
        quarantined=tuple(one for one in state.quarantined if one is not released),
    )
