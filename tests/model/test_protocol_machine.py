"""Two leaders, their zombies and a person, on the real coordinator, log, store and sinks, against a plain model.

Commands run as processes that stop before any store call, crash there, lose a reply, or leave a write on its way while
others go on. The model (`milepost_testkit.models.protocol.plain_model`) sees only what reached the stores, and judges
each write by DESIGN 3. After each step the sinks' tables are the sum of the completed epochs, each once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hypothesis import seed
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from milepost.errors import JobNotRunnable, SubtaskDeclined
from milepost.protocol.retention.retention import minimum_grace_ms
from milepost_testkit.machines.command_machine import STRUCK, CommandMachine, in_the_suite
from milepost_testkit.machines.protocol_world import SINKS, Answers, DagRun, World
from milepost_testkit.models.protocol.plain_model import MAX_UNCONFIRMED, TIMEOUT_MS
from milepost_testkit.models.protocol.require import require
from milepost_testkit.stores.stepped_processes import Fault, Process


@dataclass(frozen=True)
class Steps:
    """How far a process goes: so many store calls, or writes, or to its end."""

    calls: int | None = None
    writes: int | None = None


GRACE_MS = minimum_grace_ms(TIMEOUT_MS)
JUMPS = st.sampled_from([1, 61_000, TIMEOUT_MS, GRACE_MS, 2 * GRACE_MS, -61_000, -TIMEOUT_MS, -3 * GRACE_MS])
KEYS = st.lists(st.integers(1, 4), min_size=1, max_size=3)
ANSWERS = st.sampled_from([*Answers, *[Answers.ALL] * 12])
STEPS = st.one_of(
    st.builds(Steps, calls=st.integers(1, 60)),
    st.builds(Steps, writes=st.integers(0, 20)),
    st.builds(Steps, writes=st.integers(0, 3)),
    st.just(Steps()),
)
PEOPLE = ("run", "run", "take over", "drain", "abort", "cancel", "start", "gc", "gc")
REPEATED = ("next task", "next task", "run_epoch", "complete", "subsume", "abort task")
COMMANDS = st.sampled_from([*PEOPLE, *REPEATED])
TASKS = ("trigger", "run_epoch", "validate", "complete", *(f"notify {sink}" for sink in SINKS), "subsume")
ALIVE = 4
"""Number of concurrent processes."""


class Protocol(CommandMachine):
    """Requests of live sessions and of zombies, in any order."""

    world: World

    def new_world(self, folder: Path) -> World:
        return World(folder)

    # -- the world --------------------------------------------------------------------------------------------------

    @rule(keys=KEYS)
    def rows_land(self, keys: list[int]) -> None:
        self.world.land(keys)

    @rule(by_ms=JUMPS)
    def the_clock_jumps(self, by_ms: int) -> None:
        self.world.clock_jumps(by_ms)

    # -- whole commands, undisturbed --------------------------------------------------------------------------------

    @rule(answers=ANSWERS, keys=KEYS)
    def an_epoch(self, answers: Answers, keys: list[int]) -> None:
        """A run that takes over and meets no fault completes an epoch when there is something to read."""
        if self.model.status != "running":
            self.done(self.person("resume" if self.model.status == "failed" else "start"))
        if self.model.status != "running":
            require(self.world.stores.down, "a job that is canceled cannot be started")
            return  # its clean-up waits for the sink
        if not self.model.unread(self.world.landed):
            self.world.land(keys)
        aborted = {number for number, token in self.model.ended.items() if token == 0}
        completed = len(self.model.epochs())
        process = self.world.epoch(answers, insists=True)
        self.done(process, answers)
        if process.result == "drained":  # it found the job's last epoch complete, and only finishes the job
            require(self.model.status == "finished", "a drained job is not finished")
        elif process.result == "empty":  # what it has found finished, it has adopted
            require(len(self.model.epochs()) > completed, "an undisturbed epoch reads nothing")
        elif isinstance(process.error, JobNotRunnable):  # its sweep may have counted the failure after the tolerable
            refused = self.model.status == "failed" or len(self.model.waiting()) > MAX_UNCONFIRMED
            # A drained job has only to be finished, which waits for a sink that does not answer.
            unfinished = self.model.waiting() and self.world.stores.down and "finish refused" in str(process.error)
            require(refused or unfinished, f"a job that runs is refused: {process.error!r}")
        elif answers.good:
            down = bool(self.world.stores.down)
            require(process.error is None or down, f"an undisturbed epoch fails: {process.error!r}")
            require(len(self.model.epochs()) > completed, f"an undisturbed epoch completes nothing: {process.result}")
        else:
            require(isinstance(process.error, SubtaskDeclined), f"{answers.name} is accepted: {process.result}")
            newest = max(self.model.ended)
            require(self.model.ended[newest] == 0 and newest not in aborted, f"{answers.name}: nothing is aborted")

    @rule(run=st.integers(0, 3), answers=ANSWERS, tasks=st.integers(1, len(TASKS)))
    def tasks_of_a_run(self, run: int, answers: Answers, tasks: int) -> None:
        """The next tasks of an Airflow run, in order, until one fails."""
        dag_run = self.dag_run(run)
        for _ in range(tasks):
            if dag_run.step == len(TASKS):
                return
            process = self.world.task(dag_run, TASKS[dag_run.step], answers)
            self.done(process, answers)
            published = isinstance(process.error, STRUCK) and self.world.stores.down  # a person marks it a success
            if (process.error is not None and not published) or dag_run.checkpoint_id is None:
                return
            dag_run.step += 1

    @rule(sink=st.sampled_from(SINKS), down=st.booleans())
    def a_sink_goes_down_or_comes_back(self, sink: str, down: bool) -> None:
        self.world.sink_is_down(sink, down)

    @precondition(lambda self: self.model.version)
    @rule(what=st.sampled_from(["abort", "start", "resume", "gc", "gc", "gc", "cancel and start"]))
    def a_person(self, what: str) -> None:
        for step in what.split(" and "):
            self.done(self.person(step))
        if what == "resume" and self.model.version:
            require(self.model.status != "failed", "a failed job stays so")

    @precondition(lambda self: len(self.model.retained) > 1)
    @rule(pick=st.integers(0, 9))
    def a_reader_holds_a_checkpoint(self, pick: int) -> None:
        """A reader of an old checkpoint pins it, and stops somewhere: what it reads must stay."""
        numbers = sorted(self.model.retained)[:-1]
        number = numbers[pick % len(numbers)]
        process = self.world.begin(f"read {number}", lambda master: master.reports.state("latest", number))
        process.go_on(writes=1)
        self.judge(process)

    # -- commands that stop somewhere -------------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.processes) < ALIVE)
    @rule(what=COMMANDS, answers=ANSWERS, steps=STEPS)
    def a_command_begins(self, what: str, answers: Answers, steps: Steps) -> None:
        self.go_on(self.command(what, answers), steps, None)

    @precondition(lambda self: len(self.world.processes) < ALIVE)
    @rule(first=COMMANDS, second=COMMANDS, answers=ANSWERS, steps=STEPS, by_ms=st.just(0) | JUMPS)
    def one_command_amid_another(self, first: str, second: str, answers: Answers, steps: Steps, by_ms: int) -> None:
        """The first one stops somewhere, the second one runs, and the first one finds another world."""
        slow = self.command(first, answers)
        self.go_on(slow, steps, None)
        self.world.clock_jumps(by_ms)
        self.done(self.command(second, answers), answers)
        self.world.check()
        self.go_on(slow, Steps(), None)

    @precondition(lambda self: self.world.processes)
    @rule(pick=st.integers(0, ALIVE - 1), steps=STEPS, fault=st.none() | st.sampled_from(Fault))
    def a_process_goes_on(self, pick: int, steps: Steps, fault: Fault | None) -> None:
        self.go_on(self.world.processes[pick % len(self.world.processes)], steps, fault)

    @precondition(lambda self: self.world.processes)
    @rule(pick=st.integers(0, ALIVE - 1))
    def a_process_dies(self, pick: int) -> None:
        self.world.crash(self.world.processes[pick % len(self.world.processes)])

    @precondition(lambda self: self.world.stores.late)
    @rule(pick=st.integers(0, 9))
    def a_late_write_arrives(self, pick: int) -> None:
        late = self.world.stores.late
        late.pop(pick % len(late)).deliver()

    @precondition(lambda self: len(self.world.processes) < ALIVE)
    @rule(finished=st.booleans())
    def a_holder_comes_back_under_a_sweep(self, finished: bool) -> None:
        """The lease is judged over; before that is written, the holder takes a new token, which is a new lease."""
        dag_run = self.world.new_run()
        for what in ("trigger", "run_epoch")[: 1 + finished]:
            self.done(self.world.task(dag_run, what, Answers.ALL))
            if dag_run.checkpoint_id is None:
                return
        self.world.clock_jumps(TIMEOUT_MS)
        newcomer = self.world.epoch(Answers.ALL, insists=False)
        newcomer.go_on(writes=0)
        self.go_on(self.world.task(dag_run, "run_epoch", Answers.ALL), Steps(writes=4), None)
        self.done(newcomer)

    # -- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def what_is_stored_is_what_the_model_says(self) -> None:
        self.check(every=25)

    # -- steps ------------------------------------------------------------------------------------------------------

    def dag_run(self, pick: int) -> DagRun:
        runs = self.world.runs
        return runs[-1 - pick] if pick < min(3, len(runs)) and runs[-1].step < len(TASKS) else self.world.new_run()

    def command(self, what: str, answers: Answers) -> Process:
        if what in ("run", "take over", "drain"):
            return self.world.epoch(answers, insists=what == "take over", drain=what == "drain")
        if what in ("abort", "cancel", "start", "gc"):
            return self.person(what)
        dag_run = self.dag_run(0)
        task = TASKS[min(dag_run.step, len(TASKS) - 1)] if what == "next task" else what.removesuffix(" task")
        needs = dag_run.checkpoint_id is None and task not in ("subsume", "abort")
        return self.world.task(dag_run, "trigger" if needs else task, answers)

    def person(self, what: str) -> Process:
        calls = {
            "abort": lambda master: master.lifecycle.abort_running(),
            "cancel": lambda master: master.savepoints.cancel(),
            "start": lambda master: master.restores.start(),
            "resume": lambda master: master.lifecycle.resume(),
            "gc": lambda master: master.collect_garbage(),
        }
        return self.world.begin(what, calls[what])

    def go_on(self, process: Process, steps: Steps, fault: Fault | None) -> None:
        process.go_on(steps.calls, writes=steps.writes, fault=fault)
        self.judge(process, None)


TestProtocol = seed(int(os.environ["MILEPOST_SEED"]))(Protocol).TestCase
TestProtocol.settings = in_the_suite(share=0.12)
