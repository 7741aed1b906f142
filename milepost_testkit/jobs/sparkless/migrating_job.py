"""The counted job while its tables go elsewhere: what is typed, what is written in the spec, what engines then read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from milepost.jobmaster.migration.migration import MigratedTable
from milepost.tables.records.table_address import CatalogAddress, TableAddress
from milepost_testkit.jobs.rollbacks import decided
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows

SINKS = ("seen", "table")
COLUMNS = {"seen": ["k", "v"], "table": ["k", "rows"]}


def delta(sink: str, place: str = "delta") -> TableAddress:
    """Where a sink's table goes."""
    return TableAddress("delta", f"../lake/{place}-{sink}")


@dataclass(frozen=True)
class MigratingJob(CountedJob):
    """A counted job, and its migrations."""

    def migrate(self, sink: str, target: TableAddress | None = None) -> MigratedTable:
        """Plan and do; the spec is left as it is."""
        plan = self.master.migrations.plan(sink, target or delta(sink))
        return self.master.migrations.run(plan, decision=decided("a test"))

    def say(self, sink: str, target: TableAddress | None = None) -> None:
        """Write in the spec where the sink's table is; None: where `migrate` puts it."""
        there = target or delta(sink)
        at = self.spec_path.read_text().splitlines()
        for index, line in enumerate(at):
            if f"name: {sink}," in line:
                before, _, rest = line.partition("format: ")
                mode = rest[rest.index(", mode:") :]
                at[index] = f"{before}{', '.join(there.spec_lines())}{mode}"
        self.spec_path.write_text("\n".join(at) + "\n")

    def say_parquet(self, sink: str) -> None:
        self.say(sink, TableAddress("parquet", f"../lake/{sink}"))

    def lake(self, sink: str, place: str = "delta") -> Path:
        return self.small.folder / "lake" / f"{place}-{sink}"

    def assert_engines_agree(self, engines: ReadingEngines, *sinks: str, place: str = "delta") -> None:
        """Engines that know nothing of the job see what the live timeline consumed, and so does our own read."""
        expected = self.expected()
        self.assert_tables_equal_the_oracle()
        for sink in sinks or SINKS:
            for engine in ENGINES:
                read = engines.read(engine, self.lake(sink, place)).select(COLUMNS[sink])
                assert_same_rows(read, expected[sink], f"{sink} by {engine}")

    def assert_whole(self) -> None:
        """Everything retained can be read, nothing is missing, and nothing counts as foreign."""
        self.assert_tables_equal_the_oracle()
        assert (verified := self.master.reports.verify(None, deep=True)).unasked == verified.discarded == ()
        report = self.master.reports.fsck()
        assert (report.exit_code, report.missing, report.damaged, report.foreign) == (0, (), (), ())

    def rows_at(self, sink: str, checkpoint_id: int) -> pa.Table:
        return self.master.reports.read(sink, checkpoint_id)


def iceberg(folder: Path, sink: str) -> TableAddress:
    """A place in an SQLite catalog, whose address is read from the environment."""
    catalog = CatalogAddress("sql", f"sqlite:///{folder}/catalog.db", "milepost", {})
    return TableAddress("iceberg", f"../lake/ice-{sink}", f"small.{sink}", catalog)
