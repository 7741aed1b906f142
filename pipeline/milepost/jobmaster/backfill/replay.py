"""Reconstruct the input of each epoch of the live ancestry, and compute what a backfill still has to replay.

Each completed epoch has an input record, which is never deleted on the live ancestry. The set of consumed objects shows
which planned versions the epoch really read, since a planned object may have been missing and skipped. Both together
give one range per epoch, in order. The ranges are complete if and only if, for each source, the fork point's set and
the ranges add up to the head's set. Anything else is refused. A version that the head may have forgotten was consumed
by the last epoch whose record names it, because only consumed versions are forgotten. A fork forgets nothing.

Example: the fork point has consumed {a}, and the head {a, b, d}. Record 2 plans b and c, record 3 plans d. The head's
set has no c, so c was skipped. The ranges are {b} and {d}, and {a} + {b} + {d} is the head's set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from milepost.epoch import (
    CheckpointMetadata,
    DimensionInput,
    InputRecord,
    SourceInput,
    SourceSnapshot,
    decode_input_record,
)
from milepost.errors import CommitConflict, InvalidRequest, NotFound, StateCorrupt
from milepost.jobmaster.backfill.consumed_input import (
    NOTHING,
    Consumed,
    ConsumedInput,
    Version,
    version_of,
)
from milepost.jobmaster.backfill.live_keys import LiveKeys
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.landed import LandedRange, LogPosition, joined_ranges
from milepost.protocol.log import CompletedEpoch, completion_of
from milepost.protocol.records import CheckpointId
from milepost.sources import SourceObject
from milepost.storage import read_handle

_NOTHING_SKIPPED = dict.fromkeys(("hidden", "empty", "before_start", "ignored_changes"), 0)


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """The input of one epoch of the live ancestry.

    Attributes:
        checkpoint_id: of that epoch. epoch: its number.
        starts: watermark at the epoch's start, formatted by `watermark_text`; None is minus infinity.
        objects: per source, in plan order, the objects read. baseline: those recorded as consumed without being read.
        landed: per landed source, the records of its log that `objects` are from.
        final: the epoch was the last one of a drained job.
        waited: per source, when a trigger last found new objects, and whether operators waited for the source.
    """

    checkpoint_id: CheckpointId
    epoch: int
    starts: str | None
    objects: Mapping[str, tuple[SourceObject, ...]]
    baseline: Mapping[str, tuple[SourceObject, ...]]
    landed: Mapping[str, LandedRange]
    final: bool
    waited: Mapping[str, SourceInput]

    @property
    def versions(self) -> dict[str, set[Version]]:
        """The versions that the range adds to each source's consumed set."""
        names = {*self.objects, *self.baseline} - set(self.landed)
        return {
            name: {version_of(obj) for obj in (*self.objects.get(name, ()), *self.baseline.get(name, ()))}
            for name in names
        }

    @property
    def is_empty(self) -> bool:
        """Whether it consumed nothing, because its epoch processed rows in flight or fired timers."""
        return not self.landed and not any(self.versions.values())

    @property
    def count(self) -> int:
        """Objects to read."""
        return sum(len(objects) for objects in self.objects.values())

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(obj.size for objects in self.objects.values() for obj in objects)


