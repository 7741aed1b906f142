"""Runs are small, read back exactly, and their handles trust nothing."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.protocol.errors import StateCorrupt
from pipeline.state.handles import RunHandle, RunKind, StateHandle
from pipeline.state.key_groups import KEY_HASH_VERSION
from pipeline.state.layer import KeySpec, sort_rows
from pipeline.state.runs import decode_run, encode_run
from tests.harness.timers import next_timer

KEYS = KeySpec(("k",), ("k",))
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("total", pa.int64()), ("worst", pa.int64())])


def aggregates(rows: int) -> pa.Table:
    """Keys 0, 1, … with three int64 values as an epoch of flights makes them."""
    random = np.random.default_rng(7)
    columns = [
        np.arange(rows),
        random.integers(1, 20, rows),
        random.integers(-200, 3_000, rows),
        random.integers(0, 900, rows),
    ]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA)


def test_a_changed_int64_key_with_three_int64_values_takes_at_most_seven_bytes() -> None:
    """ENVIRONMENT: packed as differences and zstd, 5.6 to 6.3 bytes; Structured Streaming takes 21."""
    _, body = encode_run(
        sort_rows(aggregates(100_000), KEYS, deleted=False), RunKind.DELTA, range(128), 128, "chk-1/t1/"
    )
    assert len(body) / 100_000 <= 7


@pytest.mark.parametrize("wanted", [range(128), range(5), range(60, 61), range(100, 128)])
def test_decoding_a_range_gives_exactly_its_key_groups(wanted: range) -> None:
    """The index of row offsets finds the rows of a subtask after a rescale."""
    layer = sort_rows(aggregates(3_000), KEYS, deleted=False)
    handle, body = encode_run(layer, RunKind.BASE, range(128), 128, "chk-1/t1/")
    part = decode_run(body, handle, wanted, SCHEMA, KEYS, 128)
    lower, upper = handle.offsets[wanted.start], handle.offsets[wanted.stop]
    assert part.rows.equals(layer.rows.slice(lower, upper - lower))
    assert np.array_equal(part.hashes, layer.hashes[lower:upper]) and not part.deleted.any()


def test_a_run_in_the_order_of_another_hash_is_refused() -> None:
    """The order is part of the format: a run written under another hash would be searched wrongly."""
    other = KeySpec(("k",), ("k",), lambda table, key: KEYS.hasher(table, key) * np.uint64(3))
    handle, body = encode_run(sort_rows(aggregates(100), other, deleted=False), RunKind.BASE, range(4), 4, "chk-1/t1/")
    with pytest.raises(StateCorrupt, match="not in the order of its key hash"):
        decode_run(body, handle, range(4), SCHEMA, KEYS, 4)


RUN = RunHandle("chk-1/t1/x.parquet", 10, "0" * 64, 3, RunKind.DELTA, range(2), range(2), (0, 1, 3))
HANDLE = StateHandle("agg", range(2), 4, KEY_HASH_VERSION, (RUN,), ((0, 5),), 3)


def test_handles_read_back_equal() -> None:
    """JSON is the only stored form."""
    assert StateHandle.from_json(HANDLE.to_json()) == HANDLE
    assert next_timer(HANDLE) == 5 and HANDLE.full_bytes == 10


def _set(path: tuple[Any, ...], value: object) -> dict[str, Any]:
    document = copy.deepcopy(HANDLE.to_json())
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {**HANDLE.to_json(), "more": 1},
        _set(("uid",), ""),
        _set(("key_groups",), [0, 9]),
        _set(("key_groups",), [1, 1]),
        _set(("max_parallelism",), True),
        _set(("runs",), {}),
        _set(("timers",), [[3, 1]]),
        _set(("timers",), [[0, "1"]]),
        _set(("live_rows",), -1),
        _set(("runs", 0, "key"), "../other/x.parquet"),
        _set(("runs", 0, "key"), "/etc/passwd"),
        _set(("runs", 0, "sha256"), "xyz"),
        _set(("runs", 0, "kind"), "other"),
        _set(("runs", 0, "offsets"), [0, 3]),
        _set(("runs", 0, "offsets"), [0, 4, 3]),
        _set(("runs", 0, "valid"), [0, 3]),
        _set(("runs", 0, "rows"), 2.0),
    ],
)
def test_a_handle_that_does_not_add_up_is_refused(document: object) -> None:
    """DESIGN 9: what is read from the store is checked before it is used."""
    with pytest.raises(StateCorrupt):
        StateHandle.from_json(document)
