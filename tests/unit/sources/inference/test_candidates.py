"""The event times and keys that are proposed for the rows of a sample."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from milepost.language import parse_type, to_arrow
from milepost.sources.inference.candidates import event_times, keys
from milepost.sources.inference.proposal import ProposedColumn


def sample(**columns: tuple[str, list[Any]]) -> tuple[list[ProposedColumn], pa.Table]:
    """Return columns and rows; name -> (type, values)."""
    proposed = [ProposedColumn(name, parse_type(type_), "") for name, (type_, _) in columns.items()]
    arrays = {name: pa.array(values, to_arrow(parse_type(type_))) for name, (type_, values) in columns.items()}
    return proposed, pa.table(arrays)


def times_of(**columns: tuple[str, list[Any]]) -> list[str]:
    return [candidate.column for candidate in event_times(*sample(**columns))]


SECOND = 1_700_000_000


def test_a_time_with_a_zone_is_a_better_event_time_than_numbers_and_dates() -> None:
    found = times_of(
        day=("date", [19_000]), at=("int64", [SECOND]), local=("timestamp[us]", [1]), zoned=("timestamp[us, UTC]", [1])
    )
    assert found == ["zoned", "local", "at", "day"]


def test_the_time_of_another_event_comes_last() -> None:
    assert times_of(expires_at=("timestamp[us, UTC]", [1]), day=("date", [19_000])) == ["day", "expires_at"]


def test_a_column_with_nulls_is_no_event_time() -> None:
    assert times_of(at=("timestamp[us, UTC]", [1, None])) == []


@pytest.mark.parametrize(("factor", "unit"), [(1, "s"), (1_000, "ms"), (1_000_000, "us")])
def test_whole_numbers_are_times_in_the_unit_of_this_century(factor: int, unit: str) -> None:
    (candidate,) = event_times(*sample(created_at=("int64", [SECOND * factor, (SECOND + 9) * factor])))
    assert candidate.value == {"column": "created_at", "unit": unit}


def test_whole_numbers_are_times_only_under_the_name_of_one_and_within_this_century() -> None:
    assert times_of(amount=("int64", [SECOND])) == []
    assert times_of(created_at=("int64", [5, SECOND])) == []


def keys_of(*times: str, **columns: tuple[str, list[Any]]) -> tuple[str, ...]:
    return keys(*sample(**columns), times)


def test_a_key_is_unique_and_a_column_named_like_one_comes_first() -> None:
    assert keys_of(name=("string", ["a", "b"]), order_id=("int64", [1, 2])) == ("order_id", "name")
    assert keys_of(same=("int64", [1, 1]), null=("int64", [1, None])) == ()


def test_times_fractions_and_empty_texts_are_no_keys() -> None:
    found = keys_of("at", at=("int64", [1, 2]), share=("float64", [0.1, 0.2]), code=("string", ["", "a"]))
    assert found == ()


def test_one_row_shows_no_key() -> None:
    assert keys_of(id=("int64", [1])) == ()
