"""The reservation says whose a table is, before anything is staged for it: one object, created only if absent.

Without it two jobs with one new path would both pass `prepare`, and one would fail after its checkpoint was complete;
and as both count checkpoints and tokens from 1, what one of them discards could be what the other staged. A reservation
is never deleted: a crash between it and the first commit finds its own again. Nor is it written over: a job that takes
the table over writes its successor, `_milepost/owners/<20 digits of 10^19 - n>.json`, of which the newest counts. It is
written after the commit of the format that changed the table's owner (`table_takeover.py`), so by one job alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar
from uuid import uuid4

from milepost.codec.records import decode, encode
from milepost.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    InvalidRequest,
    NotFound,
    StateCorrupt,
)
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.records.table_keys import OWN
from milepost.storage.concurrency.background import prefetch

RESERVATION = f"{OWN}owner.json"
SUCCESSORS = f"{OWN}owners/"
_TOP = 10**19
_SUCCESSOR = re.compile(rf"{SUCCESSORS}(\d{{20}})\.json")
_EARLIER_HEADS = "_heads/"
"""Where an earlier Milepost had its tables' commits: a path that has some is refused by name."""


@dataclass(frozen=True, slots=True)
class TableOwner:
    """A job's sink.

    Attributes:
        job, sink: their names, for people.
        identity: of the job: write id of its first manifest version, so that a job made anew, or one of the same name
            in another storage, is another.
    """

    job: str
    identity: str
    sink: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """Whose a table is, and how its rows are meant: a path has one for ever.

    Attributes:
        table_format, mode: as in the spec. key: key columns of an upsert table; () for others.
        table_id: a random identity: a table that was deleted and made anew has another.
    """

    stored_format: ClassVar[str] = "milepost.table-owner/2"

    owner: TableOwner
    table_format: str
    mode: str
    key: tuple[str, ...]
    table_id: str


def reservation(owner: TableOwner, form: str, mode: str, key: tuple[str, ...]) -> Reservation:
    """Return a new one, with an identity of its own."""
    return Reservation(owner, form, mode, key, uuid4().hex)


def reserved_for(store: ObjectStore) -> Reservation | None:
    """Return whose the table at the store's root is; None when nobody said so. Raises StateCorrupt."""
    return _newest(store)[0]


def is_same(one: TableOwner | None, owner: TableOwner) -> bool:
    """Return whether two are one; names of jobs are for people."""
    return one is not None and (one.identity, one.sink) == (owner.identity, owner.sink)


def named(owner: TableOwner) -> str:
    """Return the owner in words."""
    return f"sink {owner.sink} of job {owner.job}"


def succeed(store: ObjectStore, owner: TableOwner) -> None:
    """Say that the table at the store's root is this owner's from now on. Precondition: the table itself says so.

    Raises: CommitConflict: another one did so just now. CommitOutcomeUnknown, StoreUnavailable: call again.
    """
    newest, number = _newest(store)
    if newest is None or is_same(newest.owner, owner):
        return  # without any, the owner's own is created as that of a new table
    key = f"{SUCCESSORS}{_TOP - number - 1:020d}.json"
    try:
        store.create(key, encode(replace(newest, owner=owner)))
    except (CommitConflict, CommitOutcomeUnknown):
        if not is_same(getattr(reserved_for(store), "owner", None), owner):
            raise


def _newest(store: ObjectStore) -> tuple[Reservation | None, int]:
    """Return the reservation that counts, and how many took the table over before and with it."""
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


def reserve(store: ObjectStore, wanted: Reservation, before_create: Callable[[], None] = lambda: None) -> None:
    """Make the table at the store's root this owner's, or find that it is.

    Args:
        before_create: is called where nobody has reserved it; what it raises leaves it so.
    Raises:
        InvalidRequest: it is another's, or its rows are meant otherwise. StateCorrupt: what is there is no reservation.
        CommitOutcomeUnknown, StoreUnavailable: nobody knows; call again.
    """
    there = reserved_for(store)
    if there is None:
        before_create()
        there = _created(store, wanted)
    _refuse_others(store, there, wanted)


def check_reservable(store: ObjectStore, wanted: Reservation, check_place: Callable[[], None]) -> None:
    """Raises InvalidRequest, StateCorrupt where `reserve` would now. Changes nothing.

    Args:
        check_place: is called where nobody has reserved it.
    """
    if (there := reserved_for(store)) is not None:
        _refuse_others(store, there, wanted)
    else:
        check_place()


def _refuse_others(store: ObjectStore, there: Reservation, wanted: Reservation) -> None:
    owner, found = wanted.owner, there.owner
    if found != owner:
        namesake = f"another job {found.job}, of another storage or an earlier life"
        job = namesake if found.job == owner.job else f"job {found.job}"
        whose = f"sink {found.sink} of " + ("this job" if found.identity == owner.identity else job)
        raise InvalidRequest(
            f"sink {owner.sink}: its path {store.config.url} is reserved for {whose}. Nothing was published.",
            hint=f"give the sink another path; or, if nothing was published there and {whose} is gone, delete "
            f"{RESERVATION} at that path",
            sink=owner.sink,
        )
    if there != replace(wanted, table_id=there.table_id):
        raise InvalidRequest(
            f"sink {owner.sink}: the table at {store.config.url} was made with {_meant(there)}, the spec says "
            f"{_meant(wanted)}. Nothing was changed.",
            hint=f"give the sink a new path, or undo the change; or, if nothing was published there, delete "
            f"{RESERVATION} at that path",
            sink=owner.sink,
        )


def _meant(one: Reservation) -> str:
    return f"format {one.table_format}, mode {one.mode} and key {list(one.key)}"


def _created(store: ObjectStore, wanted: Reservation) -> Reservation:
    """Return whose the table is after a try to make it this owner's; an answer that was lost is read back."""
    for head in store.list(_EARLIER_HEADS, limit=1):
        decode(Reservation, store.get(head.key), head.key, key=head.key)
    try:
        store.create(RESERVATION, encode(wanted))
        return wanted
    except (CommitConflict, CommitOutcomeUnknown):
        there = reserved_for(store)
        if there is None:
            raise
        return there
