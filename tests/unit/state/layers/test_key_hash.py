"""The keyed hash depends only on values and secret. Collisions under one secret do not occur under another."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.protocol.exchange.routing import NullSpreadingKey
from milepost.state.layers import key_hash
from milepost.state.layers.key_groups import key_group
from milepost.state.layers.key_hash import KeyHash, new_secret
from milepost_testkit.rows.collisions import harmless_differences, mix
from milepost_testkit.rows.key_hashes import KEYED

SECRET = "000102030405060708090a0b0c0d0e0f"
OTHER = "000102030405060708090a0b0c0d0e10"
UTC_US = pa.timestamp("us", tz="UTC")
MASK = 2**64 - 1


def column(data_type: pa.DataType, *values: Any) -> pa.Array:
    if pa.types.is_temporal(data_type):
        storage = pa.int32() if pa.types.is_date32(data_type) else pa.int64()
        return pa.array(values, storage).view(data_type)
    return pa.array(values, data_type)


def hashes(*arrays: pa.Array, hasher: KeyHash | None = None) -> list[int]:
    names = [f"c{index}" for index in range(len(arrays))]
    return [int(value) for value in (hasher or KeyHash(SECRET))(pa.table(list(arrays), names=names), names)]


GOLDEN: list[tuple[pa.DataType, Any, int]] = [
    (pa.int64(), 0, 0xFD8BE63446E64FF1),
    (pa.int64(), 1, 0x97598D7819CD8F51),
    (pa.int32(), -1, 0x201218DBEF89F66C),
    (pa.int64(), None, 0x037946AB36385F0E),
    (pa.uint64(), 2**64 - 1, 0x201218DBEF89F66C),
    (pa.bool_(), True, 0x97598D7819CD8F51),
    (pa.float64(), 0.0, 0xFD8BE63446E64FF1),
    (pa.float64(), 1.5, 0x946AED2007486F61),
    (pa.float64(), float("nan"), 0x381B48D3F8BF7BB7),
    (pa.date32(), 15706, 0x662115715034C11E),
    (UTC_US, 1357034400000000, 0xF1D4A7B5F269A05D),
    (pa.timestamp("ns"), 1357034400000000001, 0xF4BCFE3B3739845B),
    (pa.timestamp("s"), 2**60, 0x8AB126067D0A0ED7),
    (pa.decimal128(9, 2), Decimal("-12.34"), 0x36DEEBAD5B762987),
    (pa.string(), "", 0xFD8BE63446E64FF1),
    (pa.string(), "UA", 0xA93B2E5B355D80B6),
    (pa.string(), "exactly8", 0x9A93A992D583873C),
    (pa.string(), "a carrier name of more than two words, é", 0x3F26588FAFBF9278),
    (pa.binary(), b"UA", 0xA93B2E5B355D80B6),
    (pa.string(), "x" * 513, 0xC91D0AEC0A02226E),
]
PAIR = [0x674BAF7F5446CC50, 0x27732C19B3C98A10]


@pytest.mark.parametrize(("data_type", "value", "expected"), GOLDEN, ids=lambda part: str(part)[:24])
def test_the_hash_is_pinned(data_type: pa.DataType, value: Any, expected: int) -> None:
    """A changed vector means stored state would be looked for in another key group: that needs a new format."""
    assert hashes(column(data_type, value)) == [expected]


def test_without_key_columns_all_rows_have_one_hash_under_every_secret() -> None:
    rows = pa.table({"k": [1, 2]})
    assert {*KEYED(rows, ()).tolist(), *KeyHash(new_secret())(rows, ()).tolist()} == {0xE220A8397B1DCDAF}


def test_a_composite_key_is_pinned() -> None:
    """(a, b) is not (b, a), a null keeps its place, and (a) is not the beginning of (a, null)."""
    pair = [pa.array(["UA", None]), pa.array([1, 1])]
    assert hashes(*pair) == PAIR
    assert hashes(*reversed(pair)) != hashes(*pair)


NUMBERS = st.integers(-(2**63), 2**63 - 1)
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], list[int]]]] = {
    "int": (pa.int64(), NUMBERS, lambda value: [value & MASK]),
    "float": (
        pa.float64(),
        st.floats(allow_nan=False),
        lambda value: [struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]],
    ),
    "date": (pa.date32(), st.integers(-(2**31), 2**31 - 1), lambda value: [value & MASK]),
    "us": (UTC_US, NUMBERS, lambda value: [value & MASK]),
    "ns": (pa.timestamp("ns"), NUMBERS, lambda value: [value // 1_000 & MASK, value % 1_000]),
    "s": (
        pa.timestamp("s"),
        NUMBERS,
        lambda value: [value * 10**6 & MASK, ((value * 10**6 + 2**63) >> 64) * 1_000 & MASK],
    ),
    "decimal": (
        pa.decimal128(38, 0),
        st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
        lambda value: [int(value) & MASK, int(value) >> 64 & MASK],
    ),
    "bytes": (
        pa.binary(),
        st.binary(max_size=40) | st.binary(min_size=500, max_size=530),
        lambda value: [],
    ),
}


def by_definition(values: list[tuple[str, Any]], secret: str) -> int:
    """One key's hash: numbers of 32 bits, their coefficients, two sums."""
    upper = lower = 0
    for index, (kind, value) in enumerate(values):
        text = f"milepost key hash 2: {secret} {len(values)} {index}"
        drawn = hashlib.shake_256(text.encode()).digest(8 * 264 + 32)
        words = struct.unpack("<264Q", drawn[: 8 * 264])
        upper, lower = upper + words[0], lower + words[1]
        if value is None:
            upper, lower = upper + words[2], lower + words[3]
            continue
        numbers = TYPES[kind][2](value)
        places = list(range(8, 264, 4))
        if kind == "bytes":
            body = hashlib.blake2b(value, digest_size=16, key=drawn[-32:]).digest() if len(value) > 512 else value
            parts = [body[at : at + 8].ljust(8, b"\0") for at in range(0, len(body), 8)]
            numbers = [len(value), *(struct.unpack("<Q", part)[0] for part in parts)]
            places = [4, *places]
        for place, number in zip(places, numbers, strict=False):
            a, b, c, d = words[place : place + 4]
            upper += a * number + b * (number >> 32)
            lower += c * number + d * (number >> 32)
    return mix(((upper & MASK) >> 32 << 32) | (lower & MASK) >> 32)


