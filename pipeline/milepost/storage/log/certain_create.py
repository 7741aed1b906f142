"""Create an object that may exist only once, until it is certain which writer created it (I1)."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from milepost.errors import CheckpointError, CommitConflict, CommitOutcomeUnknown, NotFound, StoreUnavailable
from milepost.protocol.records import ObjectStore
from milepost.storage.log.retries import retry_reads

_PUTS = 4
_MAX_WAIT_S = 2.0


class LostRace(Exception):
    """Another session's object has the key that we tried to create."""


class _NotConfirmed(Exception):
    """No reply settles whether the put landed. The same object may be put again."""


def create_certainly(
    store: ObjectStore,
    key: str,
    body: bytes,
    write_id: str,
    stored_write_id: Callable[[], str],
    unknown: Callable[[BaseException | None], CommitOutcomeUnknown],
) -> str | None:
    """Put an object until it is certain that the key holds it, or another one.

    A put with a lost reply may still land later. To put the same bytes again under the same key is safe, whichever
    of the two lands. To move on to another key while the first put is in flight is not.

    Args:
        write_id: of the object. stored_write_id: reads that of the stored one, and raises NotFound if there is none.
        unknown: returns the error that says that the outcome is unknown.
    Returns:
        The etag of the object, or None when no reply contained it.
    Raises:
        LostRace: another object has the key.
        CommitOutcomeUnknown: the store did not answer which object has the key.
        CheckpointError: the store refused the put for good. Nothing landed.
    """
    in_flight = False

    def stored() -> str | None:
        try:
            return retry_reads(stored_write_id)
        except NotFound:
            return None

    def put() -> str | None:
        nonlocal in_flight
        try:
            return store.create(key, body).etag
        except CheckpointError as error:
            refusal = error
        in_flight = in_flight or isinstance(refusal, (CommitOutcomeUnknown, StoreUnavailable))
        final = not isinstance(refusal, (CommitOutcomeUnknown, StoreUnavailable, CommitConflict))
        try:
            found = stored()
        except CheckpointError as error:
            raise (refusal if final and not in_flight else unknown(error)) from error
        if found == write_id:
            return None
        if found is not None:
            raise LostRace from refusal
        if final:
            raise (unknown(refusal) if in_flight else refusal) from refusal
        raise _NotConfirmed from refusal

    puts = Retrying(
        retry=retry_if_exception_type(_NotConfirmed),
        stop=stop_after_attempt(_PUTS),
        wait=wait_random_exponential(multiplier=0.05, max=_MAX_WAIT_S),
        reraise=True,
    )
    try:
        return puts(put)
    except _NotConfirmed as error:
        raise unknown(error.__cause__) from error
