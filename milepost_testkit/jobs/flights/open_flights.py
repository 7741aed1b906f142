"""The flights job on Delta or Iceberg: all kinds of sinks, what they must hold, and what other writers do to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from milepost.jobmaster.job.context import JobContext
from milepost.storage.open import open_store
from milepost_testkit.formats.iceberg_writers import compact
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.models.data.csv_oracle import expected_tables
from milepost_testkit.readers.reading_engines import CatalogTable, ReadingEngines, Where

SINKS = ("carriers", "hourly", "late_flights", "changes")
"""Upsert, append, append of late rows, and the changelog of the first."""

CHANGED = "changes"
FILTERS: dict[str, Where] = {
    "carriers": ("carrier", "=", "UA"),
    "hourly": ("window_start", ">=", "2013-01-05 12:00:00+00:00"),
    "late_flights": ("distance", ">", "1000"),
    "changes": ("_checkpoint", ">=", "2"),
}


@dataclass
class OpenFlights:
    """A flights job whose tables are open to every engine.

    Attributes:
        table_format: `delta` or `iceberg`. appended: rows of others, by sink.
    """

    job: FlightsJob
    table_format: str
    appended: dict[str, pa.Table] = field(default_factory=dict)
    _answers: dict[str, dict[str, pa.Table]] = field(default_factory=dict)

    @classmethod
    def create(cls, folder: Path, table_format: str, edit: dict[str, str]) -> OpenFlights:
        """Write the spec; `edit` as for `FlightsJob.create`."""

        def place(name: str) -> str:
            if table_format == "delta":
                return f"format: delta, path: ../lake/{name}"
            catalog = f"{{type: sql, uri: 'sqlite:///{folder}/catalog.db'}}"
            return f"format: iceberg, table: flights.{name}, catalog: {catalog}, path: ../lake/{name}"

        changes = f"  - {{name: {CHANGED}, input: carriers, {place(CHANGED)}, mode: changelog}}\n\n"
        moved = {f"format: parquet, path: ../lake/{name}": place(name) for name in SINKS if name != CHANGED}
        return cls(FlightsJob.create(folder, {**moved, without_quality(): changes, **edit}), table_format)

    def place(self, sink: str) -> Path | CatalogTable:
        """Return where an engine finds a sink's table."""
        if self.table_format == "delta":
            return self.job.folder / "lake" / sink
        return CatalogTable(str(self.job.folder / "catalog.db"), f"flights.{sink}")

    # -- what they must hold ---------------------------------------------------------------------------------------

    def expected(self) -> dict[str, pa.Table]:
        """Return each table by DuckDB, from the landed CSV alone, with the rows that others appended."""
        lineage = self.job.lineage()
        prefixes = [self._answer([keys for _, keys in lineage[:count]]) for count in range(1, len(lineage) + 1)]
        tables = dict(prefixes[-1])
        tables[CHANGED] = _changelog(
            tables[CHANGED].schema, [(at, p[CHANGED]) for (at, _), p in zip(lineage, prefixes, strict=True)]
        )
        for sink, rows in self.appended.items():
            tables[sink] = pa.concat_tables([tables[sink], _as_oracle(rows, tables[sink].schema)])
        return tables

    def _answer(self, epochs: list[list[str]]) -> dict[str, pa.Table]:
        context = JobContext(self.job.load())
        known = repr((context.spec.sources, context.spec.operators, epochs))
        if known not in self._answers:
            root, _ = context.source("flights")
            self._answers[known] = expected_tables(context.job.spec, open_store(root), epochs).tables
        return self._answers[known]

    # -- what others do --------------------------------------------------------------------------------------------

    def append_by_library(self, sink: str, rows: pa.Table) -> None:
        """Add rows as another client of Python does."""
        if isinstance(place := self.place(sink), CatalogTable):
            self._client(place).load_table(place.name).append(rows)
        else:
            write_deltalake(place, rows, mode="append")
        self._note(sink, rows)

    def append_by_spark(self, sink: str, rows: pa.Table, engines: ReadingEngines) -> None:
        """Add one row as an external writer; its values are text, numbers and times."""
        (row,) = rows.to_pylist()
        values = ", ".join(map(_literal, row.values()))
        place, name = self._in_sql(sink)
        engines.run_on_spark(f"INSERT INTO {name} ({', '.join(rows.column_names)}) VALUES ({values})", place)
        self._note(sink, rows)

    def compact_by_library(self, sink: str) -> None:
        """Let another client of Python put small files together."""
        if isinstance(place := self.place(sink), CatalogTable):
            compact(self._client(place).load_table(place.name))
        else:
            assert DeltaTable(place).optimize.compact()["numFilesRemoved"] > 1

    def compact_by_spark(self, sink: str, engines: ReadingEngines) -> None:
        """Let Spark put small files together, as its own command does."""
        place, name = self._in_sql(sink)
        if place is None:
            engines.run_on_spark(f"OPTIMIZE {name}")
        else:
            options = "map('rewrite-all', 'true')"
            call = f"CALL {place.catalog}.system.rewrite_data_files(table => '{place.name}', options => {options})"
            engines.run_on_spark(call, place)

    def delete_by_library(self, sink: str, carrier: str) -> None:
        """Delete the rows of a carrier as another client of Python does."""
        if isinstance(place := self.place(sink), CatalogTable):
            self._client(place).load_table(place.name).delete(f"carrier = '{carrier}'")
        else:
            DeltaTable(place).delete(f"carrier = '{carrier}'")

    def delete_by_spark(self, sink: str, carrier: str, engines: ReadingEngines) -> None:
        """Delete the rows of a carrier as an external writer."""
        place, name = self._in_sql(sink)
        engines.run_on_spark(f"DELETE FROM {name} WHERE carrier = '{carrier}'", place)

    def _in_sql(self, sink: str) -> tuple[CatalogTable | None, str]:
        if isinstance(place := self.place(sink), CatalogTable):
            return place, f"{place.catalog}.{place.name}"
        return None, f"delta.`{place}`"

    def _client(self, table: CatalogTable) -> SqlCatalog:
        return SqlCatalog(table.catalog, uri=f"sqlite:///{table.file}")

    def _note(self, sink: str, rows: pa.Table) -> None:
        known = self.appended.get(sink)
        self.appended[sink] = rows if known is None else pa.concat_tables([known, rows])


def _literal(value: object) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value}'"
    return str(value) if isinstance(value, int) else f"'{value}'"


def _changelog(columns: pa.Schema, epochs: list[tuple[int, pa.Table]]) -> pa.Table:
    """Return every row that is another than in the epoch before, with what a changelog adds."""
    before: set[str] = set()
    found = []
    for checkpoint_id, table in epochs:
        rows = table.to_pylist()
        found += [row | {"_op": "upsert", "_checkpoint": checkpoint_id} for row in rows if repr(row) not in before]
        before = {repr(row) for row in rows}
    return pa.Table.from_pylist(
        found, pa.schema([*columns, pa.field("_op", pa.string()), pa.field("_checkpoint", pa.int64())])
    )


def _as_oracle(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the oracle's columns: times are microseconds there."""
    columns = {}
    for wanted in schema:
        column = rows.column(wanted.name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        columns[wanted.name] = column.cast(wanted.type)
    return pa.table(columns, schema=schema)
