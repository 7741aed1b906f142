"""A small job with two sinks, whose commands run as stepped processes.

Job master, manifest log, state and sinks are real. Every write is reported to the plain model, and the stored state is
compared with the model after each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milepost.errors import NotFound
from milepost.jobmaster import JobMaster, Session, Triggered
from milepost.jobmaster.job.checks.store_checks import require_stores
from milepost.jobspec.load.load import LoadedJob
from milepost.protocol.exchange.acknowledgements import Acknowledgement, ConsumedAttempt, SubtaskAnswer
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.log.entry_codec import decode_entry
from milepost.protocol.records.checkpoints import Holder, Run
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.models.data.landed_rows import LandedRows
from milepost_testkit.models.protocol.plain_model import PlainModel
from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.stored_tables import HEADS
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.stepped_processes import Crashed, Process, SteppedStores, Watchers

SINKS = ("counts", "seen")
RETAINED, TOLERABLE = 2, 1
SMALL = {
    "count(*)}}\n": "count(*)}}\n  - {uid: first, kind: deduplicate, inputs: [rows], key: [k, v]}\n",
    "name: table,": "name: counts,",
    "mode: upsert}\n": "mode: upsert}\n"
    "  - {name: seen, input: first, format: parquet, path: ../lake/seen, mode: append}\n",
    "max_files: 1": "max_files: 3",
}
"""What makes the small job of `SparklessJob` one of two operators and two sinks."""
START_MS = 1_800_000_000_000


class Answers(Enum):
    """Which subtask answers reach the driver, and whether the epoch may complete with them (I7, I12)."""

    ALL = True, "each once"
    COPIES = True, "each twice, the last first"
    WITH_LATE = True, "those of other tokens as well"
    WITH_FOREIGN = True, "those of a subtask that is not expected as well"
    ONE_MISSING = False, "all but one"
    ONLY_LATE = False, "one of them of another token"
    TWO_ATTEMPTS = False, "one from two attempts that differ"
    OTHER_CONSUMED = False, "one that consumed another attempt than the one that acknowledged"
    ONE_DECLINED = False, "one of them a decline"

    @property
    def good(self) -> bool:
        return bool(self.value[0])

    def of(self, given: tuple[SubtaskAnswer, ...]) -> tuple[SubtaskAnswer, ...]:
        last = given[-1]
        assert isinstance(last, Acknowledgement)
        older = replace(last, token=last.token - 1)  # type: ignore[arg-type]
        other = ConsumedAttempt(0, 0, "of another attempt")
        declined = Decline(
            last.checkpoint_id, last.token, 1, 1, CheckpointFailureReason.CHECKPOINT_DECLINED, "it cannot"
        )
        return {
            Answers.ALL: given,
            Answers.COPIES: (*reversed(given), *given),
            Answers.WITH_LATE: (older, replace(older, attempt_digest="of another token"), *given),
            Answers.WITH_FOREIGN: (*given, replace(last, level=7)),
            Answers.ONE_MISSING: given[:-1],
            Answers.ONLY_LATE: (*given[:-1], older),
            Answers.TWO_ATTEMPTS: (*given, replace(last, attempt_digest="of another attempt")),
            Answers.OTHER_CONSUMED: (*given[:-1], replace(last, consumed=(other,))),
            Answers.ONE_DECLINED: (*given[:-1], declined),
        }[self]


@dataclass
class DagRun:
    """A session in which each task is a separate process.

    Attributes:
        checkpoint_id: passed by its trigger to the later tasks. step: index of the next task.
    """

    session: Session
    checkpoint_id: int | None = None
    step: int = 0


class SteppedJob:
    """The job in a folder, and its processes. Writes are reported to `model`, which a subclass provides."""

    model: Any

    def __init__(self, folder: Path) -> None:
        self.patch = pytest.MonkeyPatch()
        retained = f"{{last: {RETAINED}}}, tolerable_failures: {TOLERABLE}"
        self.job = SparklessJob.create(folder, {**SMALL, "{last: 1}": retained})
        self.loaded: LoadedJob = self.job.loaded()
        self.stores = SteppedStores(Watchers(self._written, self._deleted), START_MS)
        self.patch.setattr("milepost.jobmaster.job.context.open_store", self.stores.open)
        self.patch.setattr(
            "milepost.jobmaster.leadership.leadership.is_provably_dead", lambda holder: holder.pid in self._dead
        )
        self.patch.setattr("os.fsync", lambda descriptor: None)  # processes die here, machines never lose power
        # Decoding takes a third of a machine's time and always has the same result, so it is cached.
        self.patch.setattr("milepost.storage.log.manifest_log.decode_entry", cache(decode_entry))
        self.patch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))
        self._urls: dict[str, str | None] = {self.loaded.job_store.url: None} | {
            self.job.context.sink_config(sink).url: sink for sink in SINKS
        }
        self.model = self.new_model()
        self.rows = LandedRows(self.landings())
        self.landed: dict[str, list[int]] = {}
        self.processes: list[Process] = []
        self.runs: list[DagRun] = []
        self._dead: set[int] = set()
        self._pids: dict[str, tuple[int, str]] = {}
        self._numbers = itertools.count(1)
        self._compared: object = None
        self.land([1, 2])
        require_stores(self.job.context)  # each operating system process checks this once: here, before any step

    @property
    def master(self) -> JobMaster:
        return JobMaster(self.loaded)

    # -- what happens -----------------------------------------------------------------------------------------------

    def new_model(self) -> Any:
        raise NotImplementedError

    def landings(self) -> tuple[Path, ...]:
        """Return the folders of all objects that the job may consume."""
        return (self.job.folder / "landing",)

    def land(self, keys: list[int]) -> None:
        name = f"{len(self.landed):04d}.csv"
        self.job.land(name, "k,v\n" + "".join(f"{key},{name}\n" for key in keys))
        self.landed[name] = keys

    def clock_jumps(self, by_ms: int) -> None:
        self.stores.now_ms = max(0, self.stores.now_ms + by_ms)
        self.model.latest_ms = max(self.model.latest_ms, self.stores.now_ms)

    def sink_is_down(self, sink: str, down: bool) -> None:
        """Make commits to a sink's table fail, or succeed again. Staging still works."""
        at = next(url for url, name in self._urls.items() if name == sink), HEADS
        if down:
            self.stores.down.add(at)
        else:
            self.stores.down.discard(at)

    def new_session(self, kind: str) -> Session:
        number = next(self._numbers)
        holder = Holder(kind, "host-1", 10_000_000 + number, START_MS, "boot-1/pid:[1]")
        if kind != "airflow":
            return Session(SessionId(f"{kind}:{number}"), replace(holder, kind="cli"), Run())
        run_id = f"manual__{number}"
        run = Run("small__epoch", run_id, "manual", None)
        return Session(SessionId(f"airflow:small__epoch/{run_id}"), holder, run)

    def runner(self, answers: Answers) -> SparklessRunner:
        def heard(given: tuple[SubtaskAnswer, ...]) -> Iterable[SubtaskAnswer]:
            one, declined = given[0], any(isinstance(answer, Decline) for answer in given)
            self.model.answers[(one.checkpoint_id, one.token)] = answers.good and not declined
            return given if declined else answers.of(given)

        return SparklessRunner(answers=heard, opener=self.stores.open)

    def begin(
        self, name: str, call: Callable[[JobMaster], object], session: Session | None = None, *, insists: bool = False
    ) -> Process:
        """Begin a process, stopped before its first store call.

        Args:
            session: its session, if its death is visible to others. insists: whether it may take over.
        """
        process = Process(name, lambda: call(self.master), insists)
        if session is not None:
            if insists:
                self.model.insisting.add(session.session_id)
            if session.holder.kind == "cli":
                self._pids[name] = (session.holder.pid, session.session_id)
        self.processes.append(process)
        return process

    def epoch(self, answers: Answers, *, insists: bool, drain: bool = False) -> Process:
        """Begin a `milepost run`."""
        session = self.new_session("cli")
        return self.begin(
            f"run {session.session_id}",
            lambda master: master.epochs.run(session, self.runner(answers), take_over=insists, drain=drain).status,
            session,
            insists=insists,
        )

    def new_run(self) -> DagRun:
        run = DagRun(self.new_session("airflow"))
        self.runs.append(run)
        return run

    def task(self, run: DagRun, what: str, answers: Answers) -> Process:
        """Begin one task of a DAG run as its own process."""
        number, session = run.checkpoint_id, run.session

        def trigger(master: JobMaster) -> object:
            triggered = master.triggers.trigger(session)
            run.checkpoint_id = int(triggered.checkpoint_id) if isinstance(triggered, Triggered) else None
            return triggered

        steps: dict[str, Callable[[JobMaster], object]] = {
            "trigger": trigger,
            "run_epoch": lambda master: master.epochs.run_epoch(session, number or 0, self.runner(answers)),
            "validate": lambda master: master.epochs.validate(session, number or 0),
            "complete": lambda master: master.epochs.complete(session, number or 0),
            "subsume": lambda master: master.epochs.subsume(session),
            "abort": lambda master: master.epochs.abort(session, number, "TASK_FAILURE", "a task failed"),
        }
        for sink in SINKS:
            steps[f"notify {sink}"] = lambda master, sink=sink: master.epochs.notify_complete(  # type: ignore[misc]
                session, number or 0, sink
            )
        return self.begin(f"{what} of {session.session_id}", steps[what], session)

    def crash(self, process: Process) -> None:
        process.crash()
        self.mourn(process)

    def mourn(self, process: Process) -> None:
        """Make the death of a CLI run's process visible to the others."""
        if isinstance(process.error, Crashed) and process.name in self._pids:
            pid, session = self._pids[process.name]
            self._dead.add(pid)
            self.model.dead.add(session)

    def close(self) -> None:
        for process in self.processes:
            process.crash()
        self.patch.undo()

    # -- the stores -------------------------------------------------------------------------------------------------

    def _written(self, url: str, key: str, body: bytes) -> None:
        if url not in self._urls:
            return  # location of an external savepoint
        where = self._urls[url]
        if where is not None and key.startswith(HEADS):
            self.model.sink_head(where, body)
        elif where is None and key.startswith("manifest/"):
            self.model.entry(body)
        elif where is None and key.startswith("figures/"):
            self.model.figures_written(key, body)
        elif where is None and key.endswith("/_heartbeat"):
            self.model.heartbeats[key] = self.stores.now_ms

    def _deleted(self, url: str, key: str) -> None:
        if url in self._urls:
            self.model.deleted(self._urls[url], key)

    def stored(self, key: str) -> bytes | None:
        path = self.job.folder / "store" / "small" / key
        return path.read_bytes() if path.is_file() else None

    def everybody_else_goes(self) -> None:
        """Kill every process, deliver every late write, and let the sinks answer again."""
        self.stores.down.clear()
        for process in self.processes:
            self.crash(process)
        for write in self.stores.late:
            write.deliver()

    def check_stores(self) -> None:
        """Check with the walk of `fsck` that no object needed by a root is missing."""
        if self.model.version:
            report = self.master.reports.fsck()
            require(report.exit_code == 0, f"I8: fsck finds {report.missing[:2]} {report.damaged[:2]}")


