"""A bucket has the last row of each key, sorted by it, whatever the key's columns are."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.sinks.parquet_files.table_schema import latest_per_key, sorted_latest

ROWS = st.lists(st.tuples(st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["", "a", "b"])), max_size=40)


def _place(value: int | str | None) -> tuple[bool, int | str]:
    return (True, 0) if value is None else (False, value)


@given(ROWS, st.sampled_from([("k",), ("s",), ("k", "s"), ("s", "k")]), st.integers(0, 40))
@example([(None, None), (None, "a"), (None, None)], ("k", "s"), 1)
def test_the_last_row_of_each_key_remains_sorted_with_nulls_last(
    keys: list[tuple[int | None, str | None]], key: tuple[str, ...], cut: int
) -> None:
    """Nulls in a key equal each other; `cut` is where one chunk of the rows ends."""
    schema = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.int64())])
    values = [dict(zip("ksv", (*one, at), strict=True)) for at, one in enumerate(keys)]
    chunks = [pa.Table.from_pylist(part, schema=schema) for part in (values[:cut], values[cut:])]
    latest = {tuple(row[name] for name in key): row for row in values}
    expected = sorted(latest.values(), key=lambda row: [_place(row[name]) for name in key])
    assert sorted_latest(pa.concat_tables(chunks), key).to_pylist() == expected


_ENDS = {"int8": (-(2**7), 2**7 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}


@given(st.data(), st.sampled_from(sorted(_ENDS)))
def test_whole_numbers_of_any_span_come_in_their_order(data: st.DataObject, name: str) -> None:
    low, high = _ENDS[name]
    near = st.sampled_from([low, low + 1, low // 2, 0, high // 2, high - 1, high])
    values = data.draw(st.lists(near | st.integers(max(low, -5), 5), max_size=40))
    type_ = pa.type_for_alias(name)
    rows = pa.table({"k": pa.array(values, type_), "v": pa.array(range(len(values)), pa.int64())})
    latest = {value: at for at, value in enumerate(values)}
    assert sorted_latest(rows, ("k",)).to_pylist() == [{"k": key, "v": latest[key]} for key in sorted(latest)]


@pytest.mark.parametrize("values", [[], [1.5], [math.nan, 1.0, math.nan, 1.0]])
def test_floats_are_distinguished_as_everywhere_else(values: list[float]) -> None:
    rows = pa.table({"k": pa.array(values, pa.float64()), "v": pa.array(range(len(values)), pa.int64())})
    expected = latest_per_key(rows, ("k",)).sort_by([("k", "ascending")])
    assert sorted_latest(rows, ("k",))["v"].to_pylist() == expected["v"].to_pylist()
