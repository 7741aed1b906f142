"""A whole job checked by the laws, through rollbacks, backfills and failed attempts."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from milepost.epoch.answers import EpochAnswers
from milepost.epoch.plan import EpochPlan
from milepost.errors import NotFound, StoreUnavailable
from milepost.jobmaster import CheckpointReport, JobMaster, NothingToDo, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.protocol.log.log_entries import CompletedEpoch
from milepost.sinks.parquet_files.deletes import without_deletes
from milepost.spark.wire.task_output import Rows, TaskOutput
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.lineages import live_lineage
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.law.landings import land
from milepost_testkit.law.served import drop_table, empty_table, served_rows
from milepost_testkit.models.data.captured import Begin, Captured
from milepost_testkit.models.data.file_feed import CODE, MODULE, is_feed, produce, waiting
from milepost_testkit.models.data.oracle import check
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.tasks.clocks import ticking


@dataclass
class LawJob:
    """A job below a folder (`config`, `landing`, `store`, `lake`), and its nodes' rows by checkpoint.

    Attributes:
        schemas: of every node's rows, late ones included. landed: the rows of each source's objects.
        away: a source that was removed from the spec, and its sinks; None if there is none.
    """

    folder: Path
    document: dict[str, Any]
    captured: Captured = field(default_factory=Captured)
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    landed: dict[str, list[pa.Table]] = field(default_factory=dict)
    away: tuple[str, dict[str, Any], list[dict[str, Any]]] | None = None

    @classmethod
    def create(cls, folder: Path, document: dict[str, Any]) -> LawJob:
        """Create a job without epochs. Each epoch will read one object of each source."""
        for source in document["sources"].values():
            if not is_feed(source):
                source |= {"settle": "0s", "limits_per_epoch": {"max_files": 1}}
        document["checkpointing"] |= {"retained": {"last": 50}, "tolerable_failures": 100}
        (folder / "config").mkdir(parents=True)
        (folder / "config" / f"{MODULE}.py").write_text(CODE)
        for name in document["sources"]:
            (folder / "landing" / name).mkdir(parents=True)
        if any(one["format"] == "postgres" for one in document["sinks"]):
            drop_table()  # of another job
        job = cls(folder, document)
        job.set_parallelism(1)
        return job

    def copy_to(self, folder: Path) -> LawJob:
        """Copy the job to another folder, independent of this one."""
        shutil.copytree(self.folder, folder)
        return replace(deepcopy(self), folder=folder)

    def set_parallelism(self, parallelism: int) -> None:
        """Write the spec with this number of subtasks per level."""
        self.document["spark"]["parallelism"] = parallelism
        self._write()

    def drop(self, source: str) -> None:
        """Remove a source that only sinks read from the spec, with these sinks."""
        sinks = [one for one in self.document["sinks"] if one["input"] == source]
        self.document["sinks"] = [one for one in self.document["sinks"] if one not in sinks]
        self.away = source, self.document["sources"].pop(source), sinks
        self._write()

    def bring_back(self) -> None:
        """Add the removed source and its sinks to the spec again, if there is one."""
        if self.away is not None:
            source, document, sinks = self.away
            self.document["sources"][source] = document
            self.document["sinks"] += sinks
            self.away = None
            self._write()

    def _write(self) -> None:
        for name, source in self.document["sources"].items():
            if is_feed(source):
                source["options"] = {"folder": str(self.folder / "landing" / name)}
        (self.folder / "config" / "law.yaml").write_text(json.dumps(self.document))

    @property
    def loaded(self) -> LoadedJob:
        return load_job(str(self.folder / "config" / "law.yaml"))

    @property
    def master(self) -> JobMaster:
        return JobMaster(self.loaded)

    def shown(self, sink: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table, sorted."""
        return sorted(tuple(row.values()) for row in self.master.reports.read(sink).to_pylist())

    def land(self, source: str, rows: pa.Table) -> None:
        """Store rows as one object, or one file of an external system."""
        objects = self.landed.setdefault(source, [])
        produce(self.folder / "landing" / source, len(objects), rows)
        objects.append(rows)

    def append(self, how: str, write: int) -> bool:
        """Append what external systems have to the logs, as in `landings.land`. Returns whether there is a log."""
        if not self.loaded.spec.landed:
            return False
        land(self.loaded, how, write)
        return True

    def run(self, *, cut_short: bool = False) -> CheckpointReport | NothingToDo:
        """Run one epoch by a new session. With `cut_short`, fail an attempt first, after all of its tasks."""
        left: dict[str, Any] = {"allow_non_restored_state": True} if self.away else {}
        if cut_short:
            with suppress(StoreUnavailable):
                self.master.epochs.run(Session.cli(), self.runner(fails=True), **left)
        return self.master.epochs.run(Session.cli(), self.runner(), **left)

    def rollback(self, back: int) -> None:
        """Roll back this number of checkpoints, if there are enough."""
        lineage = self.lineage
        if len(lineage) > back:
            roll_back(self.master, lineage[-1 - back])

    def backfill(self, back: int, ranges_per_epoch: int) -> None:
        """Backfill the input of the last `back` checkpoints, if there is any."""
        lineage = (0, *self.lineage)
        pieces = (one for name in self.document["sources"] for one in self.captured.pieces.get(name, ()))
        if len(lineage) > back and {epoch for epoch, *_ in pieces}.intersection(lineage[-back:]):
            back_fill(self.master, self.runner(), from_checkpoint=lineage[-1 - back], ranges_per_epoch=ranges_per_epoch)

    def empty_and_realign(self, sink: str) -> None:
        """Empty a Postgres table from outside, if there is one, and realign it."""
        if self.lineage:
            empty_table()
            self.master.realignments.run(Session.cli(), self.master.realignments.plan(sink))

    def runner(self, *, fails: bool = False) -> SparklessRunner:
        """Return the data plane with capture. `fails` makes it fail after everything is staged and uploaded."""

        def end(plan: EpochPlan) -> None:
            if fails:
                raise StoreUnavailable("the try is cut short")

        return _Watched(self, after=end, clock=ticking())

    @property
    def lineage(self) -> tuple[int, ...]:
        """Return the lineage of the live head, oldest first."""
        return lineage_of(self.loaded)

    @property
    def in_flight(self) -> int:
        """Return the bytes in flight at the live head."""
        context = JobContext(self.loaded)
        head = context.log.head()
        base = None if head is None else context.base_metadata(head.state, head.state.timeline().head)
        return 0 if base is None else base.in_flight_bytes

    def tables(self) -> dict[str, pa.Table]:
        """Return the rows of each published table."""
        found = {one.name: _shown(self.master, one.name) for one in self.loaded.spec.sinks if self.lineage}
        return {name: rows for name, rows in found.items() if rows is not None}

    def check(self) -> None:
        """Check each node's law at the head, if nothing is in flight, and each table against its node's rows.

        Also checks that no object was read twice, and Postgres tables by SQL and by their sink.

        Raises AssertionError.
        """
        lineage = self.lineage
        if not lineage:
            return
        wholes = {} if self.in_flight else {lineage[-1]: lineage}
        check_job(self.loaded, self.captured, self.schemas, lineage, wholes=wholes)
        self.check_read(lineage, whole=False)
        for sink in self.loaded.spec.sinks:
            if sink.format == "postgres":
                _check_served(self.master, sink.name)

    def check_read(self, lineage: tuple[int, ...], *, whole: bool) -> None:
        """Check that each landed row was read at most once; with `whole`, exactly once. Raises AssertionError."""
        for name, objects in self.landed.items():
            if whole and is_feed(self.document["sources"][name]):
                left = waiting(self.folder / "landing" / name)
                assert not left, f"source {name}: {left} files were never acknowledged"
            landed = Counter(repr(row) for rows in objects for row in rows.to_pylist())
            pieces = (rows for at, _, rows in self.captured.pieces.get(name, ()) if at in lineage)
            read = Counter(repr(row) for rows in pieces for row in rows.to_pylist())
            assert read <= landed, f"source {name}: read more often than it landed: {read - landed}"
            assert not whole or read == landed, f"source {name}: never read: {landed - read}"