class World(SteppedJob):
    """The job on one timeline, compared with the plain model."""

    model: PlainModel

    def new_model(self) -> PlainModel:
        return PlainModel(SINKS, RETAINED, TOLERABLE, self.stored)

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check after each step that all writes were allowed and that the stored state matches the model."""
        self.stores.watchers.raise_broken()
        self.processes = [process for process in self.processes if not process.over]
        now = (self.model.version, tuple(self.model.at(sink) for sink in SINKS))
        if now == self._compared:
            return
        self._compared = now
        gone = [key for key in sorted(self.model.needed()) if self.stored(key) is None]
        require(not gone, f"I8: {gone[:3]} of a retained or pending checkpoint is not there")
        for sink in SINKS:
            self.check_table(sink)

    def check_table(self, sink: str) -> None:
        """Check that the table contains each published epoch exactly once (I14)."""
        names = self.model.consumed(self.model.at(sink))
        expected = self.rows.per_key(names, "count(*)") if sink == "counts" else self.rows.distinct(names)
        column = "rows" if sink == "counts" else "v"
        try:
            found = sorted((row["k"], row[column]) for row in self.master.reports.read(sink).to_pylist())
        except NotFound:
            found = []
        require(found == expected, f"I14: {sink} is {found}, what it has published is {expected}")

    def settle(self) -> None:
        """End all other processes, run epochs until no input is left, and check that all of it was published."""
        self.everybody_else_goes()
        self.check()
        if self.model.version == 0:
            return
        last = None
        while last is None or last.result != "empty":
            if self.model.status == "failed":
                self.master.lifecycle.resume()
            elif self.model.status != "running":
                self.master.restores.start()
            last = self.epoch(Answers.ALL, insists=True)
            last.go_on()
            require(last.error is None, f"a run that nobody disturbs fails: {last.error!r}")
            self.check()
        require(not self.model.unread(self.landed), f"never read: {self.model.unread(self.landed)}")
        require(all(self.model.at(sink) == self.model.head for sink in SINKS), "I14: unpublished rows")
        self.check_stores()
