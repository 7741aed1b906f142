"""Reconstruct the input of each epoch of the live ancestry, and compute what a backfill still has to replay.

Each completed epoch has an input record, which is never deleted on the live ancestry. The set of consumed objects tells
which planned versions the epoch really read, since a planned object may have been missing and skipped. Both together
give one range per epoch, in order. The ranges are complete if and only if, for each source, the fork point's set and
the ranges add up to the head's set. Anything else is refused. A version that the head may have forgotten was consumed
by the last epoch whose record names it, because only consumed versions are forgotten. A fork forgets nothing.

Example: the fork point has consumed {a}, and the head {a, b, d}. Record 2 plans b and c, record 3 plans d. The head's
set has no c, so c was skipped. The ranges are {b} and {d}, and {a} + {b} + {d} is the head's set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from milepost.epoch import (
    CheckpointMetadata,
    DimensionInput,
    InputRecord,
    SourceInput,
    SourceSnapshot,
    decode_input_record,
    watermark_of,
    watermark_text,
)
from milepost.errors import CommitConflict, InvalidRequest, NotFound, SourceChanged
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.log import CompletedEpoch, completion_of
from milepost.protocol.records import CheckpointId, ManifestState, TimelineId
from milepost.sources import SourceObject
from milepost.sources.planning import format_object_list, list_objects, load
from milepost.storage import open_store, read_handle

Version = tuple[str, str, int, int]
"""Key, etag and size of an object, which identify it, and its modification time, by which it is forgotten."""


@dataclass(frozen=True, slots=True)
class ConsumedVersions:
    """What a source has consumed.

    Attributes:
        by: the checkpoint that consumed each version. horizon_ms: as in `SourceSnapshot`.
    """

    by: Mapping[Version, int] = field(default_factory=dict)
    horizon_ms: int | None = None

    def lacks(self, version: Version) -> bool:
        """Return whether the version was not consumed, and is not one that may have been forgotten."""
        return version not in self.by and not self.may_have_forgotten(version)

    def may_have_forgotten(self, version: Version) -> bool:
        """Return whether a version is old enough to have been forgotten, so that its absence proves nothing."""
        return self.horizon_ms is not None and version[-1] < self.horizon_ms


Consumed = Mapping[str, ConsumedVersions]
"""By source."""

_NOTHING = ConsumedVersions()

_NOTHING_SKIPPED = {"hidden": 0, "empty": 0, "before_start": 0, "ignored_changes": 0}
_NAMED = 20


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """The input of one epoch of the live ancestry.

    Attributes:
        checkpoint_id: of that epoch. epoch: its number.
        starts: watermark at the epoch's start, formatted by `watermark_text`; None is minus infinity.
        objects: per source, in plan order, the objects read. baseline: those recorded as consumed without being read.
        final: the epoch was the last one of a drained job.
        waited: per source, when a trigger last found new objects, and whether operators waited for the source.
    """

    checkpoint_id: CheckpointId
    epoch: int
    starts: str | None
    objects: Mapping[str, tuple[SourceObject, ...]]
    baseline: Mapping[str, tuple[SourceObject, ...]]
    final: bool
    waited: Mapping[str, SourceInput]

    @property
    def versions(self) -> dict[str, set[Version]]:
        """The versions that the range adds to each source's consumed set."""
        names = {*self.objects, *self.baseline}
        return {
            name: {version_of(obj) for obj in (*self.objects.get(name, ()), *self.baseline.get(name, ()))}
            for name in names
        }

    @property
    def is_empty(self) -> bool:
        """Whether it consumed nothing, because its epoch processed rows in flight or fired timers."""
        return not any(self.versions.values())

    @property
    def count(self) -> int:
        """Objects to read."""
        return sum(len(objects) for objects in self.objects.values())

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(obj.size for objects in self.objects.values() for obj in objects)


def version_of(obj: SourceObject) -> Version:
    return obj.key, obj.etag, obj.size, obj.last_modified_ms


