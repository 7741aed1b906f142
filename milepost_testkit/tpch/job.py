"""A job of TPC-H queries below a folder, with DuckDB as the oracle of its tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import yaml

from milepost.epoch.answers import EpochRunner
from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.specs.sql_statements import query_of
from milepost_testkit.tpch.changes import ChangeFeed
from milepost_testkit.tpch.tables import Tpch

EXAMPLE = REPOSITORY / "config/examples/tpch"
_DIVIDED = "CREATE MACRO avg(x) AS CAST(sum(x) / count(x) AS DECIMAL(38, 6))"
"""Spark's avg of a decimal is a decimal. DuckDB's is a double, and 0.2 * 15 is above 3."""


@dataclass
class TpchJob:
    """The job of some statements of the example. `{name}.sql` has the statements."""

    folder: Path
    statements: dict[str, str]
    feed: ChangeFeed = field(default_factory=lambda: ChangeFeed(Tpch()))
    parallelism: int = 2

    def __post_init__(self) -> None:
        self.write()

    def write(self) -> None:
        """Write the spec and its SQL file."""
        document = yaml.safe_load((EXAMPLE / "tpch.yaml").read_text())
        text = " ".join(self.statements.values())
        used = [one["uid"] for one in document["operators"] if one["uid"] in text]
        document["operators"] = [one for one in document["operators"] if one["uid"] in used]
        document["sources"] = {
            f"{name}_changes": document["sources"][f"{name}_changes"]
            | {"path": f"feed/*/{name}.parquet", "settle": "0s"}
            for name in used
        }
        document |= {"storage": "store", "tables": {"format": "parquet", "path": "lake/{name}"},
                     "spark": {"master": "local[2]", "parallelism": self.parallelism}}  # fmt: skip
        document |= {"checkpointing": {"max_parallelism": 8, "retained": {"last": 50}}}
        (self.folder / "tpch.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        (self.folder / "tpch.sql").write_text(";\n\n".join(self.statements.values()) + ";\n")

    def rescale(self, parallelism: int) -> None:
        """Run the next epochs with another number of subtasks."""
        self.parallelism = parallelism
        self.write()

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(str(self.folder / "tpch.yaml")))

    def run(self, runner: EpochRunner, **options: Any) -> Any:
        """Land the changes of the next epoch, and run it."""
        self.feed.write(self.folder / "feed")
        return self.master.epochs.run(Session.cli(), runner, **options)

    def check(self) -> dict[str, int]:
        """Compare each table with DuckDB's answer; return their numbers of rows. Raises AssertionError."""
        database = oracle(self.feed.tables)
        counts = {}
        for name, statement in self.statements.items():
            if statement.startswith("CREATE TEMPORARY"):
                database.execute(statement)
                continue
            shown, expected = self.master.reports.read(name), database.sql(query_of(statement)).to_arrow_table()
            differences = compare(shown, expected)
            assert not differences, f"{name}: {differences}"
            counts[name] = shown.num_rows
        return counts


def oracle(tables: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    """Return a database with the tables."""
    database = duckdb.connect()
    database.execute(_DIVIDED)
    for name, rows in tables.items():
        database.register(name, rows)
    return database


def compare(shown: pa.Table, expected: pa.Table) -> str:
    """Return the first difference of two tables, regardless of row order, or "". Decimals differ in digits only."""
    if shown.column_names != expected.column_names:
        return f"columns {shown.column_names}, expected {expected.column_names}"
    if shown.num_rows != expected.num_rows:
        return f"{shown.num_rows} rows, expected {expected.num_rows}"
    for row, other in zip(_rows(shown), _rows(expected), strict=True):
        if not all(map(_equal, row, other)):
            return f"{row}, expected {other}"
    return ""


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: [str(value) for value in row if not isinstance(value, (float, Decimal))])


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, (float, Decimal)) and other is not None:
        return math.isclose(value, other, rel_tol=1e-6, abs_tol=2e-6)
    return bool(value == other)
