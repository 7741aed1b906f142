"""Walk every interleaving of a few processes, and check I1 to I14 in every world.

Each store operation is one step. The walk is breadth-first, so a counterexample is a shortest one, and visits equal
worlds once. Coordinator, lease, acknowledgement check and retention are the product's functions. Only store, sink and
workers are modelled as values. The clock stands still: a lease ends by a take-over or the holder's death, and deletion
has no grace period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.errors import (
    Busy,
    CheckpointError,
    CommitConflict,
    Fenced,
    JobNotRunnable,
    SubtaskDeclined,
)
from milepost.protocol.manifest import coordinator
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import Event
from milepost.protocol.manifest.transaction.lease import Abandon, Adopt, LeaseFacts
from milepost.protocol.manifest.transaction.requests import (
    CreateRequest,
)
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId
from milepost.protocol.records.layout import metadata_key
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.retention import deletable
from milepost_testkit.interleavings.model_rules import NOW_MS, Rules, Setting, answer_of, request_of
from milepost_testkit.interleavings.model_world import (
    SUBTASKS,
    Broken,
    Manifests,
    Process,
    World,
    check_end,
    check_transition,
    check_world,
    run_key,
)
from milepost_testkit.rows.key_hashes import KEY_HASH_SECRET

_MAX_STATES = 2_000_000


@dataclass
class Explored:
    """The result of a walk. `trace`: a shortest counterexample, ending with the invariant; empty if all hold."""

    states: int = 0
    transitions: int = 0
    ends: int = 0
    trace: tuple[str, ...] = ()


@dataclass
class Explorer:
    """One walk."""

    setting: Setting = field(default_factory=Setting)
    rules: Rules = field(default_factory=Rules)
    manifests: Manifests = field(default_factory=Manifests)
    _decided: dict[tuple[object, ...], tuple[str, Any]] = field(default_factory=dict)
    _events: dict[tuple[int, int], Event] = field(default_factory=dict)

    def start(self) -> World:
        created = coordinator.create(None, CreateRequest("flights", KEY_HASH_SECRET), NOW_MS)
        assert isinstance(created, Transition)
        processes = [Process(name, "look") for name in self.setting.leaders]
        if self.setting.canceler:
            processes.append(Process("cli:person", "decide cancel"))
        first = self.manifests.index(created.state, created.event)
        return World(first, tuple(processes), faults_left=self.setting.faults)

    def explore(self) -> Explored:
        """Walk until no world is left, or to the first one that breaks an invariant."""
        seen = Explored()
        first = self.start()
        came_from: dict[World, tuple[World, str] | None] = {first: None}
        level = [first]
        at = first
        try:
            while level:
                found: list[World] = []
                for world in level:
                    at = world
                    ready = list(self.steps(world))
                    seen.transitions += len(ready)
                    for label, reached in ready:
                        if reached not in came_from:
                            came_from[reached] = (world, label)
                            at = reached
                            self.check(reached)
                            found.append(reached)
                    at = world
                    if not ready:
                        seen.ends += 1
                        self.check_results(world)
                assert len(came_from) <= _MAX_STATES, f"more than {_MAX_STATES} states: make the setting smaller"
                level = found
        except Broken as broken:
            seen.trace = (*_trace(came_from, at), str(broken))
        seen.states = len(came_from)
        return seen

    def check_results(self, world: World) -> None:
        """Let one more process publish the rest alone. Then every row must be published once (`check_end`)."""
        process = Process("cli:next", "look", ("after",))
        lone = replace(world, processes=(process,), workers=frozenset(), faults_left=0)
        by_the_rules = self.by_the_rules()
        while lone.processes[0].step != "end":
            lone = next(by_the_rules.steps(lone))[1]
        self.check(lone)
        self.check_last(lone)

    def by_the_rules(self) -> Explorer:
        """Return an explorer of the same worlds that follows all rules."""
        return Explorer(self.setting, Rules(), self.manifests, _events=self._events)

    def check(self, world: World) -> None:
        """Check what must hold at every moment. Raises Broken."""
        check_world(world, self.manifests.values[world.manifest])

    def check_last(self, world: World) -> None:
        """Check the results when no process has a step left. Raises Broken."""
        check_end(world, self.manifests.values[world.manifest])

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield every next world: each process may take a step or fail, each worker may write."""
        for index, process in enumerate(world.processes):
            if process.step in ("end", "crashed"):
                continue
            if self.setting.in_turn and index > 1 and world.processes[index - 2].step not in ("end", "crashed"):
                continue
            for what, reached in self._step(world, index, process):
                yield f"{process.name}: {process.step} {what}".rstrip(), reached
            if world.faults_left and process.name != "cli:person":
                again = Process(process.name, "crashed" if self.setting.polite else "look")
                if again != process:
                    yield (
                        f"{process.name} crashes before: {process.step}",
                        replace(world.with_process(index, again), faults_left=0),
                    )
        for worker in sorted(world.workers):
            number, token, subtask = worker
            left = replace(world, workers=world.workers - {worker})
            for kind in ("ack", "decline", "other") if world.faults_left else ("ack",):
                answers = {(*worker, kind)} | ({(*worker, "ack")} if kind == "other" else set())
                yield (
                    f"subtask {subtask} of checkpoint {number} under token {token}: {kind}",
                    replace(
                        left,
                        answers=left.answers | answers,
                        files=left.files | {run_key(*worker)},
                        faults_left=world.faults_left if kind == "ack" else 0,
                    ),
                )

    def _step(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        verb, _, goal = process.step.partition(" ")
        match verb:
            case "decide":
                yield self._decide(world, index, process, goal)
            case "put":
                yield from self._put(world, index, process, goal)
            case "unanswered":
                yield "own write id found", self._landed(world, index, process, goal)
            case _:
                handler: Callable[[World, int, Process], Iterator[tuple[str, World]]] = getattr(self, f"_{verb}")
                yield from handler(world, index, process)

    def _look(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """Read the head. Publish unconfirmed checkpoints, then sweep, then trigger; after the epoch, subsume."""
        state = self.manifests.values[world.manifest]
        after = process.seen[:1] == ("after",)
        waiting = state.unconfirmed()
        pending, leader = state.timeline().pending, state.timeline().leader
        if waiting and (self.rules.publish_before_subsume or not after):
            one = waiting[0]
            goal = (int(one.checkpoint_id), int(one.token), int(one.parent), int(after))
            step = "readsink" if self.rules.publish_before_confirm else "decide confirm"
            yield "", world.with_process(index, replace(process, step=step, seen=goal))
        elif after:
            yield "", world.with_process(index, replace(process, step="decide subsume", seen=()))
        elif pending is not None and leader is not None and leader.session_id != process.name:
            judged = (int(pending.checkpoint_id), int(pending.token))
            yield "", world.with_process(index, replace(process, step="judge", seen=judged))
        else:
            yield "", world.with_process(index, replace(process, step="decide trigger", seen=()))

    def _judge(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """Read whether the pending checkpoint is finished, and handle it according to the lease."""
        number, token = process.seen
        state = self.manifests.values[world.manifest]
        pending, leader = state.timeline().pending, state.timeline().leader
        if pending is None or leader is None or (pending.checkpoint_id, pending.token) != (number, token):
            yield "it changed", world.with_process(index, replace(process, step="look", seen=()))
            return
        finished = metadata_key(CheckpointId(int(number)), FencingToken(int(token))) in world.files
        dead = any(one.name == leader.session_id and one.step == "crashed" for one in world.processes)
        facts = LeaseFacts(not self.setting.polite, None, dead, True if finished else None)
        try:
            decision = self.rules.sweep(state, SessionId(process.name), facts, NOW_MS)
        except Busy:
            yield "busy", world.with_process(index, Process(process.name, "end"))
            return
        step = "decide adopt" if isinstance(decision, Adopt) else "decide abandon"
        assert isinstance(decision, Adopt | Abandon)
        yield "", world.with_process(index, replace(process, step=step))

    def _collect(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """When every subtask has answered, check all copies of all answers, including late ones of older tokens."""
        mine = {one[2] for one in world.answers if one[:2] == (process.checkpoint, process.token)}
        if self.rules.wait_for_answers and len(mine) < len(SUBTASKS):
            return
        answers = [answer_of(one) for one in sorted(world.answers) if one[0] == process.checkpoint]
        try:
            self.rules.verify(
                CheckpointId(process.checkpoint), FencingToken(process.token), SUBTASKS, [*answers, *answers]
            )
        except SubtaskDeclined:
            yield "declined", world.with_process(index, replace(process, step="decide abort"))
            return
        after = "readsink" if self.rules.publish_before_complete else "write"
        parent = world.sink[-1][0] if world.sink else 0
        seen = (process.checkpoint, process.token, parent, 1) if self.rules.publish_before_complete else ()
        yield "all acknowledged", world.with_process(index, replace(process, step=after, seen=seen))

    def _write(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        key = metadata_key(CheckpointId(process.checkpoint), FencingToken(process.token))
        written = replace(world, files=world.files | {key})
        yield "_metadata", written.with_process(index, replace(process, step="decide complete", seen=()))

    def _readsink(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """I14: the mark is there -> done; the head is its predecessor -> commit; else superseded."""
        number, token, parent, after = process.seen
        head = world.sink[-1][0] if world.sink else 0
        if self.rules.sink_compares and any(one[0] == number for one in world.sink):
            yield from self._confirmations(world, index, process, "published")
        elif head == parent or not self.rules.sink_compares:
            seen = (number, token, parent, after, len(world.sink))
            yield "", world.with_process(index, replace(process, step="commitsink", seen=seen))
        else:
            yield "superseded", world.with_process(index, Process(process.name, "end"))

    def _confirmations(self, world: World, index: int, process: Process, label: str) -> Iterator[tuple[str, World]]:
        """Confirm published checkpoints: alone, or with the subsumption after this process's epoch."""
        yield label, world.with_process(index, replace(process, step="decide confirm"))
        if process.seen[3] == 1:
            yield f"{label} all", world.with_process(index, replace(process, step="decide conclude"))

    def _commitsink(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        number, token, parent, after, length = process.seen
        goal = (number, token, parent, after)
        if length != len(world.sink) and self.rules.sink_compares:
            yield "lost the race", world.with_process(index, replace(process, step="readsink", seen=goal))
            return
        done = replace(world, sink=(*world.sink, (int(number), int(token))))
        yield from self._confirmations(done, index, replace(process, seen=goal), "")
        if world.faults_left:
            lost = replace(done, faults_left=0).with_process(index, replace(process, step="readsink", seen=goal))
            yield "the reply is lost", lost

    def _list(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        """Read the head again, and delete what it allows this session to delete."""
        state = self.manifests.values[world.manifest]
        ready = deletable(state, SessionId(process.name), NOW_MS, 0)
        step, seen = ("delete", tuple(one.prefix for one in ready)) if ready else ("end", ())
        yield "", world.with_process(index, replace(process, step=step, seen=seen))

    def _delete(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        prefixes = tuple(str(one) for one in process.seen)
        left = frozenset(key for key in world.files if not key.startswith(prefixes))
        yield "garbage", replace(world, files=left).with_process(index, replace(process, step="decide forget"))

    def _decide(self, world: World, index: int, process: Process, goal: str) -> tuple[str, World]:
        """Read the head and let the coordinator decide. Equal requests get equal decisions."""
        question = (goal, world.manifest, process.name, process.checkpoint, process.token, process.seen)
        if question not in self._decided:
            self._decided[question] = self._ask(world.manifest, process, goal)
        outcome, answer = self._decided[question]
        if outcome == "transition":
            return "", world.with_process(
                index, replace(process, step=f"put {goal}", seen=(*process.seen, world.manifest, answer))
            )
        if outcome == "done":
            return "nothing to do", self._goes_on(world, index, process, goal, answer)
        step = {"again": "look", "declined": "decide abort"}.get(outcome, "end")
        kept = (process.checkpoint, process.token) if outcome == "declined" else (0, 0)
        return outcome, world.with_process(index, Process(process.name, step, (), *kept))

    def _ask(self, manifest: int, process: Process, goal: str) -> tuple[str, Any]:
        state = self.manifests.values[manifest]
        rule = {"adopt": "complete", "abandon": "abort", "conclude": "subsume"}.get(goal, goal)
        try:
            answer = getattr(self.rules, rule)(state, self._request(state, process, goal), NOW_MS)
        except CommitConflict:
            return "again", None
        except SubtaskDeclined:
            return "declined", None
        except (Fenced, Busy, JobNotRunnable) as error:
            return f"refused ({type(error).__name__})", None
        except CheckpointError as error:
            raise Broken(f"{goal} of {process.name} raised {type(error).__name__}: {error}") from error
        if isinstance(answer, AlreadyDone):
            pending = answer.pending if answer.outcome is Outcome.ALREADY_TRIGGERED else None
            return "done", 0 if pending is None else int(pending.checkpoint_id)
        number = self.manifests.index(answer.state, answer.event)
        self._events[(manifest, number)] = answer.event
        return "transition", number

    def _put(self, world: World, index: int, process: Process, goal: str) -> Iterator[tuple[str, World]]:
        """Create the next version only if it is absent. After a lost reply, the entry's write id decides (I1)."""
        proposed = self.manifests.values[int(process.seen[-1])]
        before = self.manifests.values[world.manifest]
        if self.rules.conditional_put and proposed.version != before.version + 1:
            again = replace(process, step=f"decide {goal}", seen=process.seen[:-2])
            yield "lost the race", world.with_process(index, again)
            return
        event = self._events[(int(process.seen[-2]), int(process.seen[-1]))]
        written = check_transition(world, before, event, proposed, self.setting.polite)
        written = replace(written, manifest=int(process.seen[-1]))
        yield "", self._landed(written, index, process, goal)
        if world.faults_left:
            unanswered = replace(process, step=f"unanswered {goal}")
            yield "the reply is lost", replace(written, faults_left=0).with_process(index, unanswered)

    def _landed(self, world: World, index: int, process: Process, goal: str) -> World:
        """Continue after the process's own transition. Others may have followed it already."""
        granted = self.manifests.values[int(process.seen[-1])]
        went_on = replace(process, seen=process.seen[:-2])
        if goal == "trigger":
            return self._goes_on(world, index, went_on, goal, int(granted.next_checkpoint_id) - 1)
        if goal == "rebind":
            token = int(granted.version)
            started = {(process.checkpoint, token, one.subtask) for one in SUBTASKS}
            collecting = Process(process.name, "collect", (), process.checkpoint, token)
            return replace(world, workers=world.workers | started).with_process(index, collecting)
        return self._goes_on(world, index, went_on, goal, 0)

    def _goes_on(self, world: World, index: int, process: Process, goal: str, checkpoint: int) -> World:
        """Return the world in which the process starts the step after a reached goal."""
        after = Process(process.name, "look", ("after",))
        match goal:
            case "trigger":  # 0: the run is covered by a completed checkpoint
                follows = Process(process.name, "decide rebind", (), checkpoint) if checkpoint else after
            case "rebind" | "complete":
                follows = after
            case "confirm" | "conclude":
                follows = after if process.seen[3:4] == (1,) else Process(process.name, "look")
            case "adopt" | "abandon":
                follows = Process(process.name, "look")
            case "subsume":
                follows = Process(process.name, "list")
            case _:
                follows = Process(process.name, "end")
        return world.with_process(index, follows)

    def _request(self, state: ManifestState, process: Process, goal: str) -> object:
        return request_of(self.rules, state, process, goal)


def _trace(came_from: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    labels: list[str] = []
    step = came_from[world]
    while step is not None:
        labels.append(step[1])
        step = came_from[step[0]]
    return tuple(reversed(labels))