def lineage_since(context: JobContext, head: CheckpointId, since: CheckpointId) -> tuple[CompletedEpoch, ...]:
    """Return the checkpoints from `since` (exclusive) to `head`, oldest first, as their completions recorded them.

    They are read from the manifest log, which also has subsumed checkpoints. Its tombstones keep what is needed here.

    Raises:
        NotFound: `since` is not an ancestor of `head`.
    """
    epochs: list[CompletedEpoch] = []
    next_id = head
    for entry in context.log.entries() if head != since else ():
        epoch = completion_of(entry)
        if epoch is not None and epoch.checkpoint_id == next_id:
            epochs.append(epoch)
            next_id = epoch.parent
            if next_id <= since:
                break
    if next_id != since:
        raise NotFound(
            f"job {context.spec.name}: checkpoint {since} is not on the lineage that leads to checkpoint {head}. "
            "Nothing was changed.",
            hint=f"milepost list {context.spec.name} shows the timeline of each checkpoint",
            checkpoint_id=int(since),
        )
    return tuple(reversed(epochs))


def consumed_by(context: JobContext, metadata: CheckpointMetadata | None) -> Consumed:
    """Return all versions that a checkpoint has consumed; none for the empty state. Raises StateCorrupt."""
    consumed = {}
    for name, source in metadata.sources.items() if metadata is not None else ():
        columns = load(context.store, source.consumed).table.to_pydict()
        versions = zip(*(columns[part] for part in ("key", "etag", "size", "last_modified_ms")), strict=True)
        by = dict(zip(versions, columns["checkpoint_id"], strict=True))
        consumed[name] = ConsumedVersions(by, source.horizon_ms)
    return consumed


def recorded_ranges(
    context: JobContext, lineage: Sequence[CompletedEpoch], starts: str | None, base: Consumed, head: Consumed
) -> tuple[RecordedRange, ...]:
    """Return the ranges of the lineage, in order.

    Args:
        lineage: oldest first. starts: watermark of the fork point.
        base, head: what the fork point, and the newest checkpoint of the lineage, have consumed.
    Raises:
        InvalidRequest: the records do not lead from one to the other; a checkpoint between them was restored or
            bootstrapped; or an epoch between them ended the event time.
        StateCorrupt: an input record is missing or unreadable.
    """
    records = []
    last: dict[tuple[str, Version], CheckpointId] = {}
    for checkpoint in lineage:
        if checkpoint.imported:
            raise InvalidRequest(
                f"job {context.spec.name}: checkpoint {checkpoint.checkpoint_id} was restored from a savepoint or "
                "bootstrapped from tables, or made by migrate-table: no recorded input leads to it. Nothing was "
                "changed.",
                hint=f"backfill from it, or from a checkpoint after it: --from-checkpoint {checkpoint.checkpoint_id}",
                checkpoint_id=int(checkpoint.checkpoint_id),
            )
        record = decode_input_record(read_handle(context.store, checkpoint.plan))
        if record.final:
            raise InvalidRequest(
                f"job {context.spec.name}: checkpoint {checkpoint.checkpoint_id} ended the event time of a drained "
                "job: a backfill cannot replay past it. Nothing was changed.",
                hint=f"go back to before it (milepost rollback {context.spec.name} --to {checkpoint.parent}), "
                "backfill, and drain the job again",
                checkpoint_id=int(checkpoint.checkpoint_id),
            )
        records.append(record)
        named = [(source.name, version_of(obj)) for source in record.sources for obj in source.consumed]
        last |= dict.fromkeys(named, checkpoint.checkpoint_id)
    ranges = []
    for checkpoint, record in zip(lineage, records, strict=True):
        ranges.append(_range(checkpoint, record, starts, head, last))
        starts = checkpoint.watermark or starts
    _check_complete(context, lineage, ranges, base, head)
    return tuple(ranges)


def _range(
    checkpoint: CompletedEpoch,
    record: InputRecord,
    starts: str | None,
    head: Consumed,
    last: Mapping[tuple[str, Version], CheckpointId],
) -> RecordedRange:
    def taken(name: str, objects: Sequence[SourceObject]) -> tuple[SourceObject, ...]:
        consumed = head.get(name, _NOTHING)
        return tuple(obj for obj in objects if taker(name, consumed, version_of(obj)) == checkpoint.checkpoint_id)

    def taker(name: str, consumed: ConsumedVersions, version: Version) -> int | None:
        forgotten = version not in consumed.by and consumed.may_have_forgotten(version)
        return last[name, version] if forgotten else consumed.by.get(version)

    return RecordedRange(
        checkpoint.checkpoint_id,
        int(checkpoint.epoch),
        starts,
        {item.name: taken(item.name, item.objects) for item in record.sources},
        {item.name: taken(item.name, item.baseline) for item in record.sources},
        record.final,
        {item.name: replace(item, objects=(), baseline=()) for item in record.sources},
    )


