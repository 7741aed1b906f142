"""Interpolation search finds the same rows as binary search, however unevenly hashes are distributed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.state.layers import interpolation_search
from milepost.state.layers.interpolation_search import drifts_of, first_equal

_WORDS = st.integers(0, 2**64 - 1)
_EXTREMES = st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 2, 2**64 - 1])
_CROWDED = st.integers(0, 40).map(lambda low: (7 << 32) | low)
_HASHES = st.lists(st.one_of(_WORDS, _EXTREMES, _CROWDED), min_size=1, max_size=200)


def _found(hashes: np.ndarray, wanted: np.ndarray) -> tuple[list[int], list[int]]:
    first = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    query = np.flatnonzero(hashes[first] == wanted)
    return query.tolist(), first[query].tolist()


@given(_HASHES, st.lists(st.one_of(_WORDS, _EXTREMES, _CROWDED), max_size=50))
def test_the_first_equal_hash_is_found_where_a_binary_search_finds_it(some: list[int], others: list[int]) -> None:
    hashes = np.sort(np.array(some, dtype=np.uint64))
    wanted = np.array([*others, *some[::3]], dtype=np.uint64)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(interpolation_search, "_CROWDED", len(hashes))
        drifts = drifts_of(hashes)

    assert drifts is not None
    query, rows = first_equal(hashes, drifts, wanted)
    assert (query.tolist(), rows.tolist()) == _found(hashes, wanted)


@pytest.mark.parametrize("rows", [1, 1000, 300_000])
def test_drifts_of_even_hashes_take_two_bytes(rows: int) -> None:
    hashes = np.sort(np.random.default_rng(rows).integers(0, 2**64, rows, dtype=np.uint64))

    drifts = drifts_of(hashes)

    assert drifts is not None and drifts.dtype == np.int16
    assert len(drifts) == rows


def test_hashes_crowded_in_one_corner_of_the_range_are_found() -> None:
    crowd = np.arange(40_000, dtype=np.uint64) + np.uint64(5 << 32)
    even = np.sort(np.random.default_rng(1).integers(6 << 32, 2**64, 60_000, dtype=np.uint64))
    hashes = np.concatenate([crowd, even])
    wanted = np.array([0, crowd[0], crowd[20_000], crowd[-1], crowd[-1] + np.uint64(1), even[-1]], dtype=np.uint64)

    drifts = drifts_of(hashes)

    assert drifts is not None and drifts.dtype == np.int32
    assert first_equal(hashes, drifts, wanted)[0].tolist() == _found(hashes, wanted)[0] == [1, 2, 3, 5]
    assert first_equal(hashes, drifts, wanted)[1].tolist() == _found(hashes, wanted)[1]


@given(_HASHES)
def test_the_batch_size_of_counting_does_not_change_the_result(some: list[int]) -> None:
    hashes = np.sort(np.array(some, dtype=np.uint64))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(interpolation_search, "_CROWDED", len(hashes))
        whole = drifts_of(hashes)
        patched.setattr(interpolation_search, "_ROWS_AT_ONCE", 3)
        in_pieces = drifts_of(hashes)

    assert whole is not None and in_pieces is not None
    assert in_pieces.tolist() == whole.tolist()


def test_no_hashes_have_no_drifts_and_hashes_of_few_upper_halves_are_searched_by_halving() -> None:
    none = drifts_of(np.empty(0, dtype=np.uint64))
    windows = (np.arange(1000, dtype=np.uint64) // np.uint64(10) << np.uint64(32)) | np.arange(1000, dtype=np.uint64)

    assert none is not None and none.tolist() == []
    assert drifts_of(windows) is None
