"""For any bytes in the landing store, a reader returns rows or a bad record: it never crashes."""

from __future__ import annotations

import pytest

from milepost_testkit.jobs.message_fuzz import MODULE, broken_messages
from milepost_testkit.tasks.faults.reader_fuzz import fuzz

pytestmark = pytest.mark.long


@pytest.mark.parametrize("objects", [300, pytest.param(900, marks=pytest.mark.deep)])
def test_a_randomly_broken_object_is_read_or_refused_and_never_crashes_its_reader(objects: int, seed: int) -> None:
    """CSV, JSON and Parquet, compressed or not; `make fuzz` reads 20,000."""
    report = fuzz(seed, objects)
    assert not report.faults, "\n".join(report.faults)
    assert report.rows + report.refused == objects
    assert report.rows > objects / 20 and report.refused > objects / 3, "what was broken is not worth reading"
    assert report.most_mib < 512


def test_a_parquet_column_with_broken_metadata_does_not_crash_its_reader() -> None:
    """pyarrow ends the process that asks such a column, of which a histogram has another length, for its size."""
    assert fuzz(221, 1, first=677).faults == ()


@pytest.mark.parametrize("objects", [300, pytest.param(2_000, marks=pytest.mark.deep)])
def test_randomly_broken_messages_are_read_or_refused_and_never_crash_their_reader(objects: int, seed: int) -> None:
    """JSON, Debezium, Avro and Protobuf, with broken values and broken schemas."""
    report = fuzz(seed, objects, 0, broken_messages, MODULE)
    assert not report.faults, "\n".join(report.faults)
    assert report.rows + report.refused == objects
    assert report.rows > objects / 20 and report.refused > objects / 5, "what was broken is not worth reading"
    assert report.most_mib < 512
