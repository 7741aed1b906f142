"""Whether a system's published table is the right one: DuckDB computes the answer from the same input files.

No time is printed of a system whose answer was not compared and found equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from bench.workloads.language import Statement
from bench.workloads.workloads import Workload

_MEMORY = "8GB"
_TIMES = ("event_time", "expires")
_BORDERS = ("window_start", "window_end")
"""Of windows. Answers have them as microseconds, and the columns above as times."""


class WrongResult(RuntimeError):
    """A system published something else than the answer; its times mean nothing."""

    @property
    def summary(self) -> str:
        """One line for the results."""
        return str(self)


class Answer:
    """The right rows of a workload after some epochs, computed once."""

    def __init__(self, workload: Workload, epochs: Sequence[Path]) -> None:
        """Args: epochs: folders of Parquet files, all that has landed."""
        self._workload = workload
        self._connection = _connected(epochs)
        if workload.statement is not None and workload.statement.streams:
            self._create_views(workload.statement, epochs)
        columns = ", ".join(_in_microseconds(name, _TIMES) for name in workload.result_columns)
        answer = workload.answer_sql(_bids(epochs))
        self._connection.execute(f"CREATE TABLE answer AS SELECT {columns} FROM ({answer})")
        self.rows: int = self._connection.sql("SELECT count(*) FROM answer").fetchall()[0][0]

    def check(self, system: str, result_sql: str) -> None:
        """Compare row by row, duplicates included. Raises WrongResult with counts and one differing row."""
        columns = ", ".join(_in_microseconds(name, (*_BORDERS, *_TIMES)) for name in self._workload.result_columns)
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE published AS SELECT {columns} FROM ({result_sql})")
        published = self._connection.sql("SELECT count(*) FROM published").fetchall()[0][0]
        missing = self._difference("answer", "published")
        extra = self._difference("published", "answer")
        if missing[0] or extra[0]:
            raise WrongResult(
                f"{system}, workload {self._workload.name}: expected {self.rows:,} rows, got {published:,}; "
                f"{missing[0]:,} are missing (for example {missing[1]}), {extra[0]:,} should not be there (for example "
                f"{extra[1]}). No time of this workload is reported."
            )

    def _create_views(self, statement: Statement, epochs: Sequence[Path]) -> None:
        for stream in statement.streams:
            files = [str(file) for epoch in epochs for file in sorted(epoch.glob(f"{stream}-*.parquet"))]
            self._connection.execute(f"CREATE VIEW {stream} AS SELECT * FROM read_parquet({files})")
        for view in statement.views:
            self._connection.execute(view)

    def _difference(self, left: str, right: str) -> tuple[int, object]:
        columns = ", ".join(self._workload.result_columns)
        query = f"SELECT {columns} FROM {left} EXCEPT ALL SELECT {columns} FROM {right}"
        count = self._connection.sql(f"SELECT count(*) FROM ({query})").fetchall()[0][0]
        example = self._connection.sql(query).limit(1).fetchall()[0] if count else None
        return count, example


def changed_keys(workload: Workload, epochs: Sequence[Path]) -> list[int]:
    """How many keys of state each epoch changes; of deduplicated rows, how many keys are new."""
    if workload.statement is not None and workload.statement.streams:
        return [sum(pq.read_metadata(file).num_rows for file in _files(workload, epoch)) for epoch in epochs]
    with _connected(epochs) as connection:
        return [
            int(connection.sql(workload.changed_sql(_bids([epoch]), _before(epochs, at))).fetchall()[0][0])
            for at, epoch in enumerate(epochs)
        ]


def _connected(epochs: Sequence[Path]) -> duckdb.DuckDBPyConnection:
    """Return a database in memory that leaves the systems theirs; what is more lies beside the inputs meanwhile."""
    beside = epochs[0].parent.parent / "duckdb"
    return duckdb.connect(config={"threads": 2, "memory_limit": _MEMORY, "temp_directory": str(beside)})


def _in_microseconds(column: str, times: Sequence[str]) -> str:
    """One of these times as microseconds, whatever type of time a system writes; other columns as they are."""
    return f"epoch_us({column}) AS {column}" if column in times else column


def _files(workload: Workload, epoch: Path) -> list[Path]:
    return [file for stream in workload.streams for file in epoch.glob(f"{stream}-*.parquet")]


def _before(epochs: Sequence[Path], at: int) -> str:
    return _bids(epochs[:at]) if at else f"(SELECT * FROM {_bids(epochs[:1])} WHERE false)"


def _bids(epochs: Sequence[Path]) -> str:
    files = ", ".join(f"'{epoch}/*.parquet'" for epoch in epochs)
    return f"read_parquet([{files}])"
