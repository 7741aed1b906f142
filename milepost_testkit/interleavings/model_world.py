"""One state of the explored system as a small value, and I1 to I14 as checks of it.

The checks are written independently of the coordinator, from what was granted, written and published. Only the
coordinator's list of faults of a manifest value is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from milepost.codec.records import encode
from milepost.protocol.log.entry_codec import decode_entry, encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.transaction.events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointRebound,
    CheckpointsSubsumed,
    CheckpointTriggered,
    Event,
    aborts_of,
    confirmation_of,
)
from milepost.protocol.manifest.transaction.transitions import job_status_after
from milepost.protocol.records.checkpoints import CompletedCheckpoint, SubtaskKey
from milepost.protocol.records.layout import metadata_key, token_prefix
from milepost.protocol.records.manifest_state import ENDED_STATUSES, ManifestState

SUBTASKS = (SubtaskKey(0, 0), SubtaskKey(0, 1))


@dataclass(frozen=True, slots=True)
class Process:
    """One session's process: its next step and its memory.

    Attributes:
        step: name of its next store operation. seen: its reads or decisions for that step.
        checkpoint, token: of the epoch that it believes it leads; 0 for none.
    """

    name: str
    step: str
    seen: tuple[int | str, ...] = ()
    checkpoint: int = 0
    token: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """One state of the whole system. Equal worlds have equal futures.

    Attributes:
        manifest: index of the head's value in `Manifests`.
        processes: the leaders and other clients. workers: (checkpoint, token, subtask) that have yet to write. They
            outlive their driver.
        answers: (checkpoint, token, subtask, kind) that reached a driver: "ack", "decline" or "other" (a second attempt
            that differs). files: keys in the store.
        sink: (checkpoint, token) in the order of their commits; with switches, its heads (`model_switch.py`).
        granted: (checkpoint, token) in the order of the grants. ended: (checkpoint, token); token 0: aborted.
        faults_left: crashes, lost replies and failed subtasks that may still happen.
    """

    manifest: int
    processes: tuple[Process, ...]
    workers: frozenset[tuple[int, int, int]] = frozenset()
    answers: frozenset[tuple[int, int, int, str]] = frozenset()
    files: frozenset[str] = frozenset()
    sink: tuple[tuple[int, ...], ...] = ()
    granted: tuple[tuple[int, int], ...] = ()
    ended: frozenset[tuple[int, int]] = frozenset()
    faults_left: int = 1

    def with_process(self, index: int, process: Process) -> World:
        """Return the world with a new value of one process."""
        return replace(self, processes=(*self.processes[:index], process, *self.processes[index + 1 :]))


@dataclass(slots=True)
class Manifests:
    """All manifest values so far, each once. Worlds refer to them by index."""

    values: list[ManifestState] = field(default_factory=list)
    _known: dict[bytes, int] = field(default_factory=dict)

    def index(self, state: ManifestState, event: Event) -> int:
        """Return the index of a value. A new value must survive its codec and have no fault (I2, I6)."""
        key = encode(state)
        if key not in self._known:
            entry = LogEntry(state.version, "w", event, state)
            if decode_entry(encode_entry(entry)) != entry:
                raise Broken("I6: an entry of the log does not survive its codec")
            found = faults(state)
            if found:
                raise Broken(f"I2: {found[0]}")
            self._known[key] = len(self.values)
            self.values.append(state)
        return self._known[key]


class Broken(AssertionError):
    """An invariant does not hold. The message begins with its number."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise Broken(sentence)


def run_key(checkpoint: int, token: int, subtask: int) -> str:
    """Return the key of the single state run that a subtask writes."""
    return f"{token_prefix(checkpoint, token)}state/run-{subtask}"  # type: ignore[arg-type]


def references(checkpoint: CompletedCheckpoint) -> frozenset[str]:
    """Return the keys that a completed checkpoint needs: its own runs, and a reference to subtask 1's first run."""
    number, token = int(checkpoint.checkpoint_id), int(checkpoint.token)
    own = {metadata_key(checkpoint.checkpoint_id, checkpoint.token), *(run_key(number, token, one) for one in (0, 1))}
    carried = checkpoint.summary.get("carried")
    return frozenset(own | ({carried} if isinstance(carried, str) else set()))


