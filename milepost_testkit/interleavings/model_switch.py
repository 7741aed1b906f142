"""The explorer with a user who rolls back, or realigns a moved table, at any moment.

A head of the sink is (checkpoint, token, number): the checkpoint it shows, the token that committed it (0 if it was
written to follow a decision), and the manifest version of the transition behind it. `MOVED` is a foreign move of the
table. Nothing is subsumed, so every parent stays known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from milepost.protocol.manifest.timelines.timelines import realign_sink, reconcile_sink, rollback
from milepost.protocol.manifest.transaction.requests import (
    RealignSinkRequest,
    ReconcileSinkRequest,
    RollbackRequest,
)
from milepost.protocol.records.ids import CheckpointId, SessionId, TimelineId
from milepost.protocol.records.manifest_state import ManifestState
from milepost_testkit.interleavings.model_explorer import Explorer
from milepost_testkit.interleavings.model_rules import Decide, Rules
from milepost_testkit.interleavings.model_world import Process, World, check_files, require, run_key
from milepost_testkit.jobs.job_log import decided
from milepost_testkit.models.protocol.stored_job import lineage

PERSON = "cli:person"
MOVED = -1
Head = tuple[int, ...]


@dataclass(frozen=True)
class SwitchRules(Rules):
    """The rules of a switch: the product's rules, unless a test breaks one on purpose."""

    rollback: Decide = rollback
    realign: Decide = realign_sink
    reconcile: Decide = reconcile_sink
    compare_numbers: bool = True
    follow_when_nothing_changes: bool = True
    compare_decisions: bool = True


