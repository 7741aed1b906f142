"""Key groups and owners follow from the key hash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.state.layers.key_groups import (
    group_cuts,
    key_group,
    key_group_range,
    subtask_of_key_group,
)
from milepost_testkit import wording
from milepost_testkit.rows.key_hashes import KEYED

MASK = 2**64 - 1


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
        counts = np.bincount(key_group(KEYED(pa.table({"k": column}), ["k"]), 128), minlength=128)
        assert counts.min() > 800 and counts.max() < 1_200


@pytest.mark.parametrize(
    ("max_parallelism", "parallelism", "subtask"),
    [(0, 1, 0), (32_769, 1, 0), (4, 5, 0), (4, 0, 0), (4, 2, 2), (4, 2, -1)],
)
def test_arguments_out_of_bounds_are_refused(max_parallelism: int, parallelism: int, subtask: int) -> None:
    """Bounds as documented: InvalidRequest, never a wrong range."""
    with wording.raises(InvalidRequest):
        key_group_range(max_parallelism, parallelism, subtask)
    with wording.raises(InvalidRequest):
        subtask_of_key_group(np.array([4]), 4, 2)
