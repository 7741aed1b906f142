"""A small job with rollbacks, forks and rescaling, as stepped processes compared with a timeline model."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from pathlib import Path

from milepost.errors import NotFound
from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import LoadedJob
from milepost.protocol.records.ids import IMPORT_SESSION_PREFIX
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.machines.protocol_world import SINKS, SMALL, Answers, SteppedJob
from milepost_testkit.models.data.landed_rows import Rows
from milepost_testkit.models.protocol.plain_model import HEARTBEAT_MS
from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.timeline_model import TimelineModel
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.stepped_processes import Process

DAY_MS = 86_400_000
COUNT, SUM = "count(*)", "sum(k)"
"""What the table of counts counts: to change from one to the other takes a backfill from the empty state."""
POLICIES = ((2, 3, 0), (1, 0, 2), (1, 2, 2), (2, 0, 0))
"""How many checkpoints are retained: last, hourly, daily."""
MAX_FILES = 8
"""How many of the landed objects an epoch reads."""
FOREIGN = ("of-another-job.csv",)
"""What another job had consumed when its savepoint was made."""


class TimelineWorld(SteppedJob):
    """The job with retention tiers, and the model of all of its timelines.

    Attributes:
        rule: the count rule of its spec. policy: the retention of its spec.
    """

    model: TimelineModel

    def __init__(self, folder: Path) -> None:
        self.rule, self.policy, self.parallelism = COUNT, POLICIES[0], 2
        _another_job()  # before this job's stores take the place of the real ones
        super().__init__(folder)
        self.spec = folder / "config" / "small.yaml"
        self._text = self.spec.read_text().replace("max_files: 3", f"max_files: {MAX_FILES}")
        self._specs: dict[tuple[object, ...], LoadedJob] = {}
        self._checked: dict[str, object] = {}
        self._deletions = 0
        self._foreign = 0
        self.spec_changes()
        # A backfill waits for an epoch by the test's clock, because the epoch's process is suspended meanwhile.
        self.patch.setattr(
            "milepost.jobmaster.backfill.backfill_run.sleep", lambda seconds: self.clock_jumps(HEARTBEAT_MS)
        )

    def new_model(self) -> TimelineModel:
        return TimelineModel(SINKS, self.stored)

    def landings(self) -> tuple[Path, ...]:
        return (*super().landings(), _another_job() / "landing")

    # -- commands ---------------------------------------------------------------------------------------------------

    def spec_changes(
        self, *, parallelism: int | None = None, policy: tuple[int, int, int] | None = None, rule: str | None = None
    ) -> None:
        """Change the spec for all later runs. None leaves a value as it is."""
        self.parallelism = parallelism or self.parallelism
        self.policy = policy or self.policy
        self.rule = rule or self.rule
        wanted = (self.parallelism, self.policy, self.rule)
        if wanted not in self._specs:
            last, hourly, daily = self.policy
            text = self._text.replace("{last: 2}", f"{{last: {last}, hourly: {hourly}, daily: {daily}}}")
            self.spec.write_text(f"{text.replace(COUNT, self.rule)}spark: {{parallelism: {self.parallelism}}}\n")
            self._specs[wanted] = self.job.loaded()
        self.loaded = self._specs[wanted]
        self.model.rules[self.loaded.spec_hash] = self.rule

    def spec_fits(self) -> None:
        """Restore the rule of the live timeline in the spec."""
        rule = self.model.rule.get(self.model.head)
        if rule is not None and rule != self.rule:
            self.spec_changes(rule=rule)

    def begin(
        self, name: str, call: Callable[[JobMaster], object], session: Session | None = None, *, insists: bool = False
    ) -> Process:
        """Begin as in the base class, with the current spec, even if it changes before the process continues."""
        loaded = self.loaded
        if session is not None:
            self.model.policies[session.session_id] = self.policy
        return super().begin(name, lambda _: call(JobMaster(loaded)), session, insists=insists)

    def rollback(self, to: int, *, insists: bool) -> Process:
        session = self.new_session("cli")
        return self.begin(
            f"rollback {session.session_id} to {to}",
            lambda master: roll_back(master, to, session, take_over=insists).outcome,
            session,
            insists=insists,
        )

    def backfill(self, since: int, ranges: int, *, rule: str | None = None) -> Process:
        """Run a backfill with another rule, or with the live timeline's rule."""
        self.spec_fits()
        if rule is not None:
            self.spec_changes(rule=rule)
        session = self.new_session("cli")
        runner = self.runner(Answers.ALL)
        return self.begin(
            f"backfill {session.session_id} from {since}",
            lambda master: (
                back_fill(master, runner, from_checkpoint=since, ranges_per_epoch=ranges, session=session).outcome
            ),
            session,
        )

    def epoch(self, answers: Answers, *, insists: bool, drain: bool = False) -> Process:
        self.spec_fits()
        return super().epoch(answers, insists=insists, drain=drain)

    def save(self, checkpoint: int) -> Process:
        name = f"s{len(self.model.savepoints)}-{self.model.version}"
        return self.begin(f"save {name}", lambda master: master.savepoints.create(name, at=checkpoint).name)

    def restore(self, name: str, *, claim: bool) -> Process:
        """Restore a savepoint of the job, or of another job from `foreign_savepoint`."""
        self.spec_changes(rule=self.model.saved_rules[name])
        session = self.new_session(IMPORT_SESSION_PREFIX.removesuffix(":"))
        self.model.restores[session.session_id] = self.model.savepoints[name]
        return self.begin(
            f"restore {name}", lambda master: master.restores.restore(session, name, claim=claim).claimed, session
        )

    def foreign_savepoint(self) -> str:
        """Bring a savepoint of another job here. Returns its location."""
        self._foreign += 1
        location = f"../foreign-{self._foreign}"
        shutil.copytree(_another_job() / "saved", self.job.folder / f"foreign-{self._foreign}")
        self.model.savepoints[location], self.model.saved_rules[location] = list(FOREIGN), COUNT
        self.model.rules[_loaded(_another_job()).spec_hash] = COUNT
        return location

    def objects_at(self, location: str) -> int:
        """Return the number of objects at a location outside the job."""
        folder = self.job.folder / "config" / location
        return sum(one.is_file() for one in folder.rglob("*"))

    def person(self, what: str) -> Process:
        calls = {
            "abort": "lifecycle.abort_running",
            "cancel": "savepoints.cancel",
            "start": "restores.start",
            "resume": "lifecycle.resume",
            "gc": "collect_garbage",
            "dispose": "backfills.dispose",
        }
        use_case = attrgetter(calls[what])
        return self.begin(what, lambda master: use_case(master)())

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check after each step that each table equals DuckDB's result for its checkpoint's input."""
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
            head = self.model.heads[sink]
            if self._checked.get(sink) != (now := (head and head["version"], self._deletions)):
                self._checked[sink] = now
                found, expected = self.table(sink), self.expected(sink, shows)
                require(found == expected, f"I14: {sink} at {shows} is {found}, what was read says {expected}")

    def _deleted(self, url: str, key: str) -> None:
        super()._deleted(url, key)
        self._deletions += self._urls.get(url) is not None

    def table(self, sink: str, at: int | None = None) -> Rows:
        try:
            rows = self.master.reports.read(sink, at).to_pylist()
        except NotFound:
            return []
        return sorted((row["k"], row["rows" if sink == "counts" else "v"]) for row in rows)

    def expected(self, sink: str, checkpoint: int) -> Rows:
        return self.counts(checkpoint) if sink == "counts" else self.rows.distinct(self.model.consumed(checkpoint))

    def counts(self, checkpoint: int) -> Rows:
        """Return the result of the spec's rule per key, as of a checkpoint."""
        return self.rows.per_key(self.model.consumed(checkpoint), self.model.rule.get(checkpoint, COUNT))

    def check_checkpoint(self, checkpoint: int) -> None:
        """Check that state and tables at a retained checkpoint equal DuckDB's result for its input."""
        for sink in SINKS:
            shown, read = self.table(sink, checkpoint), self.expected(sink, checkpoint)
            require(shown == read, f"I14: {sink} as of {checkpoint} is {shown}, what was read says {read}")
        column = {COUNT: "count(*)", SUM: "sum(k).low"}[self.model.rule[checkpoint]]
        found = sorted((row["k"], row[column]) for row in self.master.reports.state("latest", checkpoint).to_pylist())
        expected = self.counts(checkpoint)
        require(found == expected, f"state at checkpoint {checkpoint} is {found}, what was read says {expected}")

    def settle(self) -> None:
        """End all other processes, run epochs until no input is left, and check that each row counts once."""
        self.everybody_else_goes()
        self.clock_jumps(DAY_MS)  # ends every lease and freeze, even if the clock went back meanwhile
        last = None
        while last is None or last.result != "empty":
            self.revive()
            last = self.epoch(Answers.ALL, insists=True)
            last.go_on()
            require(last.error is None, f"a run that nobody disturbs fails: {last.error!r}")
            self.check()
        consumed = sorted(set(self.model.consumed(self.model.head)).difference(FOREIGN))
        require(consumed == sorted(self.landed), f"consumed {consumed} of {sorted(self.landed)}")
        for checkpoint in self.model.retained:
            self.check_checkpoint(checkpoint)
        self.check_stores()

    def revive(self) -> None:
        """Resume or start the job if it is not running."""
        if self.model.version and self.model.status != "running":
            process = self.person("resume" if self.model.status == "failed" else "start")
            process.go_on()
            down = bool(self.stores.down)
            require(process.error is None or down, f"{process.name} fails: {process.error!r}")


def _loaded(folder: Path) -> LoadedJob:
    return SparklessJob(folder).loaded()


@cache
def _another_job() -> Path:
    """Return the folder of another job with a savepoint in `saved`, created once."""
    folder = Path(tempfile.mkdtemp(prefix="milepost-another-job-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    job = SparklessJob.create(folder / "job", {**SMALL, "name: small": "name: other"})
    for name in FOREIGN:
        job.land(name, f"k,v\n1,{name}\n4,{name}\n")
    session = Session.cli()
    job.master.epochs.run(session, SparklessRunner())
    job.master.savepoints.export(1, "../saved")
    return folder / "job"