def _check_complete(
    context: JobContext,
    lineage: Sequence[CompletedEpoch],
    ranges: Sequence[RecordedRange],
    base: Consumed,
    head: Consumed,
) -> None:
    for name in sorted({*base, *head}):
        explained = set(base.get(name, _NOTHING).by).union(*(item.versions.get(name, ()) for item in ranges))
        consumed = head.get(name, _NOTHING)
        unexplained = (consumed.by.keys() - explained) | set(filter(consumed.lacks, explained))
        if unexplained:
            made = sorted({consumed.by[version] for version in unexplained if version in consumed.by})
            raise InvalidRequest(
                f"job {context.spec.name}: the recorded inputs do not lead to checkpoint "
                f"{lineage[-1].checkpoint_id if lineage else 0}: source {name} has {len(unexplained)} consumed objects "
                f"that no input record since the fork point names (checkpoints {made or 'unknown'}). Nothing was "
                "changed.",
                hint="backfill from a checkpoint after them: --from-checkpoint ID",
                source=name,
            )
    spec = context.spec.streams
    dropped = sorted({name for item in ranges for name, added in item.versions.items() if added and name not in spec})
    if dropped:
        raise InvalidRequest(
            f"job {context.spec.name}: the recorded inputs hold objects of the sources {', '.join(dropped)}, which the "
            "spec no longer has. Nothing was changed.",
            hint="put them back for the backfill, or backfill from a checkpoint after their last epoch",
            sources=dropped,
        )


class LiveRanges:
    """The ranges that the live timeline has consumed since a checkpoint, extended as it advances.

    Args:
        point: the checkpoint, 0 for the empty state. base: its metadata.
    """

    def __init__(
        self, context: JobContext, live: TimelineId, point: CheckpointId, base: CheckpointMetadata | None
    ) -> None:
        self.live = live
        self.base_consumed = consumed_by(context, base)
        self._context = context
        self._head, self._consumed = point, self.base_consumed
        self._ends = watermark_text(watermark_of(base)) if base is not None else None
        self._ranges: tuple[RecordedRange, ...] = ()

    def up_to_head(self, state: ManifestState) -> tuple[RecordedRange, ...]:
        """Return the ranges up to the live head of `state`, in order, empty ones included.

        Raises:
            CommitConflict: the live timeline was replaced meanwhile. Also as `recorded_ranges`.
        """
        if state.live != self.live:
            raise CommitConflict(
                f"job {state.job}: the live timeline is {state.live} by now, not {self.live}: somebody rolled back, or "
                "fast-forwarded another fork. It is as they left it.",
                hint="look at the plan again, then run the backfill again",
                live=state.live,
                planned=self.live,
            )
        head = state.timeline().head
        if head != self._head:
            passed = lineage_since(self._context, head, self._head)
            consumed = consumed_by(self._context, self._context.base_metadata(state, head))
            ranges = recorded_ranges(self._context, passed, self._ends, self._consumed, consumed)
            self._ranges, self._head, self._consumed = (*self._ranges, *ranges), head, consumed
            self._ends = passed[-1].watermark or self._ends
        return self._ranges


def left_to_replay(ranges: Sequence[RecordedRange], base: Consumed, tip: Consumed) -> tuple[RecordedRange, ...]:
    """Return the ranges that a fork has not replayed. Empty ranges are not replayed on their own.

    Args:
        base, tip: what the fork point, and the fork's newest checkpoint, have consumed.
    Raises:
        CommitConflict: what the fork has consumed is not a prefix of these ranges, because the live timeline was rolled
            back meanwhile, or the fork is no replay of it.
    """
    reached = {name: set(consumed.by) for name, consumed in base.items()}
    goal = {name: set(consumed.by) for name, consumed in tip.items() if consumed.by}
    remaining = [item for item in ranges if not item.is_empty]
    while {name: versions for name, versions in reached.items() if versions} != goal:
        if not remaining:
            raise CommitConflict(
                "the fork has consumed other objects than the recorded ranges of the live timeline name. The live "
                "timeline is as it was.",
                hint="run the same backfill again: it begins with a new fork",
            )
        for name, versions in remaining.pop(0).versions.items():
            reached.setdefault(name, set()).update(versions)
    return tuple(remaining)


