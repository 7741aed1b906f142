"""Integers take as few bytes as their range needs, and are restored exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.protocol.records.object_store import StoreConfig
from milepost.state.buffers.buffers import Buffer, Extent, are_partials, as_partials, decode_rows, encode_rows
from milepost.state.cache.cache import StateCache
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.integer_packing import narrowed, numbers_at, widened
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles
from milepost_testkit.rows.key_hashes import KEYED

ROWS = 1500
NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
TIMES = (pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"))
OTHERS = (pa.float64(), pa.bool_(), pa.string(), pa.timestamp("us", "Europe/Paris"))
SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Values of one type between two bounds that may be anywhere in its range; now and then a null."""
    data_type = draw(st.sampled_from((*NUMBERS, *TIMES, *OTHERS)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    if data_type in OTHERS and not pa.types.is_timestamp(data_type):
        values = pa.array(random.integers(0, 2, ROWS)).cast(data_type)
    else:
        dtype = np.dtype(data_type.to_pandas_dtype() if data_type in NUMBERS else f"i{data_type.bit_width // 8}")
        limits = np.iinfo(dtype)
        one, other = draw(st.integers(limits.min, limits.max)), draw(st.integers(limits.min, limits.max))
        if draw(st.booleans()):
            other = max(limits.min, min(limits.max, one + draw(st.integers(-(2**17), 2**17))))
        values = pa.array(random.integers(min(one, other), max(one, other), ROWS, dtype, endpoint=True)).view(data_type)
    if draw(st.integers(0, 4)) == 0:
        values = pa.concat_arrays([values.slice(1), pa.nulls(1, data_type)])
    return values


@profiles.examples(share=1.5)
@given(st.lists(columns(), min_size=1, max_size=3), st.data())
def test_a_narrowed_table_comes_back_to_the_bit_and_so_does_any_part_of_it(
    made: list[pa.Array], data: st.DataObject
) -> None:
    rows = pa.table(made, names=[f"c{i}" for i in range(len(made))]).replace_schema_metadata({"of": "somebody"})
    small = narrowed(rows)
    assert small.nbytes <= rows.nbytes
    positions = np.array(data.draw(st.lists(st.integers(0, ROWS - 1), max_size=20)), dtype=np.int64)
    some = data.draw(st.sampled_from(rows.column_names))
    for part in (
        lambda table: table,
        lambda table: table.slice(700),
        lambda table: table.take(pa.array(positions)),
        lambda table: table.filter(pa.array(np.arange(ROWS) % 3 == 0)).combine_chunks(),
        lambda table: table.select([some]),
        lambda table: table.schema.empty_table(),
    ):
        wide, expected = widened(part(small)), part(rows)
        assert wide.schema.equals(expected.schema, check_metadata=True)
        assert [_bytes(column) for column in wide.columns] == [_bytes(column) for column in expected.columns]
    of_narrow, of_wide = numbers_at(small, some, positions), numbers_at(rows, some, positions)
    assert (of_narrow is None) == (of_wide is None)
    assert of_narrow is None or (of_narrow.dtype == of_wide.dtype and of_narrow.tolist() == of_wide.tolist())


def _bytes(column: pa.ChunkedArray) -> list[object]:
    """Values as stored in memory, so that two zeros and times out of the calendar's range can be compared."""
    array = column.combine_chunks()
    if pa.types.is_floating(array.type) or pa.types.is_temporal(array.type):
        array = array.view(SIGNED[array.type.bit_width])
    return array.to_pylist()


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ([-(2**63), -(2**63) + 255], 1),
        ([2**63 - 1, 2**63 - 256], 1),
        ([0, 256], 2),
        ([-1, 2**32 - 2], 4),
        ([0, 2**32], 8),
    ],
)
def test_a_column_takes_the_bytes_that_its_range_needs(values: list[int], width: int) -> None:
    rows = pa.table({"n": pa.array(values * 1000, pa.int64())})
    assert narrowed(rows).nbytes == 2000 * width
    assert len(encode_rows(rows)) < 2000 * width + 600
    assert decode_rows(encode_rows(rows)).equals(rows)


