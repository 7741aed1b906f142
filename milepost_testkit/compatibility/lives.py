"""Stages of jobs' lives: what people and schedules do to a job, and processes that were killed in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from deltalake import DeltaTable

from milepost.errors import QualityGateFailed
from milepost.jobmaster import JobMaster, Session, Triggered
from milepost.jobspec.load.load import load_job
from milepost.protocol.manifest.transaction.requests import RebindRequest
from milepost.protocol.records.decisions import Actor, Decision
from milepost.protocol.records.layout import token_prefix
from milepost.spark.worker.worker_memory import MemoryBudget
from milepost.tables.records.table_address import TableAddress
from milepost_testkit.compatibility import counted
from milepost_testkit.compatibility.stored_job import StoredJob
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import decided, roll_back
from milepost_testkit.jobs.sparkless.backfill_job import mortal_session
from milepost_testkit.specs.spec_edits import edit_spec, edited
from milepost_testkit.stores.job_stores import hook_stores, later

HOUR_MS = 3_600_000
OLD = 8
"""Epochs of the old job: some join the files of earlier ones."""
STRAYS = {OLD - 3: 9, OLD - 2: 9, OLD - 1: 1}
"""Numbers of objects of fenced writers that are found after an epoch: one that needs a list of its own, and 1."""

LATER = 2
"""Epochs that a later version runs."""


class Killed(BaseException):
    """The process ended here."""


def operate(job: StoredJob) -> None:
    """Everything that a person may do to a job, and an Airflow run that took two tries."""
    counted.create(job, 9, LATER)
    for _ in range(3):
        job.run()
    master = job.master
    master.savepoints.create("kept")
    master.savepoints.create("disposed")
    master.savepoints.dispose("disposed")
    master.savepoints.create("elsewhere", target=str(job.folder / "elsewhere"))
    master.reports.read("totals", 2)
    session = _scheduled(1)
    triggered = master.triggers.trigger(session)
    assert isinstance(triggered, Triggered)
    job.context.transact(RebindRequest(session.session_id, session.holder, triggered.checkpoint_id, 10_000))
    approved = Actor("airflow", "ada", approved_by="grace", dag_id="operated__operate", run_id="manual__1")
    master.lifecycle.abort_running(decision=Decision(approved, "it would read a wrong file"))
    roll_back(master, 2, decision=decided("to see the state of that day"))
    job.master.epochs.run(_scheduled(2), job.runner())
    DeltaTable(job.folder / "lake" / "rows").delete("k = 1")
    master.realignments.run(Session.cli(), master.realignments.plan("rows"), decision=decided("an external delete"))
    back_fill(job.master, job.runner(), "2026-03-02")
    with _killed() as die, suppress(Killed):
        back_fill(job.master, job.runner(after=die), "2026-03-03")
    job.master.backfills.dispose()
    job.run()
    job.master.triggers.trigger(Session.cli())
    job.master.savepoints.cancel(decision=decided("the year is over"))
    job.master.restores.start(decision=decided("it is not"))
    job.run()


def _scheduled(day: int) -> Session:
    """Return the session of a scheduled run of Airflow."""
    logical_date = f"2026-03-0{day}T00:00:00+00:00"
    return Session.airflow("operated__epoch", f"scheduled__{logical_date}", "scheduled", logical_date, "main", "ada")


def migrate(job: StoredJob) -> None:
    """A table that moved to another format while both are retained."""
    counted.create(job, 3, LATER)
    job.run()
    target = TableAddress("delta", "../lake/delta-totals")
    plan = job.master.migrations.plan("totals", target)
    job.master.migrations.run(plan, decision=decided("other engines read it"))
    edit_spec(job.spec_path, {"format: parquet, path: ../lake/totals": "format: delta, path: ../lake/delta-totals"})
    for _ in range(2):
        job.run()


def grow_old(job: StoredJob) -> None:
    """Checkpoints beyond the retention, a compacted log, and garbage of every age; every two hours an epoch."""
    counted.create(job, OLD, LATER, {"{last: 60}": "{last: 2}"})
    for epoch in range(OLD):
        with pytest.MonkeyPatch.context() as patch:
            later(patch, (2 * epoch - 48) * HOUR_MS)
            patch.setattr("milepost.protocol.manifest.upkeep.garbage.MAX_STATE_ENTRIES", 4)
            patch.setattr("milepost.protocol.manifest.upkeep.garbage.MAX_LISTS", 1)
            patch.setattr("milepost.sinks.staging.compaction.COMPACT_FILES", 2)
            patch.setattr("milepost.sinks.staging.small_files.GROWTH", 2)
            job.run()
            if epoch == 2:
                job.master.triggers.trigger(Session.cli())
                job.master.lifecycle.abort_running()
            if epoch in STRAYS:
                _leave_strays(job, STRAYS[epoch])
                job.master.collect_garbage()


def _leave_strays(job: StoredJob, count: int) -> None:
    """Write objects as a fenced writer leaves them: below the directory of a token that did not win."""
    first, *_ = job.context.head().state.checkpoints
    for number in range(count):
        key = f"{token_prefix(first.checkpoint_id, first.token)}state/totals/stray{number}.parquet"
        job.context.store.put(key, b"late")


GATE = """quality:
  - sink: rows
    expectations:
      - {type: expect_column_values_to_be_between, column: v, max_value: 900, on_fail: quarantine}
      - {type: expect_column_values_to_be_between, column: k, min_value: 0, on_fail: drop}
  - sink: totals
    expectations:
      - {type: expect_column_values_to_be_between, column: total, max_value: 1000000}
      - {type: expect_column_max_to_be_between, column: total, max_value: 1000000}
      - {type: expect_column_values_to_be_between, column: total, max_value: 1, severity: warning}
      - {type: expect_column_value_lengths_to_be_between, column: total, max_value: 9, severity: warning}
