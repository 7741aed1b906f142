"""The input record of a landed source: partitions that are behind, and gaps, are absent where there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.codec import load
from milepost.epoch.plan import InputRecord, SourceInput, decode_input_record, encode_input_record
from milepost.protocol.landed.records import LandedRange, LogPosition

END = LogPosition("log", 5, "0" * 64, {"next": 7}, 7, 70, 1)


def record_of(landed: LandedRange | None) -> InputRecord:
    return InputRecord((SourceInput("clicks", (), (), {}, 0, 0, None, landed=landed),))


@pytest.mark.parametrize(
    "landed",
    [
        None,
        LandedRange(2, END),
        LandedRange(2, END, ("clicks/0",)),
        LandedRange(2, END, gaps=1),
        LandedRange(2, replace(END, next=9), voids=1, skipped=3),
    ],
)
def test_the_records_that_an_epoch_reads_are_stored(landed: LandedRange | None) -> None:
    record = record_of(landed)
    assert decode_input_record(encode_input_record(record)) == record


def test_a_range_without_gaps_and_partitions_that_are_behind_is_stored_as_before_there_were_any() -> None:
    stored = load(encode_input_record(record_of(LandedRange(2, END))), "input record")
    assert set(stored["sources"]["clicks"]["landed"]) == {"first", "end"}
