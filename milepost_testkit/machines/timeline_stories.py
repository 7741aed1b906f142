"""Scripted scenarios of a job with timelines, each of which depends on one rule.

A story continues under any disturbance, because it may run between suspended processes. Its additional assertions apply
only if the job was undisturbed at the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from milepost.errors import InvalidRequest, Superseded
from milepost_testkit.machines.command_machine import CommandMachine
from milepost_testkit.machines.protocol_world import SINKS, Answers
from milepost_testkit.machines.timeline_world import COUNT, MAX_FILES, POLICIES, SUM, TimelineWorld
from milepost_testkit.models.protocol.plain_model import TIMEOUT_MS
from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.retention_tiers import HOUR_MS
from milepost_testkit.models.protocol.timeline_model import TimelineModel
from milepost_testkit.stores.stepped_processes import Process

KEYS = st.lists(st.integers(1, 4), min_size=1, max_size=3)
PICKS = st.integers(0, 11)
SCENE: dict[str, Any] = {"pick": PICKS, "sink": st.sampled_from(SINKS), "keys": KEYS}
"""Strategies for the arguments of a story, which makes its choices with `pick`."""

NOTHING = (
    "nothing was read since",
    "was restored from a savepoint",
    "ended the event time of a drained job",
    "it cannot start from",
)
"""Parts of the messages that refuse an impossible backfill or restore."""
OTHER_RULE = "does not fit"
"""Part of the message that refuses a spec with a different rule from its checkpoint."""


class TimelineStories(CommandMachine):
    """The stories of one job. Every example runs each of them once, in any order."""

    world: TimelineWorld
    model: TimelineModel

    def new_world(self, folder: Path) -> TimelineWorld:
        return TimelineWorld(folder)

    # -- stories ----------------------------------------------------------------------------------------------------

    @initialize(**SCENE)
    def a_commit_is_held_up_over_a_switch(self, pick: int, sink: str, keys: list[int]) -> None:
        """A checkpoint published at no sink, or at one only, publishes nothing after the switch (I14)."""
        before, known = self.model.head, len(self.model.parents)
        self.world.land(keys)
        slow = self.world.epoch(Answers.ALL, insists=True)
        self.until(slow, lambda: len(self.model.parents) > known)
        for _ in range(2 * SINKS.index(sink) + pick % 6 // 5):  # a head, and its confirmation
            slow.go_on(writes=1)
        if pick % 6 == 4:
            self.done(self.world.backfill(self.fork_point(1), 1))
        else:
            self.done(self.world.rollback(before if before in self.model.retained else 0, insists=True))
        self.world.check()
        self.goes_on(slow)

    @initialize(**SCENE)
    def a_sink_misses_a_switch(self, pick: int, sink: str, keys: list[int]) -> None:
        """The sink also misses epochs. When it returns, it follows the switch before any new commit."""
        calm = self.calm
        self.world.sink_is_down(sink, True)
        for _ in range(pick % 3):
            self.epochs_complete_or_wait(keys)
        if pick < 8:
            self.done(self.world.rollback(self.retained(1 + pick % 4), insists=True))
        else:
            self.done(self.world.backfill(self.fork_point(1 + pick % 2), 1))
        self.epochs_complete_or_wait(keys)
        self.world.sink_is_down(sink, False)
        self.epochs_complete_or_wait(keys)
        require(not (calm and self.model.owed), f"{sink} is back, and has not followed: {self.model.state}")

    @initialize(**SCENE)
    def an_epoch_begins_amid_a_switch(self, pick: int, sink: str, keys: list[int]) -> None:
        """An epoch that read the head before the switch begins only after every sink has followed (I14)."""
        self.epochs_complete_or_wait(keys)
        self.world.land(keys)
        slow = self.world.epoch(Answers.ALL, insists=True)
        slow.go_on(writes=0)
        live = self.model.state["live"]
        back = self.world.rollback(self.retained(1 + pick // 4), insists=True)
        if pick % 4 == 3:
            self.world.sink_is_down(sink, True)
            self.done(back)
        else:
            self.until(back, lambda: self.model.state["live"] != live)
        self.goes_on(slow)
        self.world.sink_is_down(sink, False)
        self.goes_on(back)

    @initialize(**SCENE)
    def epochs_complete_amid_a_backfill(self, pick: int, sink: str, keys: list[int]) -> None:
        """Epochs of the schedule are replayed before the fork becomes live. Epochs of the fork stay.

        They complete between epochs of the fork, or after its last one if the freeze expires too early.
        """
        self.epochs_complete_or_wait(keys)
        calm = self.calm
        slow = self.world.backfill(self.fork_point(2), 1)
        if pick % 2:
            self.until(slow, self.is_replayed)
            self.world.clock_jumps(TIMEOUT_MS + 61_000)
            self.epochs_complete_or_wait(keys)
        else:
            self.until(slow, self.a_fork_has_got_on)
            for _ in range(2):
                self.epochs_complete_or_wait(keys)
            if pick % 4:
                self.world.clock_jumps(2 * HOUR_MS)
                self.done(self.world.person("gc"))
        self.goes_on(slow)
        told = slow.error is None or self.is_refusal(slow.error)
        require(told or not calm, f"a backfill fails amid epochs: {slow.error!r}")

    @initialize(**SCENE)
    def what_a_rollback_left_is_gone_back_to(self, pick: int, sink: str, keys: list[int]) -> None:
        """A rollback returns to epochs that one sink never published, after other epochs and two collections."""
        self.world.spec_changes(policy=POLICIES[2 * (pick % 2)])
        self.epochs_complete_or_wait(keys)
        before = self.model.head
        self.world.sink_is_down(sink, True)
        for _ in range(2 + pick % 2):
            self.epochs_complete_or_wait(keys)
        left = self.model.head
        self.done(self.world.rollback(before if before in self.model.retained else 0, insists=True))
        self.world.sink_is_down(sink, False)
        if pick >= 6 and left in self.model.retained:
            self.done(self.world.save(left))  # which retains it, regardless of the tiers
        self.world.clock_jumps(HOUR_MS)
        for _ in range(2):
            self.epochs_complete_or_wait(keys)
        for _ in range(2):  # the next collection deletes what this one lists
            self.world.clock_jumps(2 * HOUR_MS)
            if pick < 6:
                self.done(self.world.person("gc"))
            else:
                self.epochs_complete_or_wait(keys)
        calm = self.calm and left in self.model.retained
        back = self.world.rollback(left, insists=True)
        self.done(back)
        require(not calm or (back.error is None and self.model.head == left), f"back to {left}: {back.error!r}")

    @initialize(**SCENE)
    def days_go_by(self, pick: int, sink: str, keys: list[int]) -> None:
        """The tiers retain exactly the checkpoints of their rules, and all of them are readable."""
        self.world.spec_changes(policy=POLICIES[1 + pick % 2])
        for _ in range(3):
            self.world.clock_jumps((5 + 4 * (pick // 3)) * HOUR_MS)
            self.epochs_complete_or_wait(keys)
        for checkpoint in self.model.retained[:1]:
            self.world.check_checkpoint(checkpoint)

    @initialize(**SCENE)
    def a_savepoint_is_restored(self, pick: int, sink: str, keys: list[int]) -> None:
        """Restore an older savepoint of the job, or one of another job, which only `--claim` deletes."""
        foreign, claim, name = pick % 2 == 0, pick % 4 >= 2, ""
        head = self.model.head
        if foreign:
            name = self.world.foreign_savepoint()
        elif head:
            saving = self.world.save(head)
            self.done(saving)
            name = str(saving.result)
            self.done(self.world.rollback(self.retained(1 + pick // 4), insists=True))
        restored = name in self.model.savepoints and self.is_restored(name, claim)
        if foreign:
            left = self.world.objects_at(name)
            require(bool(left) != (restored and claim), f"{left} objects are at {name}, restored and claimed: {claim}")
        self.epochs_complete_or_wait(keys)

    @initialize(**SCENE)
    def a_job_is_drained(self, pick: int, sink: str, keys: list[int]) -> None:
        """The job ends with its last epoch and is started again. No backfill can replay past the end."""
        calm, before = self.calm, self.model.head
        self.world.land(keys)
        for _ in range(3 + len(self.world.landed) // MAX_FILES):
            if self.model.status == "running":
                self.done(self.world.epoch(Answers.ALL, insists=True, drain=True))
        require(not calm or self.model.status == "finished", f"a drained job is {self.model.status}")
        final = self.model.head
        self.world.revive()
        self.epochs_complete_or_wait(keys)
        if calm and pick % 3 == 0 and before in self.model.retained:
            past = self.world.backfill(before, 1)
            self.done(past)
            require(isinstance(past.error, InvalidRequest), f"a backfill goes past checkpoint {final}: {past.result}")

    @initialize(**SCENE)
    def a_changed_rule_is_backfilled(self, pick: int, sink: str, keys: list[int]) -> None:
        """Backfill a new rule from the empty state during the schedule. It then holds from the beginning."""
        point = self.fork_point(100)
        live = self.model.state["live"]
        calm = self.calm and point == 0
        rule = COUNT if self.world.rule == SUM else SUM
        slow = self.world.backfill(point, 2 + pick % 2, rule=rule)
        self.until(slow, self.a_fork_has_got_on)
        self.epochs_complete_or_wait(keys)
        self.goes_on(slow)
        if calm and slow.error is None:
            made = self.model.rule[self.model.head]
            require(self.model.state["live"] != live and made == rule, f"backfilled with {rule}, the head has {made}")
        told = slow.error is None or self.is_refusal(slow.error)
        require(told or not calm, f"a backfill with another rule fails: {slow.error!r}")

    # -- what the stories ask ---------------------------------------------------------------------------------------

    @property
    def calm(self) -> bool:
        """Whether no other process runs, and every sink answers."""
        self.world.check()
        alone = not self.world.processes and not self.world.stores.late and not self.world.stores.down
        return alone and self.model.status == "running" and not self.is_frozen and not self.model.owed

    @property
    def is_frozen(self) -> bool:
        """Whether a backfill that crashed near its end has left a freeze, which expires by itself."""
        return any(timeline["frozen"] for timeline in self.model.state.get("timelines", ()))

    def a_fork_has_got_on(self) -> bool:
        """Whether some fork has a completed epoch and no pending one."""
        forks = [one for one in self.model.state["timelines"] if one["role"] == "fork"]
        return any(one["pending"] is None and one["head"] != (one["parent"] or (0, 0))[1] for one in forks)

    def is_replayed(self) -> bool:
        """Whether some fork has read all input of the frozen live timeline."""
        wanted = sorted(self.model.consumed(self.model.head))
        heads = [one["head"] for one in self.model.state["timelines"] if one["role"] == "fork"]
        return self.is_frozen and any(sorted(self.model.consumed(head)) == wanted for head in heads)

    def retained(self, pick: int) -> int:
        """Return a retained checkpoint of any timeline, or the empty state."""
        known = [0, *self.model.retained]
        return known[-1 - pick % len(known)]

    def fork_point(self, back: int) -> int:
        """Return the newest retained ancestor of the live head with `back` epochs after it, else the oldest one."""
        way = [0, *self.model.lineage(self.model.head)]
        first = max((at for at, one in enumerate(way) if one in self.model.unreplayable), default=0)
        known = [at for at, one in enumerate(way) if at >= first and one in (0, *self.model.retained)]
        return way[max((at for at in known if at < len(way) - back), default=min(known, default=0))]

    # -- steps ------------------------------------------------------------------------------------------------------

    def until(self, process: Process, holds: Callable[[], bool]) -> None:
        """Run a process until the condition holds, and stop it before its next write."""
        while not process.over and not holds():
            process.go_on(writes=1)

    def goes_on(self, process: Process) -> None:
        """Run a process to its end, whatever the state is now."""
        process.go_on()
        self.judge(process)
        self.world.check()

    def epochs_complete_or_wait(self, keys: list[int]) -> None:
        self.world.land(keys)
        self.done(self.world.epoch(Answers.ALL, insists=True))
        self.world.check()

    def is_restored(self, name: str, claim: bool) -> bool:
        """End the job and start it from a savepoint. Check that it has the savepoint's consumed input."""
        saved = self.model.savepoints[name]
        self.done(self.world.person("cancel"))
        process = self.world.restore(name, claim=claim)
        self.done(process)
        if process.error is None:
            read = self.model.consumed(self.model.head)
            require(sorted(read) == sorted(saved), f"restored {name} of {saved}, which has read {read}")
        self.world.revive()
        return process.error is None

    def is_refusal(self, error: BaseException) -> bool:
        mixed = len(set(self.model.rules.values())) > 1
        told = (*NOTHING, OTHER_RULE) if mixed else NOTHING
        impossible = isinstance(error, InvalidRequest) and any(text in error.message for text in told)
        return impossible or isinstance(error, Superseded)

    def may_wait(self) -> bool:
        return bool(self.world.stores.down)