checkpointing:"""
REFUSED = "  - {name: refused, input: rows.rejected, format: parquet, path: ../lake/refused, mode: append}\n"
DEAD_LETTERS = "  - {name: bad, input: rows.bad, format: parquet, path: ../lake/bad, mode: append}\n"


def judge(job: StoredJob) -> None:
    """Epochs that a gate passed with a warning, vetoed, and passed once the file was mended; bad records; late rows."""
    edits = {
        "checkpointing:": f"{REFUSED}{DEAD_LETTERS}{GATE}",
        "    settle: 0s": "    settle: 0s\n    bad_records: dead_letter\n    on_change: reprocess",
        "tolerable_failures: 9": "tolerable_failures: 0",
    }
    counted.create(job, 4, LATER, edits)
    readable = edited(counted.ORACLE, {"columns = ": "ignore_errors = true, columns = "})
    job.write_oracle(readable.partition("CREATE VIEW rows")[0])  # its rows depend on the rules that were in force
    job.land(
        "rows/003.csv",
        b"k,v,at\n1,7,2026-03-03T01:00:00Z\n-1,8,2026-03-03T02:00:00Z\n2,901,2026-03-03T03:00:00Z\n!,,\n",
    )
    for _ in range(3):
        job.run()
    job.land("rows/004.csv", b"k,v,at\n1,9000000,2026-03-04T01:00:00Z\n!,,\n")
    with suppress(QualityGateFailed):
        job.run()
    job.land("rows/004.csv", b"k,v,at\n1,4,2026-03-04T01:00:00Z\n")
    job.master.lifecycle.resume(decision=decided("the file is mended"))
    job.run()
    edit_spec(job.spec_path, {f"{GATE}": "checkpointing:", REFUSED: ""})  # no later epoch needs the gate


def leave_out(job: StoredJob) -> None:
    """Two objects were quarantined before an epoch read them. One was released, and the other one still waits."""
    counted.create(job, 4, LATER)
    job.run()
    quarantine = job.master.quarantine
    for key in ("002.csv", "003.csv"):
        quarantine.quarantine(Session.cli(), quarantine.plan("rows", key).approved, decided("it has wrong rows"))
    job.run()
    quarantine.release(
        Session.cli(), quarantine.plan_release("rows", "003.csv").approved, decided("its rows are right")
    )
    job.run()


def end(job: StoredJob) -> None:
    """A job whose input has ended."""
    counted.create(job, 2, 0)
    job.run(budget=MemoryBudget(1))
    master, session = job.master, Session.cli()
    master.epochs.run(session, job.runner(), drain=True)
    master.lifecycle.finish(session)


def begin(job: StoredJob) -> None:
    """A process that was killed in the job's first epoch."""
    counted.create(job, 1, LATER)
    with _killed() as die, suppress(Killed):
        job.run(after=die)


def leave_unpublished(job: StoredJob) -> None:
    """A checkpoint that was completed for a dead process, and one that is complete and not published."""
    counted.create(job, 3, LATER)
    job.run()
    with mortal_session() as session, pytest.MonkeyPatch.context() as patch, _killed() as die, suppress(Killed):
        patch.setattr("milepost.jobmaster.leadership.leadership.Leadership.complete", die)
        job.master.epochs.run(session, job.runner())
    job.run()
    with pytest.MonkeyPatch.context() as patch, _killed() as die, suppress(Killed):
        patch.setattr("milepost.jobmaster.leadership.sink_commits.SinkCommits.publish", die)
        job.run()


CUT = {"timeout: 10s": "timeout: 10s, aligned_timeout: 1ms, epoch_budget: 1ms"}


def leave_running(job: StoredJob) -> None:
    """Rows in flight, a backfill that was killed, and a process that was killed in the middle of the next epoch."""
    edits = {**CUT, "checkpointing:": "spark: {buffer_size: 1KB}\ncheckpointing:"}
    counted.create(job, 4, LATER, edits)
    lines = "".join(f"{k},{k},2026-03-01T0{k % 10}:00:00Z\n" for k in range(600))
    job.land("rows/001.csv", f"k,v,at\n{lines}".encode())
    job.run(budget=MemoryBudget(1))
    job.run()
    edit_spec(job.spec_path, {CUT["timeout: 10s"]: "timeout: 10s"})
    job.run()
    with _killed() as die, suppress(Killed):
        back_fill(job.master, job.runner(after=die), from_checkpoint=0)
    with _killed() as die, suppress(Killed):
        job.master.epochs.run(Session.cli(), job.runner(after=die))


@contextmanager
def _killed() -> Iterator[Callable[..., None]]:
    """Yield a function that kills: after its call this process has no effect on a job's storage."""
    dead = False

    def before(operation: str, key: str) -> None:
        if dead:
            raise Killed

    def die(*_: object, **__: object) -> None:
        nonlocal dead
        dead = True
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        hook_stores(patch, before=before)
        yield die


def take_over(job: StoredJob) -> None:
    """A job that took the tables of another one, which it started from, where they are."""
    counted.create(job, 2, LATER, {f"name: {job.name}": "name: former"})
    former = job.spec_path.rename(job.spec_path.with_name("former.yaml"))
    master = JobMaster(load_job(str(former)))
    master.epochs.run(Session.cli(), job.runner())
    saved = master.savepoints.create("last").location
    job.spec_path.write_text(edited(former.read_text(), {"name: former": f"name: {job.name}"}))
    job.master.restores.start(saved, claim=True)
    job.run()
