"""Continue a job that an earlier version has stored, in another folder, as its users would."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog.sql import SqlCatalog

from milepost.jobmaster import CheckpointReport, Session
from milepost.protocol.records import JobStatus
from milepost.protocol.records.ids import CheckpointId
from milepost.tables.records.table_address import address_of
from milepost_testkit.compatibility.stored_job import StoredJob
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import decided, roll_back


def continue_job(job: StoredJob) -> None:
    """Do with a moved job all that its users may do, and compare every table with DuckDB after each step.

    Raises: AssertionError: a table differs. CheckpointError: this version cannot continue it.
    """
    repair_moved_tables(job)
    read_everything(job)
    _require_whole(job)
    if job.context.head().state.status is JobStatus.FINISHED:
        job.master.restores.start()
    for checkpoint_id in _reachable(job):
        roll_back(job.master, checkpoint_id)
        job.assert_tables()
    _run_all(job)
    for number in job.later_epochs:
        job.land_later(number)
        assert isinstance(job.run(), CheckpointReport)
        job.assert_tables()
    _release_all(job)
    *_, start, _ = (0, 0, *(int(done.checkpoint_id) for done in job.lineage()))
    if start in _reachable(job):
        back_fill(job.master, job.runner(), from_checkpoint=start)
        job.assert_tables()
    for savepoint in job.master.list_savepoints():
        _start_from(job, savepoint.name, savepoint.checkpoint_id)
    job.master.collect_garbage()
    _require_whole(job)


def repair_moved_tables(job: StoredJob) -> None:
    """Rebuild what cannot move with a folder, as docs/how-to/move-a-storage.md tells users."""
    for sink in job.loaded().spec.sinks:
        if sink.format == "iceberg":
            SqlCatalog("milepost", uri=f"sqlite:///{job.folder}/catalog.db").drop_table(str(sink.table))
        if sink.format in ("iceberg", "postgres"):
            plan = job.master.realignments.plan(sink.name)
            assert job.master.realignments.run(Session.cli(), plan).outcome == "realigned"
    for savepoint in job.master.list_savepoints():
        if not savepoint.location.startswith(job.folder.as_uri()):
            job.master.savepoints.dispose(savepoint.name)


def read_everything(job: StoredJob) -> None:
    """Read what people are shown of a job: its status, its history, its newest checkpoints, and its state."""
    reports = job.master.reports
    reports.status()
    reports.history()
    for shown in reports.list_checkpoints()[:3]:
        reports.show(int(shown.checkpoint_id))
    for uid in reports.state_sizes():
        reports.state(uid)


def _require_whole(job: StoredJob) -> None:
    """Decode every retained object, and search for missing and damaged ones."""
    job.master.reports.verify(deep=True)
    audit = job.master.reports.fsck()
    assert (audit.missing, audit.damaged) == ((), ()), f"job {job.name}: {audit.missing} {audit.damaged}"


def _reachable(job: StoredJob) -> list[CheckpointId]:
    """Return the retained checkpoints, oldest first, whose tables are where the spec says."""
    context = job.context
    addresses = {sink.name: address_of(sink) for sink in context.spec.sinks}

    def fits(tables: Iterator[tuple[str, object]]) -> bool:
        return all(addresses.get(name, address) == address for name, address in tables)

    stored = {one.checkpoint_id: context.metadata(one).tables for one in context.head().state.checkpoints}
    return [at for at, tables in stored.items() if fits((name, item.address) for name, item in tables.items())]


def _run_all(job: StoredJob) -> None:
    """Run epochs until there is no input, then compare the tables."""
    while isinstance(job.run(), CheckpointReport):
        pass
    job.assert_tables()


def _release_all(job: StoredJob) -> None:
    """Release the quarantined objects, which the next epochs read."""
    quarantine = job.master.quarantine
    for one in job.context.head().state.quarantined:
        approved = quarantine.plan_release(one.source, one.key).approved
        assert quarantine.release(Session.cli(), approved, decided("to read it")).outcome == "released"
        assert isinstance(job.run(), CheckpointReport)
        job.assert_tables()


def _start_from(job: StoredJob, savepoint: str, checkpoint_id: int) -> None:
    """End the job, start it from a savepoint, and expect the tables that it has at the savepoint's checkpoint."""
    names = [sink.name for sink in job.loaded().spec.sinks]
    expected = {name: job.master.reports.read(name, checkpoint_id).to_pylist() for name in names}
    job.master.savepoints.cancel()
    job.master.restores.start(savepoint)
    for name, rows in expected.items():
        assert sorted(map(repr, job.master.reports.read(name).to_pylist())) == sorted(map(repr, rows)), name
    job.master.savepoints.dispose(savepoint)
