"""A probe of Delta's commits at a place: of two that race for one version exactly one may win.

By the library itself, on a throw-away table beside the sink's own data, below ``_milepost/``, which engines leave
alone; nothing reads it, and it is removed, whatever comes of it.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from milepost.dataflow.sinks.formats.delta.delta_errors import translated_errors
from milepost.dataflow.sinks.formats.delta.delta_location import DeltaLocation, delta_location
from milepost.dataflow.sinks.formats.delta.delta_types import delta_schema
from milepost.dataflow.sinks.formats.delta.open_delta_table import NO_HOOKS
from milepost.dataflow.sinks.records.table_keys import OWN
from milepost.protocol.records.errors import CheckpointError, EnvironmentUnusable
from milepost.protocol.records.locations import child_url
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.open import open_store

RACERS = 2
_LONGEST_S = 60
_LOG = logging.getLogger(__name__)


def probe_commits(sink: str, store: ObjectStore) -> str:
    """Let two commits race for one version of a throw-away table; say what was found.

    Args:
        store: rooted at the sink's table.
    Raises: EnvironmentUnusable: not exactly one won, or the library cannot write there.
    """
    name = f"{OWN}probe-{uuid4().hex}"
    place = open_store(replace(store.config, url=child_url(store.config.url, name)))
    location = delta_location(sink, place.config)
    try:
        with translated_errors(location, lambda reason: _unusable(sink, store, f"it cannot be written: {reason}.")):
            _make(location)
            won = _race(location)
    finally:
        _remove(sink, place)
    if won != 1:
        raise _unusable(sink, store, f"of {RACERS} commits that raced for one version, {won} won.")
    return f"of {RACERS} commits that raced for one version of a throw-away table, one won"


def _make(location: DeltaLocation) -> None:
    columns = Schema.from_json(delta_schema(pa.schema([("k", pa.int64())])))
    DeltaTable.create(location.uri, columns, storage_options=location.options, post_commithook_properties=NO_HOOKS)


def _race(location: DeltaLocation) -> int:
    """Return how many of the racers took the version after the one that all of them have read."""
    handles = [DeltaTable(location.uri, storage_options=location.options) for _ in range(RACERS)]
    ready = Barrier(RACERS, timeout=_LONGEST_S)

    def commit(number: int) -> bool:
        ready.wait()
        try:
            handles[number].alter.set_table_properties(
                {"milepost.probe": str(number)},
                raise_if_not_exists=False,
                commit_properties=CommitProperties(max_commit_retries=0),
                post_commithook_properties=NO_HOOKS,
            )
        except CommitFailedError:
            return False
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        return sum(pool.map(commit, range(RACERS)))


def _remove(sink: str, place: ObjectStore) -> None:
    try:
        place.delete([stat.key for stat in place.list("")])
    except CheckpointError as error:
        _LOG.warning("sink %s: the throw-away table %s stays: %s", sink, place.config.url, error.message)


def _unusable(sink: str, store: ObjectStore, what: str) -> EnvironmentUnusable:
    return EnvironmentUnusable(
        f"sink {sink}: Delta tables at {store.config.url}: {what} Nothing of the sink's table was changed.",
        hint="use a store with conditional writes, which refuses what is there already, and one way to it for all",
        sink=sink,
    )
