"""A flights job that lives through kills: each run first recovers what the killed one before it left."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.layout import token_prefix
from milepost.protocol.records.manifest_state import ManifestState
from milepost_testkit.commands.mortal_processes import MortalProcess, MortalProcesses
from milepost_testkit.jobs.flights.flights_job import FLIGHTS_SPEC, FlightsJob

SINKS = ("carriers", "hourly", "late_flights")


def without_quality() -> str:
    """The quality section of the flights spec: Great Expectations takes seconds to import, in every process."""
    text = FLIGHTS_SPEC.read_text()
    return text[text.index("quality:") : text.index("checkpointing:")]


def without_sql() -> dict[str, str]:
    """The edit of the flights spec after which no operator of it needs Spark."""
    text = FLIGHTS_SPEC.read_text()
    clean = text[text.index("  - uid: clean") : text.index("  - {uid: unique")]
    return {clean: "", "inputs: [clean]": "inputs: [flights]"}


@dataclass
class KillChain:
    """One job, one process after the other.

    Attributes:
        spark: whether its epochs run on Spark; without, they run in the process itself.
        job: one object per epoch, so that every kill has an epoch of its own; two checkpoints are retained.
        orphaned: killed runs whose JVM was alive, which it must stay.
    """

    folder: Path
    days: int
    spark: bool
    job: FlightsJob = field(init=False)
    processes: MortalProcesses = field(init=False)
    orphaned: list[MortalProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        edit = {
            without_quality(): "",
            "max_files: 4": "max_files: 1",
            "last: 10": "last: 2",
            'master: "local[2]"': 'master: "local[2]", conf: {spark.driver.memory: 600m}',
        }
        if not self.spark:
            edit |= without_sql()
        self.job = FlightsJob.create(self.folder / "job", edit)
        self.job.land(range(1, self.days + 1))
        self.processes = MortalProcesses(self.folder)

    def keep_unread(self, days: int) -> None:
        """Land further days until that many are unread: a run that is to die must not run out of input first."""
        missing = days - self.job.master().reports.status().unread_objects
        if missing > 0:
            self.job.land(range(self.days + 1, self.days + missing + 1))
            self.days += missing

    # -- running ------------------------------------------------------------------------------------------------

    def start(self, plan: dict[str, Any], *words: str) -> MortalProcess:
        return self.processes.start("run", str(self.job.spec_path), *words, plan=plan | {"spark": self.spark})

    def dies(self, plan: dict[str, Any], when: Callable[[], bool] | None = None) -> MortalProcess:
        """Run until the planned kill, or until `when` and then kill it from outside. It must not end otherwise."""
        run = self.start(plan, "--until-caught-up")
        code = run.wait() if when is None else run.kill_when(when)
        assert code == -signal.SIGKILL, f"{plan}: the run ended with {code} before it was killed:\n{run.tail()}"
        if run.jvm_lives():
            self.orphaned.append(run)
        return run

    def succeeds(self, *words: str, plan: dict[str, Any] | None = None) -> MortalProcess:
        run = self.start(plan or {}, *words)
        assert (code := run.wait()) == 0, f"the run ended with {code}:\n{run.tail()}"
        return run

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def context(self) -> JobContext:
        return JobContext(self.job.load())

    @property
    def state(self) -> ManifestState:
        return self.context.head().state

    @property
    def pending(self) -> PendingCheckpoint:
        """The checkpoint that the killed run left pending, as `milepost list` shows it too."""
        pending = self.state.timeline().pending
        assert pending is not None, "no checkpoint is pending"
        shown = self.job.master().reports.list_checkpoints("pending")
        assert [document.checkpoint_id for document in shown] == [pending.checkpoint_id]
        return pending

    def written(self, pending: PendingCheckpoint) -> set[str]:
        """First parts of the keys below the pending token: what of the epoch is durable."""
        prefix = token_prefix(pending.checkpoint_id, pending.token)
        return {stat.key.removeprefix(prefix).split("/")[0] for stat in self.context.store.list(prefix)}

    def marks(self) -> dict[str, int]:
        """The checkpoint that every sink's table shows; 0 before its first commit."""
        context = self.context
        return {name: context.sink(name).position().checkpoint_id for name in SINKS}

    def assert_only_completed_is_published(self) -> None:
        """Holds at every moment: no sink is ahead of the head, a confirmed one is at it, what is listed is whole."""
        log = self.context.log.head()
        if log is None:
            return
        state = log.state
        head = state.timeline().head
        completed = state.checkpoint(head)
        for name, mark in self.marks().items():
            assert mark <= head, f"sink {name} shows checkpoint {mark}, the head is {head}"
            if completed is not None and name not in completed.unconfirmed:
                assert mark == head, f"sink {name} confirmed checkpoint {head} and shows {mark}"
        if completed is not None:
            assert self.job.master().reports.verify().discarded == ()

    def assert_orphans_live(self) -> None:
        assert all(run.jvm_lives() for run in self.orphaned), "a JVM of a killed run has ended"
