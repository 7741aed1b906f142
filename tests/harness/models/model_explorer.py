"""Walks every interleaving of a few processes, each store operation one step, and checks I1 to I14 in every world.

Breadth first, so a counterexample is a shortest one; equal worlds are visited once. The coordinator, the lease, the
check of the acknowledgements and retention are the product's own functions; only store, sink and workers are values.
The clock stands still: leases end because somebody takes over, or because the holder is dead; deletion has no grace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.protocol.exchange.acknowledgements import Acknowledgement, SubtaskAnswer, verify
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.manifest import coordinator
from milepost.protocol.manifest.timelines.incarnation import cancel
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, Transition
from milepost.protocol.manifest.transaction.events import Event
from milepost.protocol.manifest.transaction.lease import Abandon, Adopt, LeaseFacts, sweep_decision
from milepost.protocol.manifest.transaction.requests import (
    AbortRequest,
    CancelRequest,
    CompleteRequest,
    ConfirmSinksRequest,
    CreateRequest,
    GarbageDeletedRequest,
    RebindRequest,
    SubsumeRequest,
    TriggerRequest,
)
from milepost.protocol.manifest.upkeep.after_commit import confirm_sinks, garbage_deleted, subsume
from milepost.protocol.records.checkpoints import ObjectHandle, Run
from milepost.protocol.records.errors import (
    Busy,
    CheckpointError,
    CommitConflict,
    Fenced,
    JobNotRunnable,
    SubtaskDeclined,
)
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId
from milepost.protocol.records.layout import metadata_key
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import RetentionPolicy, deletable, subsumable, unreferenced
from tests.harness.jobs.job_log import KEY_HASH_SECRET, PLAN, TIMEOUT_MS, holder
from tests.harness.models.model_world import (
    SUBTASKS,
    Broken,
    Manifests,
    Process,
    World,
    check_end,
    check_transition,
    check_world,
    references,
    run_key,
)

NOW_MS = 1_000_000
KEEP_ONE = RetentionPolicy(1)
_MAX_STATES = 2_000_000
Decide = Callable[[ManifestState, Any, int], Answer]


@dataclass(frozen=True)
class Rules:
    """The rules that the walk obeys: the product's, unless a test breaks one on purpose."""

    trigger: Decide = coordinator.trigger
    rebind: Decide = coordinator.rebind
    complete: Decide = coordinator.complete
    abort: Decide = coordinator.abort
    confirm: Decide = confirm_sinks
    subsume: Decide = subsume
    forget: Decide = garbage_deleted
    cancel: Decide = cancel
    verify: Callable[..., object] = verify
    sweep: Callable[..., Any] = sweep_decision
    subsumable: Callable[..., tuple[CheckpointId, ...]] = subsumable
    unreferenced: Callable[..., tuple[str, ...]] = unreferenced
    conditional_put: bool = True
    wait_for_answers: bool = True
    sink_compares: bool = True
    publish_before_complete: bool = False
    publish_before_subsume: bool = True
    publish_before_confirm: bool = True


@dataclass(frozen=True)
class Setting:
    """Who takes part: names of the leaders, whether a person cancels, whether newcomers respect a living holder.

    With `in_turn`, a process begins once the last but one before it has ended: no more than two run at a time.
    """

    leaders: tuple[str, ...] = ("airflow:a", "airflow:b")
    canceler: bool = False
    polite: bool = False
    faults: int = 1
    in_turn: bool = False