def check_transition(world: World, before: ManifestState, event: Event, after: ManifestState, polite: bool) -> World:
    """Check the effect of one landed write, and record it. Raises Broken.

    Args:
        world: before the write. polite: no process takes over while the holder lives (I10).
    """
    require(after.version == before.version + 1, f"I1: version {after.version} landed on {before.version}")
    granted, ended = world.granted, world.ended
    over = {checkpoint for checkpoint, _ in ended}
    for aborted in aborts_of(event):
        number = int(aborted.pending.checkpoint_id)
        require(number not in over, f"I9: checkpoint {number} was over, and is aborted")
        ended |= {(number, 0)}
    if isinstance(event, CheckpointTriggered):
        number, token = int(event.pending.checkpoint_id), int(event.pending.token)
        require(before.status not in ENDED_STATUSES, "I4: an ended incarnation runs an epoch")
        require(all(number > known for known, _ in granted), f"I5: checkpoint id {number} is used again")
        granted = _grant(granted, number, token)
    elif isinstance(event, CheckpointRebound):
        granted = _grant(granted, int(event.checkpoint_id), int(event.token))
    elif isinstance(event, CheckpointCompleted):
        done = event.checkpoint
        number, token = int(done.checkpoint_id), int(done.token)
        require(before.status not in ENDED_STATUSES, "I4: an ended incarnation completes a checkpoint")
        require(number not in over, f"I9: checkpoint {number} was over, and is completed")
        newest = max((held for known, held in granted if known == number), default=0)
        require(token == newest, f"I3: checkpoint {number} completed under token {token}, in force is {newest}")
        kinds = {(subtask, kind) for known, held, subtask, kind in world.answers if (known, held) == (number, token)}
        require({(0, "ack"), (1, "ack")} <= kinds, f"I7: checkpoint {number} completed without every acknowledgement")
        require(not any(kind == "decline" for _, kind in kinds), f"I7: checkpoint {number} completed, though declined")
        require(not any(kind == "other" for _, kind in kinds), f"I12: checkpoint {number} mixes attempts")
        require(done.code_hash == "c0de", f"I13: checkpoint {number} records another code")
        ended |= {(number, token)}
    confirmed = confirmation_of(event)
    if confirmed is not None:
        number = int(confirmed.checkpoint_id)
        require(number in {one[0] for one in world.sink}, f"I11: checkpoint {number} confirmed, and not published")
    if polite and isinstance(event, CheckpointAborted) and event.aborted_by != event.leader.session_id:
        require(not _alive(world, event.leader.session_id), "I10: a checkpoint was taken from a living holder")
    if isinstance(event, CheckpointsSubsumed):
        published = {one[0] for one in world.sink}
        early = [int(one) for one in event.checkpoint_ids if int(one) not in published]
        require(not early, f"I8: checkpoints {early} are subsumed before they are published")
    status = job_status_after(before.status, event)
    require(status is after.status, f"I6: {type(event).__name__} leads to {after.status}, by the table to {status}")
    return replace(world, granted=granted, ended=ended)


def _grant(granted: tuple[tuple[int, int], ...], number: int, token: int) -> tuple[tuple[int, int], ...]:
    require(all(token > held for _, held in granted), f"I3: token {token} does not rise")
    return (*granted, (number, token))


def _alive(world: World, name: str) -> bool:
    return any(one.name == name and one.step not in ("crashed", "end") for one in world.processes)


def check_files(world: World, state: ManifestState) -> None:
    """Check that all files of retained checkpoints exist. Raises Broken."""
    for checkpoint in state.checkpoints:
        missing = references(checkpoint) - world.files
        require(not missing, f"I8: checkpoint {checkpoint.checkpoint_id} needs {sorted(missing)[:1]}, which is deleted")


def check_world(world: World, state: ManifestState) -> None:
    """Check what must hold at every moment. Raises Broken."""
    check_files(world, state)
    completed = {(number, token) for number, token in world.ended if token}
    require(set(world.sink) <= completed, f"I14: {sorted(set(world.sink) - completed)} published, and not completed")
    require(len(set(world.sink)) == len(world.sink), f"I14: a checkpoint is published twice: {world.sink}")
    require(world.sink == tuple(sorted(completed))[: len(world.sink)], f"I14: {world.sink} is no chain of {completed}")
    retained = {int(one.checkpoint_id) for one in state.checkpoints}
    shows = world.sink[-1][0] if world.sink else 0
    require(shows in {0, *retained}, f"I8: the table shows checkpoint {shows}, which is subsumed")
    published = {one[0] for one in world.sink}
    lost = {number for number, _ in completed} - published - retained
    require(not lost, f"I8: completed checkpoints {sorted(lost)} are neither retained nor published")
    head = int(state.timeline().head)
    require(head == max((number for number, _ in completed), default=0), f"I7: head {head} is not the newest completed")


def check_end(world: World, state: ManifestState) -> None:
    """Check the results when no process has a step left. Raises Broken."""
    completed = tuple(sorted((number, token) for number, token in world.ended if token))
    require(
        world.sink == completed, f"I14: published {world.sink}, completed {completed}: rows are missing, or too many"
    )
    epochs = [int(one.epoch) for one in state.checkpoints]
    require(not epochs or epochs[-1] == len(completed), f"I2: epoch {epochs[-1:]} after {len(completed)} completions")
    needed: set[str] = set()
    for checkpoint in state.checkpoints:
        needed |= references(checkpoint)
    listed = tuple(entry.prefix for entry in state.garbage)
    alive = {token_prefix(one.checkpoint_id, one.token) for one in state.checkpoints}
    for key in sorted(world.files - needed):
        below_dead = not any(key.startswith(prefix) for prefix in alive)
        require(key.startswith(listed) or below_dead, f"I8: {key} is neither needed, nor listed, nor of a dead token")