@given(names=st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3), data=st.data())
def test_the_hash_equals_its_scalar_definition_however_arrow_stores_the_keys(names: list[str], data: Any) -> None:
    """Chunks, slices, offset widths, and the number of rows per call make no difference."""
    rows = data.draw(st.lists(st.tuples(*(st.none() | TYPES[name][1] for name in names)), min_size=1, max_size=8))
    columns = [column(TYPES[name][0], *(row[at] for row in rows)) for at, name in enumerate(names)]
    expected = [by_definition(list(zip(names, row, strict=True)), SECRET) for row in rows]
    assert hashes(*columns) == expected
    cut = data.draw(st.integers(0, len(rows)))
    chunked = [pa.chunked_array([one.slice(0, cut), one.slice(cut)]) for one in columns]
    coded = [one.dictionary_encode() for one in columns]
    wide = [one.cast(pa.large_binary()) if one.type == pa.binary() else one for one in columns]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_hash, "ROWS_AT_ONCE", data.draw(st.sampled_from([1, 3])))
        for form in (chunked, coded, wide):
            assert hashes(*form) == expected


def test_equal_values_of_different_widths_hash_the_same() -> None:
    """Widening a key column moves no key; an instant is the same in every unit; one zero, one NaN."""
    for narrow in (pa.int8(), pa.int16(), pa.int32(), pa.uint16(), pa.uint64()):
        assert hashes(pa.array([7, None], narrow)) == hashes(pa.array([7, None], pa.int64()))
    assert len(set(hashes(pa.array([0.0, -0.0])))) == 1
    nans = np.array([0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    assert len(set(hashes(pa.array(nans)))) == 1
    assert hashes(pa.array([1.5], pa.float32())) == hashes(pa.array([1.5], pa.float64()))
    units = (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
    assert len({hashes(column(pa.timestamp(unit), 3 * factor))[0] for unit, factor in units}) == 1
    last = [sign * step * 10**12 for sign in (-1, 1) for step in range(10)]  # up to the last microseconds there are
    assert hashes(column(pa.timestamp("s"), *last)) == hashes(column(UTC_US, *(10**6 * value for value in last)))
    far = 2**60  # seconds whose microseconds overflow
    assert hashes(column(pa.timestamp("s"), far)) != hashes(column(pa.timestamp("s"), far + 2**58))
    assert len(set(hashes(column(pa.timestamp("s"), *(far + step * 2**58 for step in range(-8, 4)))))) == 12
    assert hashes(pa.array(["é", None], pa.string())) == hashes(pa.array(["é", None], pa.string_view()))
    nothing = hashes(pa.nulls(1), pa.array([1]))
    assert nothing == hashes(pa.array([None], pa.string()), pa.array([1])) != hashes(pa.array([""]), pa.array([1]))


def test_dense_keys_spread_evenly_over_key_groups() -> None:
    """Also those that are evenly spaced, which a linear function would put in order."""
    numbers = pa.array(np.arange(128_000))
    for keys in (numbers, numbers.cast(pa.string()), pa.array(np.arange(128_000) << 32)):
        for secret in (SECRET, OTHER):
            placed = key_group(KeyHash(secret)(pa.table({"k": keys}), ["k"]), 128)
            counts = np.bincount(placed, minlength=128)
            assert counts.min() > 800 and counts.max() < 1_200


def numbers_of(secret: str, places: list[tuple[int, int, int]], columns: int) -> tuple[list[int], list[int]]:
    """The coefficients of some 32-bit numbers of a key, in either sum.

    Args:
        places: of each its column, the position of its word, and which half of that it is.
    """
    upper, lower = [], []
    for index, position, half in places:
        a, b, c, d = map(int, key_hash._coefficients(secret, columns, index).words[position])
        upper.append((a << 32) + b & MASK if half else a)
        lower.append((c << 32) + d & MASK if half else c)
    return upper, lower


def words(numbers: np.ndarray) -> np.ndarray:
    """64-bit words of pairs of numbers, lower half first."""
    return numbers[:, 0::2].astype(np.uint64) | numbers[:, 1::2].astype(np.uint64) << np.uint64(32)


def _decimals(numbers: np.ndarray) -> list[pa.Array]:
    return [pa.array([Decimal(int(low) + (int(high) << 64)) for low, high in words(numbers)], pa.decimal128(38, 0))]


def _bytes(numbers: np.ndarray) -> list[pa.Array]:
    return [pa.array([row.tobytes() for row in words(numbers)], pa.binary())]


def _of_type(data_type: pa.DataType) -> Callable[[np.ndarray], list[pa.Array]]:
    return lambda numbers: [pa.array(one.view(np.int64)).view(data_type) for one in words(numbers).T.copy()]


WORD = [(0, 0, 0), (0, 0, 1)]
TWO_WORDS = [*WORD, (0, 1, 0), (0, 1, 1)]
MADE: dict[str, tuple[list[tuple[int, int, int]], int, Callable[[np.ndarray], list[pa.Array]], int]] = {
    "int64": (WORD, 1, _of_type(pa.int64()), 2**31),
    "float64": (WORD, 1, _of_type(pa.float64()), 2**30),
    "timestamp": (WORD, 1, _of_type(UTC_US), 2**31),
    "decimal": (TWO_WORDS, 1, _decimals, 2**29),
    "text": (TWO_WORDS, 1, _bytes, 2**32),
    "dates": (
        [(0, 0, 0), (1, 0, 0)],
        2,
        lambda numbers: [pa.array(one.astype(np.int32)).view(pa.date32()) for one in numbers.T],
        2**31,
    ),
    "composite": ([*WORD, (1, 0, 0), (1, 0, 1)], 2, _of_type(pa.int64()), 2**31),
    "beside a null": (
        [(1, 0, 0), (1, 0, 1)],
        2,
        lambda numbers: [pa.nulls(len(numbers), pa.string()), *_of_type(pa.int64())(numbers)],
        2**31,
    ),
}


@pytest.mark.deep
@pytest.mark.parametrize("kind", sorted(MADE))
def test_keys_made_to_collide_under_one_secret_do_not_under_another(kind: str) -> None:
    """With the secret the sums can be solved for keys that share a hash; what that gives is worth nothing elsewhere."""
    places, columns, arrays, limit = MADE[kind]
    chance = np.random.default_rng(7)
    found = 0
    for secret in map("{:032x}".format, range(40)):
        for difference in harmless_differences(*numbers_of(secret, places, columns)):
            start = chance.integers(0, limit, (2_000, len(places)))
            moved = start + np.array(difference)
            fit = ((moved >= 0) & (moved < limit)).all(axis=1)
            if not fit.any():
                continue
            left, right = arrays(start[fit]), arrays(moved[fit])
            same = np.equal(hashes(*left, hasher=KeyHash(secret)), hashes(*right, hasher=KeyHash(secret)))
            found += int(same.sum())
            for other in (KeyHash(OTHER), KEYED):
                assert not np.equal(hashes(*left, hasher=other), hashes(*right, hasher=other)).any()
            if found:
                return
    raise AssertionError("no secret of these let a collision be made")


def test_a_secret_is_random_and_hidden() -> None:
    secret = new_secret()
    assert secret != new_secret() and len(bytes.fromhex(secret)) == 16
    hasher = KeyHash(secret)
    assert secret not in repr(hasher) and secret not in hasher.digest
    assert hasher.digest != KeyHash(SECRET).digest


def test_rows_whose_null_key_matches_nothing_are_spread_by_all_their_columns() -> None:
    """So that not one subtask has them all; other rows stay where they are, and the order of columns says nothing."""
    rows = pa.table(
        {
            "k": pa.array([None if at % 2 else at for at in range(400)], pa.int64()),
            "v": pa.array(range(400), pa.int32()),
            "tags": [[at] for at in range(400)],
        }
    )
    plain, apart = (KEYED.key_groups(rows, key, 8) for key in (("k",), NullSpreadingKey(["k"])))
    odd = np.arange(400) % 2 == 1
    assert len(set(plain[odd])) == 1 and np.bincount(apart[odd], minlength=8).min() > 5
    assert (plain[~odd] == apart[~odd]).all()
    assert (KEYED.key_groups(rows.select(["tags", "v", "k"]), NullSpreadingKey(["k"]), 8) == apart).all()
    assert (KEYED.key_groups(rows.slice(100, 50), NullSpreadingKey(["k"]), 8) == apart[100:150]).all()
