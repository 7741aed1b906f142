"""Runs are small and read back exactly, and decoding verifies them against their handles."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.codec.records import from_json, to_json
from milepost.errors import StateCorrupt
from milepost.state.layers.key_groups import key_group
from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import KeySpec, Layer, sort_rows
from milepost.state.runs.handles import RunHandle, RunKind, StateHandle
from milepost.state.runs.run_columns import order_by_key
from milepost.state.runs.runs import check_body, decode_run, encode_run
from milepost_testkit import profiles, wording
from milepost_testkit.rows.key_hashes import KEYED
from milepost_testkit.tasks.operators.timers import next_timer

KEYS = KeySpec(("k",), ("k",), KEYED)
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("total", pa.int64()), ("worst", pa.int64())])


def aggregates(rows: int) -> pa.Table:
    """Some of three times as many keys, with three int64 values as an epoch of bids makes them."""
    random = np.random.default_rng(7)
    bids = random.integers(1, 6, rows)
    columns = [
        random.choice(3 * rows, rows, replace=False),
        bids,
        bids * random.integers(1, 10_000_000, rows),
        random.integers(1, 10_000_000, rows),
    ]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA)


def test_a_changed_int64_key_with_three_int64_values_takes_at_most_seven_bytes() -> None:
    """Keys as differences, values by their bytes: Structured Streaming takes 21."""
    _, body = encode_run(
        sort_rows(aggregates(200_000), KEYS, deleted=False), RunKind.DELTA, range(128), 128, "chk-1/t1/", KEYS
    )
    assert len(body) / 200_000 <= 7


def test_a_column_with_the_values_of_another_takes_no_space() -> None:
    """A count of rows and one of values, a window's end and its expiry: nearly always equal, stored once."""
    rows = aggregates(20_000)
    twice = rows.append_column("again", rows.column("total"))
    sizes = [
        len(encode_run(sort_rows(one, KEYS, deleted=False), RunKind.DELTA, range(8), 8, "x/", KEYS)[1])
        for one in (rows, twice)
    ]
    assert sizes[1] - sizes[0] < 500


@pytest.mark.parametrize(
    ("key", "at_most"),
    [
        (("url",), 1.5),
        (("channel", "bidder"), 0.7),
        (("bidder", "window_start"), 1.2),
    ],
)
def test_text_and_composite_keys_are_small_differences_too(key: tuple[str, ...], at_most: float) -> None:
    """Sorted by key, the column with the fewest values first: in the order of their hash they take 2.6 to 4.2 bytes."""
    number = np.sort(np.random.default_rng(3).choice(60_000, 20_000, replace=False))
    rows = pa.table(
        {
            "url": [f"https://www.nexmark.com/item.htm?query={one + 1_000}" for one in number],
            "bidder": number // 4,
            "channel": [("Apple", "Baidu", "Facebook", "Google")[one % 4] for one in number],
            "window_start": pa.array(number % 4 * 10_000_000, pa.timestamp("us", "UTC")),
        }
    ).select(list(key))
    keys = KeySpec(key, key, KEYED)
    layer = sort_rows(rows, keys, deleted=False)
    handle, body = encode_run(layer, RunKind.DELTA, range(8), 8, "x/", keys)
    assert (len(body) - 2_000) / layer.num_rows <= at_most
    assert decode_run(body, handle, range(8), rows.schema, keys, 8).rows.equals(layer.rows)


def test_keys_of_many_wide_columns_are_sorted_exactly() -> None:
    """Also where the columns do not fit into one word, even by their ranks."""
    columns = np.random.default_rng(5).integers(-(2**63), 2**63 - 1, (4, 70_000))
    columns[:, ::2] = columns[:, 1::2]
    rows = pa.table(list(columns), names=list("abcd"))
    order = order_by_key(rows, ["a", "b", "c", "d"])
    assert order is not None and np.array_equal(columns[:, order], columns[:, np.lexsort(columns[::-1])])


TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "u16": (pa.uint16(), st.integers(0, 2**16 - 1)),
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "u64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "f32": (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, float("inf")])),
    "f64": (pa.float64(), st.floats(allow_nan=False)),
    "day": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "at": (pa.timestamp("ms"), st.integers(0, 2**40)),
    "utc": (pa.timestamp("us", "UTC"), st.integers(-(2**50), 2**50)),
    "text": (pa.string(), st.text(max_size=12)),
    "bytes": (pa.large_binary(), st.binary(max_size=30)),
    "yes": (pa.bool_(), st.booleans()),
    "price": (pa.decimal128(9, 2), st.decimals(-1_000_000, 1_000_000, places=2)),
    "tags": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
    "place": (pa.struct([("x", pa.float64())]), st.fixed_dictionaries({"x": st.none() | st.just(0.5)})),
}
FIELDS = pa.schema([pa.field(name, data_type) for name, (data_type, _) in TYPES.items()])
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, (_, values) in TYPES.items()}), min_size=1)
CAN_BE_KEY = [name for name in TYPES if name not in ("tags", "place", "time")]


