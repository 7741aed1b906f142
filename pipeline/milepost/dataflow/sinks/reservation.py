"""The reservation says whose a table is, before anything is staged for it: one object, created only if absent.

The chain says it from the first head on, and by the job's name (`ChainOwner`). Without more, two jobs with one new path
would both pass `prepare`, and one would fail after its checkpoint was complete; and as both count checkpoints and
tokens from 1, what one of them discards could be what the other staged. A reservation is never deleted: a crash between
it and the first commit finds its own again. A table from before there were any has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from milepost.protocol.codec.records import decode, encode
from milepost.protocol.records.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    InvalidRequest,
    NotFound,
)
from milepost.protocol.records.object_store import ObjectStore

RESERVATION = "_owner.json"


@dataclass(frozen=True, slots=True)
class TableOwner:
    """A job's sink.

    Attributes:
        job, sink: their names, for people.
        identity: of the job: write id of its first manifest version, so that a job made anew, or one of the same name
            in another storage, is another.
    """

    stored_format: ClassVar[str] = "milepost.table-owner/1"

    job: str
    identity: str
    sink: str


def reserved_for(store: ObjectStore) -> TableOwner | None:
    """Return whose the table at the store's root is; None when nobody said so. Raises StateCorrupt."""
    try:
        return _decode(store.get(RESERVATION))
    except NotFound:
        return None


def reserve(store: ObjectStore, owner: TableOwner, is_new: Callable[[], bool] = lambda: True) -> None:
    """Make the table at the store's root this owner's, or find that it is.

    Args:
        is_new: asked when nobody has reserved it: whether nothing was published to it. May raise for another's table.
    Raises:
        InvalidRequest: it is another's. StateCorrupt: what is there is no reservation.
        CommitOutcomeUnknown, StoreUnavailable: nobody knows; call again.
    """
    there = reserved_for(store)
    if there is None:
        there = _created(store, owner) if is_new() else owner
    if there != owner:
        namesake = f"another job {there.job}, of another storage or an earlier life"
        job = namesake if there.job == owner.job else f"job {there.job}"
        whose = f"sink {there.sink} of " + ("this job" if there.identity == owner.identity else job)
        raise InvalidRequest(
            f"sink {owner.sink}: its path {store.config.url} is reserved for {whose}. Nothing was published.",
            hint=f"give the sink another path; or, if nothing was published there and {whose} is gone, delete "
            f"{RESERVATION} at that path",
            sink=owner.sink,
        )


def _created(store: ObjectStore, owner: TableOwner) -> TableOwner:
    """Return whose the table is after a try to make it this owner's; an answer that was lost is read back."""
    try:
        store.create(RESERVATION, _encode(owner))
        return owner
    except (CommitConflict, CommitOutcomeUnknown):
        there = reserved_for(store)
        if there is None:
            raise
        return there


def _encode(owner: TableOwner) -> bytes:
    return encode(owner)


def _decode(body: bytes) -> TableOwner:
    return decode(TableOwner, body, RESERVATION, key=RESERVATION)
