"""Whatever lies in the landing store, a reader answers with rows or with a bad record: it never dies of it."""

from __future__ import annotations

import pytest

from milepost_testkit.tasks.faults.reader_fuzz import fuzz

pytestmark = pytest.mark.long


@pytest.mark.parametrize("objects", [300, pytest.param(900, marks=pytest.mark.deep)])
def test_an_object_broken_at_random_is_read_or_refused_and_never_ends_its_reader(objects: int, seed: int) -> None:
    """CSV, JSON and Parquet, compressed or not; `make fuzz` reads 20,000."""
    report = fuzz(seed, objects)
    assert not report.faults, "\n".join(report.faults)
    assert report.rows + report.refused == objects
    assert report.rows > objects / 20 and report.refused > objects / 3, "what was broken is not worth reading"
    assert report.most_mib < 512


def test_a_column_of_parquet_whose_description_is_broken_does_not_end_its_reader() -> None:
    """pyarrow ends the process that asks such a column, of which a histogram has another length, for its size."""
    assert fuzz(221, 1, first=677).faults == ()
