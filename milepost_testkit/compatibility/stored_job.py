"""A job of a compatibility fixture: its folder, and what DuckDB says of its input.

config/<name>.yaml     the spec, and modules that it names
config/oracle.sql      DuckDB views with the names of sinks: the rows that follow from the input
landing/, feed.json    input
later/<n>/             files that arrive before the n-th epoch that continues the job, as below the job's folder
deleted/               consumed objects that their sources no longer have
store/, lake/, …       what the product has stored
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from milepost.epoch.plan import decode_input_record
from milepost.jobmaster import CheckpointReport, JobMaster, NothingToDo, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.protocol.log.log_entries import CompletedEpoch
from milepost.storage.object_handles import read_handle
from milepost_testkit.jobs.lineages import live_lineage
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.tasks.clocks import ticking
from scripts.processes import ROOT

ARCHIVES = ROOT / "tests" / "compatibility"
FIXTURE = "COMPATIBILITY_FIXTURE"
"""Variable with the folder of all jobs. A user's module is loaded from its text, so it does not know its location."""

ORACLE = "oracle.sql"
LANDED_S = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
DAY_S = 86_400


@dataclass(frozen=True)
class StoredJob:
    """One job of a fixture."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def spec_path(self) -> Path:
        return self.folder / "config" / f"{self.name}.yaml"

    def write_config(self, files: Mapping[str, str], oracle: str) -> None:
        """Write the spec, the modules that it names, and DuckDB's views."""
        (self.folder / "config").mkdir(parents=True)
        for name, text in files.items():
            (self.folder / "config" / name).write_text(text)
        self.write_oracle(oracle)

    def write_oracle(self, oracle: str) -> None:
        """Write DuckDB's views."""
        (self.folder / "config" / ORACLE).write_text(oracle)

    def land(self, place: str, body: bytes, *, later: int = 0, day: int = 0) -> None:
        """Write an object of a source, or one that arrives before the n-th later epoch. day: of its modification."""
        path = self.folder / (f"later/{later}" if later else ".") / "landing" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        os.utime(path, (LANDED_S + day * DAY_S,) * 2)

    def delete(self, place: str) -> None:
        """Delete a consumed object of a source. The oracle still reads it."""
        kept = self.folder / "deleted" / place
        kept.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "landing" / place).rename(kept)

    @property
    def later_epochs(self) -> range:
        """Numbers of the epochs for which there is more input."""
        folder = self.folder / "later"
        return range(1, 1 + (len([*folder.iterdir()]) if folder.exists() else 0))

    def land_later(self, number: int) -> None:
        """Let the input of the n-th later epoch arrive, and land it in the logs of its sources."""
        shutil.copytree(self.folder / "later" / str(number), self.folder, dirs_exist_ok=True)
        if self.loaded().spec.landed:
            report = self.master.landings.land()
            assert not report.failed, report.failed

    def loaded(self) -> LoadedJob:
        return load_job(str(self.spec_path))

    @property
    def master(self) -> JobMaster:
        return JobMaster(self.loaded())

    @property
    def context(self) -> JobContext:
        return JobContext(self.loaded())

    def runner(self, **options: Any) -> SparklessRunner:
        """Return a data plane in this process, in which DuckDB evaluates SQL."""
        return SparklessRunner(sql=True, clock=ticking(), **options)

    def run(self, **options: Any) -> CheckpointReport | NothingToDo:
        """Run one epoch by a new session. options: of the data plane."""
        return self.master.epochs.run(Session.cli(), self.runner(**options))

    def lineage(self) -> list[CompletedEpoch]:
        """Return the checkpoints that the live head continues, itself included, oldest first."""
        return live_lineage(self.context)

    def assert_tables(self) -> None:
        """Assert that every predicted table has the rows that follow from what the live head has consumed.

        None can be predicted with rows in flight, or before each source of files had a file.
        """
        context, master = self.context, self.master
        state = context.head().state
        base = context.base_metadata(state, state.timeline().head)
        consumed = self._consumed()
        if base is None or base.in_flight_bytes or [] in consumed.values():
            return
        with duckdb.connect(config={"threads": 1}) as db:
            db.execute("SET TimeZone = 'UTC'")
            for name, value in consumed.items():
                db.execute(f"SET VARIABLE {name} = ?", [value])
            db.execute((self.folder / "config" / ORACLE).read_text())
            views = db.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
            for sink in context.spec.sinks:
                if (sink.name,) in views:
                    expected = db.sql(f'SELECT * FROM "{sink.name}"').to_arrow_table()
                    assert_same_rows(master.reports.read(sink.name), expected, f"job {self.name}, table {sink.name}")

    def _consumed(self) -> dict[str, list[str] | int]:
        """Return what the live head has consumed of each source: files, or the number of the next row of a feed."""
        context = self.context
        spec, state = context.spec, context.head().state
        plans = [decode_input_record(read_handle(context.store, done.plan)) for done in self.lineage()]
        consumed: dict[str, list[str] | int] = {}
        for name in spec.files:
            keys = [obj.key for plan in plans for item in plan.sources if item.name == name for obj in item.objects]
            assert len(keys) == len({*keys}), f"source {name}: an object was consumed twice"
            folders = [self.folder / part / name for part in ("landing", "deleted")]
            files = (
                [*folders[0].rglob("*")] if name in spec.dimensions else [at / key for key in keys for at in folders]
            )
            consumed[name] = [str(path) for path in files if path.is_file()]
        base = context.base_metadata(state, state.timeline().head)
        for name in spec.landed:
            position = None if base is None else base.log_position(context.stored_name(name))
            consumed[name] = 0 if position is None else position.at.get("next", 0)
        return consumed
