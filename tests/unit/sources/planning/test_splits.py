"""Who reads what of a source: contiguous splits of about equal bytes, a large object in parts (I12)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.jobspec.job import FileSourceSpec
from milepost.sources.contract import ObjectPart, SourceObject
from milepost.sources.kernel.streams import MAX_WHOLE_READ_BYTES
from milepost.sources.planning.splits import UNIT_BYTES, assign_splits

GB = 10**9


def source(**keys: object) -> FileSourceSpec:
    spec = {"format": "parquet", "path": "*", "schema": {"k": "int64"}}
    return FileSourceSpec.model_validate(spec | keys)


def obj(key: str, size: int) -> SourceObject:
    return SourceObject(key, "1", size, 1_000)


def sizes_of(splits: tuple[tuple[ObjectPart, ...], ...]) -> list[int]:
    return [sum(part.size for part in split) for split in splits]


@given(
    sizes=st.lists(st.integers(1, 10**9) | st.integers(1, 2 * MAX_WHOLE_READ_BYTES), max_size=40),
    parallelism=st.integers(1, 12),
    divisible=st.booleans(),
)
def test_splits_are_contiguous_never_empty_and_cover_the_plan(
    sizes: list[int], parallelism: int, divisible: bool
) -> None:
    """(channel, sequence) order is plan order whatever the parallelism; of an object each byte is read once."""
    objects = [obj(f"{n:03}", size) for n, size in enumerate(sizes)]
    splits = assign_splits(source(on_missing="fail" if divisible else "skip"), objects, parallelism)
    parts = [part for split in splits for part in split]
    assert list(dict.fromkeys(part.object for part in parts)) == objects
    for one in objects:
        of_object = [part for part in parts if part.object == one]
        assert (of_object[0].start, of_object[-1].stop) == (0, one.size)
        assert all(before.stop == after.start for before, after in pairwise(of_object))
        assert divisible or [part.is_whole for part in of_object] == [True]
        assert one.size > MAX_WHOLE_READ_BYTES or [part.is_whole for part in of_object] == [True]
        assert len(of_object) == 1 or min(part.size for part in of_object) >= UNIT_BYTES
    assert all(len({part.object for part in split}) == len(split) for split in splits), "units that follow are one part"
    assert min(parallelism, len(objects)) <= len(splits) <= parallelism
    assert all(splits)


def test_splits_are_balanced_by_bytes() -> None:
    first, second = assign_splits(source(), [obj(f"{n}", size) for n, size in enumerate([100, 1, 1, 1, 1, 96])], 2)
    assert (len(first), len(second)) == (1, 5)


@given(sizes=st.lists(st.integers(1, 3 * GB), min_size=1, max_size=5), parallelism=st.integers(1, 12))
def test_no_subtask_has_much_more_than_its_share_whatever_the_object_sizes(sizes: list[int], parallelism: int) -> None:
    splits = assign_splits(source(), [obj(f"{n}", size) for n, size in enumerate(sizes)], parallelism)
    share = sum(sizes) / parallelism
    assert max(sizes_of(splits)) <= share + max(max(sizes) / (16 * parallelism), 2 * UNIT_BYTES) + MAX_WHOLE_READ_BYTES


def test_one_large_object_is_read_by_all_subtasks() -> None:
    splits = assign_splits(source(), [obj("a.parquet", GB)], 4)
    assert sizes_of(splits) == [GB // 4] * 4
    assert splits == assign_splits(source(), [obj("a.parquet", GB)], 4)


@pytest.mark.parametrize(
    ("key", "size", "keys"),
    [
        ("a.parquet", MAX_WHOLE_READ_BYTES, {}),
        ("a.parquet.gz", GB, {}),
        ("a.json.zst", GB, {"format": "json"}),
        ("a.csv", GB, {"format": "csv"}),
        ("a.csv", GB, {"format": "csv", "options": {"quote_char": False, "escape_char": "/"}}),
        ("a.csv", GB, {"format": "csv", "options": {"newlines_in_values": False, "encoding": "utf-16"}}),
        ("a.csv.bz2", GB, {"format": "csv", "options": {"newlines_in_values": False}}),
        ("a.parquet", GB, {"on_missing": "skip"}),
        ("a.parquet", GB, {"bad_records": "dead_letter", "on_bad_object": "dead_letter"}),
    ],
)
def test_an_object_whose_parts_cannot_be_read_alone_has_one_reader(
    key: str, size: int, keys: dict[str, object]
) -> None:
    """Compressed text begins at its beginning; an object with dead letters may be bad, or a skipped one gone, whole."""
    assert assign_splits(source(**keys), [obj(key, size)], 4) == ((ObjectPart(obj(key, size), 0, size),),)


@pytest.mark.parametrize(
    "keys",
    [
        {"format": "json"},
        {"format": "csv", "options": {"newlines_in_values": False}},
        {"format": "csv", "options": {"newlines_in_values": False, "encoding": "UTF8"}},
        {"format": "csv", "options": {"quote_char": False}},
    ],
)
def test_a_text_whose_records_are_lines_is_read_in_parts(keys: dict[str, object]) -> None:
    assert len(assign_splits(source(**keys), [obj("a", GB)], 3)) == 3


def test_a_parallelism_below_one_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        assign_splits(source(), [obj("a", 1)], 0)
