"""Write the epochs of a workload's streams: bids, events of Nexmark, or changes of TPC-H's tables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.workloads.examples import CHANGE, TABLES, changes_of
from bench.workloads.generate import write_epoch
from bench.workloads.shapes import ORDERS, Family, Shape
from milepost.jobspec.job.sources.nexmark_source import NEXMARK_COLUMNS
from milepost.language import arrow_schema
from milepost.sources.landed.nexmark_source import open_nexmark_source
from milepost_testkit.tpch.changes import ChangeFeed
from milepost_testkit.tpch.tables import Tpch

_PER_CYCLE = {"person": 1, "auction": 3, "bid": 46}
_CYCLE = sum(_PER_CYCLE.values())
_EVENTS_PER_S = 1_000
_ROWS, _BYTES = 2**40, 2**40
"""No limit."""
_MANY = 100_000
"""Rows of a stream that are dealt out to several files."""


def write_epochs(
    shape: Shape, streams: Collection[str], folders: Mapping[int, Path], wrote: Callable[[int], None]
) -> None:
    """Write epochs of some streams, each below its folder, which appears complete or not at all.

    Args:
        wrote: is called before each.
    """
    changes = _changes(shape) if shape.family is Family.TPCH else iter(())
    for number in range(max(folders, default=-1) + 1):
        tables = next(changes, {})
        if number not in folders:
            continue
        wrote(number)
        folders[number].parent.mkdir(parents=True, exist_ok=True)
        if shape.family is Family.BIDS:
            write_epoch(shape, number, folders[number])
        else:
            if shape.family is Family.NEXMARK:
                tables = _events(shape, streams, number)
            written = {name: table for name, table in tables.items() if name in streams}
            _write(written, folders[number], shape.files)


def _events(shape: Shape, kinds: Collection[str], epoch: int) -> dict[str, pa.Table]:
    """Return the events of an epoch by kind, of some kinds. Each 50 events are a person, 3 auctions and 46 bids."""
    cycles = max(1, shape.rows // _CYCLE)
    tables = {}
    for kind in kinds:
        count = _PER_CYCLE[kind]
        schema = arrow_schema(NEXMARK_COLUMNS[kind])
        generator = open_nexmark_source(
            {}, schema, events=kind, seed=shape.seed, events_per_second=_EVENTS_PER_S, total=None,
            max_rows=_ROWS, max_bytes=_BYTES,
        )  # fmt: skip
        rows = range(epoch * cycles * count, (epoch + 1) * cycles * count)
        batches = [one for one in generator.read(rows) if isinstance(one, pa.RecordBatch)]
        tables[kind] = _in_milliseconds(pa.Table.from_batches(batches, schema))
    return tables


def _in_milliseconds(table: pa.Table) -> pa.Table:
    """Cut times to whole milliseconds."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            whole = pc.floor_temporal(table[field.name], unit="millisecond")
            table = table.set_column(at, field, whole)
    return table


def _changes(shape: Shape) -> Iterator[dict[str, pa.Table]]:
    """Yield the changes of TPC-H's tables epoch by epoch. Each follows from those before it."""
    feed = ChangeFeed(Tpch(shape.keys / ORDERS, shape.seed), share=shape.rows / shape.keys)
    while True:
        changes = feed.advance()
        yield {
            changes_of(name): changes[name].select([*columns.split(), *CHANGE])
            for name, columns in TABLES.items()
            if name in changes
        }


def _write(tables: Mapping[str, pa.Table], folder: Path, files: int) -> None:
    """Write the rows of each stream to one file, or to several if they are many."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, table in tables.items():
        rows = -(-table.num_rows // files) if table.num_rows > _MANY else table.num_rows
        for part, first in enumerate(range(0, max(1, table.num_rows), max(1, rows))):
            file = partial / f"{name}-{part:05d}.parquet"
            pq.write_table(table.slice(first, rows), file, compression="snappy")
    partial.rename(folder)
