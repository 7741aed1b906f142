"""The explorer with a person who rolls back at any moment: the manifest switches, the sink follows, the epochs go on.

A head of the sink is (checkpoint, token, born): what it shows, who committed it (0: it was written to follow a switch),
and the manifest version that made its timeline, 0 for the first. Nothing is subsumed, so every parent stays known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from milepost.protocol.manifest.timelines.timelines import reconcile_sink, rollback
from milepost.protocol.manifest.transaction.requests import ReconcileSinkRequest, RollbackRequest
from milepost.protocol.records.ids import CheckpointId, SessionId, TimelineId
from milepost.protocol.records.manifest_state import ManifestState
from tests.harness.models.model_explorer import Decide, Explorer, Rules
from tests.harness.models.model_world import Broken, Process, World, check_files, run_key

PERSON = "cli:person"
Head = tuple[int, ...]


@dataclass(frozen=True)
class SwitchRules(Rules):
    """The rules of a switch: the product's, unless a test breaks one on purpose."""

    rollback: Decide = rollback
    reconcile: Decide = reconcile_sink
    compare_timelines: bool = True
    follow_when_nothing_changes: bool = True
    compare_decisions: bool = True


@dataclass
class SwitchExplorer(Explorer):
    """One walk with a rollback to the parent of the head, whatever that is by then."""

    rules: SwitchRules = field(default_factory=SwitchRules)

    def start(self) -> World:
        world = super().start()
        return replace(world, processes=(*world.processes, Process(PERSON, "look")))

    def by_the_rules(self) -> Explorer:
        return SwitchExplorer(self.setting, SwitchRules(), self.manifests, _events=self._events)

    def _look(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """Read the head: let the sink follow, publish, then sweep, then trigger or roll back; after the epoch: end."""
        state = self.manifests.values[world.manifest]
        after = process.seen[:1] == ("after",)
        pending, leader, due = state.timeline().pending, state.timeline().leader, state.reconciliation
        # Whoever goes back publishes nothing first: the sink's way to its new head replaces the commits that are due.
        waiting = state.unconfirmed() if after or process.name != PERSON else ()
        if due is not None:
            goal = (due.decision, int(due.checkpoint_id), 0, int(after))
            yield "", world.with_process(index, replace(process, step="readfollow", seen=goal))
        elif waiting:
            one = waiting[0]
            goal = (int(one.checkpoint_id), int(one.token), int(one.parent), int(after), _born(one.timeline))
            yield "", world.with_process(index, replace(process, step="readsink", seen=goal))
        elif after or (process.name == PERSON and pending is None and state.timeline().head == 0):
            yield "", world.with_process(index, Process(process.name, "end"))
        elif pending is not None and leader is not None and leader.session_id != process.name:
            judged = (int(pending.checkpoint_id), int(pending.token))
            yield "", world.with_process(index, replace(process, step="judge", seen=judged))
        else:
            step = "decide rollback" if process.name == PERSON else "decide trigger"
            yield "", world.with_process(index, replace(process, step=step, seen=()))

    def _readsink(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """I14: the table has it -> done; the head is its predecessor on its own timeline -> commit; else superseded."""
        number, token, parent, after, born = (int(one) for one in process.seen)
        mark = _mark(world.sink)
        expected = (parent, born) if world.sink else (0, 0)
        fits = mark == expected if self.rules.compare_timelines else mark[0] == parent
        if number in self.content(world):
            yield "published", world.with_process(index, replace(process, step="decide confirm"))
        elif fits:
            seen = (number, token, parent, after, born, len(world.sink))
            yield "", world.with_process(index, replace(process, step="commitsink", seen=seen))
        else:
            yield "superseded", world.with_process(index, Process(process.name, "end"))

    def _commitsink(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        number, token, parent, after, born, length = (int(one) for one in process.seen)
        goal = (number, token, parent, after, born)
        if length != len(world.sink):
            yield "lost the race", world.with_process(index, replace(process, step="readsink", seen=goal))
            return
        done = replace(world, sink=(*world.sink, (number, token, born)))
        yield "", done.with_process(index, replace(process, step="decide confirm", seen=goal))
        if world.faults_left:
            lost = replace(done, faults_left=0).with_process(index, replace(process, step="readsink", seen=goal))
            yield "the reply is lost", lost

    def _readfollow(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """A sink follows the greatest decision it has heard of, once; ordinary commits carry it on."""
        decision, to = int(process.seen[0]), int(process.seen[1])
        heard = max((born for _, _, born in world.sink), default=0)
        unchanged = not self.rules.follow_when_nothing_changes and _mark(world.sink)[0] == to
        if (self.rules.compare_decisions and heard >= decision) or unchanged:
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
        """The subtasks of a try answer at once: in which order they may is walked without switches."""
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
        if goal == "rollback":
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
            return RollbackRequest(session, to, state.timeline().head, ("lake",), "a wrong rule")
        if goal == "reconcile":
            return ReconcileSinkRequest(session, int(process.seen[0]), "lake")
        return super()._request(state, process, goal)

    def content(self, world: World) -> tuple[int, ...]:
        """Which checkpoints' rows the table holds: a head that follows shows the lineage, a commit adds to its head."""
        rows: tuple[int, ...] = ()
        for number, token, _ in world.sink:
            rows = (*rows, number) if token else self.lineage(world, number)
        return rows

    def lineage(self, world: World, number: int) -> tuple[int, ...]:
        """A checkpoint and all that it continues, ascending."""
        parents = {int(one.checkpoint_id): int(one.parent) for one in self.manifests.values[world.manifest].checkpoints}
        found: list[int] = []
        while number:
            found.append(number)
            number = parents[number]
        return tuple(reversed(found))

    def check(self, world: World) -> None:
        """Check what must hold at every moment. Raises Broken."""
        state = self.manifests.values[world.manifest]
        check_files(world, state)
        completed = {(number, token) for number, token in world.ended if token}
        commits = [(number, token) for number, token, _ in world.sink if token]
        _require(set(commits) <= completed, f"I14: {world.sink}: something is published, and not completed")
        followed = 0
        for number, _, born in world.sink:
            _require(born >= followed, f"I14: checkpoint {number} of an older timeline landed after switch {followed}")
            followed = max(followed, born)
        rows = self.content(world)
        _require(rows == self.lineage(world, _mark(world.sink)[0]), f"I14: the table holds {rows}: no lineage")
        retained = {int(one.checkpoint_id) for one in state.checkpoints}
        _require({number for number, _ in completed} == retained, "I8: a completed checkpoint is not retained")
        if state.reconciliation is None:
            owed = tuple(int(one.checkpoint_id) for one in state.unconfirmed() if int(one.checkpoint_id) not in rows)
            head = int(state.timeline().head)
            _require((*rows, *owed) == self.lineage(world, head), f"I14: the table holds {rows}, the head is {head}")

    def check_last(self, world: World) -> None:
        """Check the results when nobody has anything left to do. Raises Broken."""
        state = self.manifests.values[world.manifest]
        _require(state.reconciliation is None and not state.unconfirmed(), "I14: a sink still has something to do")


def _born(timeline: TimelineId) -> int:
    return 0 if timeline == "main" else int(timeline[1:])


def _mark(heads: tuple[Head, ...]) -> tuple[int, int]:
    return (heads[-1][0], heads[-1][2]) if heads else (0, 0)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise Broken(sentence)