@dataclass
class Explored:
    """What a walk saw. `trace`: of a shortest counterexample, its last line the invariant; empty when all holds."""

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
        """Walk until nothing is left, or to the first world that breaks an invariant."""
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
        """Let one more process publish what is left, alone; then every row must be there once (`check_end`)."""
        process = Process("cli:next", "look", ("after",))
        lone = replace(world, processes=(process,), workers=frozenset(), faults_left=0)
        by_the_rules = self.by_the_rules()
        while lone.processes[0].step != "end":
            lone = next(by_the_rules.steps(lone))[1]
        self.check(lone)
        self.check_last(lone)

    def by_the_rules(self) -> Explorer:
        """An explorer of the same worlds that breaks no rule."""
        return Explorer(self.setting, Rules(), self.manifests, _events=self._events)

    def check(self, world: World) -> None:
        """Check what must hold at every moment. Raises Broken."""
        check_world(world, self.manifests.values[world.manifest])

    def check_last(self, world: World) -> None:
        """Check the results when nobody has anything left to do. Raises Broken."""
        check_end(world, self.manifests.values[world.manifest])

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield every next world: each process may go on or fail, each worker may write."""
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
        """Read the head: publish what waits for the sink, then sweep, then trigger; after the epoch: subsume."""
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
        """Read whether the pending checkpoint is finished, and decide by the lease what to do about it."""
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
        """Once every subtask has answered: check all copies of all answers, late ones of older tokens included."""
        mine = {one[2] for one in world.answers if one[:2] == (process.checkpoint, process.token)}
        if self.rules.wait_for_answers and len(mine) < len(SUBTASKS):
            return
        answers = [_answer(one) for one in sorted(world.answers) if one[0] == process.checkpoint]
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
        """What is published is confirmed: alone, or after the epoch of this process with the subsumption."""
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
        """Read the head again, and delete what it lets this session delete."""
        state = self.manifests.values[world.manifest]
        ready = deletable(state, SessionId(process.name), NOW_MS, 0)
        step, seen = ("delete", tuple(one.prefix for one in ready)) if ready else ("end", ())
        yield "", world.with_process(index, replace(process, step=step, seen=seen))

    def _delete(self, world: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        prefixes = tuple(str(one) for one in process.seen)
        left = frozenset(key for key in world.files if not key.startswith(prefixes))
        yield "garbage", replace(world, files=left).with_process(index, replace(process, step="decide forget"))

    def _decide(self, world: World, index: int, process: Process, goal: str) -> tuple[str, World]:
        """Read the head and let the coordinator decide; the same question has the same answer."""
        question = (goal, world.manifest, process.name, process.checkpoint, process.token, process.seen)
        if question not in self._decided:
            self._decided[question] = self._ask(self.manifests.values[world.manifest], process, goal)
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

    def _ask(self, state: ManifestState, process: Process, goal: str) -> tuple[str, Any]:
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
        self._events[(self.manifests.index(state, answer.event), number)] = answer.event
        return "transition", number

    def _put(self, world: World, index: int, process: Process, goal: str) -> Iterator[tuple[str, World]]:
        """Create the next version only if it is absent; after a lost reply the entry's write id tells (I1)."""
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
        """Go on after the own transition, which may be followed by others already."""
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
        """Return the world in which the process turns to what follows a goal that is reached."""
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
        session, checkpoint = SessionId(process.name), CheckpointId(process.checkpoint)
        match goal:
            case "trigger":
                base = state.timeline().head
                return TriggerRequest(session, holder(session), Run(), base, PLAN, SUBTASKS, TIMEOUT_MS, "c0de", "5bec")
            case "rebind":
                return RebindRequest(session, holder(session), checkpoint, TIMEOUT_MS)
            case "complete":
                return _complete_request(state, session, process.checkpoint, process.token, swept=False)
            case "adopt":
                return _complete_request(state, session, int(process.seen[0]), int(process.seen[1]), swept=True)
            case "abandon":
                number, token = CheckpointId(int(process.seen[0])), FencingToken(int(process.seen[1]))
                taken = CheckpointFailureReason.LEADER_TAKEN_OVER
                return AbortRequest(session, number, taken, "swept", 5, token=token, swept=True)
            case "abort":
                token = FencingToken(process.token)
                reason = CheckpointFailureReason.CHECKPOINT_DECLINED
                return AbortRequest(session, checkpoint, reason, "it declined", 5, token=token)
            case "confirm":
                return ConfirmSinksRequest(session, CheckpointId(int(process.seen[0])), ("lake",))
            case "subsume":
                return self._subsume_request(state, session)
            case "conclude":
                confirms = ConfirmSinksRequest(session, CheckpointId(int(process.seen[0])), ("lake",))
                confirmed = self.rules.confirm(state, confirms, NOW_MS)
                known = confirmed.state if isinstance(confirmed, Transition) else state
                return replace(self._subsume_request(known, session), confirms=confirms)
            case "forget":
                return GarbageDeletedRequest(session, tuple(str(one) for one in process.seen), 0)
            case _:
                return CancelRequest(session, "a person says so")

    def _subsume_request(self, state: ManifestState, session: SessionId) -> SubsumeRequest:
        dropped = self.rules.subsumable(state, KEEP_ONE)
        kept = [references(one) for one in state.checkpoints if one.checkpoint_id not in dropped]
        gone = [references(one) for one in state.checkpoints if one.checkpoint_id in dropped]
        return SubsumeRequest(session, KEEP_ONE, dropped, self.rules.unreferenced(kept, gone))


def _complete_request(
    state: ManifestState, session: SessionId, number: int, token: int, *, swept: bool
) -> CompleteRequest:
    """What the driver says of a finished epoch; subtask 1's first run is carried by reference for ever."""
    pending = state.timeline().pending
    base = None if pending is None else state.checkpoint(pending.base)
    carried = None if base is None else base.summary["carried"] or run_key(int(base.checkpoint_id), int(base.token), 1)
    checkpoint, held = CheckpointId(number), FencingToken(token)
    metadata = ObjectHandle(metadata_key(checkpoint, held), 300, "b" * 64)
    summary: dict[str, object] = {"carried": carried}
    return CompleteRequest(session, checkpoint, held, metadata, SUBTASKS, True, ("lake",), summary, swept)


def _answer(one: tuple[int, int, int, str]) -> SubtaskAnswer:
    number, token, subtask, kind = one
    checkpoint, held = CheckpointId(number), FencingToken(token)
    if kind == "decline":
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED
        return Decline(checkpoint, held, 0, subtask, reason, "it cannot")
    return Acknowledgement(checkpoint, held, 0, subtask, kind, ())


def _trace(came_from: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    labels: list[str] = []
    step = came_from[world]
    while step is not None:
        labels.append(step[1])
        step = came_from[step[0]]
    return tuple(reversed(labels))
