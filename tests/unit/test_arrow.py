"""Arrays made without pandas are those that Arrow makes itself."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import arrow
from milepost.arrow import int64_array, numpy_array, string_array

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64))
def test_numbers_are_the_array_that_arrow_makes(numbers: list[int]) -> None:
    found = int64_array(iter(numbers))
    found.validate(full=True)
    assert found.equals(pa.array(numbers, pa.int64()))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_are_the_array_that_arrow_makes(texts: list[str]) -> None:
    found = string_array(texts)
    found.validate(full=True)
    assert found.equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("beyond", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_an_error(beyond: int) -> None:
    with pytest.raises(OverflowError):
        int64_array([beyond])


def test_half_of_a_surrogate_pair_is_an_error() -> None:
    with pytest.raises(UnicodeEncodeError):
        string_array(["\ud800"])


def test_texts_beyond_the_capacity_of_an_array_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_MAX_TEXT_BYTES", 4)
    assert string_array(["abc", "d"]).to_pylist() == ["abc", "d"]
    with pytest.raises(pa.ArrowCapacityError, match="2 texts have 5 bytes, at most 4"):
        string_array(["abc", "é"])


@given(st.lists(INT64), st.integers(0, 5))
def test_a_slice_of_numbers_is_read_from_its_first_row(numbers: list[int], first: int) -> None:
    assert numpy_array(int64_array(numbers)[first:]).tolist() == numbers[first:]


@given(st.lists(st.booleans()), st.integers(0, 20))
def test_a_slice_of_booleans_is_read_from_its_first_row(values: list[bool], first: int) -> None:
    found = numpy_array(pa.array(values, pa.bool_())[first:])
    assert found.dtype == np.bool_ and found.tolist() == values[first:]


def test_nulls_are_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid, match="got 1 of 2 values"):
        numpy_array(pa.array([1, None]))


def test_no_array_imports_pandas() -> None:
    code = (
        "import sys; from milepost.arrow import *; numpy_array(int64_array([1])); string_array(['a'])[0]; "
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
