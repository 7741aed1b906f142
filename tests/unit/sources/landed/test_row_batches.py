"""Values of a user's reader are stored as they are, or refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.job.event_time_spec import EventTimeSpec
from milepost.language.types import parse_type
from milepost.sources.landed.row_batches import record_batches


def stored(rows: Iterator[Any], type_: str) -> list[Any]:
    return [
        value for batch in record_batches("feed", rows, {"c": parse_type(type_)}) for value in batch["c"].to_pylist()
    ]


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("bool", pa.array([1, 5])),
        ("decimal(9,2)", pa.array([0.126])),
        ("float64", pa.array([Decimal("12345678901234567.89")])),
        ("float32", pa.array([1.0, 1e300])),
        ("date", pa.array([1], pa.timestamp("us"))),
        ("int64", pa.array(["012"])),
        ("struct<a: int64>", pa.array([{"a": 1, "b": 2}])),
        ("list<struct<a: int64>>", pa.array([[{"b": 2}]])),
    ],
    ids=str,
)
def test_a_column_of_which_arrow_would_lose_something_is_refused(type_: str, column: pa.Array) -> None:
    with pytest.raises(InvalidRequest, match=r"column c: expected .* that do not fit it"):
        stored(iter([pa.record_batch({"c": column})]), type_)


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("bool", pa.array([1, 0, None])),
        ("int64", pa.array([None, None])),
        ("float32", pa.array([0.5, -0.0, math.inf, None])),
        ("string", pa.array(["a", None], pa.large_string())),
        ("string", pa.array(["a", None]).dictionary_encode()),
        ("timestamp[us, UTC]", pa.array([0, None], pa.timestamp("us", "Europe/Berlin"))),
        ("list<float64>", pa.array([[1.5, None], [], None], pa.large_list(pa.float64()))),
        ("struct<a: int64>", pa.array([{"a": 1}, None], pa.struct([("a", pa.int8())]))),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_stored_if_its_values_stay_the_same(type_: str, column: pa.Array) -> None:
    assert stored(iter([pa.record_batch({"c": column})]), type_) == column.to_pylist()


def test_not_a_number_in_a_list_of_another_type_is_stored() -> None:
    column = pa.array([[math.nan]], pa.large_list(pa.float64()))
    assert repr(stored(iter([pa.record_batch({"c": column})]), "list<float64>")) == "[[nan]]"


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("float32", 1e300),
        ("float32", 10**400),
        ("timestamp[us, UTC]", pd.Timestamp(1500, tz="UTC")),
        ("list<float32>", [-1e39]),
    ],
)
def test_a_value_of_which_something_would_be_lost_is_refused(type_: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match="row 1, column c: expected"):
        stored(iter([(value,)]), type_)


@pytest.mark.parametrize(
    ("type_", "event_time", "bad", "says"),
    [
        ("timestamp[us, UTC]", {"column": "c"}, None, "row 2, column c is null, but the event time is required"),
        (
            "string",
            {"column": "c", "format": "yyyy-MM-dd"},
            "soon",
            "row 2, column c, value 'soon', is not a time of the",
        ),
        ("int64", {"column": "c", "unit": "s"}, 2**62, "is an event time beyond the range of timestamps"),
    ],
)
def test_a_row_without_an_event_time_is_refused(type_: str, event_time: dict[str, Any], bad: Any, says: str) -> None:
    good = {"string": "2026-01-01", "int64": 1}.get(type_, pd.Timestamp(0, tz="UTC"))
    with pytest.raises(InvalidRequest, match=says):
        types, spec = {"c": parse_type(type_)}, EventTimeSpec.model_validate(event_time)
        list(record_batches("feed", iter([(good,), (bad,)]), types, spec))


def test_large_rows_are_batched_by_their_size() -> None:
    held = most = 0

    def rows() -> Iterator[Any]:
        nonlocal held, most
        for _ in range(60):
            held += 1
            most = max(most, held)
            yield ("x" * 1_000_000,)

    for batch in record_batches("feed", rows(), {"c": parse_type("string")}):
        held -= batch.num_rows
    assert (held, most <= 16) == (0, True)


def test_small_rows_come_in_large_batches() -> None:
    batches = [batch.num_rows for batch in record_batches("feed", iter([(1,)] * 25_000), {"c": parse_type("int64")})]
    assert sum(batches) == 25_000 and len(batches) <= 4