def _shown(master: JobMaster, sink: str) -> pa.Table | None:
    """Return the rows of a table; None if no epoch had the sink."""
    try:
        return master.reports.read(sink)
    except NotFound:
        return None


def _check_served(master: JobMaster, sink: str) -> None:
    """Raise AssertionError if a Postgres table differs from its checkpoint, by SQL or by its sink."""
    rows = master.reports.read(sink)
    assert_same_rows(served_rows(rows.schema), rows, f"table {sink} in Postgres")
    fault = master.realignments.plan(sink).fault
    assert fault is None, f"sink {sink} finds {fault}"


def lineage_of(job: LoadedJob) -> tuple[int, ...]:
    """Return the lineage of a job's live head, oldest first."""
    return tuple(int(one.checkpoint_id) for one in completed_of(job))


def completed_of(job: LoadedJob) -> tuple[CompletedEpoch, ...]:
    """Return the log's records of the live head's lineage, oldest first."""
    return tuple(live_lineage(JobContext(job)))


def check_job(
    job: LoadedJob,
    captured: Captured,
    schemas: Mapping[str, pa.Schema],
    lineage: tuple[int, ...],
    began: Began | None = None,
    shown: Callable[[str], Captured] | None = None,
    wholes: Mapping[int, tuple[int, ...]] | None = None,
) -> None:
    """Check each node's law at the head of a lineage, and each table against its node's rows.

    Args:
        captured: rows that the nodes emitted in those checkpoints. schemas: of every node's rows.
        began: operators and sinks that are younger than the job; None if there are none.
        shown: returns the rows for a sink's table, if they differ from `captured`.
        wholes: checkpoints without rows in flight, at which laws are checked; None means the head.
    Raises: AssertionError.
    """
    if not lineage:
        return
    began = began or Began()
    graph, master = job.graph(), JobMaster(job)
    wholes = {lineage[-1]: lineage} if wholes is None else wholes
    check(job.spec, graph, captured, schemas, wholes, since=began.operators)
    for name, sink in graph.sink_inputs.items():
        table = _shown(master, name)
        if table is None and sink.output not in schemas:
            continue  # of a source that no epoch had
        given = captured if shown is None else shown(name)
        pieces, first = given.pieces.get(sink.output, ()), began.sinks.get(name, 0)
        rows = {at: [rows for epoch, _, rows in pieces if epoch == at] for at in lineage if at >= first}
        empty = schemas[sink.output].empty_table()
        epochs = {at: pa.concat_tables([empty, *found]) for at, found in rows.items()}
        if sink.mode == "changelog":
            expected = changelog(epochs, sink.op, graph.nodes[sink.uid].key, empty)
        else:
            put_out = pa.concat_tables([empty, *epochs.values()])
            expected = newest(put_out, sink.key) if sink.mode == "upsert" else put_out
        assert_same_rows(expected.slice(0, 0) if table is None else table, expected, f"table {name}")