def replay_record(
    ranges: Sequence[RecordedRange],
    later: Sequence[RecordedRange],
    sources: Iterable[str],
    held_back: str | None,
    dimensions: Mapping[str, DimensionInput],
    tip: CheckpointMetadata | None,
) -> InputRecord:
    """Return the input record of a fork epoch that replays these ranges, in order.

    Args:
        ranges: in order; if empty, the epoch only processes rows in flight. later: the ranges after them.
        sources: of the record: those that the fork, or a range, has read. held_back: why `ranges` is empty.
        dimensions: what its rows are looked up in. tip: checkpoint that the epoch continues; None: the empty state.
    """
    before = {} if tip is None else tip.sources
    replayed = tuple(_replayed(name, ranges, later, before.get(name)) for name in sorted(sources))
    return InputRecord(replayed, held_back=held_back, dimensions=dimensions)


def _replayed(
    name: str, ranges: Sequence[RecordedRange], later: Sequence[RecordedRange], before: SourceSnapshot | None
) -> SourceInput:
    waiting = [obj for item in later for obj in item.objects.get(name, ())]
    waited = [item.waited[name] for item in ranges if name in item.waited]
    newest = waited[-1] if waited else before
    idle = newest is not None and newest.idle
    return SourceInput(
        name=name,
        objects=tuple(obj for item in ranges for obj in item.objects.get(name, ())),
        baseline=tuple(obj for item in ranges for obj in item.baseline.get(name, ())),
        skipped=_NOTHING_SKIPPED,
        pending_objects=len(waiting),
        pending_bytes=sum(obj.size for obj in waiting),
        oldest_new_ms=None,
        active_ms=newest.active_ms if newest is not None else None,
        idle=idle,
        idle_before=waited[0].idle_before if waited else idle,
    )


def _before(faults: Iterable[Mapping[str, object]]) -> int:
    """Return the checkpoint before the first fault that read an object that cannot be read again."""
    return min(int(str(fault["checkpoint_id"])) for fault in faults) - 1


def check_objects(context: JobContext, ranges: Sequence[RecordedRange]) -> None:
    """Check that every object of a replay still exists in its recorded version.

    Raises:
        SourceChanged: with every missing or changed object in `details`.
    """
    faults: list[dict[str, object]] = []
    for name in sorted({name for item in ranges for name, objects in item.objects.items() if objects}):
        store, pattern = context.source(name)
        now = {obj.key: obj for obj in list_objects(open_store(store), pattern).objects}
        for item in ranges:
            for obj in item.objects.get(name, ()):
                stored = now.get(obj.key)
                if stored is None or (stored.etag, stored.size) != (obj.etag, obj.size):
                    state = "gone" if stored is None else f"now {stored.etag} ({stored.size} bytes)"
                    faults.append({"source": name, "key": obj.key, "checkpoint_id": int(item.checkpoint_id)})
                    faults[-1] |= {"recorded": f"{obj.etag} ({obj.size} bytes)", "found": state}
    if faults:
        lines = [
            f"{fault['source']}: {fault['key']}: consumed by checkpoint {fault['checkpoint_id']} as {fault['recorded']}"
            f", {fault['found']}"
            for fault in faults[:_NAMED]
        ]
        raise SourceChanged(
            f"job {context.spec.name}: {len(faults)} object(s) of the recorded ranges cannot be read again."
            f"{format_object_list(lines, len(faults))}\nNothing was changed; the live timeline goes on.",
            hint="put the recorded versions back; or go back to before they were read, and the next epochs read what "
            f"is there now: milepost rollback {context.spec.name} --to {_before(faults)} --dry-run",
            objects=faults,
        )
