"""A job without Spark whose tables an independent engine can predict from what its live timeline says it consumed.

Sink `table` counts the rows of each key (upsert), sink `seen` has each row once (append). A row that is consumed twice,
or not at all, is a wrong count in the first; the answer is DuckDB's, over the landed files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import duckdb
import pyarrow as pa

from milepost.epoch.plan import decode_input_record
from milepost.jobmaster import CheckpointReport, JobMaster, NothingToDo, Session
from milepost.jobmaster.rollback.plan import RollbackPlan
from milepost.jobmaster.rollback.rollback import RollbackResult
from milepost.protocol.log.log_entries import CompletedEpoch
from milepost.storage.object_handles import read_handle
from milepost_testkit.jobs.lineages import live_lineage
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

SEEN_SINK = "  - {name: seen, input: unique, format: parquet, path: ../lake/seen, mode: append}\n"
_EDIT = {
    "sinks:\n": "  - {uid: unique, kind: deduplicate, inputs: [rows], key: [k, v]}\nsinks:\n" + SEEN_SINK,
    "last: 1": "last: 20",
}
IN_POSTGRES = {
    "format: parquet, path: ../lake/table": 'format: postgres, dsn: "${env:PG_DSN}", table: public.totals',
}
"""Edit of the spec: sink `table` is in the database of the fixture `database`."""
_ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@dataclass(frozen=True)
class CountedJob:
    """Epochs of one object each: file n holds a row of key 0, one of key n and one of key -n."""

    small: SparklessJob

    @classmethod
    def create(cls, folder: Path, edit: Mapping[str, str] | None = None) -> Self:
        return cls(SparklessJob.create(folder, {**_EDIT, **(edit or {})}))

    @classmethod
    def with_epochs(cls, folder: Path, epochs: int, edit: Mapping[str, str] | None = None) -> Self:
        job = cls.create(folder, edit)
        job.land(range(1, epochs + 1))
        job.run(epochs)
        return job

    def copy_to(self, folder: Path) -> Self:
        """The same job elsewhere; it knows nothing of where it was."""
        return type(self)(self.small.copy_to(folder))

    @property
    def spec_path(self) -> Path:
        return self.small.folder / "config" / "small.yaml"

    @property
    def master(self) -> JobMaster:
        return self.small.master

    def edit(self, old: str, new: str) -> None:
        edit_spec(self.spec_path, {old: new})

    def land(self, numbers: Iterable[int]) -> None:
        for n in numbers:
            self.small.land(f"{n:04}.csv", f"k,v\n0,{n}\n{n},{n}\n{-n},{n}\n")

    def run(self, epochs: int = 1) -> list[int]:
        """So many whole epochs, each by a new session; returns their checkpoint ids."""
        return [int(self.run_one().checkpoint_id) for _ in range(epochs)]

    def run_one(self) -> CheckpointReport | NothingToDo:
        return self.master.epochs.run(Session.cli(), SparklessRunner())

    def rollback(self, to: int | str, **options: Any) -> RollbackResult:
        return roll_back(self.master, to, **options)

    def carry_out(self, plan: RollbackPlan) -> RollbackResult:
        return self.master.rollbacks.run(Session.cli(), plan.approved)

    @property
    def live(self) -> list[CompletedEpoch]:
        """The checkpoints that the live head continues, itself included, oldest first, as the log tells."""
        return live_lineage(self.small.context)

    @property
    def live_ids(self) -> list[int]:
        return [int(checkpoint.checkpoint_id) for checkpoint in self.live]

    def consumed(self) -> list[str]:
        """The objects that the live timeline says it consumed, in order."""
        store = self.small.context.store
        records = [decode_input_record(read_handle(store, checkpoint.plan)) for checkpoint in self.live]
        return [obj.key for record in records for item in record.sources for obj in item.objects]

    def expected(self) -> dict[str, pa.Table]:
        """What the sinks must hold."""
        keys = self.consumed()
        assert len(set(keys)) == len(keys), f"the live timeline consumed an object twice: {keys}"
        with duckdb.cursor() as db:
            rows = _ROWS.empty_table()
            if keys:
                files = [str(self.small.folder / "landing" / key) for key in keys]
                columns = "{'k': 'BIGINT', 'v': 'VARCHAR'}"
                rows = db.sql(f"SELECT * FROM read_csv($1, columns = {columns})", params=[files]).to_arrow_table()
            db.register("landed", rows)
            counted = db.sql("SELECT k, count(*) AS rows FROM landed GROUP BY k").to_arrow_table()
            return {"table": counted, "seen": db.sql("SELECT DISTINCT k, v FROM landed").to_arrow_table()}

    def assert_tables_equal_the_oracle(self, *sinks: str) -> None:
        """Every sink of the spec (or the named ones), and the state, hold what the live timeline consumed."""
        expected, master = self.expected(), self.master
        for name, table in expected.items():
            if name in (sinks or [sink.name for sink in self.small.loaded().spec.sinks]):
                assert_same_rows(master.reports.read(name), table, name)
        if self.small.context.head().state.timeline().head:
            assert_same_rows(master.reports.state("latest").select(["k"]), expected["table"].select(["k"]), "state")
