"""Epochs, aborts, rollbacks, savepoints, backfills, rescaling, retention, crashes: every table is what was read.

The real job master, manifest log, state and sinks, on the processes of `stepped_processes.py`. After each
step each sink equals what DuckDB makes of the objects that, by their recorded ranges, led to the checkpoint it shows;
and that is the live head, unless some sink has yet to publish or to follow.
"""

from __future__ import annotations

import os

from hypothesis import seed
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from milepost.errors import InvalidRequest, SubtaskDeclined
from milepost_testkit.machines.command_machine import REFUSED, STRUCK, in_the_suite
from milepost_testkit.machines.protocol_world import SINKS, Answers
from milepost_testkit.machines.timeline_stories import HOUR_MS, KEYS, PICKS, SCENE, TimelineStories
from milepost_testkit.machines.timeline_world import POLICIES
from milepost_testkit.models.protocol.require import require
from milepost_testkit.stores.stepped_processes import Fault, Process

JUMPS = st.sampled_from([61_000, HOUR_MS, HOUR_MS, 3 * HOUR_MS, 26 * HOUR_MS, -HOUR_MS])
WRITES = st.integers(0, 24)
COMMANDS = st.sampled_from(
    ["epoch", "epoch", "drain", "rollback", "rollback", "backfill", "backfill", "gc", "dispose", "cancel"]
)
STORIES = st.sampled_from(
    [name for name, value in vars(TimelineStories).items() if hasattr(value, "hypothesis_stateful_initialize_rule")]
)
ALIVE = 3


class Timelines(TimelineStories):
    """One job that people and runs move forwards and back: its stories, then anything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.done(self.world.epoch(Answers.ALL, insists=True))

    # -- the world --------------------------------------------------------------------------------------------------

    @rule(by_ms=JUMPS)
    def the_clock_jumps(self, by_ms: int) -> None:
        self.world.clock_jumps(by_ms)

    @rule(parallelism=st.integers(1, 3), policy=st.sampled_from(POLICIES))
    def the_spec_changes(self, parallelism: int, policy: tuple[int, int, int]) -> None:
        self.world.spec_changes(parallelism=parallelism, policy=policy)

    @rule(sink=st.sampled_from(SINKS), down=st.sampled_from([True, False, False, False]))
    def a_sink_goes_down_or_comes_back(self, sink: str, down: bool) -> None:
        self.world.sink_is_down(sink, down)

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
                ended = process.result == "drained"  # it found the last epoch complete, and only finished the job
                require(self.model.head != before or ended, f"an undisturbed epoch completes nothing: {process.result}")

    @rule(answers=st.sampled_from([one for one in Answers if not one.good]), keys=KEYS)
    def an_epoch_aborts(self, answers: Answers, keys: list[int]) -> None:
        self.world.revive()
        self.world.land(keys)
        before = self.model.head
        process = self.world.epoch(answers, insists=True)
        self.done(process, answers)
        if process.result == "drained":  # it found the last epoch complete, and only finished the job
            require(self.model.status == "finished", "a drained job is not finished")
            return
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
        calm = self.calm
        process = self.world.backfill(self.ancestor(pick), ranges)
        self.done(process)
        told = process.error is None or isinstance(process.error, InvalidRequest)
        require(told or not calm, f"an undisturbed backfill fails: {process.error!r}")
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
        self.is_restored(name, claim)

    @precondition(lambda self: self.model.savepoints)
    @rule(pick=PICKS)
    def a_savepoint_is_disposed_of(self, pick: int) -> None:
        name = sorted(self.model.savepoints)[pick % len(self.model.savepoints)]
        if "/" not in name:
            self.done(self.world.begin(f"dispose {name}", lambda master: master.savepoints.dispose(name).name))

    @rule(pick=PICKS)
    def a_checkpoint_is_read(self, pick: int) -> None:
        checkpoint = self.retained(pick)
        if checkpoint:
            self.world.check_checkpoint(checkpoint)

    @rule(what=st.sampled_from(["abort", "cancel and start", "resume", "gc", "gc", "dispose"]))
    def a_person(self, what: str) -> None:
        for step in what.split(" and "):
            self.done(self.world.person(step))

    # -- commands that stop somewhere -------------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.processes) < ALIVE)
    @rule(story=STORIES, **SCENE)
    def a_story_again(self, story: str, pick: int, sink: str, keys: list[int]) -> None:
        """While other processes are suspended."""
        getattr(self, story)(pick=pick, sink=sink, keys=keys)

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
        self.check(every=40)

    # -- steps ------------------------------------------------------------------------------------------------------

    def ancestor(self, pick: int) -> int:
        """A retained checkpoint of the live lineage, or the empty state."""
        known = [0, *(one for one in self.model.lineage(self.model.head) if one in self.model.retained)]
        return known[-1 - pick % len(known)]

    def command(self, what: str, pick: int) -> Process:
        if what == "epoch":
            self.world.land([1 + pick % 4])
            return self.world.epoch(Answers.ALL, insists=pick % 2 == 0)
        if what == "rollback":
            return self.world.rollback(self.retained(pick), insists=pick % 2 == 0)
        if what == "backfill":
            return self.world.backfill(self.ancestor(pick), 1 + pick % 2)
        if what == "drain":
            return self.world.epoch(Answers.ALL, insists=True, drain=True)
        return self.world.person(what)


TestTimelines = seed(int(os.environ["MILEPOST_SEED"]))(Timelines).TestCase
TestTimelines.settings = in_the_suite(share=0.03)