def lineage_since(context: JobContext, head: CheckpointId, since: CheckpointId) -> tuple[CompletedEpoch, ...]:
    """Return the checkpoints from `since` (exclusive) to `head`, oldest first, as their completions recorded them.

    They are read from the manifest log, which also has subsumed checkpoints. Its tombstones retain the required fields.

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


def recorded_ranges(
    context: JobContext,
    lineage: Sequence[CompletedEpoch],
    starts: str | None,
    base: Consumed,
    head: Consumed,
    *,
    drained: bool = False,
) -> tuple[RecordedRange, ...]:
    """Return the ranges of the lineage, in order.

    Args:
        lineage: oldest first. starts: watermark of the fork point.
        base, head: consumed by the fork point, and by the newest checkpoint. drained: whether event time may end.
    Raises:
        InvalidRequest: the records do not lead from one to the other; a checkpoint between them was restored or
            bootstrapped; or an epoch between them ended the event time.
        StateCorrupt: an input record is missing or unreadable.
    """
    records = []
    read = [(name, item.position) for consumed in (base, head) for name, item in consumed.items()]
    logs = {position.log: name for name, position in read if position is not None}
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
        if record.final and not drained:
            raise InvalidRequest(
                f"job {context.spec.name}: checkpoint {checkpoint.checkpoint_id} ended the event time of a drained "
                "job: a backfill cannot replay past it. Nothing was changed.",
                hint=f"go back to before it (milepost rollback {context.spec.name} --to {checkpoint.parent}), "
                "backfill, and drain the job again",
                checkpoint_id=int(checkpoint.checkpoint_id),
            )
        record = _with_current_names(record, logs)
        records.append(record)
        named = [(source.name, version_of(obj)) for source in record.sources for obj in source.consumed]
        last |= dict.fromkeys(named, checkpoint.checkpoint_id)
    ranges, live = [], LiveKeys(context)
    for checkpoint, record in zip(lineage, records, strict=True):
        ranges.append(_range(checkpoint, record, starts, head, last, live))
        starts = checkpoint.watermark or starts
    _check_complete(context, lineage, ranges, base, head)
    return tuple(ranges)


def _with_current_names(record: InputRecord, logs: Mapping[str, str]) -> InputRecord:
    """Return an input record in which each landed source has its current name (`renamed_from`).

    A source of which the epoch read nothing keeps its former name, which no range has.

    Args:
        logs: id of a log -> name of the source that reads it.
    """
    sources = (
        item if item.landed is None else replace(item, name=logs.get(item.landed.end.log, item.name))
        for item in record.sources
    )
    return replace(record, sources=tuple(sources))


def _range(
    checkpoint: CompletedEpoch,
    record: InputRecord,
    starts: str | None,
    head: Consumed,
    last: Mapping[tuple[str, Version], CheckpointId],
    live: LiveKeys,
) -> RecordedRange:
    landed = {item.name: item.landed for item in record.sources if item.landed is not None}

    def taken(name: str, objects: Sequence[SourceObject]) -> tuple[SourceObject, ...]:
        if name in landed:  # landed objects are never missing, so all of them were read
            keys = live.among(name, landed[name])
            return tuple(obj for obj in objects if keys is None or obj.key in keys)
        consumed = head.get(name, NOTHING)
        return tuple(obj for obj in objects if taker(name, consumed, version_of(obj)) == checkpoint.checkpoint_id)

    def taker(name: str, consumed: ConsumedInput, version: Version) -> int | None:
        forgotten = version not in consumed.by and consumed.may_have_forgotten(version)
        return last[name, version] if forgotten else consumed.by.get(version)

    return RecordedRange(
        checkpoint.checkpoint_id,
        int(checkpoint.epoch),
        starts,
        {item.name: taken(item.name, item.objects) for item in record.sources},
        {item.name: taken(item.name, item.baseline) for item in record.sources},
        landed,
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
        explained = set(base.get(name, NOTHING).by).union(*(item.versions.get(name, ()) for item in ranges))
        consumed = head.get(name, NOTHING)
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
        _check_log_complete(context, name, ranges, base.get(name, NOTHING).position, consumed.position)
    spec = context.spec.streams
    read = {name for item in ranges for name, added in item.versions.items() if added}
    dropped = sorted((read | {name for item in ranges for name in item.landed}) - set(spec))
    if dropped:
        raise InvalidRequest(
            f"job {context.spec.name}: the recorded inputs hold objects of the sources {', '.join(dropped)}, which the "
            "spec no longer has. Nothing was changed.",
            hint="put them back for the backfill, or backfill from a checkpoint after their last epoch",
            sources=dropped,
        )


def _check_log_complete(
    context: JobContext,
    source: str,
    ranges: Sequence[RecordedRange],
    position: LogPosition | None,
    head: LogPosition | None,
) -> None:
    """Check that the ranges of a log are consecutive, from a position to that of the head. Raises StateCorrupt."""
    for item in ranges:
        landed = item.landed.get(source)
        if landed is None:
            continue
        follows = _begins(context, source, landed) if position is None else landed.first == position.next
        if not follows:
            raise _broken_log(context, source, f"checkpoint {item.checkpoint_id} read from record {landed.first} on")
        position = landed.end
    if position != head:
        raise _broken_log(context, source, "they end at another position than the newest checkpoint")


def _begins(context: JobContext, source: str, landed: LandedRange) -> bool:
    """Return whether an epoch from checkpoint 0 may have read a range: from the first record that was retained then."""
    newest = (log := context.source_log(source)).newest()
    return newest is not None and landed.first <= log.first(newest)


def _broken_log(context: JobContext, source: str, problem: str) -> StateCorrupt:
    return StateCorrupt(
        f"job {context.spec.name}: the recorded ranges of the log of source {source} are not consecutive: {problem}. "
        "Nothing was changed.",
        hint="restore the job's storage from its newest copy",
        source=source,
    )


def left_to_replay(ranges: Sequence[RecordedRange], base: Consumed, tip: Consumed) -> tuple[RecordedRange, ...]:
    """Return the ranges that a fork has not replayed. Empty ranges are not replayed on their own.

    Args:
        base, tip: what the fork point, and the fork's newest checkpoint, have consumed.
    Raises:
        CommitConflict: what the fork has consumed is not a prefix of these ranges, because the live timeline was rolled
            back concurrently, or the fork is not a replay of it.
    """
    reached = {name: set(consumed.by) for name, consumed in base.items()}
    positions = {name: consumed.position for name, consumed in base.items() if consumed.position is not None}
    goal = {name: set(consumed.by) for name, consumed in tip.items() if consumed.by}
    ends = {name: consumed.position for name, consumed in tip.items() if consumed.position is not None}
    remaining = [item for item in ranges if not item.is_empty]
    while positions != ends or {name: versions for name, versions in reached.items() if versions} != goal:
        if not remaining:
            raise CommitConflict(
                "the fork has consumed other objects than the recorded ranges of the live timeline name. The live "
                "timeline is unchanged.",
                hint="run the same backfill again: it begins with a new fork",
            )
        replayed = remaining.pop(0)
        positions |= {name: landed.end for name, landed in replayed.landed.items()}
        for name, versions in replayed.versions.items():
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
        landed=joined_ranges([item.landed[name] for item in ranges if name in item.landed]),
        skipped=_NOTHING_SKIPPED,
        pending_objects=len(waiting),
        pending_bytes=sum(obj.size for obj in waiting),
        oldest_new_ms=None,
        active_ms=newest.active_ms if newest is not None else None,
        idle=idle,
        idle_before=waited[0].idle_before if waited else idle,
    )
