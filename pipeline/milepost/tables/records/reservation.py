"""The reservation of a table's location: one object, created only if absent before anything is staged.

Without it two jobs with the same new path would both pass `prepare`, and one would fail after its checkpoint was
complete. Both also count checkpoints and tokens from 1, so one job could discard what the other staged.

A reservation is never deleted: after a crash before the first commit, the job finds its own. It is never overwritten
either. A job that takes the table over writes a successor, `_milepost/owners/<20 digits of 10^19 - n>.json`, of which
the newest counts. The successor follows the commit that changes the table's owner (`table_takeover.py`), so only one
job writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar
from uuid import uuid4

from milepost.codec import decode, encode
from milepost.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    InvalidRequest,
    NotFound,
    StateCorrupt,
)
from milepost.protocol.records import ObjectStore
from milepost.storage.concurrency import prefetch
from milepost.tables.records.table_keys import OWN

RESERVATION = f"{OWN}owner.json"
SUCCESSORS = f"{OWN}owners/"
_TOP = 10**19
_SUCCESSOR = re.compile(rf"{SUCCESSORS}(\d{{20}})\.json")
_EARLIER_HEADS = "_heads/"
"""Prefix of the commits of an earlier version of Milepost. A path that has some is refused by name."""


@dataclass(frozen=True, slots=True)
class TableOwner:
    """A job's sink.

    Attributes:
        job, sink: names, for people.
        identity: of the job: write id of its first manifest version. A recreated job, or a job of the same name in
            another storage, has another identity.
    """

    job: str
    identity: str
    sink: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """Owner, format, mode and key of the table at a path. They are permanent.

    Attributes:
        table_format, mode: as in the spec. key: key columns of an upsert table; () for others.
        table_id: a random identity. A table that is deleted and recreated gets another.
    """

    stored_format: ClassVar[str] = "milepost.table-owner/2"

    owner: TableOwner
    table_format: str
    mode: str
    key: tuple[str, ...]
    table_id: str


def new_reservation(owner: TableOwner, table_format: str, mode: str, key: tuple[str, ...]) -> Reservation:
    """Return a reservation with a new table identity."""
    return Reservation(owner, table_format, mode, key, uuid4().hex)


def read_reservation(store: ObjectStore) -> Reservation | None:
    """Return the reservation at the store's root; None if there is none. Raises StateCorrupt."""
    return _newest(store)[0]


def is_same_owner(one: TableOwner | None, owner: TableOwner) -> bool:
    """Return whether two owners are the same. Names of jobs are for people, and not compared."""
    return one is not None and (one.identity, one.sink) == (owner.identity, owner.sink)


def describe_owner(owner: TableOwner) -> str:
    """Return the owner as text."""
    return f"sink {owner.sink} of job {owner.job}"


def write_successor(store: ObjectStore, owner: TableOwner) -> None:
    """Write the successor that names this owner. Precondition: the table's properties name this owner.

    Raises: CommitConflict: another job wrote one concurrently. CommitOutcomeUnknown, StoreUnavailable: call again.
    """
    newest, number = _newest(store)
    if newest is None or is_same_owner(newest.owner, owner):
        return  # without a reservation, the owner creates one as for a new table
    key = f"{SUCCESSORS}{_TOP - number - 1:020d}.json"
    try:
        store.create(key, encode(replace(newest, owner=owner)))
    except (CommitConflict, CommitOutcomeUnknown):
        if not is_same_owner(getattr(read_reservation(store), "owner", None), owner):
            raise


def _newest(store: ObjectStore) -> tuple[Reservation | None, int]:
    """Return the newest reservation, and the number of takeovers up to it."""
    first = prefetch(store, lambda: _first(store), "reservation")
    for stat in store.list(SUCCESSORS, limit=1):
        match = _SUCCESSOR.fullmatch(stat.key)
        if match is None:
            raise StateCorrupt(f"{stat.key} is not the name of a reservation", key=stat.key)
        return decode(Reservation, store.get(stat.key), stat.key, key=stat.key), _TOP - int(match[1])
    return first(), 0


def _first(store: ObjectStore) -> Reservation | None:
    try:
        return decode(Reservation, store.get(RESERVATION), RESERVATION, key=RESERVATION)
    except NotFound:
        return None


def reserve(store: ObjectStore, requested: Reservation, before_create: Callable[[], None] = lambda: None) -> None:
    """Reserve the store's root for an owner, unless it has the reservation already.

    Args:
        before_create: called if there is no reservation yet; may raise.
    Raises:
        InvalidRequest: it is reserved for another owner, or with another format, mode or key.
        StateCorrupt: the reservation cannot be read. CommitOutcomeUnknown, StoreUnavailable: call again.
    """
    stored = read_reservation(store)
    if stored is None:
        before_create()
        stored = _create(store, requested)
    _refuse_mismatch(store, stored, requested)


def check_reservable(store: ObjectStore, requested: Reservation, check_location: Callable[[], None]) -> None:
    """Raise InvalidRequest or StateCorrupt if `reserve` would. Changes nothing.

    Args:
        check_location: called if there is no reservation yet.
    """
    if (stored := read_reservation(store)) is not None:
        _refuse_mismatch(store, stored, requested)
    else:
        check_location()


def _refuse_mismatch(store: ObjectStore, stored: Reservation, requested: Reservation) -> None:
    owner, holder = requested.owner, stored.owner
    if holder != owner:
        namesake = f"another job {holder.job} (with another storage, or from before it was recreated)"
        job = namesake if holder.job == owner.job else f"job {holder.job}"
        whose = f"sink {holder.sink} of " + ("this job" if holder.identity == owner.identity else job)
        raise InvalidRequest(
            f"sink {owner.sink}: its path {store.config.url} is reserved for {whose}. Nothing was published.",
            hint=f"give the sink another path; or, if nothing was published there and {whose} no longer exists, delete "
            f"{RESERVATION} at that path",
            sink=owner.sink,
        )
    if stored != replace(requested, table_id=stored.table_id):
        raise InvalidRequest(
            f"sink {owner.sink}: the table at {store.config.url} was created with {_describe(stored)}, the spec says "
            f"{_describe(requested)}. Nothing was changed.",
            hint=f"give the sink a new path, or undo the change; or, if nothing was published there, delete "
            f"{RESERVATION} at that path",
            sink=owner.sink,
        )


def _describe(reservation: Reservation) -> str:
    return f"format {reservation.table_format}, mode {reservation.mode} and key {list(reservation.key)}"


def _create(store: ObjectStore, requested: Reservation) -> Reservation:
    """Try to create the reservation, and return the stored one. A lost answer is read back."""
    for head in store.list(_EARLIER_HEADS, limit=1):
        decode(Reservation, store.get(head.key), head.key, key=head.key)
    try:
        store.create(RESERVATION, encode(requested))
        return requested
    except (CommitConflict, CommitOutcomeUnknown):
        stored = read_reservation(store)
        if stored is None:
            raise
        return stored