@pytest.mark.deep
@profiles.examples(share=0.6)
@given(ROWS, st.lists(st.sampled_from(CAN_BE_KEY), min_size=1, max_size=4, unique=True), st.data())
def test_a_run_reads_back_as_the_layer_it_was_made_of(rows: list[dict[str, Any]], key: list[str], data: Any) -> None:
    """Whatever the types, the keys and the tombstones; and the same rows give the same bytes."""
    keys = KeySpec(tuple(key), tuple(key[:1]), KEYED)
    layer = sort_rows(pa.Table.from_pylist(rows, schema=FIELDS), keys, deleted=False)
    deleted = data.draw(st.lists(st.booleans(), min_size=layer.num_rows, max_size=layer.num_rows))
    layer = Layer(layer.hashes, layer.rows, np.array(deleted, dtype=np.bool_))
    handle, body = encode_run(layer, RunKind.DELTA, range(8), 8, "x/", keys)
    assert encode_run(layer, RunKind.DELTA, range(8), 8, "x/", keys) == (handle, body)
    read = decode_run(body, handle, range(8), FIELDS, keys, 8)
    assert read.rows.equals(layer.rows) and np.array_equal(read.hashes, layer.hashes)
    assert np.array_equal(read.deleted, layer.deleted)


GOLDEN = Path(__file__).parent / "golden"
GOLDEN_SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("n", pa.int64()),
        ("again", pa.int64()),
        ("mean", pa.float64()),
        ("seen", pa.timestamp("us", "UTC")),
    ]
)


def golden_rows() -> list[dict[str, Any]]:
    """What the golden runs hold of keys 0 to 39; those that end in 3 are deleted."""
    begin = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    return [
        {
            "k": k,
            "name": None if k % 7 == 0 else f"plane {k % 5}",
            "n": k * k,
            "again": k * k,
            "mean": k / 4,
            "seen": begin + timedelta(minutes=k),
        }
        for k in range(40)
    ]


def golden() -> tuple[RunHandle, bytes]:
    handle = from_json(RunHandle, json.loads((GOLDEN / "run.json").read_text()), "run handle")
    return handle, (GOLDEN / "run.parquet").read_bytes()


@pytest.mark.parametrize("wanted", [range(8), range(2, 5)])
def test_a_stored_run_stays_readable(wanted: range) -> None:
    """Retained checkpoints outlive the code that wrote them."""
    handle, body = golden()
    assert check_body(handle, body) is None
    layer = decode_run(body, handle, wanted, GOLDEN_SCHEMA, KEYS, 8)
    rows = pa.Table.from_pylist(golden_rows(), schema=GOLDEN_SCHEMA)
    groups = key_group(KEYS.hashes(rows), 8)
    expected = sort_rows(rows.filter(pa.array((groups >= wanted.start) & (groups < wanted.stop))), KEYS, deleted=False)
    assert layer.rows.equals(expected.rows) and np.array_equal(layer.hashes, expected.hashes)
    assert layer.deleted.tolist() == [k % 10 == 3 for k in layer.rows.column("k").to_pylist()]


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"milepost.run_format": "2"},
        {"milepost.state-run": "2"},
        {"milepost.state-run": "1", "milepost.run_copies": '{"again": "missing"}'},
        {"milepost.state-run": "1", "milepost.run_copies": '{"n": "k"}'},
        {"milepost.state-run": "1", "milepost.run_copies": "["},
    ],
)
def test_a_run_of_another_format_is_refused(metadata: dict[str, str]) -> None:
    """What a later version writes is not guessed at."""
    handle, body = golden()
    table = pq.read_table(pa.BufferReader(body)).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    with wording.raises(StateCorrupt):
        decode_run(sink.getvalue().to_pybytes(), handle, range(8), GOLDEN_SCHEMA, KEYS, 8)


@pytest.mark.parametrize("wanted", [range(128), range(5), range(60, 61), range(100, 128)])
def test_decoding_a_range_gives_exactly_its_key_groups(wanted: range) -> None:
    """A subtask takes its part after a rescale, and no more."""
    layer = sort_rows(aggregates(3_000), KEYS, deleted=False)
    handle, body = encode_run(layer, RunKind.BASE, range(128), 128, "chk-1/t1/", KEYS)
    part = decode_run(body, handle, wanted, SCHEMA, KEYS, 128)
    lower, upper = handle.offsets[wanted.start], handle.offsets[wanted.stop]
    assert part.rows.equals(layer.rows.slice(lower, upper - lower))
    assert np.array_equal(part.hashes, layer.hashes[lower:upper]) and not part.deleted.any()


def test_a_run_in_the_order_of_another_hash_is_refused() -> None:
    """The order is part of the format: a run written under another hash would be searched wrongly."""
    other = KeySpec(("k",), ("k",), KeyHash("0" * 32))
    handle, body = encode_run(
        sort_rows(aggregates(100), other, deleted=False), RunKind.BASE, range(4), 4, "chk-1/t1/", other
    )
    with wording.raises(StateCorrupt):
        decode_run(body, handle, range(4), SCHEMA, KEYS, 4)


RUN = RunHandle("chk-1/t1/x.parquet", 10, "0" * 64, 3, RunKind.DELTA, range(2), range(2), (0, 1, 3))
HANDLE = StateHandle("agg", range(2), 4, (RUN,), ((0, 5),), 3)


def test_handles_read_back_equal() -> None:
    """JSON is the only stored form."""
    assert from_json(StateHandle, to_json(HANDLE), "state handle") == HANDLE
    assert next_timer(HANDLE) == 5 and HANDLE.full_bytes == 10


def _set(path: tuple[Any, ...], value: object) -> dict[str, Any]:
    document = copy.deepcopy(to_json(HANDLE))
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
        {**to_json(HANDLE), "more": 1},
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
        from_json(StateHandle, document, "state handle")
