"""A small job whose cleaning rule was wrong from the third day on, and is corrected. No Spark."""

from __future__ import annotations

import socket
import subprocess
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow as pa

from milepost.jobmaster import CheckpointReport, JobMaster, NothingToDo, Session
from milepost.jobmaster.backfill.backfill import BackfillResult
from milepost.jobmaster.job.session import machine_id
from milepost.protocol.records.checkpoints import Holder, Run
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.manifest_state import ManifestState
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

WRONG_FROM = 3
"""Day of the first rows with 99, which stands for "not measured"."""

_NEVER = 99

_EDIT = {
    "schema: {k: int64, v: string}": 'schema: {k: int64, v: int64, at: "timestamp[us, UTC]"}\n'
    "    event_time: at\n    watermark_delay: 2h\n    options: {null_values: []}",
    "aggregates: {rows: count(*)}": "aggregates: {rows: count(*), total: sum(v)}",
    "retained: {last: 1}": "retained: {last: 50}",
}


@dataclass(frozen=True)
class BackfillJob:
    """One object per day and epoch; `fix` makes 99 a null."""

    small: SparklessJob

    @classmethod
    def create(cls, folder: Path, days: int, edit: dict[str, str] | None = None) -> BackfillJob:
        """A job that has run so many days with the wrong rule; `edit` replaces further texts of the spec."""
        job = cls(SparklessJob.create(folder, _EDIT | (edit or {})))
        for day in range(1, days + 1):
            job.land(day)
            job.epoch()
        return job

    def copy(self, folder: Path) -> BackfillJob:
        """A copy that knows nothing of where it was."""
        return BackfillJob(self.small.copy_to(folder))

    def land(self, day: int) -> Path:
        rows = [(1, day, 1), (2, 99 if day >= WRONG_FROM else 10, 12), (day, 99 if day % 2 and day >= 3 else 5, 23)]
        lines = [f"{k},{v},2026-03-{day:02d}T{hour:02d}:00:00Z\n" for k, v, hour in rows]
        return self.small.land(f"day-{day:02d}.csv", "k,v,at\n" + "".join(lines))

    def edit(self, old: str, new: str) -> None:
        edit_spec(self.small.folder / "config" / "small.yaml", {old: new})

    def fix(self) -> None:
        self.edit("null_values: []", 'null_values: ["99"]')

    @property
    def master(self) -> JobMaster:
        return self.small.master

    @property
    def state(self) -> ManifestState:
        return self.small.context.head().state

    def epoch(self, runner: SparklessRunner | None = None) -> CheckpointReport | NothingToDo:
        return self.master.epochs.run(Session.cli(), runner or SparklessRunner())

    def next_day(self, day: int) -> int:
        """Land a day and let the schedule run its epoch; returns the checkpoint."""
        self.land(day)
        return int(self.epoch().checkpoint_id)

    def backfill(
        self,
        runner: SparklessRunner | None = None,
        from_: str | None = "2026-03-03",
        session: Session | None = None,
        **options: Any,
    ) -> BackfillResult:
        return back_fill(self.master, runner or SparklessRunner(), from_, **options, session=session)

    def table(self) -> pa.Table:
        return self.master.reports.read("table").select(["k", "rows", "total"]).sort_by("k")

    def expected(self, days: Iterable[int], fixed_from: int) -> pa.Table:
        """What the table holds after these days, by DuckDB over the landed files; right from that day on."""
        files = [str(self.small.folder / "landing" / f"day-{day:02d}.csv") for day in days]
        query = (
            "SELECT k, count(*) AS rows, "
            'CAST(sum(CASE WHEN v = 99 AND day("at") >= $fixed_from THEN NULL ELSE v END) AS BIGINT) AS total '
            "FROM read_csv($files, header = true) GROUP BY k ORDER BY k"
        )
        table: pa.Table = duckdb.sql(query, params={"files": files, "fixed_from": fixed_from}).to_arrow_table()
        return table

    def assert_table(self, days: int | Iterable[int], *, fixed: bool, fixed_from: int | None = None) -> None:
        """The table is what the oracle says after these days (a number: so many); `fixed_from`: only from that day."""
        wanted = range(1, days + 1) if isinstance(days, int) else days
        first = fixed_from if fixed_from is not None else 0 if fixed else _NEVER
        assert self.table().to_pylist() == self.expected(wanted, first).to_pylist()


@contextmanager
def mortal_session() -> Iterator[Session]:
    """A session of another process, which lives as long as the block."""
    process = subprocess.Popen(["sleep", "600"])
    try:
        created_ms = round(psutil.Process(process.pid).create_time() * 1000)
        holder = Holder("cli", socket.gethostname(), process.pid, created_ms, machine_id())
        yield Session(SessionId(f"cli:{uuid.uuid4()}"), holder, Run())
    finally:
        process.kill()
        process.wait()
