"""A small job that goes back, forks and is run at other parallelisms, as stepped processes beside a timeline model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.backfill_run import Backfill
from pipeline.jobmaster import JobMaster
from pipeline.protocol.errors import NotFound
from tests.harness.plain_model import HEARTBEAT_MS, require
from tests.harness.protocol_world import SINKS, Answers, SteppedJob
from tests.harness.stepped_processes import Process
from tests.harness.timeline_model import Rows, TimelineModel

PARALLELISM = 2

DAY_MS = 86_400_000


class TimelineWorld(SteppedJob):
    """The job with tiers of retention, beside the model of all of its timelines."""

    model: TimelineModel

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "{last: 2, hourly: 3}")
        self.spec = folder / "config" / "small.yaml"
        self.text = self.spec.read_text()
        # A backfill that waits for an epoch waits by the test's clock: the epoch's process stands still meanwhile.
        self.patch.setattr(Backfill.__init__, "__defaults__", (lambda seconds: self.clock_jumps(HEARTBEAT_MS),))

    def new_model(self) -> TimelineModel:
        return TimelineModel(SINKS, self.job.folder / "landing", self.stored)

    # -- commands ---------------------------------------------------------------------------------------------------

    def rescale(self, parallelism: int) -> None:
        self.spec.write_text(f"{self.text}spark: {{parallelism: {parallelism}}}\n")
        self.loaded = self.job.loaded()

    def rollback(self, to: int, *, insists: bool) -> Process:
        session = self.new_session("cli")
        return self.begin(
            f"rollback {session.session_id} to {to}",
            lambda master: master.rollback(session, to, take_over=insists)["outcome"],
            session,
            insists=insists,
        )

    def backfill(self, since: int, ranges: int) -> Process:
        session = self.new_session("cli")
        runner = self.runner(Answers.ALL)
        return self.begin(
            f"backfill {session.session_id} from {since}",
            lambda master: master.backfill(session, runner, from_checkpoint=since, ranges_per_epoch=ranges)["outcome"],
            session,
        )

    def save(self, checkpoint: int) -> Process:
        name = f"s{len(self.model.savepoints)}-{self.model.version}"
        return self.begin(f"save {name}", lambda master: master.create_savepoint(name, at=checkpoint)["name"])

    def restore(self, name: str, *, claim: bool) -> Process:
        session = self.new_session("install")
        self.model.restores[session.session_id] = self.model.savepoints[name]
        return self.begin(
            f"restore {name}", lambda master: master.restore(session, name, claim=claim)["claimed"], session
        )

    def person(self, what: str) -> Process:
        calls: dict[str, Any] = {
            "abort": JobMaster.abort_running,
            "cancel": JobMaster.cancel,
            "start": JobMaster.start,
            "resume": JobMaster.resume,
            "gc": JobMaster.collect_garbage,
            "dispose": JobMaster.dispose_backfills,
        }
        return self.begin(what, calls[what])

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After each step: each table is what DuckDB makes of the objects that led to the checkpoint it shows."""
        self.stores.watchers.raise_broken()
        self.processes = [process for process in self.processes if not process.over]
        now = (self.model.version, tuple(self.model.at(sink) for sink in SINKS))
        if now == self._compared or not self.model.version:
            return
        self._compared = now
        gone = [key for key in sorted(self.model.needed()) if self.stored(key) is None]
        require(not gone, f"I8: {gone[:3]} of a retained or pending checkpoint is not there")
        for sink in SINKS:
            shows = self.model.at(sink)
            if not self.model.owed:
                require(shows == self.model.head, f"I14: {sink} shows {shows}, the live head is {self.model.head}")
            found, expected = self.table(sink), self.expected(sink, shows)
            require(found == expected, f"I14: {sink} at {shows} is {found}, what was read says {expected}")

    def table(self, sink: str) -> Rows:
        try:
            rows = self.master.read(sink).to_pylist()
        except NotFound:
            return []
        return sorted((row["k"], row["rows" if sink == "counts" else "v"]) for row in rows)

    def expected(self, sink: str, checkpoint: int) -> Rows:
        return self.model.counts(checkpoint) if sink == "counts" else self.model.seen(checkpoint)

    def check_state(self, checkpoint: int) -> None:
        """The operators' state at a retained checkpoint is what DuckDB makes of the objects that led to it."""
        counts = self.master.state("latest", checkpoint).to_pylist()
        found = sorted((row["k"], next(row[name] for name in row if "count" in name)) for row in counts)
        expected = self.model.counts(checkpoint)
        require(found == expected, f"state at checkpoint {checkpoint} is {found}, what was read says {expected}")

    def settle(self) -> None:
        """Everybody else is gone; runs bring the live timeline to all that landed, each row once."""
        self.everybody_else_goes()
        self.clock_jumps(DAY_MS)  # over is every lease, and every freeze, however often the clock went back meanwhile
        last = None
        while last is None or last.result != "empty":
            self.revive()
            last = self.epoch(Answers.ALL, insists=True)
            last.go_on()
            require(last.error is None, f"a run that nobody disturbs fails: {last.error!r}")
            self.check()
        consumed = sorted(self.model.consumed(self.model.head))
        require(consumed == sorted(self.landed), f"consumed {consumed} of {sorted(self.landed)}")
        for checkpoint in self.model.retained:
            self.check_state(checkpoint)
        self.check_stores()

    def revive(self) -> None:
        """Somebody resumes or starts the job if it does not run."""
        if self.model.version and self.model.status != "running":
            process = self.person("resume" if self.model.status == "failed" else "start")
            process.go_on()
            down = bool(self.stores.down)
            require(process.error is None or down, f"{process.name} fails: {process.error!r}")