@dataclass
class SwitchExplorer(Explorer):
    """One walk with a rollback to the parent of the current head.

    Attributes:
        mends: instead of a rollback, an external writer moves the table, and a user realigns it.
    """

    rules: SwitchRules = field(default_factory=SwitchRules)
    mends: bool = False

    def start(self) -> World:
        world = super().start()
        return replace(world, processes=(*world.processes, Process(PERSON, "move" if self.mends else "look")))

    def by_the_rules(self) -> Explorer:
        return SwitchExplorer(self.setting, SwitchRules(), self.manifests, _events=self._events, mends=self.mends)

    def _move(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """Move the table from outside, as a restore or a failover does."""
        moved = replace(world, sink=(*world.sink, (MOVED, 0, _number(world.sink))))
        yield "by hand", moved.with_process(index, replace(process, step="look"))

    def _look(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """Read the head. Let the sink follow, publish, sweep, then trigger or roll back; after the epoch, end."""
        state = self.manifests.values[world.manifest]
        after = process.seen[:1] == ("after",)
        pending, leader, due = state.timeline().pending, state.timeline().leader, state.reconciliation
        # A rollback publishes nothing first: the sink's move to its new head replaces the commits that are due.
        waiting = state.unconfirmed() if after or process.name != PERSON else ()
        if due is not None:
            goal = (due.decision, int(due.checkpoint_id), len(due.realigned), int(after))
            yield "", world.with_process(index, replace(process, step="readfollow", seen=goal))
        elif waiting:
            one = waiting[0]
            goal = (int(one.checkpoint_id), int(one.token), int(one.parent), int(after), one.version)
            yield "", world.with_process(index, replace(process, step="readsink", seen=goal))
        elif after or (process.name == PERSON and not self.mends and pending is None and state.timeline().head == 0):
            yield "", world.with_process(index, Process(process.name, "end"))
        elif pending is not None and leader is not None and leader.session_id != process.name:
            judged = (int(pending.checkpoint_id), int(pending.token))
            yield "", world.with_process(index, replace(process, step="judge", seen=judged))
        else:
            decides = "decide realign" if self.mends else "decide rollback"
            step = decides if process.name == PERSON else "decide trigger"
            yield "", world.with_process(index, replace(process, step=step, seen=()))

    def _readsink(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """I14: its number was there -> done; a lower one, which shows its predecessor -> commit; else superseded."""
        number, token, parent, after, version = (int(one) for one in process.seen)
        rises = _number(world.sink) < version or not self.rules.compare_numbers
        if (number, token, version) in world.sink and _shows(world.sink) != MOVED:
            yield "published", world.with_process(index, replace(process, step="decide confirm"))
        elif rises and _shows(world.sink) == parent:
            seen = (number, token, parent, after, version, len(world.sink))
            yield "", world.with_process(index, replace(process, step="commitsink", seen=seen))
        else:
            yield "superseded", world.with_process(index, Process(process.name, "end"))

    def _commitsink(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        number, token, parent, after, version, length = (int(one) for one in process.seen)
        goal = (number, token, parent, after, version)
        if length != len(world.sink):
            yield "lost the race", world.with_process(index, replace(process, step="readsink", seen=goal))
            return
        done = replace(world, sink=(*world.sink, (number, token, version)))
        yield "", done.with_process(index, replace(process, step="decide confirm", seen=goal))
        if world.faults_left:
            lost = replace(done, faults_left=0).with_process(index, replace(process, step="readsink", seen=goal))
            yield "the reply is lost", lost

    def _readfollow(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """Let the table follow a decision once, from any position, unless a later decision replaced it."""
        decision, to, realigns = (int(one) for one in process.seen[:3])
        unchanged = not self.rules.follow_when_nothing_changes and _shows(world.sink) == to
        if _shows(world.sink) == MOVED and not realigns:
            yield "nobody knows what it shows", world.with_process(index, Process(process.name, "end"))
        elif (self.rules.compare_decisions and _number(world.sink) >= decision) or unchanged:
            yield "followed already", world.with_process(index, replace(process, step="decide reconcile"))
        else:
            seen = (*process.seen, len(world.sink))
            yield "", world.with_process(index, replace(process, step="writefollow", seen=seen))

    def _writefollow(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        decision, to, _, _, length = (int(one) for one in process.seen)
        goal = process.seen[:4]
        if length != len(world.sink):
            yield "lost the race", world.with_process(index, replace(process, step="readfollow", seen=goal))
            return
        done = replace(world, sink=(*world.sink, (to, 0, decision)))
        yield "", done.with_process(index, replace(process, step="decide reconcile", seen=goal))
        if world.faults_left:
            lost = replace(done, faults_left=0).with_process(index, replace(process, step="readfollow", seen=goal))
            yield "the reply is lost", lost

    def _landed(self, world: World, index: int, process: Process, goal: str) -> World:
        """Let all subtasks of an attempt answer together. The walk without switches covers their orders."""
        landed = super()._landed(world, index, process, goal)
        if goal != "rebind":
            return landed
        collecting = landed.processes[index]
        return replace(
            landed,
            workers=world.workers,
            answers=world.answers | {(*worker, "ack") for worker in landed.workers},
            files=world.files | {run_key(*worker) for worker in landed.workers},
        ).with_process(index, replace(collecting, step="write"))

    def _goes_on(self, world: World, index: int, process: Process, goal: str, checkpoint: int) -> World:
        if goal in ("rollback", "realign"):
            return world.with_process(index, Process(process.name, "look", ("after",)))
        if goal == "reconcile":
            after = ("after",) if process.seen[3:4] == (1,) else ()
            return world.with_process(index, Process(process.name, "look", after))
        return super()._goes_on(world, index, process, goal, checkpoint)

    def _request(self, state: ManifestState, process: Process, goal: str) -> object:
        session = SessionId(process.name)
        if goal == "rollback":
            head = state.head()
            to = CheckpointId(0) if head is None else head.parent
            return RollbackRequest(session, to, state.timeline().head, ("lake",), decided("a wrong rule"))
        if goal == "realign":
            return RealignSinkRequest(session, "lake", state.timeline().head, decided("a restore"))
        if goal == "reconcile":
            return ReconcileSinkRequest(session, int(process.seen[0]), "lake")
        return super()._request(state, process, goal)

    def _decide(self, world: World, index: int, process: Process, goal: str) -> tuple[str, World]:
        """Retry a realignment that an epoch's begin or end has overtaken, until it is done."""
        outcome, reached = super()._decide(world, index, process, goal)
        if self.mends and process.name == PERSON and outcome.startswith("refused"):
            return outcome, world.with_process(index, Process(process.name, "look"))
        return outcome, reached

    def lineage(self, world: World, number: int) -> tuple[int, ...]:
        """Return a checkpoint and its ancestors, ascending."""
        parents = {int(one.checkpoint_id): int(one.parent) for one in self.manifests.values[world.manifest].checkpoints}
        return tuple(lineage(number, parents.__getitem__))

    def check(self, world: World) -> None:
        """Check what must hold at every moment. Raises Broken."""
        state = self.manifests.values[world.manifest]
        check_files(world, state)
        completed = {(number, token) for number, token in world.ended if token}
        commits = [(number, token) for number, token, _ in world.sink if token]
        require(set(commits) <= completed, f"I14: {world.sink}: something is published, and not completed")
        numbers = [number for checkpoint, _, number in world.sink if checkpoint != MOVED]
        require(numbers == sorted(set(numbers)), f"I14: the numbers of the table's moves are {numbers}")
        born = {int(one.checkpoint_id): _born(one.timeline) for one in state.checkpoints}
        switched = 0
        for checkpoint, token, number in world.sink:
            switched = max(switched, born.get(checkpoint, 0) if token else number)
            late = token and not self.mends and born[checkpoint] < switched
            require(not late, f"I14: checkpoint {checkpoint} of an older timeline landed after switch {switched}")
        retained = {int(one.checkpoint_id) for one in state.checkpoints}
        require({number for number, _ in completed} == retained, "I8: a completed checkpoint is not retained")
        if state.reconciliation is None and _shows(world.sink) != MOVED:
            rows, head = self.lineage(world, _shows(world.sink)), int(state.timeline().head)
            owed = tuple(int(one.checkpoint_id) for one in state.unconfirmed() if int(one.checkpoint_id) not in rows)
            require((*rows, *owed) == self.lineage(world, head), f"I14: the table holds {rows}, the head is {head}")

    def check_last(self, world: World) -> None:
        """Check the results when no process has a step left. Raises Broken."""
        state = self.manifests.values[world.manifest]
        require(state.reconciliation is None and not state.unconfirmed(), "I14: a sink still has something to do")
        shows, head = _shows(world.sink), int(state.timeline().head)
        require(shows == head, f"I14: the table shows {shows}, the head is {head}")


def _born(timeline: TimelineId) -> int:
    return 0 if timeline == "main" else int(timeline[1:])


def _shows(heads: tuple[Head, ...]) -> int:
    return heads[-1][0] if heads else 0


def _number(heads: tuple[Head, ...]) -> int:
    return heads[-1][2] if heads else 0
