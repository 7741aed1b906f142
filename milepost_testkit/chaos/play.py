"""Run a random job with concurrent input, commands, kills and freezes, then judge it at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from milepost_testkit.chaos.chaos_job import ChaosJob
from milepost_testkit.chaos.commands import Act, Command, Ended, Running
from milepost_testkit.chaos.places import Places
from milepost_testkit.chaos.sparks import Spark
from milepost_testkit.chaos.spec_changes import change_spec, refused_change
from milepost_testkit.law.examples import JobExample
from milepost_testkit.law.rows import rows_table
from milepost_testkit.models.data.kinds.lookups import STATIC, static_rows
from milepost_testkit.proxies.faulty_proxy import FaultyProxy

LENGTH = 12
"""Commands of one job, in turn or side by side, before it is thrown away."""
_OF_A_FORK, _ON_SPARK = 3, 5
"""Of a fork, and of a job on Spark, at most."""
_RATES = (0.0, 0.03, 0.1, 0.2)
_ACTS = {
    Act.EPOCH: 10,
    Act.ROLLBACK: 3,
    Act.BACKFILL: 2,
    Act.SAVEPOINT: 2,
    Act.DISPOSE: 1,
    Act.CANCEL: 1,
    Act.CANCEL_SAVED: 2,
    Act.START: 2,
    Act.START_FROM: 3,
    Act.CLAIM: 1,
    Act.ABORT: 1,
    Act.GC: 1,
    Act.FSCK: 1,
}
_LANDINGS = 10
"""As a weight of `_ACTS`, for jobs with external systems."""
_KILLED, _FROZEN, _BESIDE, _QUIET, _WORKER_KILLED = 0.2, 0.08, 0.25, 0.35, 0.7
_RESCALED, _CHANGED, _REFUSED, _REPLACED, _FORKED = 0.3, 0.2, 0.1, 0.15, 0.4
"""Chances: of each command that it is killed, frozen, not alone, followed by peace; before each, of each change."""
_MENDS = (Act.START, Act.RESUME, Act.SETTLE, Act.EPOCH)
"""Acts to request, in turn, as long as a job in peace fails."""
_ENOUGH = 80
"""Epochs and mends after which a job that is left in peace has nothing to do."""
_GATE = "QualityGateFailed"


@dataclass
class Tally:
    """Counts of what happened in a campaign.

    Attributes:
        faults: by kind. ends: outcomes of commands. people: changes by users.
        quiet: number of idle states that equalled the model. objects: number of objects proven to be needed there.
    """

    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    people: Counter[str] = field(default_factory=Counter)
    quiet: int = 0
    objects: int = 0
    jobs: int = 0
    on_spark: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return sum(self.faults.values())


@dataclass
class Play:
    """One job and the random actions on it.

    Attributes:
        length: number of commands. spark: where the job runs; None runs epochs in the calling processes.
        new_places: returns locations for the tables of a fork. say: called with each action.
    """

    job: ChaosJob
    example: JobExample
    random: Random
    proxy: FaultyProxy
    new_places: Callable[[str], Places]
    tally: Tally
    say: Callable[[str], None]
    spark: Spark | None = None
    length: int = LENGTH

    def run(self) -> None:
        """Run all actions. Raises AssertionError."""
        self._disturb_all(self.length if self.spark is None else min(self.length, _ON_SPARK))
        own, forked = self.job, self._fork()
        if forked is not None:
            self.job = forked
            self._disturb_all(_OF_A_FORK)
            self.job = own
            self._settle()

    def _disturb_all(self, count: int) -> None:
        for number in range(count):
            self._change(number)
            self.proxy.rate = self.random.choice(_RATES)
            self._disturb(first=number == 0)
            if self.random.random() < _QUIET or number == count - 1:
                self._settle()

    def _change(self, number: int) -> None:
        """Land input and make the changes that users may make."""
        self.proxy.rate = 0.0  # reads before a change are not subject to faults
        job, random = self.job, self.random
        rows = [act[3] for act in self.example.acts]
        for source, numbers in zip(self._streams, rows[number % len(rows)], strict=False):
            if numbers:
                job.land(source, rows_table(numbers, number))
        if STATIC in job.document["sources"] and random.random() < 0.3:
            job.put(STATIC, random.choice("01"), static_rows(random.randrange(1, 12)))
            self._did("rows that are looked up change")
        if random.random() < _REPLACED:
            replaced = job.replace(random, rows_table([random.randrange(1 << 20) for _ in range(3)], number))
            self._did("object replaced", replaced)
        if random.random() < _RESCALED:
            job.set_parallelism(random.choice((1, 2, 3)))
            self._did("rescaled")
        if random.random() < _CHANGED and (what := change_spec(job, random)):
            self._did(what)
        if random.random() < _REFUSED:
            self._refused()

    @property
    def _streams(self) -> list[str]:
        return [name for name in self.job.document["sources"] if name != STATIC]

    def _did(self, what: str, detail: str = "") -> None:
        self.tally.people[what] += 1
        self.say(f"{what} {detail}".rstrip())

    def _refused(self) -> None:
        """Request an epoch with a spec that does not fit the state, expect a refusal, and restore the spec."""
        if not self.job.model.tries(self.job.loaded):
            return
        with refused_change(self.job, self.random) as what:
            if what is None:
                return
            ended = self._ask(Command(Act.EPOCH))
            assert ended.error is not None or ended.said == "NothingToDo", f"{what}: an epoch was run by it: {ended}"
            self._did(f"refused: {what}", ended.kind)

    def _disturb(self, *, first: bool) -> None:
        """Run one command, or several concurrently, with faults, to their end. first: run an epoch."""
        job, random, tally = self.job, self.random, self.tally
        count = 2 if random.random() < _BESIDE else 1
        running = [job.begin(Command(Act.EPOCH) if first else self._command()) for _ in range(count)]
        frozen = None
        for one in running:
            if random.random() < _KILLED and not one.wait(random.random() * 2):
                one.kill()
                tally.faults["killed"] += 1
                self.say(f"killed {one.command}")
            elif frozen is None and random.random() < _FROZEN and not one.wait(random.random()):
                frozen = one
                frozen.freeze()
                tally.faults["frozen"] += 1
                self.say(f"froze {one.command}")
        if self.spark is not None and random.random() < _WORKER_KILLED:
            self._kill_worker([one for one in running if one is not frozen])
        if frozen is not None:
            self._ask(Command(Act.EPOCH))
            frozen.wake()
        for one in running:
            self._judge(one.ended())

    def _kill_worker(self, running: Sequence[Running]) -> None:
        """Kill a Spark process with running tasks as soon as there is one, while a command runs."""
        assert self.spark is not None
        while not all(one.wait(0.2) for one in running):
            if self.spark.kill_worker(self.random):
                self.tally.faults["worker killed"] += 1
                self.say("killed a worker of Spark")
                return

    def _command(self) -> Command:
        random, saved = self.random, self.job.saved
        acts = _ACTS | ({Act.LAND: _LANDINGS} if self.job.feeds else {})
        act = random.choices(list(acts), list(acts.values()))[0]
        if act is Act.SAVEPOINT:
            saved.append(len(saved))
        number = random.choice(saved) if saved else 0
        return Command(act, random.choice((1, 2, 3)), saved[-1] if act is Act.SAVEPOINT else number)

    def _ask(self, command: Command) -> Ended:
        ended = self.job.begin(command).ended()
        self._judge(ended)
        return ended

    def _judge(self, ended: Ended) -> None:
        self.tally.ends[f"{ended.command.act.value}: {ended.kind if ended.typed else 'NOT TYPED'}"] += 1
        self.say(f"{ended.command} ({ended.took_s:.1f} s): {ended.error or ended.said}")
        assert ended.typed, f"`{ended.command}` ended with an error that is none of ours:\n{ended.error}"
        if ended.kind == _GATE and ended.tried is not None:
            model, job = self.job.model, self.job.loaded
            assert model.vetoed_rightly(job, ended.tried), f"a gate vetoed what it had to let through: {ended.error}"

    def _settle(self) -> None:
        """Let the job finish without faults, following the hints of its messages, then check it."""
        self.proxy.rate = 0.0
        act, mend = Act.EPOCH, iter(_MENDS)
        for _ in range(_ENOUGH):
            ended = self._ask(Command(act, leaves=self.job.leaves))
            if ended.kind == _GATE:
                self.job.relax()
                self._did("gate given up")
            elif ended.kind == "Busy":
                continue  # until the lease of a killed process expires
            elif ended.error is not None:
                further = next(mend, None)
                assert further is not None, f"in peace nothing leads on: {ended.error}"
                act = further
            elif act is not Act.EPOCH:
                act = Act.EPOCH
            elif ended.said == "NothingToDo" and self.job.waits_to_land:
                self._ask(Command(Act.LAND))
            elif ended.said == "NothingToDo" and self.job.model.unseen(self.job.loaded):
                self.job.land(self._streams[0], rows_table([0], 0))  # additions take effect with the next epoch
            elif ended.said == "NothingToDo":
                return self._hold_to_model()
            else:
                mend = iter(_MENDS)
        raise AssertionError(f"after {_ENOUGH} commands in peace there still is something to do")

    def _hold_to_model(self) -> None:
        """Check the job against the model, and again after deleting all garbage."""
        self.job.check()
        for _ in range(_ENOUGH):
            if self._ask(Command(Act.COLLECT)).said == "0":
                break
        self.tally.objects += self.job.check_collected()
        self.job.check()
        self.tally.quiet += 1
        self.say("equals the model")

    def _fork(self) -> ChaosJob | None:
        """Start another job from a savepoint of this one. Returns None without a savepoint, or at random."""
        place = self.job.savepoint(self.random)
        if place is None or self.job.feeds or self.random.random() >= _FORKED:  # a log has one job
            return None
        name = f"{self.job.folder.name}fork"
        forked = self.job.fork(Path(f"{self.job.folder}fork"), self.new_places(name), self.random)
        self.job = forked
        self._ask(Command(Act.START_FROM, place=place))
        self._did("forked")
        return forked
