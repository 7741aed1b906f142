"""DuckDB with a database file, as dbt's incremental models leave it: by merge, or by delete and insert.

No other engine reads that file. What a team then publishes is the whole table as Parquet: the third strategy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from bench.systems.contract import PARALLELISM, Folders, NotAsked, size_of
from bench.systems.merges.merging import CHANGES, merge_sql, same_key, stage_changes, updates
from bench.workloads.workloads import Workload


class DuckDb:
    """One table `totals`; the strategy is `merge`, `delete+insert`, or `parquet`: a merge, then all of it as a file."""

    def __init__(self, strategy: str) -> None:
        self._strategy = strategy

    def prepare(self, workload: Workload, folders: Folders) -> None:
        self._workload, self._folders = workload, folders
        folders.output.mkdir(parents=True)
        self._connection = duckdb.connect(str(folders.output / "bench.duckdb"), config={"threads": PARALLELISM})

    def stage(self, source: Path, target: Path) -> None:
        stage_changes(self._workload, source, target)

    def epoch(self, number: int) -> None:
        rows = f"SELECT * FROM read_parquet('{self._folders.epoch(number) / CHANGES}')"
        self._connection.execute("BEGIN")
        if number == 0:
            self._connection.execute(f"CREATE TABLE totals AS {rows}")
        elif self._strategy == "delete+insert":
            self._delete_and_insert(rows)
        else:
            self._connection.execute(merge_sql(self._workload, "totals", rows))
        self._connection.execute("COMMIT")
        if self._strategy == "parquet":
            partial = self._published.with_suffix(".partial")
            self._connection.execute(f"COPY totals TO '{partial}' (FORMAT parquet)")
            partial.replace(self._published)

    @property
    def _published(self) -> Path:
        return self._folders.output / "totals.parquet"

    def _delete_and_insert(self, rows: str) -> None:
        """The model's query first, into a table of its own: rows of changed keys as they shall be."""
        key = ", ".join(self._workload.key)
        told = {name: f"s.{name}" for name in self._workload.key} | {
            name: f"CASE WHEN t.bids IS NULL THEN s.{name} ELSE {text} END" for name, text in updates().items()
        }
        columns = ", ".join(f"{text} AS {name}" for name, text in told.items())
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE changed AS "
            f"SELECT {columns} FROM ({rows}) AS s LEFT JOIN totals AS t ON {same_key(self._workload)}"
        )
        self._connection.execute(f"DELETE FROM totals WHERE ({key}) IN (SELECT ({key}) FROM changed)")
        self._connection.execute("INSERT INTO totals BY NAME SELECT * FROM changed")

    def figures(self, number: int) -> dict[str, Any]:
        written = {"output_bytes": self._published.stat().st_size} if self._strategy == "parquet" else {}
        return written | {"kept_bytes": size_of(self._folders.output)}

    def probe(self, name: str) -> dict[str, Any]:
        raise NotAsked(name)

    def result_sql(self) -> str:
        """Of the published file; without one, of the table, which no other process can open meanwhile."""
        file = self._published
        if self._strategy != "parquet":
            file = self._folders.work / "published.parquet"
            self._connection.execute(f"COPY totals TO '{file}' (FORMAT parquet)")
        return f"SELECT {', '.join(self._workload.result_columns)} FROM read_parquet('{file}')"

    def versions(self) -> dict[str, str]:
        return {"duckdb": duckdb.__version__}

    def close(self) -> None:
        self._connection.close()
