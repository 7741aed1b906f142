"""Probe whether an endpoint enforces preconditions: several S3 servers ignore them.

The manifest log is safe only on a store that refuses to create a key twice (I1). A planned input version is safe to
read only where `If-Match` is honoured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass
from typing import TypeVar
from uuid import uuid4

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    EnvironmentUnusable,
    NotFound,
    StoreUnavailable,
)
from milepost.protocol.records import PROBE_PREFIX, ObjectStore
from milepost.storage.concurrency.background import run_in_background
from milepost.storage.keys import storage_fault

T = TypeVar("T")

_RACERS = 8
_MAX_LISTED = 100
_ANSWER_S = 20.0
"""Timeout of the first request. Later requests wait and retry for minutes."""

_WRONG_ETAG = "00000000000000000000000000000000"


@dataclass(frozen=True, slots=True)
class ProbeCheck:
    """Result of one check.

    Attributes:
        check: the rule, e.g. ``If-None-Match on PutObject over a created object``.
        ok: whether the store follows the rule.
        detail: what it did, as a clause, e.g. ``ignored If-None-Match on PutObject: a second create was accepted``.
    """

    check: str
    ok: bool
    detail: str


def probe_store(store: ObjectStore) -> list[ProbeCheck]:
    """Check each property that the protocol relies on, below ``_probe/<random>/``, and clean up.

    Returns:
        All checks, in order, including failed ones.
    Raises:
        EnvironmentUnusable, StoreUnavailable: the store could not be reached.
    """
    prefix = f"{PROBE_PREFIX}{uuid4().hex}/"
    first_answer(store, lambda: list(store.list(prefix, limit=1)))
    keys = created, put, raced = [f"{prefix}{name}" for name in ("created", "put", "raced")]
    try:
        checks = [
            _create_over_created(store, created),
            _create_over_put(store, put),
            _create_race(store, raced),
            _read_other_version(store, created),
            _listing(store, prefix, keys),
        ]
    except BaseException:
        with contextlib.suppress(CheckpointError):  # the first error is the one to report
            store.delete(keys)
        raise
    store.delete(keys)
    return checks


def first_answer(store: ObjectStore, request: Callable[[], T]) -> T:
    """Send the first request to a store, which may be unresponsive, and return its result.

    Raises:
        StoreUnavailable: no answer within `_ANSWER_S`. Errors of `request` pass through.
    """
    try:
        return run_in_background(request, "store-probe").result(_ANSWER_S)
    except NoAnswer:
        at = f" at {store.config.endpoint}" if store.config.endpoint else ""
        raise StoreUnavailable(
            f"store {store.config.url}{at} has not answered in {_ANSWER_S:g} s. Nothing was changed.",
            hint="check that it is a store, that it is up, and that no proxy swallows its responses",
        ) from None


def require_preconditions(store: ObjectStore) -> None:
    """Refuse a store that fails any check of `probe_store`.

    Raises:
        EnvironmentUnusable: names the endpoint and every failed check.
        StoreUnavailable: the store could not be reached.
    """
    failed = [check for check in probe_store(store) if not check.ok]
    if failed:
        where = store.config.endpoint or store.config.url
        raise EnvironmentUnusable(
            f"endpoint {where} (store {store.config.url}) {'; '.join(check.detail for check in failed)}. "
            "Two runs could both commit there. Only probe objects were written, and removed.",
            hint="use a store that honours conditional requests, and no proxy that drops their headers",
            failed=[check.check for check in failed],
        )


def probe_versioned_reads(store: ObjectStore, prefix: str) -> ProbeCheck | None:
    """Check whether a read-only store honours `If-Match`, without writing to it.

    Args:
        store: of a source.
        prefix: of the source's objects.
    Returns:
        The check on one existing object; None if there is no object.
    Raises:
        EnvironmentUnusable, StoreUnavailable: the store could not be reached.
    """
    objects = store.list(prefix, limit=_MAX_LISTED, invalid_names=[])
    listed = [stat for stat in objects if storage_fault(stat.key) is None]
    if not listed:
        return None
    smallest = min(listed, key=lambda stat: stat.size)  # a store that ignores the condition sends the whole body
    try:
        return _read_other_version(store, smallest.key)
    except NotFound:
        return None


def require_versioned_reads(store: ObjectStore, prefix: str, reader: str) -> bool:
    """Refuse a store that ignores the expected version of a read: a changed object would pass for the planned one.

    Args:
        reader: for the message, e.g. ``source flights``.
    Returns:
        Whether there was an object to check.
    Raises:
        EnvironmentUnusable: the store ignores If-Match.
        StoreUnavailable: the store could not be reached.
    """
    check = probe_versioned_reads(store, prefix)
    if check is not None and not check.ok:
        where = store.config.endpoint or store.config.url
        raise EnvironmentUnusable(
            f"endpoint {where} ({reader} at {store.config.url}) {check.detail}. An object that changes after it was "
            "planned would be read unnoticed. Nothing was written there.",
            hint="use a store that honours conditional requests, and no proxy that drops their headers",
            failed=[check.check],
        )
    return check is not None


def _create_over_created(store: ObjectStore, key: str) -> ProbeCheck:
    try:
        store.create(key, b"first")
    except CommitConflict:  # no other writer uses this key, so a client or a proxy retried the request
        if store.get(key) != b"first":
            raise
    return _create_again(store, key, b"first", "created")


def _create_over_put(store: ObjectStore, key: str) -> ProbeCheck:
    store.put(key, b"first")
    return _create_again(store, key, b"first", "put")


def _create_again(store: ObjectStore, key: str, body: bytes, how: str) -> ProbeCheck:
    check = f"If-None-Match on PutObject over a {how} object"
    try:
        store.create(key, b"second")
    except CommitConflict:
        if store.get(key) == body:
            return ProbeCheck(check, True, "refused, and the object kept its content")
        return ProbeCheck(check, False, f"refused If-None-Match on PutObject, yet replaced the {how} object")
    return ProbeCheck(check, False, f"ignored If-None-Match on PutObject: a create over a {how} object was accepted")


def _create_race(store: ObjectStore, key: str) -> ProbeCheck:
    def attempt(racer: int) -> bool:
        try:
            store.create(key, b"%d" % racer)
        except CommitConflict:
            return False
        return True

    check = f"If-None-Match on PutObject by {_RACERS} concurrent writers"
    with ThreadPoolExecutor(_RACERS) as pool:
        wins = list(pool.map(attempt, range(_RACERS)))
    winners = sum(wins)
    if winners == 0 and any(stat.key == key for stat in store.list(key)):
        winners = 1  # its request was retried, and the retry conflicted with the first attempt, which had succeeded
    if winners == 1:
        return ProbeCheck(check, True, "one writer won")
    return ProbeCheck(
        check,
        False,
        f"checked If-None-Match on PutObject without atomicity: {winners} of {_RACERS} "
        "concurrent creates of one key were accepted, expected 1",
    )


def _read_other_version(store: ObjectStore, key: str) -> ProbeCheck:
    check = "If-Match on GetObject"
    try:
        store.get_if_match(key, _WRONG_ETAG)
    except CommitConflict:
        return ProbeCheck(check, True, "a read of another version was refused")
    return ProbeCheck(check, False, "ignored If-Match on GetObject: a read of another version was answered")


def _listing(store: ObjectStore, prefix: str, keys: list[str]) -> ProbeCheck:
    check = "ListObjectsV2 after writes, in order"
    listed = [stat.key for stat in store.list(prefix)]
    after = [stat.key for stat in store.list(prefix, start_after=sorted(keys)[0], limit=1)]
    if listed == sorted(keys) and after == sorted(keys)[1:2]:
        return ProbeCheck(check, True, "all written objects were listed in byte order")
    return ProbeCheck(check, False, f"answered ListObjectsV2 with {len(listed)} of {len(keys)} objects or out of order")
