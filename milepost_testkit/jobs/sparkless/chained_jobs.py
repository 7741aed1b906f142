"""Two jobs of which one reads the published table of the other. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Self
from unittest.mock import patch

import duckdb
import pyarrow as pa

from milepost.errors import InputVoided
from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.landing.lander import Landing
from milepost.jobmaster.retention.garbage_collection import collect_garbage
from milepost.jobspec.load.load import load_job
from milepost.protocol.landed import LandingFailure
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edited
from milepost_testkit.stores.job_stores import LaterStore

START = datetime(2026, 3, 1, tzinfo=UTC)

UPSTREAM = """\
name: orders
storage: ../store
sources:
  files:
    format: csv
    path: ../landing/*.csv
    schema: {k: int64, n: int64, at: "timestamp[us, UTC]"}
    event_time: at
    settle: 0s
    limits_per_epoch: {max_files: 1}
operators:
  - {uid: totals, kind: aggregate, inputs: [files], key: [k], aggregates: {rows: count(*), total: sum(n)}}
sinks:
  - {name: rows, input: files, format: parquet, path: ../lake/orders, mode: append}
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
  - {name: changes, input: totals, format: parquet, path: ../lake/changes, mode: changelog}
checkpointing: {retained: {last: 2}, timeout: 10m}
"""

DOWNSTREAM = """\
name: sales
storage: ../store
sources:
  orders:
    format: milepost
    path: ../lake/orders
    schema: {k: int64, n: int64, at: "timestamp[us, UTC]"}
    event_time: at
operators:
  - {uid: totals, kind: aggregate, inputs: [orders], key: [k], aggregates: {rows: count(*), total: sum(n)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../sales/totals, mode: upsert}
  - {name: rows, input: orders, format: parquet, path: ../sales/rows, mode: append}
checkpointing: {retained: {last: 50}, timeout: 10m}
"""


def _open_later(later_ms: int, config: StoreConfig) -> ObjectStore:
    return LaterStore(open_store(config), later_ms=later_ms)


Row = tuple[int, int]
"""Key and serial number of a row. No two rows have the same number, also if one is published after a rollback."""


@dataclass
class ChainedJobs:
    """Jobs `orders` and `sales` under `folder`, and the rows that each checkpoint of `orders` has published.

    Attributes:
        published: rows of the table at each checkpoint, in order; 0 is the empty table.
        shown: the checkpoint that the table shows. rows_made: how many rows were written so far.
    """

    folder: Path
    published: dict[int, list[Row]] = field(default_factory=lambda: {0: []})
    shown: int = 0
    rows_made: int = 0

    @classmethod
    def create(
        cls, folder: Path, *, up: Mapping[str, str] | None = None, down: Mapping[str, str] | None = None
    ) -> Self:
        """Write both specs; `up` and `down` replace texts that must occur in them."""
        for name in ("config", "landing"):
            (folder / name).mkdir(parents=True)
        (folder / "config" / "orders.yaml").write_text(edited(UPSTREAM, up or {}))
        (folder / "config" / "sales.yaml").write_text(edited(DOWNSTREAM, down or {}))
        return cls(folder)

    @property
    def rows(self) -> list[Row]:
        """The rows that the table of `orders` shows."""
        return self.published[self.shown]

    def context(self, job: str) -> JobContext:
        return JobContext(load_job(str(self.folder / "config" / f"{job}.yaml")))

    def master(self, job: str) -> JobMaster:
        return JobMaster(load_job(str(self.folder / "config" / f"{job}.yaml")))

    def epoch(self, job: str) -> int:
        result = self.master(job).epochs.run(Session.cli(), SparklessRunner())
        assert not isinstance(result, NothingToDo), result
        return int(result.checkpoint_id)

    def epoch_or_rollback(self, job: str) -> int:
        """Run an epoch; or, if the head has read rows that are void, the rollback that the error names."""
        try:
            return self.epoch(job)
        except InputVoided as error:
            to = int(error.details["rollback_to"] or 0)
            roll_back(self.master(job), to)
            return to

    def write(self, *keys: int) -> list[Row]:
        """Write a file with rows of these keys, which the next epoch of `orders` reads. Returns them."""
        rows = [*zip(keys, range(self.rows_made, self.rows_made + len(keys)), strict=True)]
        lines = (f"{key},{number},{(START + timedelta(hours=number)).isoformat()}\n" for key, number in rows)
        path = self.folder / "landing" / f"{self.rows_made:06}.csv"
        path.write_text("k,n,at\n" + "".join(lines))
        self.rows_made += len(keys)
        return rows

    def publish(self, *keys: int) -> int:
        """Let `orders` publish rows with these keys in one epoch. Returns its checkpoint."""
        rows = [*self.rows, *self.write(*keys)]
        self.shown = self.epoch("orders")
        self.published[self.shown] = rows
        return self.shown

    def roll_back(self, to: int) -> None:
        """Roll `orders` back. Its files that are read no longer are deleted, so that it does not read them again."""
        roll_back(self.master("orders"), to)
        self.shown = to
        left = {number for _, number in self.rows}
        for path in (self.folder / "landing").iterdir():
            if int(path.stem) not in left:
                path.unlink()

    def land(self) -> Landing:
        """Land the table of `orders` for `sales`."""
        report = self.master("sales").landings.land()
        assert not report.failed, report.failed
        return report.landed[0]

    def failed_landing(self) -> LandingFailure:
        """Land the table of `orders` for `sales`, which must fail. Returns why."""
        (failed,) = self.master("sales").landings.land().failed
        return failed

    def void(self) -> None:
        """Approve that the landed rows which the table of `orders` no longer has are void."""
        voids = self.master("sales").voids
        voids.approve(voids.plan("orders", "auto").approved, "by a test")

    def collect(self, days: int = 2) -> None:
        """Delete what `orders` no longer needs, with files of its tables, as if days had passed."""
        for later in (0, days):
            with patch("milepost.jobmaster.job.context.open_store", partial(_open_later, later * 86_400_000)):
                context = self.context("orders")
                collect_garbage(context, SessionId("cli:collect"), context.timeout_ms)

    def assert_tables(self, rows: list[Row]) -> None:
        """Both tables of `sales` are what DuckDB says of these rows."""
        keys, numbers = (pa.array([row[at] for row in rows], pa.int64()) for at in (0, 1))
        landed = pa.table({"k": keys, "n": numbers})
        totals = "SELECT k, count(*) AS rows, sum(n)::BIGINT AS total FROM landed GROUP BY k ORDER BY k"
        expected = duckdb.sql(totals).to_arrow_table().to_pylist()
        read = self.master("sales").reports.read
        assert read("totals").select(["k", "rows", "total"]).sort_by("k").to_pylist() == expected
        assert read("rows").select(["k", "n"]).sort_by("n").to_pylist() == landed.sort_by("n").to_pylist()
