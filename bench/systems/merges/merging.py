"""What those who merge an epoch's rows into a table by key have in common: the rows that they are given, and the SQL.

They are given the epoch's bids as aggregated already, one row per key, which spares them most of the work; with
`aggregates` they do that themselves, in the statement that merges.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.systems.contract import Folders, Written, is_data, size_of
from bench.workloads.workloads import AGGREGATES, Workload

CHANGES = "changes.parquet"
_COMBINED = {"bids": "t.bids + s.bids", "total": "t.total + s.total", "highest": "greatest(t.highest, s.highest)"}
"""A row of the table and one of the epoch, of one key, as the row that the table then has; in any SQL."""


def stage_changes(workload: Workload, source: Path, target: Path) -> None:
    """Make a folder with one file, an epoch's bids by key: their number, sum and maximum, sorted by nothing."""
    target.mkdir()
    bids = pa.concat_tables(pq.read_table(file, columns=list(workload.columns)) for file in sorted(source.iterdir()))
    found = bids.group_by(list(workload.key)).aggregate([("price", "count"), ("price", "sum"), ("price", "max")])
    figures = (found["price_count"], found["price_sum"], found["price_max"])
    columns = [*(found[name] for name in workload.key), *(pc.cast(one, pa.int64()) for one in figures)]
    pq.write_table(pa.table(columns, names=list(workload.result_columns)), target / CHANGES)


def aggregated(workload: Workload, bids: str) -> str:
    """SQL for the rows that `stage_changes` makes, from a table expression."""
    figures = ", ".join(f"CAST({text} AS BIGINT) AS {name}" for name, text in AGGREGATES.items())
    return f"SELECT {', '.join(workload.key)}, {figures} FROM {bids} GROUP BY {', '.join(workload.key)}"


def same_key(workload: Workload) -> str:
    """The condition under which a row `s` of the epoch and a row `t` of the table are of one key."""
    return " AND ".join(f"t.{name} = s.{name}" for name in workload.key)


def updates() -> dict[str, str]:
    """Column -> what it becomes, of rows `t` and `s`."""
    return dict(_COMBINED)


def merge_sql(workload: Workload, table: str, rows: str) -> str:
    """The statement that takes `rows` into `table`."""
    changed = ", ".join(f"{name} = {text}" for name, text in _COMBINED.items())
    columns = workload.result_columns
    return (
        f"MERGE INTO {table} AS t USING ({rows}) AS s ON {same_key(workload)} "
        f"WHEN MATCHED THEN UPDATE SET {changed} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(f's.{name}' for name in columns)})"
    )


class TableVolumes:
    """Contents of a table's folder, and which of them are new since the last scan."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._data = Written(folders.output, is_data)
        self._log = Written(folders.output, lambda path: not is_data(path))

    def figures(self) -> dict[str, Any]:
        return {
            "output_bytes": self._data.new_bytes(),
            **self._log.figures("log"),
            "kept_bytes": size_of(self._folders.output),
        }