@dataclass(frozen=True)
class Began:
    """The first epoch of operators (by uid) and sinks (by name) that were added to a running job."""

    operators: Mapping[str, int] = field(default_factory=dict)
    sinks: Mapping[str, int] = field(default_factory=dict)


def changelog(epochs: Mapping[int, pa.Table], op: str, key: tuple[str, ...], empty: pa.Table) -> pa.Table:
    """Return the changelog rows of each epoch: every row with its operation. A delete has only its key.

    Args:
        op: the operation of a row that is not a delete.
    """
    found: list[dict[str, Any]] = []
    for checkpoint_id, rows in epochs.items():
        for row in rows.to_pylist():
            deleted = row.pop(DELETED_COLUMN, False)
            kept = {name: value for name, value in row.items() if not deleted or name in key}
            found.append({**kept, "_op": "delete" if deleted else op, "_checkpoint": checkpoint_id})
    columns = [column for column in empty.schema if column.name != DELETED_COLUMN]
    more = [pa.field("_op", pa.string()), pa.field("_checkpoint", pa.int64())]
    return pa.Table.from_pylist(found, pa.schema([*columns, *more]))


class _Watched(SparklessRunner):
    """A data plane that records the nodes' rows in a job."""

    def __init__(self, job: LawJob, **options: Any) -> None:
        sql = any(node.is_select for node in job.loaded.graph().nodes.values())
        super().__init__(seen=self._keep, sql=sql, **options)
        self._job = job

    def run(self, plan: EpochPlan) -> EpochAnswers:
        self._job.captured.forget(int(plan.checkpoint_id))
        self._job.captured.begins[int(plan.checkpoint_id)] = Begin.of(plan)
        answers = super().run(plan)
        self._job.schemas |= answers.schemas
        return answers

    def _keep(self, plan: EpochPlan, item: TaskOutput) -> None:
        if isinstance(item, Rows):
            self._job.captured.add(item.node, int(plan.checkpoint_id), item.lateness_us, item.rows)


def newest(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Return the last row of each key, without deletes."""
    return without_deletes(last_of_each_key(rows, key))


def last_of_each_key(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Return the last row of each key, deletes included."""
    last = {repr(tuple(row[name] for name in key)): place for place, row in enumerate(rows.to_pylist())}
    return rows.take(pa.array(sorted(last.values()), pa.int64()))