def test_few_rows_nulls_duplicate_names_and_excluded_columns_are_not_packed() -> None:
    numbers = pa.array(range(2000), pa.int64())
    for rows in (
        pa.table({"n": numbers.slice(0, 100)}),
        pa.table({"n": pa.concat_arrays([numbers, pa.nulls(1, pa.int64())])}),
        pa.table([numbers, numbers], names=["n", "n"]),
    ):
        assert narrowed(rows) is rows
    both = narrowed(pa.table({"n": numbers, "__expires": numbers}), kept=["__expires"])
    assert both.schema.types == [pa.uint16(), pa.int64()]


@pytest.mark.deep
@pytest.mark.parametrize(
    "key",
    [pa.int64(), pa.uint64(), pa.int16(), pa.date32(), pa.timestamp("us", "UTC"), pa.string(), pa.float64()],
    ids=str,
)
def test_state_from_the_cache_answers_as_state_from_the_store_does(tmp_path: Path, key: pa.DataType) -> None:
    """Deltas of several widths above each other, narrowed in the cache: what is found, due and live is the same."""
    schema = pa.schema([("k", key), ("n", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("__expires", pa.int64())])
    store = LocalStore(StoreConfig(f"file://{tmp_path}/store"))
    handles: list[StateHandle] = []

    def restore(cache: StateCache | None) -> SubtaskState:
        identity = StateIdentity.of("agg", KeySpec(("k",), ("k",), KEYED), schema, range(8), 8)
        return restore_state(identity, handles, CheckpointObjects(store, 1, "j"), watermark_us=10, cache=cache)

    def table(first: int, last: int, scale: int) -> pa.Table:
        whole = pa.array(range(first, last), pa.int32())
        keys = whole if key == pa.date32() else whole.cast(pa.int64())
        keys = keys.cast(key) if key in (pa.string(), pa.float64(), pa.int16(), pa.uint64()) else keys.view(key)
        numbers = np.arange(first, last, dtype=np.int64) * scale
        expires = np.where(numbers % 7 == 0, 5, 100)
        return pa.table([keys, numbers, pa.array(numbers).cast(pa.timestamp("us", "UTC")), expires], schema=schema)

    for epoch, (first, last, scale) in enumerate([(0, 6000, 1), (3000, 5000, 10**6), (4000, 5500, 10**12)]):
        state = restore(StateCache(tmp_path / "cache"))
        state.upsert(table(first, last, scale))
        frozen = state.freeze(10)
        snapshot = frozen.encode(f"chk-{epoch}/t1/")
        for upload in snapshot.uploads:
            store.put(upload.key, upload.body)
        frozen.stage_cache(snapshot)
        handles = [snapshot.handle]
    warm, cold = restore(StateCache(tmp_path / "cache")), restore(None)
    assert len(handles[0].runs) == 3
    asked = table(2000, 9000, 1).select(["k"])
    for rows in (lambda state: state.lookup(asked), lambda state: state.due(150), lambda state: state.rows()):
        found, expected = rows(warm), rows(cold)
        assert expected.num_rows > 1000
        assert found.schema.equals(expected.schema)
        assert found.sort_by("k").equals(expected.sort_by("k"))
    newest = {row["k"]: row["n"] for row in warm.rows().to_pylist()}
    [at] = table(4500, 4501, 1)["k"].to_pylist()
    assert newest[at] == 4500 * 10**12


@pytest.mark.parametrize(("text", "packed"), [("https://example.com/item?id={:09}", True), ("{:032x}", False)])
def test_text_is_compressed_where_it_repeats_itself(text: str, packed: bool) -> None:
    random = np.random.default_rng(1)
    words = [text.format(int.from_bytes(random.bytes(16)) if not packed else at) for at in range(20_000)]
    rows = pa.table({"t": words, "n": list(range(20_000))})
    body = encode_rows(rows)
    assert decode_rows(body).equals(rows)
    assert body == encode_rows(pa.concat_tables([rows.slice(0, 7), rows.slice(7)]))
    assert (len(body) < rows.nbytes / 2) == packed


@pytest.mark.parametrize("marked", [False, True])
def test_a_payload_says_how_large_its_rows_are_once_decoded(marked: bool) -> None:
    """A budget of memory counts what is worked on, not what was sent."""
    rows = pa.table({"n": pa.array(range(20_000), pa.int64()), "t": ["the same text"] * 20_000})
    rows = as_partials(rows) if marked else rows
    payload = encode_rows(rows)
    assert len(payload) < rows.nbytes / 2
    assert Buffer("op", "rows", None, None, payload).extent() == Extent(20_000, rows.nbytes)
    assert are_partials(decode_rows(payload)) is marked
