"""Probe Delta commits at a location: of two commits that race for one version, exactly one must win.

One commits with the library, like a move of the table. The other commits with a conditional write of the object store,
like a change of properties. They use a temporary table below ``_milepost/``, which engines ignore and which is always
deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from milepost.errors import CheckpointError, CommitConflict, EnvironmentUnusable
from milepost.protocol.records import ObjectStore, child_url
from milepost.sinks.formats.delta.delta_metadata import commit_body
from milepost.sinks.formats.delta.delta_types import delta_schema
from milepost.sinks.formats.delta.locations import delta_location
from milepost.sinks.formats.delta.open_delta_table import NO_HOOKS
from milepost.storage import open_store
from milepost.tables.delta import DeltaLocation, log_key, translated_errors
from milepost.tables.records import OWN

RACERS = 2
_TIMEOUT_S = 60
_LOG = logging.getLogger(__name__)


def probe_commits(sink: str, store: ObjectStore) -> str:
    """Let two commits race for one version of a temporary table; return the findings as text.

    Args:
        store: rooted at the sink's table.
    Raises: EnvironmentUnusable: not exactly one won, or the library cannot write there.
    """
    name = f"{OWN}probe-{uuid4().hex}"
    probe_store = open_store(replace(store.config, url=child_url(store.config.url, name)))
    location = delta_location(sink, probe_store.config)
    try:
        with translated_errors(location, lambda reason: _unusable(sink, store, f"it cannot be written: {reason}.")):
            _make(location)
            won = _race(probe_store, location)
    finally:
        _remove(sink, probe_store)
    if won != 1:
        raise _unusable(sink, store, f"of {RACERS} commits that raced for one version, {won} won.")
    return f"of {RACERS} commits that raced for one version of a temporary table, one won"


def _make(location: DeltaLocation) -> None:
    columns = Schema.from_json(delta_schema(pa.schema([("k", pa.int64())])))
    DeltaTable.create(location.uri, columns, storage_options=location.options, post_commithook_properties=NO_HOOKS)


def _race(probe_store: ObjectStore, location: DeltaLocation) -> int:
    """Return how many racers committed the version after the one that all of them have read."""
    handle = DeltaTable(location.uri, storage_options=location.options)
    ready = Barrier(RACERS, timeout=_TIMEOUT_S)

    def commit_by_library() -> None:
        handle.create_write_transaction(
            [],
            "append",
            handle.schema(),
            [],
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=NO_HOOKS,
        )

    def commit_by_store() -> None:
        probe_store.create(log_key(handle.version() + 1), commit_body("SET TBLPROPERTIES", {}, 0, {}, []))

    def wins(commit: Callable[[], None]) -> bool:
        ready.wait()
        try:
            commit()
        except (CommitFailedError, CommitConflict):
            return False
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        return sum(pool.map(wins, [commit_by_library, commit_by_store]))


def _remove(sink: str, probe_store: ObjectStore) -> None:
    try:
        probe_store.delete([stat.key for stat in probe_store.list("")])
    except CheckpointError as error:
        _LOG.warning("sink %s: the temporary table %s was not deleted: %s", sink, probe_store.config.url, error.message)


def _unusable(sink: str, store: ObjectStore, what: str) -> EnvironmentUnusable:
    return EnvironmentUnusable(
        f"sink {sink}: Delta tables at {store.config.url}: {what} Nothing of the sink's table was changed.",
        hint="use a store with conditional writes, and the same endpoint for every writer",
        sink=sink,
    )
