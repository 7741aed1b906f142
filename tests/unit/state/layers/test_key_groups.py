"""The key hash is a format; key groups and owners follow from it."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.protocol.records.errors import InvalidRequest
from milepost.state.layers import key_groups
from milepost.state.layers.key_groups import (
    group_cuts,
    key_group,
    key_group_range,
    key_hash,
    subtask_of_key_group,
)

UTC_US = pa.timestamp("us", tz="UTC")
GOLDEN: list[tuple[pa.DataType, Any, int]] = [
    (pa.int64(), 0, 0x916945A0BE4E2446),
    (pa.int64(), 1, 0xF9B338D6DBD6679A),
    (pa.int32(), -1, 0x4D3395D73048346F),
    (pa.int64(), None, 0x8E20661916743C5C),
    (pa.uint64(), 2**64 - 1, 0x4D3395D73048346F),
    (pa.bool_(), True, 0xF9B338D6DBD6679A),
    (pa.float64(), 0.0, 0x63B5C439A04916FD),
    (pa.float64(), 1.5, 0x4262D9F9197601F3),
    (pa.float64(), float("nan"), 0x897CF8EA4FF584D3),
    (pa.date32(), 15706, 0xAB75659A39783611),
    (UTC_US, 1357034400000000, 0x52F453495C5018A5),
    (pa.timestamp("ns"), 1357034400000000001, 0xEF45B3EB4990788F),
    (pa.decimal128(9, 2), Decimal("-12.34"), 0x3611F482C24E5059),
    (pa.string(), "", 0x86FED80A48B1A61C),
    (pa.string(), "UA", 0x8A6CC801057E5C38),
    (pa.string(), "exactly8", 0x2981F803BC4FD5C8),
    (pa.string(), "a carrier name of more than two words, \u00e9", 0x69049BA1EA30B1F7),
    (pa.binary(), b"UA", 0x8A6CC801057E5C38),
]

MASK = 2**64 - 1


def one(data_type: pa.DataType, value: Any) -> pa.Array:
    if pa.types.is_temporal(data_type):
        storage = pa.int32() if pa.types.is_date32(data_type) else pa.int64()
        return pa.array([value], storage).view(data_type)
    return pa.array([value], data_type)


def hash_of(*arrays: pa.Array) -> list[int]:
    names = [f"c{index}" for index in range(len(arrays))]
    return [int(value) for value in key_hash(pa.table(list(arrays), names=names), names)]


@pytest.mark.parametrize(("data_type", "value", "expected"), GOLDEN, ids=lambda part: str(part)[:24])
def test_key_hash_version_1_is_pinned(data_type: pa.DataType, value: Any, expected: int) -> None:
    """A changed vector means stored state would be looked for in another key group: that needs a new version."""
    assert hash_of(one(data_type, value)) == [expected]


def test_composite_key_hash_is_pinned() -> None:
    """Columns are combined in order; (a, b) is not (b, a), and a null keeps its place."""
    pair = [pa.array(["UA", None]), pa.array([1, 1])]
    assert hash_of(*pair) == [0x2F86C961EFA9C1D2, 0x11D5C8F710185B1F]
    assert hash_of(*reversed(pair)) != hash_of(*pair)


def mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=1, max_size=20))
def test_byte_hash_equals_its_scalar_definition(values: list[bytes | None]) -> None:
    """The vectorised hash is what the definition says, value by value."""
    combine = 0xC2B2AE3D27D4EB4F
    expected = []
    for value in values:
        word = 0x9AE16A3B2F90404F
        if value is not None:
            total = 0
            for position in range(max(1, (len(value) + 7) // 8)):
                part = value[8 * position : 8 * position + 8].ljust(8, b"\0")
                total += mix(struct.unpack("<Q", part)[0] ^ ((position + 1) * combine & MASK))
            word = mix((total & MASK) ^ (len(value) * 0x9E3779B97F4A7C15 & MASK) ^ 0xE7037ED1A0B428DB)
        expected.append(mix(((0x4D696C65706F7374 ^ 1) * combine & MASK) ^ word))
    assert hash_of(pa.array(values, pa.binary())) == expected


texts = st.lists(st.one_of(st.none(), st.text(max_size=20)), min_size=1, max_size=30)


@given(texts, st.data())
@example(["", None, "x" * 17], None)
def test_hash_depends_on_the_value_alone(values: list[str | None], data: Any) -> None:
    """Chunks, slices, offset width, views and dictionaries do not show in the hash."""
    expected = hash_of(pa.array(values, pa.string()))
    cut = data.draw(st.integers(0, len(values))) if data is not None else 1
    chunked = pa.chunked_array([pa.array(values[:cut], pa.string()), pa.array(values[cut:], pa.string())])
    sliced = pa.array(["other", *values, "tail"], pa.string()).slice(1, len(values))
    for form in (
        chunked,
        sliced,
        pa.array(values, pa.large_string()),
        pa.array(values, pa.string_view()),
        pa.array(values, pa.string()).dictionary_encode(),
        pa.array([None if value is None else value.encode() for value in values], pa.binary()),
    ):
        assert hash_of(form) == expected


@given(texts, st.data())
def test_how_many_rows_are_hashed_at_once_does_not_show(values: list[str | None], data: Any) -> None:
    cut = data.draw(st.integers(0, len(values)))
    table = pa.table(
        {
            "text": pa.chunked_array([pa.array(values[:cut], pa.string()), pa.array(values[cut:], pa.string())]),
            "word": pa.array(values, pa.string()).dictionary_encode(),
            "number": [None if value is None else len(value) for value in values],
            "price": pa.array([None if value is None else Decimal(len(value)) / 4 for value in values]),
        }
    )
    whole = key_hash(table, table.column_names)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_groups, "ROWS_AT_ONCE", 3)
        in_blocks = key_hash(table, table.column_names)
    assert in_blocks.tolist() == whole.tolist()


def test_equal_values_of_different_widths_hash_the_same() -> None:
    """Widening a key column moves no key; an instant is the same in every unit; one zero, one NaN."""
    for narrow in (pa.int8(), pa.int16(), pa.int32(), pa.uint16(), pa.uint64()):
        assert hash_of(pa.array([7, None], narrow)) == hash_of(pa.array([7, None], pa.int64()))
    assert hash_of(pa.array([0.0, -0.0])) == hash_of(pa.array([-0.0, 0.0]))
    nans = np.array([0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    assert len(set(hash_of(pa.array(nans)))) == 1
    assert hash_of(pa.array([1.5], pa.float32())) == hash_of(pa.array([1.5], pa.float64()))
    instants = {
        hash_of(one(pa.timestamp(unit), 3 * factor))[0]
        for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
    }
    assert len(instants) == 1
    assert hash_of(pa.array([Decimal("1.20")], pa.decimal128(5, 2))) == hash_of(
        pa.array([Decimal("1.20")], pa.decimal128(38, 2))
    )


def test_a_type_without_a_stable_hash_is_refused_by_name() -> None:
    """A key of a list or struct is bad input, not a crash."""
    with pytest.raises(InvalidRequest, match="'c0' has type list"):
        hash_of(pa.array([[1]]))


@given(st.integers(1, 300), st.data())
def test_every_key_group_has_one_owner_and_sizes_differ_by_at_most_one(max_parallelism: int, data: Any) -> None:
    """DESIGN 5: ranges are contiguous, cover all groups, and agree with `subtask_of_key_group`."""
    parallelism = data.draw(st.integers(1, max_parallelism))
    ranges = [key_group_range(max_parallelism, parallelism, subtask) for subtask in range(parallelism)]
    assert [group for owned in ranges for group in owned] == list(range(max_parallelism))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    owners = subtask_of_key_group(np.arange(max_parallelism), max_parallelism, parallelism)
    assert [int(owner) for owner in owners] == [subtask for subtask, owned in enumerate(ranges) for _ in owned]


@given(st.lists(st.integers(0, MASK), min_size=1, max_size=50), st.integers(1, 32_768))
@example([0, MASK], 1)
@example([0, MASK], 32_768)
def test_key_group_is_in_bounds_and_never_decreases_with_the_hash(hashes: list[int], max_parallelism: int) -> None:
    """Rows sorted by hash are sorted by key group: the order of runs relies on it."""
    groups = key_group(np.array(sorted(hashes), dtype=np.uint64), max_parallelism)
    assert groups.min() >= 0 and groups.max() < max_parallelism
    assert (np.diff(groups) >= 0).all()


@given(st.lists(st.integers(0, MASK), max_size=50), st.integers(1, 300))
def test_a_key_group_begins_at_the_first_hash_that_belongs_to_it(hashes: list[int], max_parallelism: int) -> None:
    borders = [(group << 64) // max_parallelism for group in range(1, max_parallelism)]
    around = [border + step for border in borders[:20] for step in (-1, 0, 1 << 32)]
    ordered = np.array(sorted([*hashes, *(word for word in around if word <= MASK)]), dtype=np.uint64)
    groups = key_group(ordered, max_parallelism)
    expected = np.searchsorted(groups, np.arange(max_parallelism + 1))
    assert group_cuts(ordered, max_parallelism).tolist() == expected.tolist()


def test_keys_spread_evenly_over_key_groups() -> None:
    """Dense integers and short texts both fill every group to within a third of the mean."""
    numbers = pa.array(np.arange(128_000))
    for column in (numbers, numbers.cast(pa.string())):
        counts = np.bincount(key_group(key_hash(pa.table({"k": column}), ["k"]), 128), minlength=128)
        assert counts.min() > 800 and counts.max() < 1_200


@pytest.mark.parametrize(
    ("max_parallelism", "parallelism", "subtask"),
    [(0, 1, 0), (32_769, 1, 0), (4, 5, 0), (4, 0, 0), (4, 2, 2), (4, 2, -1)],
)
def test_arguments_out_of_bounds_are_refused(max_parallelism: int, parallelism: int, subtask: int) -> None:
    """Bounds as documented: InvalidRequest, never a wrong range."""
    with pytest.raises(InvalidRequest, match=r"expected \d+ to"):
        key_group_range(max_parallelism, parallelism, subtask)
    with pytest.raises(InvalidRequest, match="expected 0 to 3"):
        subtask_of_key_group(np.array([4]), 4, 2)
