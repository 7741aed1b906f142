"""Bids as in Nexmark: a pure function of seed, shape, epoch and row number.

Every value comes from a counter-based integer hash (splitmix64), never from a library's generator, so the same numbers
come out under every version of NumPy. Rows are written as Parquet files, one folder per epoch.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.workloads.language import CATEGORIES, SELLS
from bench.workloads.shapes import SCATTER, Shape, Skew
from milepost.sources.landed.splitmix import Words, below, splitmix64

FIRST_ID = 1000
CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
START_US = 1_700_000_040_000_000
"""2023-11-14T22:14:00Z: the event time at which epoch 0 begins; a whole minute."""
EPOCH_US = 60_000_000
_QUIET_END_US = 100_000
"""No row has an event time in an epoch's last 0.1 s: no system's way of rounding decides which windows are closed."""
_SCATTER = np.uint64(SCATTER)
_CLUSTERS = 50
_ROWS_PER_STEP = 1_000_000

SCHEMA = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
    ]
)


def bids(shape: Shape, epoch: int, first: int = 0, count: int | None = None) -> pa.Table:
    """Return rows [first, first + count) of an epoch, by default all; the columns of `SCHEMA`."""
    total = shape.rows_of(epoch)
    count = total - first if count is None else count
    row = np.arange(first, first + count, dtype=np.uint64)
    key = row % np.uint64(shape.keys) if epoch == 0 and shape.prefill else _drawn(shape, epoch, row)
    if shape.skew is not Skew.CLUSTERED:
        key = key * _SCATTER % np.uint64(shape.keys)
    price = below(_random(shape, epoch, row, 1), 10_000_000) + np.uint64(1)
    jitter = below(_random(shape, epoch, row, 2), 2_000_000)
    last = np.uint64(EPOCH_US - _QUIET_END_US - 2_000_000)
    time = row * last // np.uint64(max(total - 1, 1)) + jitter + np.uint64(START_US + epoch * EPOCH_US)
    if shape.coarse:  # and so many rows are of an epoch's last moment that every reader has one of them
        end = np.uint64(START_US + epoch * EPOCH_US + EPOCH_US - _QUIET_END_US - 1_000_000)
        time = np.minimum(time - time % np.uint64(10_000), end)
    auction = (key + np.uint64(FIRST_ID)).astype(np.int64)
    channel = pa.DictionaryArray.from_arrays(pa.array((key % np.uint64(4)).astype(np.int8)), pa.array(CHANNELS))
    columns = [
        pa.array(auction),
        pa.array((key // np.uint64(4) + np.uint64(FIRST_ID)).astype(np.int64)),
        pa.array(price.astype(np.int64)),
        channel.dictionary_decode(),
        _urls(auction) if shape.string_bytes else pa.repeat("", count),
        pa.array(time.astype(np.int64)).cast(pa.timestamp("us", "UTC")),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write_epoch(shape: Shape, epoch: int, folder: Path) -> int:
    """Write an epoch's files below a folder that must not exist yet; it appears complete or not at all.

    Returns: bytes of its files.
    """
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    total = shape.rows_of(epoch)
    borders = [total * part // shape.files for part in range(shape.files + 1)]
    for part, (first, end) in enumerate(pairwise(borders)):
        with pq.ParquetWriter(partial / f"bids-{part:05d}.parquet", SCHEMA, compression="snappy") as writer:
            for at in range(first, end, _ROWS_PER_STEP):
                writer.write_table(bids(shape, epoch, at, min(_ROWS_PER_STEP, end - at)))
    size = sum(file.stat().st_size for file in partial.iterdir())
    partial.rename(folder)
    return size


def auctions(shape: Shape) -> pa.Table:
    """Return a row of each auction, in no order: who sells, and what."""
    row = np.arange(shape.keys, dtype=np.uint64)
    auction = (row * _SCATTER % np.uint64(shape.keys) + np.uint64(FIRST_ID)).astype(np.int64)
    category = pa.array(auction % CATEGORIES).cast(pa.string())
    return pa.table(
        {
            "auction": auction,
            "seller": auction // SELLS,
            "category": pc.binary_join_element_wise("category", category, " "),
        }
    )


def digest(table: pa.Table) -> str:
    """SHA-256 over the values of a table of bids, independent of chunks and of the file format."""
    result = hashlib.sha256()
    for field in table.schema:
        column = table[field.name].combine_chunks()
        if pa.types.is_string(field.type):
            result.update(b"\0".join(value.encode() for value in column.to_pylist()))
        else:
            result.update(column.cast(pa.int64()).to_numpy().astype("<i8").tobytes())
    return result.hexdigest()


def _drawn(shape: Shape, epoch: int, row: Words) -> Words:
    random = _random(shape, epoch, row, 0)
    if shape.skew is Skew.UNIFORM:
        return below(random, shape.keys)
    if shape.skew is Skew.CLUSTERED:
        width = max(1, shape.keys // _CLUSTERS)
        return (below(random, width) + np.uint64(epoch * width)) % np.uint64(shape.keys)
    shares = _zipf_shares(shape.keys)
    at = (random >> np.uint64(11)).astype(np.float64) * (shares[-1] / 2.0**53)
    return np.minimum(np.searchsorted(shares, at, side="right"), shape.keys - 1).astype(np.uint64)


@lru_cache(maxsize=2)
def _zipf_shares(keys: int) -> npt.NDArray[np.float64]:
    """Running sums of 1/rank. Division and addition are exact by IEEE 754, so these are the same on every machine."""
    return np.cumsum(1.0 / np.arange(1, keys + 1, dtype=np.float64))


def _random(shape: Shape, epoch: int, row: Words, column: int) -> Words:
    """One 64-bit number per row, by splitmix64 of (seed, epoch, column, row)."""
    stream = splitmix64(np.array([(shape.seed << 40) + (epoch << 8) + column], dtype=np.uint64))[0]
    return splitmix64(row + stream)


def _urls(auction: npt.NDArray[np.int64]) -> pa.Array:
    return pc.binary_join_element_wise(
        "https://www.nexmark.com/item.htm?query=", pa.array(auction).cast(pa.string()), ""
    )
