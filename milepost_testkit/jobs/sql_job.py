"""A job in SQL below a folder: orders, their payments, and countries, with DuckDB as the oracle of its tables."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import yaml

from milepost.epoch.answers import EpochRunner
from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.graph.compatibility import state_signatures
from milepost.jobspec.load.load import load_job

TABLES = {
    "orders": "id BIGINT, customer VARCHAR, amount DECIMAL(10, 2), quantity INTEGER, ordered_at TIMESTAMPTZ",
    "payments": "order_id BIGINT, amount DECIMAL(10, 2), method VARCHAR, paid_at TIMESTAMPTZ",
    "countries": "customer VARCHAR, country VARCHAR",
}
SOURCES: dict[str, dict[str, Any]] = {
    "orders": {
        "schema": {"id": "int64", "customer": "string", "amount": "decimal(10,2)", "quantity": "int32",
                   "ordered_at": "timestamp[us, UTC]"},
        "event_time": "ordered_at",
    },
    "payments": {
        "schema": {"order_id": "int64", "amount": "decimal(10,2)", "method": "string", "paid_at": "timestamp[us, UTC]"},
        "event_time": "paid_at",
    },
    "countries": {"schema": {"customer": "string", "country": "string"}, "static": True},
}  # fmt: skip
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_PER_EPOCH = 30


def document(sql: str, name: str = "shop", **changes: Any) -> dict[str, Any]:
    """Return the spec of a job with the sources that some SQL reads, and the statements of `<name>.sql`."""
    sources = {
        source: {"format": "csv", "path": f"landing/{source}/*.csv", "settle": "0s",
                 "options": {"null_values": [""], "strings_can_be_null": True}} | keys
        for source, keys in SOURCES.items()
        if source in sql.lower()
    }  # fmt: skip
    return {
        "name": name,
        "storage": "store",
        "sources": sources,
        "sql": f"{name}.sql",
        "tables": {"format": "parquet", "path": "lake/{name}"},
        "spark": {"master": "local[2]", "parallelism": 2},
        "checkpointing": {"max_parallelism": 8, "retained": {"last": 50}},
        **changes,
    }


def sources_with(sql: str, **types: str) -> dict[str, Any]:
    """Return the sources that some SQL reads, with other types of columns of `orders`."""
    sources = document(sql)["sources"]
    if types:
        sources["orders"]["schema"] = sources["orders"]["schema"] | types
    return dict(sources)


@dataclass
class SqlJob:
    """The job, and what has landed so far.

    Attributes:
        changes: keys of its spec, as for `document`. seed: of the rows that land.
        is_loaded_once: whether `write` alone changes its files, so that a master is loaded once for several calls.
    """

    folder: Path
    sql: str
    changes: dict[str, Any] = field(default_factory=dict)
    epochs: int = 0
    parallelism: int = 2
    seed: int = 0
    is_loaded_once: bool = False
    database: duckdb.DuckDBPyConnection = field(default_factory=lambda: duckdb.connect(config={"threads": 1}))
    _master: JobMaster | None = None

    def __post_init__(self) -> None:
        self.database.execute("SET TimeZone = 'UTC'")
        self.database.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        for name, columns in TABLES.items():
            (self.folder / "landing" / name).mkdir(parents=True, exist_ok=True)
            self.database.execute(f"CREATE TABLE {name} ({columns})")
        self.write(self.sql)
        self._land("countries", [f"c{number},k{number % 3}" for number in range(4)])

    def write(self, sql: str, **changes: Any) -> None:
        """Write the spec, with some more keys, and its SQL file."""
        self.sql, self.changes = sql, self.changes | changes
        keys = {"spark": {"master": "local[2]", "parallelism": self.parallelism}} | self.changes
        (self.folder / "shop.yaml").write_text(yaml.safe_dump(document(sql, **keys), sort_keys=False))
        (self.folder / "shop.sql").write_text(sql)
        self._master = None

    def rescale(self, parallelism: int) -> None:
        """Run the next epochs with another number of subtasks."""
        self.parallelism = parallelism
        self.write(self.sql)

    @property
    def master(self) -> JobMaster:
        """The master of the written spec. To load it takes as long as a small epoch."""
        if self._master is None or not self.is_loaded_once:
            self._master = JobMaster(load_job(str(self.folder / "shop.yaml")))
        return self._master

    def signatures(self) -> dict[str, Any]:
        """Return what its state depends on."""
        job = load_job(str(self.folder / "shop.yaml"))
        return state_signatures(job.spec, job.graph())

    def run(self, runner: EpochRunner, **options: Any) -> Any:
        """Land rows of another hour, and run an epoch."""
        self.land()
        return self.master.epochs.run(Session.cli(), runner, **options)

    def land(self) -> None:
        """Land rows of another hour: of an order a payment within an hour in four of five cases, and some nulls."""
        rng = random.Random(self.epochs + 1_000 * self.seed)
        orders, payments = [], []
        for number in range(_PER_EPOCH):
            order = self.epochs * _PER_EPOCH + number
            at = _BEGIN + timedelta(minutes=60 * self.epochs + number * 60 / _PER_EPOCH)
            customer = f"c{rng.randrange(6)}" if rng.random() < 0.9 else ""
            quantity = str(rng.randrange(5)) if rng.random() < 0.9 else ""
            orders.append(f"{order},{customer},{rng.randrange(1, 3000) / 100:.2f},{quantity},{_text(at)}")
            if rng.random() < 0.8:
                paid = at + timedelta(minutes=rng.randrange(60))
                method = rng.choice(["card", "cash", ""])
                payments.append(f"{order},{rng.randrange(1, 3000) / 100:.2f},{method},{_text(paid)}")
        self.epochs += 1
        self._land("orders", orders)
        self._land("payments", payments)

    def _land(self, name: str, lines: list[str]) -> None:
        header = ",".join(column.split()[0] for column in TABLES[name].replace("(10, 2)", "").split(", "))
        file = self.folder / "landing" / name / f"{self.epochs:03}.csv"
        file.write_text("\n".join([header, *lines]) + "\n")
        self.database.execute(f"INSERT INTO {name} SELECT * FROM read_csv('{file}', header = true, nullstr = '')")

    def check(self, table: str, query: str, *, is_edited: bool = False) -> int:
        """Compare a table with DuckDB's answer; return the number of its rows. Raises AssertionError.

        Args:
            is_edited: whether an edit may have added columns, which are the last ones of the table.
        """
        expected = self.database.sql(query)
        shown = self.master.reports.read(table)
        if is_edited and {*shown.column_names} == {*expected.columns}:
            shown = shown.select(expected.columns)
        assert shown.column_names == expected.columns, table
        self.database.register("shown", shown)
        both = f"SELECT *, 1 AS more FROM shown UNION ALL SELECT *, -1 FROM ({query})"
        differing = f"SELECT sum(more) AS more, * EXCLUDE (more) FROM ({both}) GROUP BY ALL HAVING sum(more) <> 0"
        found = self.database.sql(differing).limit(5).fetchall()
        assert not found, f"table {table}, of which one side has more: {found}"
        return int(shown.num_rows)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
