"""The bids are a pure function of their shape, so that two machines measure the same work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.workloads.generate import CHANNELS, EPOCH_US, FIRST_ID, START_US, bids, digest, write_epoch
from bench.workloads.shapes import Shape, Skew

SMALL = Shape(keys=500, rows=2_000, files=3)


ZIPF = Shape(keys=500, rows=2_000, skew=Skew.ZIPF, seed=7)
TEXTS = Shape(keys=1_500_000_000, rows=2_000, prefill=False, string_bytes=True)
GOLDEN = {
    SMALL: "c1f5a79357f8da6619ad6dc13496e9da57d628fd62879d29d168a5e9224fe0a1",
    ZIPF: "20024801e5d9ccf7ec584c81bf8d03baec5499deb7450ee61f01525295774f5f",
    TEXTS: "c4c8237e60ff8bb7f0d50ee973414a4886d16636c4a395b1f29a280e74df1dcd",
}


@pytest.mark.parametrize(("shape", "expected"), GOLDEN.items())
def test_bids_are_the_same_on_every_machine(shape: Shape, expected: str) -> None:
    assert digest(bids(shape, 3)) == expected


def test_an_epoch_is_the_same_in_one_piece_and_in_files(tmp_path: Path) -> None:
    size = write_epoch(SMALL, 2, tmp_path / "epoch")
    files = sorted((tmp_path / "epoch").iterdir())
    assert len(files) == SMALL.files and size == sum(file.stat().st_size for file in files)
    assert pa.concat_tables([pq.read_table(file) for file in files]).equals(bids(SMALL, 2))


def test_seeds_and_epochs_have_other_rows() -> None:
    again = Shape(keys=500, rows=2_000, files=3, seed=2)
    assert len({digest(bids(shape, epoch)) for shape in (SMALL, again) for epoch in (1, 2)}) == 4


def test_the_first_epoch_holds_every_key_once() -> None:
    table = bids(SMALL, 0)
    assert sorted(table["auction"].to_pylist()) == list(range(FIRST_ID, FIRST_ID + SMALL.keys))
    assert len(set(zip(table["bidder"].to_pylist(), table["channel"].to_pylist(), strict=True))) == SMALL.keys
    assert set(table["channel"].to_pylist()) == set(CHANNELS)


def test_uniform_keys_are_drawn_evenly_and_skewed_ones_by_rank() -> None:
    counts = {}
    for skew in Skew:
        keys = bids(Shape(keys=100, rows=100_000, skew=skew), 1)["auction"].to_numpy()
        counts[skew] = np.sort(np.unique(keys, return_counts=True)[1])[::-1]
    assert counts[Skew.UNIFORM].min() > 850 and counts[Skew.UNIFORM].max() < 1150
    harmonic = sum(1 / rank for rank in range(1, 101))
    expected = [100_000 / harmonic / rank for rank in (1, 2, 10)]
    assert counts[Skew.ZIPF][[0, 1, 9]] == pytest.approx(expected, rel=0.1)


def test_clustered_keys_are_a_contiguous_fiftieth_that_differs_per_epoch() -> None:
    first, second = (
        np.unique(bids(Shape(keys=1_000, rows=2_000, skew=Skew.CLUSTERED), epoch)["auction"].to_numpy())
        for epoch in (1, 2)
    )
    assert first.tolist() == list(range(FIRST_ID + 20, FIRST_ID + 40))
    assert second.tolist() == list(range(FIRST_ID + 40, FIRST_ID + 60))


def test_event_times_stay_in_their_epoch_and_are_two_seconds_out_of_order_at_most() -> None:
    times = bids(Shape(keys=10, rows=20_000), 4)["event_time"].cast(pa.int64()).to_numpy()
    assert times.min() >= START_US + 4 * EPOCH_US and times.max() < START_US + 5 * EPOCH_US - 100_000
    lateness = np.maximum.accumulate(times) - times
    assert 1_000_000 < lateness.max() <= 2_000_000


@pytest.mark.parametrize("wrong", [{"keys": 0}, {"keys": 2**32}, {"keys": 1, "rows": 0}, {"keys": 1, "files": 0}])
def test_a_shape_that_cannot_be_made_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Shape(**wrong)
