"""Commands of users and schedules, each in its own process that can be killed or frozen."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from milepost import errors
from milepost.errors import CheckpointError
from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.protocol.manifest.transaction.requests import UnpinRequest
from milepost_testkit.chaos.small_limits import shorten_grace, shrink
from milepost_testkit.chaos.tries import CapturingRunner, SparkRunner, leaving_origins, new_runner
from milepost_testkit.commands.mortal_run import plan_stores
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.processes.processes import wait_until

PRELOADED = (
    __name__,
    "milepost.jobmaster.backfill.backfill",
    "milepost.jobmaster.compatibility.preflight",
    "milepost.jobmaster.landing.landings",
    "milepost.jobmaster.leadership.lifecycle",
    "milepost.jobmaster.reports.checkpoint.details",
    "milepost.jobmaster.reports.reports",
    "milepost.jobmaster.retention.garbage_collection",
    "milepost.jobmaster.retention.subsumption",
    "milepost.jobmaster.rollback.rollback",
    "milepost.jobmaster.run.epochs",
    "milepost.jobmaster.run.judgement",
    "milepost.jobmaster.savepoints.restore",
    "milepost.jobmaster.savepoints.savepoints",
    "milepost_testkit.runners.duckdb_sql",
)
"""Modules that every command inherits from the process that it is forked from, instead of importing them."""
OF_ANY_JOB = (
    "boto3",
    "great_expectations",
    "pandas",
    "psycopg",
    "milepost.quality.gx",
    "milepost.sinks.formats.delta.delta_format",
    "milepost.sinks.formats.iceberg.iceberg_format",
    "milepost.sinks.formats.postgres.postgres_format",
    "milepost.sources.landed.python_source",
    "milepost.storage.s3.store",
)
"""As `PRELOADED`, for jobs with gates, object stores and tables of every format."""
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([*PRELOADED, *OF_ANY_JOB])
ENDS_WITHIN_S = 240.0
"""A command that takes longer hangs: all of its waits are bounded by less."""


class Act(Enum):
    """The kind of a command."""

    EPOCH = "epoch"
    LAND = "land"
    ROLLBACK = "rollback"
    BACKFILL = "backfill"
    REBUILD = "backfill from the beginning"
    SAVEPOINT = "savepoint"
    DISPOSE = "dispose of a savepoint"
    CANCEL = "cancel"
    CANCEL_SAVED = "cancel with a savepoint"
    START = "start"
    START_FROM = "start from a savepoint"
    CLAIM = "start from a savepoint and claim it"
    RESUME = "resume"
    ABORT = "abort what runs"
    GC = "gc"
    COLLECT = "gc without grace"
    FSCK = "fsck"
    SETTLE = "finish what a decision left at the sinks"


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        back: number of checkpoints to go back. number: of a savepoint. place: location of an external savepoint.
        leaves: whether state that no operator restores may be dropped.
    """

    act: Act
    back: int = 0
    number: int = 0
    place: str = ""
    leaves: bool = False

    def __str__(self) -> str:
        return f"{self.act.value} {self.back or ''}".strip()


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        error: its class and message; None on success. typed: whether it is an error of Milepost. took_s: duration.
        tried: checkpoint id and token of the last attempt that ran to its end; None if there was none.
    """

    command: Command
    said: str
    error: str | None = None
    typed: bool = True
    took_s: float = 0.0
    tried: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        """The class of its error, or `well`."""
        return self.error.partition(":")[0] if self.error else "well"


class Running:
    """A running command."""

    def __init__(
        self,
        spec: Path,
        captured: Path,
        command: Command,
        limits: Mapping[str, int] = MappingProxyType({}),
        plan: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Begin the command. plan: the faults of its stores, as in `mortal_run`."""
        self.command = command
        self._began_s = time.monotonic()
        self._said, said = _SERVER.Pipe(duplex=False)
        self._process = _SERVER.Process(
            target=_run_under,
            args=(dict(plan), str(spec), str(captured), command, dict(limits), dict(os.environ), said),
            daemon=True,
        )
        self._process.start()
        said.close()

    def kill(self) -> None:
        self._process.kill()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def wait_until_frozen(self) -> bool:
        """Wait until it has frozen itself, as planned. Returns False if it ended instead."""
        process = psutil.Process(self._process.pid)
        wait_until(
            lambda: not self._process.is_alive() or process.status() == psutil.STATUS_STOPPED,
            seconds=ENDS_WITHIN_S,
            what=f"the moment at which `{self.command}` freezes",
        )
        return self._process.is_alive()

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for its end. Returns whether it has ended."""
        self._process.join(seconds)
        return not self._process.is_alive()

    def ended(self) -> Ended:
        """Wait for its end. Raises TimeoutError if it hangs."""
        if not self.wait(ENDS_WITHIN_S):
            self.kill()
            raise TimeoutError(f"`{self.command}` did not end within {ENDS_WITHIN_S:.0f} s")
        try:
            ended: Ended = self._said.recv()
        except EOFError:
            ended = Ended(self.command, f"ended by signal {-(self._process.exitcode or 0)}")
        return replace(ended, took_s=time.monotonic() - self._began_s)


def _run_under(plan: dict[str, Any], *arguments: Any) -> None:
    if plan:
        plan_stores(plan)
    _run(*arguments)


def _run(
    spec: str, captured: str, command: Command, limits: Mapping[str, int], environment: dict[str, str], said: Connection
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    runner: CapturingRunner | SparkRunner | None = None
    ended = Ended(command, "")
    try:
        shrink(limits)
        job = load_job(spec)
        runner = new_runner(job, Path(captured))
        with leaving_origins(Path(captured)):
            ended = replace(ended, said=str(_done(job, runner, command))[:200])
    except CheckpointError as error:
        ended = replace(ended, error=f"{type(error).__name__}: {error.message}")
    except BaseException as error:  # noqa: BLE001 - the campaign is told, and fails
        ended = replace(ended, error="".join(traceback.format_exception(error)), typed=False)
    newest = None if runner is None else runner.newest
    said.send(ended if newest is None else replace(ended, tried=(newest.checkpoint_id, newest.token)))


def _done(job: LoadedJob, runner: CapturingRunner | SparkRunner, command: Command) -> Any:
    from milepost_testkit.law.job import lineage_of

    master, session = JobMaster(job), Session.cli()
    match command.act:
        case Act.EPOCH:
            return type(master.epochs.run(session, runner, allow_non_restored_state=command.leaves)).__name__
        case Act.LAND:
            return _landed(master)
        case Act.ROLLBACK:
            lineage = lineage_of(job)
            return (
                roll_back(master, lineage[-1 - command.back], session) if len(lineage) > command.back else "too young"
            )
        case Act.BACKFILL:
            lineage = (0, *lineage_of(job))
            if len(lineage) <= command.back:
                return "too young"
            since = lineage[-1 - command.back]
            if not since and master.context.head().state.floors:
                return "its first records are deleted"
            return back_fill(master, runner, session=session, from_checkpoint=since, ranges_per_epoch=2)
        case Act.REBUILD:
            if master.context.head().state.floors:
                return "its first records are deleted"
            return back_fill(master, runner, session=session, from_checkpoint=0, ranges_per_epoch=2)
        case Act.SAVEPOINT:
            return master.savepoints.create(f"chaos-{command.number}")
        case Act.DISPOSE:
            return master.savepoints.dispose(f"chaos-{command.number}")
        case Act.CANCEL:
            return master.savepoints.cancel()
        case Act.CANCEL_SAVED:
            return master.savepoints.cancel(savepoint=True)
        case Act.START:
            return master.restores.start()
        case Act.START_FROM | Act.CLAIM:
            return _started(master, command)
        case Act.RESUME:
            return master.lifecycle.resume()
        case Act.ABORT:
            return master.lifecycle.abort_running()
        case Act.GC:
            return master.collect_garbage().deleted_objects
        case Act.COLLECT:
            shorten_grace(master.context.timeout_ms)
            _unpin_all(master, session)
            found = master.collect_garbage()
            listed = len(found.listed) + sum(len(table.listed) for table in found.tables)
            return found.deleted_objects + found.pruned_files + listed + len(found.staged)
        case Act.FSCK:
            return master.reports.fsck().exit_code
        case Act.SETTLE:
            return master.rollbacks.finish_reconciliation(session)


def _landed(master: JobMaster) -> str:
    """Land all sources. Raises the error of one that failed, as the command reports it."""
    report = master.landings.land()
    if report.failed:
        raise getattr(errors, report.failed[0].error)(report.failed[0].message)
    return report.not_due or f"{sum(one.records for one in report.landed)} records"


def _unpin_all(master: JobMaster, session: Session) -> None:
    """Remove all pins. No command runs, so their holders were killed."""
    for pin in master.context.head().state.pins:
        master.context.transact(UnpinRequest(session.session_id, pin.name))


def _started(master: JobMaster, command: Command) -> Any:
    """Start from an external savepoint, or from one of the job."""
    if command.place:
        return master.restores.start(command.place)
    own = master.list_savepoints()
    if not own:
        return "no savepoint"
    chosen = own[command.number % len(own)].name
    return master.restores.start(chosen, claim=command.act is Act.CLAIM)
