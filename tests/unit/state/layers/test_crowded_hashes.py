"""Keys forced to share a hash cost as much as sorting them: no step compares all pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.state.keyed import grouping
from milepost.state.keyed.grouping import number_keys
from milepost.state.layers import layer
from milepost.state.layers.exact_keys import key_numbers, same_keys
from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import KeySpec, match, not_hidden, sort_rows, stack
from milepost_testkit import profiles
from milepost_testkit.rows.key_hashes import KEY_HASH_SECRET

COUNT = 8_000


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pairs of keys each comparison was of."""
    counts: list[int] = []

    def counting(
        left: pa.Table, left_rows: np.ndarray, right: pa.Table, right_rows: np.ndarray, key: Sequence[str]
    ) -> Any:
        counts.append(len(left_rows))
        return same_keys(left, left_rows, right, right_rows, key)

    for module in (layer, grouping):
        monkeypatch.setattr(module, "same_keys", counting)
    monkeypatch.setattr("milepost.state.layers.exact_keys.same_keys", counting)
    return counts


def crowd(start: int = 0, count: int = COUNT) -> pa.Table:
    """Rows of different keys."""
    numbers = range(start, start + count)
    columns = {"a": numbers, "b": (-1 - number for number in numbers), "v": range(count)}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


class OneHash(KeyHash):
    """Who knows the secret can make keys that share a hash: here all of a crowd do, and no other key."""

    def __call__(self, table: pa.Table, key: Sequence[str]) -> npt.NDArray[np.uint64]:
        found = super().__call__(table, key)
        return np.where(np.asarray(table["b"]) < 0, np.uint64(7), found)


KEYS = KeySpec(("a", "b"), ("a", "b"), OneHash(KEY_HASH_SECRET))


def test_a_batch_of_crowded_keys_is_numbered_without_comparing_each_with_each(compared: list[int]) -> None:
    """Also after others that are distinguished by their order, not by a table, because of their number."""
    keys = crowd().select(["a", "b"])
    even = pa.table({"a": pa.array(range(33_000), pa.int64()), "b": pa.array([0] * 33_000, pa.int64())})
    for before in (0, 33_000):
        compared.clear()
        numbered = number_keys(pa.concat_tables([even.slice(0, before), keys, keys]).combine_chunks(), KEYS.hashes)
        first = [*range(before + COUNT), *range(before, before + COUNT)]
        assert numbered.first[numbered.codes].tolist() == first
        assert sum(compared) < 10 * COUNT + 3 * before


def test_crowded_keys_are_found_in_a_layer_without_comparing_each_with_each(compared: list[int]) -> None:
    """Half of what is looked for is there, in another order."""
    stored, wanted = sort_rows(crowd(), KEYS, deleted=False), crowd(COUNT // 2)
    wanted = wanted.take(pa.array(np.random.default_rng(1).permutation(COUNT)))
    query, found = match(stored, KEYS.hashes(wanted), wanted, KEYS)
    assert wanted["b"].take(pa.array(query)).equals(stored.rows["b"].take(pa.array(found)))
    assert len(query) == COUNT // 2 and (np.diff(query) > 0).all()
    assert sum(compared) < 10 * COUNT


def test_crowded_layers_are_merged_and_hide_each_other_without_comparing_each_with_each(compared: list[int]) -> None:
    older, newer = sort_rows(crowd(), KEYS, deleted=False), sort_rows(crowd(COUNT // 2), KEYS, deleted=False)
    merged = stack([older, newer], KEYS, crowd().schema)
    assert merged.num_rows == COUNT + COUNT // 2
    assert len(not_hidden([newer], older, np.arange(COUNT), KEYS)) == COUNT // 2
    assert sum(compared) < 20 * COUNT


VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-2, 2)),
    "text": (pa.string(), st.sampled_from(["", "a", "b", "ä"])),
    "view": (pa.string_view(), st.sampled_from(["", "a", "a text that is longer"])),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, 1.0, float("nan"), -float("nan")])),
    "half": (pa.float16(), st.sampled_from([np.float16(0.5), np.float16(2)])),
    "bool": (pa.bool_(), st.booleans()),
    "time": (pa.timestamp("us", "UTC"), st.integers(0, 2)),
    "nothing": (pa.null(), st.none()),
}


@profiles.examples(share=1.5)
@given(names=st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True), data=st.data())
def test_equal_keys_share_a_number_and_distinct_keys_do_not(names: list[str], data: st.DataObject) -> None:
    """Nulls equal nulls, NaNs equal NaNs, and there is one zero."""
    drawn = data.draw(st.lists(st.tuples(*(st.none() | VALUES[name][1] for name in names)), max_size=20))
    keys = pa.table({name: pa.array([row[at] for row in drawn], VALUES[name][0]) for at, name in enumerate(names)})
    numbers = key_numbers(keys)

    def plain(value: Any) -> Any:
        return "NaN" if value != value else value + 0.0 if isinstance(value, float) else value

    expected = [tuple(map(plain, row)) for row in drawn]
    assert [[a == b for b in numbers] for a in numbers] == [[a == b for b in expected] for a in expected]
    assert sorted(set(numbers.tolist())) == list(range(len(set(expected))))


@pytest.mark.parametrize("part", [lambda rows: rows, lambda rows: rows.slice(3), lambda rows: rows.slice(0, 0)])
def test_a_dictionary_column_is_numbered_by_its_values(part: Callable[[pa.Table], pa.Table]) -> None:
    rows = pa.table({"k": pa.array(["b", "a", "b", None, "a", None]).dictionary_encode()})
    values = part(rows)["k"].to_pylist()
    numbers = key_numbers(part(rows))
    assert len({*zip(values, numbers.tolist(), strict=True)}) == len(set(values)) == len(set(numbers.tolist()))
