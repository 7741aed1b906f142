"""Epochs, aborts, rollbacks, savepoints, backfills, rescaling, retention, crashes: every table is what was read.

The real job master, manifest log, state and sinks, on the processes of `tests/harness/stepped_processes.py`. After each
step each sink equals what DuckDB makes of the objects that, by their recorded ranges, led to the checkpoint it shows;
and that is the live head, unless some sink has yet to publish or to follow.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.protocol.errors import (
    Busy,
    CommitConflict,
    CommitOutcomeUnknown,
    Fenced,
    InvalidRequest,
    JobNotRunnable,
    NotFound,
    StoreUnavailable,
    Subsumed,
    SubtaskDeclined,
    Superseded,
)
from tests.harness.plain_model import require
from tests.harness.protocol_world import SINKS, Answers
from tests.harness.stepped_processes import Crashed, Fault, Process
from tests.harness.timeline_world import TimelineWorld

HOUR_MS = 3_600_000
JUMPS = st.sampled_from([61_000, HOUR_MS, HOUR_MS, 3 * HOUR_MS, -HOUR_MS])
KEYS = st.lists(st.integers(1, 4), min_size=1, max_size=3)
PICKS = st.integers(0, 11)
WRITES = st.integers(0, 24)
COMMANDS = st.sampled_from(
    ["epoch", "epoch", "rollback", "rollback", "backfill", "backfill", "gc", "dispose", "cancel"]
)
ALIVE = 3

REFUSED = (Busy, Fenced, CommitConflict, JobNotRunnable, NotFound, Subsumed, Superseded, Crashed)
STRUCK = (CommitOutcomeUnknown, StoreUnavailable)

NOTHING = ("nothing was read since", "was restored from a savepoint", "it cannot start from")
"""What a person may be told of a backfill or a restore that is impossible."""


class Timelines(RuleBasedStateMachine):
    """One job that people and runs move forwards and back."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="milepost-machine-")
        self.world = TimelineWorld(Path(self.folder.name) / "job")
        self.model = self.world.model
        self.done(self.world.epoch(Answers.ALL, insists=True))
        self.checked_at = 0

    # -- the world --------------------------------------------------------------------------------------------------

    @rule(by_ms=JUMPS)
    def the_clock_jumps(self, by_ms: int) -> None:
        self.world.clock_jumps(by_ms)

    @rule(parallelism=st.integers(1, 3))
    def the_job_is_rescaled(self, parallelism: int) -> None:
        self.world.rescale(parallelism)

    @rule(sink=st.sampled_from(SINKS), down=st.sampled_from([True, False, False, False]))
    def a_sink_goes_down_or_comes_back(self, sink: str, down: bool) -> None:
        self.world.sink_is_down(sink, down)

    @property
    def is_frozen(self) -> bool:
        """Whether a backfill that crashed in its last stretch has left a freeze, which ends by itself."""
        return any(timeline["frozen"] for timeline in self.model.state.get("timelines", ()))

    # -- whole commands, undisturbed --------------------------------------------------------------------------------

    @rule(keys=KEYS, epochs=st.integers(1, 3))
    def epochs_complete(self, keys: list[int], epochs: int) -> None:
        for _ in range(epochs):
            self.world.revive()
            self.world.land(keys)
            before, frozen = self.model.head, self.is_frozen
            process = self.world.epoch(Answers.ALL, insists=True)
            self.done(process)
            if not self.world.stores.down and self.model.status == "running" and not frozen:
                require(process.error is None, f"an undisturbed epoch fails: {process.error!r}")
                require(self.model.head != before, f"an undisturbed epoch completes nothing: {process.result}")

    @rule(answers=st.sampled_from([one for one in Answers if not one.good]), keys=KEYS)
    def an_epoch_aborts(self, answers: Answers, keys: list[int]) -> None:
        self.world.revive()
        self.world.land(keys)
        before = self.model.head
        process = self.world.epoch(answers, insists=True)
        self.done(process, answers)
        adopted = process.error is None and self.model.head != before
        require(adopted or isinstance(process.error, (SubtaskDeclined, *REFUSED, *STRUCK)), f"{process.result}")

    @rule(pick=PICKS)
    def a_rollback(self, pick: int) -> None:
        """Undisturbed, it ends at the checkpoint, and so does every table."""
        target = self.retained(pick)
        process = self.world.rollback(target, insists=True)
        self.done(process)
        if process.error is None:
            lineage = self.model.lineage(self.model.head)
            require(self.model.head == target, f"rolled back to {target}, the lineage is {lineage}")
            behind = process.result == "rolled_back" and self.model.owed
            require(not behind, "a rollback that is over leaves a sink behind")

    @rule(pick=PICKS, ranges=st.integers(1, 3))
    def a_backfill(self, pick: int, ranges: int) -> None:
        """Undisturbed, it replaces the timeline by one that has read the same."""
        before, old = sorted(self.model.consumed(self.model.head)), self.model.state["live"]
        alone = not self.world.processes and not self.world.stores.down and self.model.status == "running"
        alone = alone and not self.is_frozen
        process = self.world.backfill(self.ancestor(pick), ranges)
        self.done(process)
        told = process.error is None or isinstance(process.error, InvalidRequest)
        require(told or not alone, f"an undisturbed backfill fails: {process.error!r}")
        if process.error is None:
            require(self.model.state["live"] != old, "a backfill that is over leaves the timeline in its place")
            require(before == sorted(self.model.consumed(self.model.head)), "a backfill reads something else")

    @rule(pick=PICKS)
    def a_savepoint(self, pick: int) -> None:
        checkpoint = self.retained(pick)
        if checkpoint:
            self.done(self.world.save(checkpoint))

    @precondition(lambda self: self.model.savepoints)
    @rule(pick=PICKS, claim=st.booleans())
    def a_restore(self, pick: int, claim: bool) -> None:
        """The job ends, and starts again from a savepoint: it has read what the savepoint had."""
        name = sorted(self.model.savepoints)[pick % len(self.model.savepoints)]
        saved = self.model.savepoints[name]
        self.done(self.world.person("cancel"))
        process = self.world.restore(name, claim=claim)
        self.done(process)
        if process.error is None:
            read = self.model.consumed(self.model.head)
            require(sorted(read) == sorted(saved), f"restored {name} of {saved}, which has read {read}")
        self.world.revive()

    @precondition(lambda self: self.model.savepoints)
    @rule(pick=PICKS)
    def a_savepoint_is_disposed_of(self, pick: int) -> None:
        name = sorted(self.model.savepoints)[pick % len(self.model.savepoints)]
        self.done(self.world.begin(f"dispose {name}", lambda master: master.dispose_savepoint(name)["name"]))

    @rule(pick=PICKS)
    def a_checkpoint_is_read(self, pick: int) -> None:
        checkpoint = self.retained(pick)
        if checkpoint:
            self.world.check_state(checkpoint)

    @rule(what=st.sampled_from(["abort", "cancel and start", "resume", "gc", "gc", "dispose"]))
    def a_person(self, what: str) -> None:
        for step in what.split(" and "):
            self.done(self.world.person(step))

    # -- commands that stop somewhere -------------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.processes) < ALIVE)
    @rule(pick=PICKS, keys=KEYS, writes=st.integers(0, 40))
    def an_epoch_amid_a_backfill(self, pick: int, keys: list[int], writes: int) -> None:
        """What the schedule completes meanwhile is replayed before the fork takes its place."""
        self.epochs_complete(keys, 1)
        slow = self.world.backfill(self.ancestor(1 + pick), 1)
        slow.go_on(writes=writes)
        self.epochs_complete_or_wait(keys)
        slow.go_on()
        self.judge(slow)

    @precondition(lambda self: len(self.world.processes) < ALIVE)
    @rule(pick=st.integers(0, 2), keys=KEYS, calls=st.integers(1, 16))
    def a_commit_is_held_up_over_a_rollback(self, pick: int, keys: list[int], calls: int) -> None:
        """Completed, and not yet published, or at one sink only: after the rollback it publishes nothing (I14)."""
        self.world.revive()
        self.world.land(keys)
        before = len(self.model.parents)
        slow = self.world.epoch(Answers.ALL, insists=True)
        while not slow.over and len(self.model.parents) == before:
            slow.go_on(1)
        slow.go_on(calls)
        self.done(self.world.rollback(self.retained(1 + pick), insists=True))
        self.world.check()
        slow.go_on()
        self.judge(slow)

    @precondition(lambda self: not self.world.stores.down)
    @rule(pick=PICKS, sink=st.sampled_from(SINKS), keys=KEYS, epochs=st.integers(0, 2))
    def a_sink_misses_a_rollback(self, pick: int, sink: str, keys: list[int], epochs: int) -> None:
        """It misses epochs, too, and follows when it is back, before anything new is committed to it."""
        self.world.sink_is_down(sink, True)
        for _ in range(epochs):
            self.epochs_complete_or_wait(keys)
        self.done(self.world.rollback(self.retained(pick), insists=True))
        self.epochs_complete_or_wait(keys)
        self.world.sink_is_down(sink, False)
        self.epochs_complete_or_wait(keys)

    @precondition(lambda self: len(self.world.processes) < ALIVE)
    @rule(
        what=COMMANDS,
        pick=PICKS,
        writes=WRITES,
        then=st.sampled_from(["crash", "wait"]),
        fault=st.none() | st.sampled_from(Fault),
    )
    def a_command_stops(self, what: str, pick: int, writes: int, then: str, fault: Fault | None) -> None:
        """It dies somewhere, or lives on as a zombie."""
        process = self.command(what, pick)
        process.go_on(writes=writes)
        if fault is not None:
            process.go_on(writes=1, fault=fault)
        if then == "crash":
            self.world.crash(process)
        self.judge(process)

    @precondition(lambda self: len(self.world.processes) < ALIVE)
    @rule(first=COMMANDS, second=COMMANDS, pick=PICKS, other=PICKS, writes=WRITES)
    def one_command_amid_another(self, first: str, second: str, pick: int, other: int, writes: int) -> None:
        """The first one stops somewhere, the second one runs, and the first one finds another world."""
        slow = self.command(first, pick)
        slow.go_on(writes=writes)
        self.judge(slow)
        self.done(self.command(second, other))
        self.world.check()
        slow.go_on()
        self.judge(slow)

    @precondition(lambda self: self.world.processes)
    @rule(pick=PICKS, writes=st.none() | WRITES, fault=st.none() | st.sampled_from(Fault))
    def a_process_goes_on(self, pick: int, writes: int | None, fault: Fault | None) -> None:
        process = self.world.processes[pick % len(self.world.processes)]
        process.go_on(writes=writes, fault=fault)
        self.judge(process)

    @precondition(lambda self: self.world.stores.late)
    @rule(pick=PICKS)
    def a_late_write_arrives(self, pick: int) -> None:
        late = self.world.stores.late
        late.pop(pick % len(late)).deliver()

    # -- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def every_table_is_what_its_lineage_has_read(self) -> None:
        self.world.check()
        if self.model.version >= self.checked_at + 40:
            self.checked_at = self.model.version
            self.world.check_stores()

    def teardown(self) -> None:
        try:
            self.world.settle()
        finally:
            self.world.close()
            self.folder.cleanup()

    # -- steps ------------------------------------------------------------------------------------------------------

    def retained(self, pick: int) -> int:
        """A retained checkpoint of any timeline, or the empty state."""
        known = [0, *self.model.retained]
        return known[-1 - pick % len(known)]

    def ancestor(self, pick: int) -> int:
        """A retained checkpoint of the live lineage, or the empty state."""
        known = [0, *(one for one in self.model.lineage(self.model.head) if one in self.model.retained)]
        return known[-1 - pick % len(known)]

    def epochs_complete_or_wait(self, keys: list[int]) -> None:
        self.world.land(keys)
        self.done(self.world.epoch(Answers.ALL, insists=True))
        self.world.check()

    def command(self, what: str, pick: int) -> Process:
        if what == "epoch":
            self.world.land([1 + pick % 4])
            return self.world.epoch(Answers.ALL, insists=pick % 2 == 0)
        if what == "rollback":
            return self.world.rollback(self.retained(pick), insists=pick % 2 == 0)
        if what == "backfill":
            return self.world.backfill(self.ancestor(pick), 1 + pick % 2)
        if what == "save" and self.retained(pick):
            return self.world.save(self.retained(pick))
        if what == "restore" and self.model.savepoints:
            names = sorted(self.model.savepoints)
            self.done(self.world.person("cancel"))
            return self.world.restore(names[pick % len(names)], claim=pick % 2 == 0)
        if what in ("save", "restore"):
            return self.world.person("gc")
        return self.world.person(what)

    def done(self, process: Process, answers: Answers = Answers.ALL) -> None:
        process.go_on()
        require(process.over, f"{process.name} does not end")
        self.judge(process, answers)

    def judge(self, process: Process, answers: Answers = Answers.ALL) -> None:
        """A command ends well, or with an error that says what it met."""
        self.world.mourn(process)
        self.world.stores.watchers.raise_broken()
        error = process.error
        if error is None or isinstance(error, REFUSED):
            return
        if isinstance(error, STRUCK):
            require(process.faults or self.world.stores.down, f"{process.name} met no fault and ends with {error!r}")
            return
        nothing = isinstance(error, InvalidRequest) and any(text in error.message for text in NOTHING)
        declined = isinstance(error, SubtaskDeclined) and not answers.good
        require(nothing or declined, f"{process.name} ends with {error!r}")


TestTimelines = seed(int(os.environ["MILEPOST_SEED"]))(Timelines).TestCase
TestTimelines.settings = settings(
    max_examples=5,
    stateful_step_count=20,
    deadline=None,
    phases=(Phase.reuse, Phase.generate),  # to shrink what is found takes minutes: not in every run of the suite
    suppress_health_check=[HealthCheck.too_slow],
)
