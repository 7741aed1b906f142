"""The flights job over local folders: land days, run epochs in this process, compare every sink with the oracle."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from milepost.epoch.plan import decode_input_record
from milepost.jobmaster import CheckpointReport, JobMaster, NothingToDo, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.spark.driver.runner_factory import spark_runner
from milepost.storage.object_handles import read_handle
from milepost.storage.open import open_store
from milepost_testkit.jobs.flights.flights import land
from milepost_testkit.jobs.lineages import live_lineage
from milepost_testkit.models.data.csv_oracle import Expected, expected_tables
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.specs.spec_edits import edited

FLIGHTS_SPEC = REPOSITORY / "config" / "flights.yaml"


def local_spec(text: str, table_format: str = "parquet") -> str:
    """The flights spec with folders next to `config/` in place of its buckets.

    Its tables are Parquet, because a test breaks what is written through an object store; `delta` is what is shipped.
    """
    text = text.replace("format: delta", f"format: {table_format}")
    text = re.sub(r"^store:.*$", "", text, flags=re.MULTILINE)
    text = text.replace("storage: s3://milepost", "storage: ../store")
    text = text.replace("    event_time:", "    settle: 0s\n    event_time:")  # what tests land is whole
    return text.replace("s3://landing", "../landing").replace("s3://lake", "../lake")


@dataclass(frozen=True)
class FlightsJob:
    """A job under `folder`: `config/flights.yaml`, `landing/`, `store/`, `lake/`."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, edit: dict[str, str] | None = None, *, table_format: str = "parquet") -> FlightsJob:
        """Write the spec; `edit` replaces texts that must occur in it."""
        job = cls(folder)
        (folder / "config").mkdir(parents=True)
        job.edit(local_spec(FLIGHTS_SPEC.read_text(), table_format), edit or {})
        return job

    def edit(self, text: str, edit: dict[str, str]) -> None:
        self.spec_path.write_text(edited(text, edit))

    @property
    def spec_path(self) -> Path:
        return self.folder / "config" / "flights.yaml"

    @property
    def landing(self) -> ObjectStore:
        return open_store(StoreConfig(f"file://{self.folder / 'landing'}"))

    def sink_store(self, name: str) -> ObjectStore:
        """The store of one sink's table."""
        return open_store(JobContext(self.load()).sink_config(name))

    def land(self, days: Iterable[int]) -> list[str]:
        return land(self.landing, days)

    def load(self) -> LoadedJob:
        return load_job(self.spec_path)

    def master(self) -> JobMaster:
        return JobMaster(self.load())

    def run(self) -> CheckpointReport | NothingToDo:
        """One epoch in this process, with a fresh JobMaster as a new process would have."""
        loaded = self.load()
        return JobMaster(loaded).epochs.run(Session.cli(), spark_runner())

    def run_until_caught_up(self) -> list[CheckpointReport]:
        reports = []
        while isinstance(report := self.run(), CheckpointReport):
            reports.append(report)
        return reports

    def epochs(self) -> list[list[str]]:
        """The object keys that each epoch of the live lineage consumed, oldest first, as the input records say."""
        return [keys for _, keys in self.lineage()]

    def lineage(self) -> list[tuple[int, list[str]]]:
        """The checkpoints of the live lineage, oldest first, each with the keys that its epoch consumed."""
        context = JobContext(self.load())
        found = []
        for done in live_lineage(context):
            inputs = decode_input_record(read_handle(context.store, done.plan)).sources
            found.append((int(done.checkpoint_id), [obj.key for item in inputs for obj in item.objects]))
        return found

    def expected(self, *, deduplicate: bool = True) -> Expected:
        context = JobContext(self.load())
        root, _ = context.source("flights")
        return expected_tables(context.job.spec, open_store(root), self.epochs(), deduplicate=deduplicate)

    def assert_tables_equal_the_oracle(self) -> Expected:
        """Every sink holds, row for row, what the oracle computes from the landed files."""
        expected = self.expected()
        for name, table in expected.tables.items():
            assert_same_rows(self.master().reports.read(name), table, name)
        return expected
