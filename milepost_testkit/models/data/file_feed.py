"""An external system of numbered Parquet files that forgets what was acknowledged, as a class of `format: python`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MODULE = "feeds"
"""Module of the class, next to the spec."""
CODE = '''\
"""Files 0000.parquet, 0001.parquet, …: one is one record of the log. `commit` deletes those before a position."""

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow


class Feed(DataSource):
    def streamReader(self, schema):
        return Reader(Path(self.options["folder"]))


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, folder):
        self.folder = folder

    def numbers(self):
        return [int(path.stem) for path in self.folder.glob("*.parquet")]

    def initialOffset(self):
        return {"next": 0}

    def prepareForTriggerAvailableNow(self):
        self.end = max(self.numbers(), default=-1) + 1

    def latestOffset(self, start, limit):
        return {"next": start["next"] + 1} if start["next"] < self.end else start

    def partitions(self, start, end):
        return [InputPartition((start["next"], part)) for part in (0, 1)]

    def read(self, partition):
        """Yield the first half of a file, or the second."""
        number, part = partition.value
        rows = pq.read_table(self.folder / f"{number:04}.parquet")
        half = rows.num_rows // 2
        yield from (rows.slice(half) if part else rows.slice(0, half)).to_batches(max_chunksize=3)

    def commit(self, end):
        for number in self.numbers():
            if number < end["next"]:
                (self.folder / f"{number:04}.parquet").unlink(missing_ok=True)
'''

_OF_FILES = ("path", "suffix", "settle", "on_change")


def feed_document(source: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the spec of a source of files as that of the same rows from an external system below a folder."""
    rest = {key: value for key, value in source.items() if key not in _OF_FILES}
    read = {"format": "python", "source": f"{MODULE}:Feed", "options": {"folder": str(folder)}}
    return rest | read | {"limits_per_epoch": {"max_records": 1}}


def is_feed(source: dict[str, Any]) -> bool:
    """Return whether the spec of a source is one of `feed_document`."""
    return bool(source["format"] == "python")


def produce(folder: Path, number: int, rows: pa.Table) -> None:
    """Add rows to the external system, atomically, as a file with a number."""
    part = folder / f"{number:04}.part"
    pq.write_table(rows, part)
    part.rename(folder / f"{number:04}.parquet")


def waiting(folder: Path) -> int:
    """Return the number of files that were not acknowledged yet."""
    return sum(1 for _ in folder.glob("*.parquet"))
