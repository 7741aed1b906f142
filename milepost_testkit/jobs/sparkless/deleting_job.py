"""A small job over a change feed whose keys come, go and come back, with sinks of every kind. No Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from milepost.jobmaster import JobMaster, Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.readers.reading_engines import CatalogTable, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

WRONG_FROM = 3
"""Day of the first rows with 99, which stands for "not measured"."""

KEYS = 10
PARQUET = "  - {name: table, input: latest, format: parquet, path: ../lake/table, mode: upsert}\n"
OPEN = (
    "  - {name: delta, input: latest, format: delta, buckets: 4, path: ../lake/delta, mode: upsert}\n"
    "  - {name: ice, input: latest, format: iceberg, path: ../lake/ice, mode: upsert, table: small.ice,\n"
    '     catalog: {type: sql, uri: "${env:DELETING_CATALOG}"}}\n'
    "  - {name: changes, input: latest, format: delta, path: ../lake/changes, mode: changelog}\n"
)
_CURRENT = """\
class Current:
    state = {"lsn": "int64"}
    output = {"k": "int64", "v": "int64"}

    def on_rows(self, key, rows, state, ctx):
        for row in rows.to_pylist():
            if state["lsn"] is not None and row["lsn"] <= state["lsn"]:
                continue
            state["lsn"] = row["lsn"]
            if row["op"] == "d":
                ctx.delete()
            else:
                yield {"k": key, "v": row["v"]}
"""
_EDIT = {
    "schema: {k: int64, v: string}": 'schema: {k: int64, v: int64, lsn: int64, op: string, at: "timestamp[us, UTC]"}\n'
    "    event_time: at\n    watermark_delay: 2h\n    options: {null_values: []}",
    "kind: aggregate, inputs: [rows], key: [k], aggregates: {rows: count(*)}": "kind: process, inputs: [rows], "
    'key: [k], output_key: [k], function: "current:Current"',
    "retained: {last: 1}": "retained: {last: 50}",
}


@dataclass(frozen=True)
class DeletingJob:
    """One object per day and epoch; `fix` makes 99 a null."""

    small: SparklessJob

    @classmethod
    def create(cls, folder: Path, sinks: str = PARQUET + OPEN) -> DeletingJob:
        job = cls(SparklessJob.create(folder, {**_EDIT, PARQUET: sinks}))
        (folder / "config" / "current.py").write_text(_CURRENT)
        return job

    @property
    def master(self) -> JobMaster:
        return self.small.master

    def edit(self, old: str, new: str) -> None:
        edit_spec(self.small.folder / "config" / "small.yaml", {old: new})

    def fix(self) -> None:
        self.edit("null_values: []", 'null_values: ["99"]')

    def land(self, day: int) -> None:
        """Three keys come, two go; one change is older than what is known of its key."""
        changes = [
            *((key % KEYS, day * 100 + at, "u") for at, key in enumerate((day, day * 3, day * 7))),
            *((key % KEYS, day * 100 + 50 + at, "d") for at, key in enumerate((day * 2 + 1, day * 7 + 3))),
            ((day + 5) % KEYS, day * 100 - 250, "u"),
        ]
        values = [(key, 99 if day >= WRONG_FROM and key % 2 else key * 1000 + day, lsn, op) for key, lsn, op in changes]
        lines = [f"{k},{v},{lsn},{op},2026-03-{day:02d}T10:00:00Z\n" for k, v, lsn, op in values]
        self.small.land(f"day-{day:02d}.csv", "k,v,lsn,op,at\n" + "".join(lines))

    def run(self, *days: int) -> None:
        """Land these, each for an epoch of its own."""
        for day in days:
            self.land(day)
            self.master.epochs.run(Session.cli(), SparklessRunner())

    def expected(self, days: Iterable[int], *, fixed: bool = False) -> pa.Table:
        """What the table holds after these days, by DuckDB over the landed files."""
        files = [str(self.small.folder / "landing" / f"day-{day:02d}.csv") for day in days]
        query = (
            "SELECT k, CASE WHEN v = 99 AND $fixed THEN NULL ELSE v END AS v FROM read_csv($files, header = true) "
            "QUALIFY row_number() OVER (PARTITION BY k ORDER BY lsn DESC) = 1 AND op <> 'd'"
        )
        if not files:
            return pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
        found = duckdb.sql(query, params={"files": files, "fixed": fixed})
        assert found is not None
        table: pa.Table = found.to_arrow_table()
        return table

    def assert_tables(self, engines: ReadingEngines, days: Iterable[int], *, fixed: bool = False) -> None:
        """Every table is what DuckDB says, by our reader and by DuckDB; and the changes add up to it."""
        expected = self.expected(days, fixed=fixed)
        for sink in ("table", "delta", "ice"):
            assert_same_rows(self.master.reports.read(sink), expected, sink)
        lake = self.small.folder / "lake"
        assert_same_rows(engines.read("duckdb", lake / "delta"), expected, "delta")
        ice = CatalogTable(str(self.small.folder / "catalog.db"), "small.ice")
        assert_same_rows(engines.read("duckdb", ice, table_format="iceberg"), expected, "ice")
        with duckdb.connect() as db:
            db.register("changes", engines.read("duckdb", lake / "changes"))
            last = "SELECT * FROM changes QUALIFY row_number() OVER (PARTITION BY k ORDER BY _checkpoint DESC) = 1"
            shown = db.sql(f"SELECT k, v FROM ({last}) WHERE _op <> 'delete'").to_arrow_table()
        assert_same_rows(shown, expected, "changes")
        assert (
            verified := self.master.reports.verify(None, deep=True)
        ).unasked == verified.discarded == () and self.master.reports.fsck().exit_code == 0
