"""What people and schedules ask of a job, each in a process of its own that may be killed or frozen at any moment."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
import traceback
from dataclasses import dataclass, replace
from enum import Enum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from milepost.epoch.answers import EpochAnswers
from milepost.epoch.plan import EpochPlan
from milepost.jobmaster.jobmaster import JobMaster, Session
from milepost.protocol.records.errors import CheckpointError
from milepost.spark.wire.task_output import Rows, TaskOutput
from milepost.spec.load.load import LoadedJob, load_job
from tests.harness.jobs.sparkless.sparkless_runner import SparklessRunner
from tests.harness.law.plane import ticking

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        __name__,
        "boto3",
        "pandas",
        "milepost.dataflow.sinks.formats.delta.delta_format",
        "milepost.jobmaster.backfill.backfill",
        "milepost.jobmaster.compatibility.preflight",
        "milepost.jobmaster.leadership.lifecycle",
        "milepost.jobmaster.reports.checkpoint.details",
        "milepost.jobmaster.reports.reports",
        "milepost.jobmaster.retention.garbage_collection",
        "milepost.jobmaster.retention.subsumption",
        "milepost.jobmaster.rollback.rollback",
        "milepost.jobmaster.run.epochs",
        "milepost.jobmaster.savepoints.savepoints",
        "milepost.storage.s3.store",
        "tests.harness.jobs.duckdb_sql",
    ]
)
"""Imported once: each command is a fork of a process that has them."""
ENDS_WITHIN_S = 240.0
"""A command that takes longer hangs: all of its waits are bounded by less."""


class Act(Enum):
    """What is asked."""

    EPOCH = "epoch"
    ROLLBACK = "rollback"
    BACKFILL = "backfill"
    SAVEPOINT = "savepoint"
    DISPOSE = "dispose of a savepoint"
    CANCEL = "cancel"
    CANCEL_SAVED = "cancel with a savepoint"
    START = "start"
    RESUME = "resume"
    ABORT = "abort what runs"
    GC = "gc"
    FSCK = "fsck"
    SETTLE = "finish what a decision left at the sinks"


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        back: checkpoints before the head, where it goes back. number: of a savepoint.
    """

    act: Act
    back: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.act.value} {self.back or ''}".strip()


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        error: its class and message; None: well. typed: it is one of ours. took_s: from its beginning.
    """

    command: Command
    said: str
    error: str | None = None
    typed: bool = True
    took_s: float = 0.0


class Running:
    """A command that is under way."""

    def __init__(self, spec: Path, captured: Path, command: Command) -> None:
        self.command = command
        self._began_s = time.monotonic()
        self._said, said = _SERVER.Pipe(duplex=False)
        self._process = _SERVER.Process(
            target=_run, args=(str(spec), str(captured), command, dict(os.environ), said), daemon=True
        )
        self._process.start()
        said.close()

    def kill(self) -> None:
        self._process.kill()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait so long for its end. Returns whether it has ended."""
        self._process.join(seconds)
        return not self._process.is_alive()

    def ended(self) -> Ended:
        """Wait for its end. Raises TimeoutError: it hangs."""
        if not self.wait(ENDS_WITHIN_S):
            self.kill()
            raise TimeoutError(f"`{self.command}` did not end within {ENDS_WITHIN_S:.0f} s")
        try:
            ended: Ended = self._said.recv()
        except EOFError:
            ended = Ended(self.command, f"ended by signal {-(self._process.exitcode or 0)}")
        return replace(ended, took_s=time.monotonic() - self._began_s)


def _run(spec: str, captured: str, command: Command, environment: dict[str, str], said: Connection) -> None:
    os.environ.clear()
    os.environ.update(environment)
    try:
        said.send(Ended(command, str(_done(load_job(spec), Path(captured), command))[:200]))
    except CheckpointError as error:
        said.send(Ended(command, "", f"{type(error).__name__}: {error.message}"))
    except BaseException as error:  # noqa: BLE001 - the campaign is told, and fails
        said.send(Ended(command, "", "".join(traceback.format_exception(error)), typed=False))


def _done(job: LoadedJob, captured: Path, command: Command) -> Any:
    from tests.harness.law.job import lineage_of

    master, session = JobMaster(job), Session.cli()
    runner = CapturingRunner(job, captured)
    match command.act:
        case Act.EPOCH:
            return type(master.run(session, runner)).__name__
        case Act.ROLLBACK:
            lineage = lineage_of(job)
            return master.rollback(session, lineage[-1 - command.back]) if len(lineage) > command.back else "too young"
        case Act.BACKFILL:
            lineage = (0, *lineage_of(job))
            if len(lineage) <= command.back:
                return "too young"
            return master.backfill(session, runner, from_checkpoint=lineage[-1 - command.back], ranges_per_epoch=2)
        case Act.SAVEPOINT:
            return master.create_savepoint(f"chaos-{command.number}")
        case Act.DISPOSE:
            return master.dispose_savepoint(f"chaos-{command.number}")
        case Act.CANCEL:
            return master.cancel()
        case Act.CANCEL_SAVED:
            return master.cancel(savepoint=True)
        case Act.START:
            return master.start()
        case Act.RESUME:
            return master.resume()
        case Act.ABORT:
            return master.abort_running()
        case Act.GC:
            return master.collect_garbage().deleted_objects
        case Act.FSCK:
            return master.fsck().exit_code
        case Act.SETTLE:
            return master.finish_reconciliation(session)


class CapturingRunner(SparklessRunner):
    """A data plane that leaves what its nodes put out in a file of each try, before any of it can be committed."""

    def __init__(self, job: LoadedJob, folder: Path) -> None:
        super().__init__(seen=self._keep, sql=any(one.kind == "sql" for one in job.spec.operators), clock=ticking())
        self._folder = folder
        self._pieces: list[tuple[str, int | None, Any]] = []

    def run(self, plan: EpochPlan) -> EpochAnswers:
        self._pieces.clear()
        answers = super().run(plan)
        file = self._folder / f"{plan.checkpoint_id}-{plan.token}"
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(pickle.dumps((self._pieces, dict(answers.schemas))))
        part.rename(file)
        return answers

    def _keep(self, plan: EpochPlan, item: TaskOutput) -> None:
        if isinstance(item, Rows):
            self._pieces.append((item.node, item.lateness_us, item.rows))
