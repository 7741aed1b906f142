"""What checkpoints have consumed of each source, and whether two of them have consumed the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from milepost.epoch import CheckpointMetadata
from milepost.errors import CommitConflict
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.landed import LogPosition
from milepost.protocol.records import CheckpointId, QuarantinedObject
from milepost.sources import SourceObject
from milepost.sources.planning import ObjectVersion, load

Version = tuple[str, str, int, int]
"""Key, etag and size of an object, which identify it, and its modification time, by which it is forgotten."""


@dataclass(frozen=True, slots=True)
class ConsumedInput:
    """What has been consumed of a source: versions of objects, or a log up to a position.

    Attributes:
        by: the checkpoint that consumed each version. horizon_ms, position: as in `SourceSnapshot`.
        left_out: versions that count as not consumed, because they are quarantined.
    """

    by: Mapping[Version, int] = field(default_factory=dict)
    horizon_ms: int | None = None
    position: LogPosition | None = None
    left_out: frozenset[ObjectVersion] = frozenset()

    def lacks(self, version: Version) -> bool:
        """Return whether the version was not consumed, and is not one that may have been forgotten."""
        return version not in self.by and not self.may_have_forgotten(version)

    def may_have_forgotten(self, version: Version) -> bool:
        """Return whether a version is old enough to have been forgotten, so that its absence proves nothing."""
        return self.horizon_ms is not None and version[-1] < self.horizon_ms and version[:3] not in self.left_out


Consumed = Mapping[str, ConsumedInput]
"""By source."""

NOTHING = ConsumedInput()


def version_of(obj: SourceObject) -> Version:
    return obj.key, obj.etag, obj.size, obj.last_modified_ms


def consumed_by(context: JobContext, metadata: CheckpointMetadata | None) -> Consumed:
    """Return all input that a checkpoint has consumed; none for the empty state. Raises StateCorrupt."""
    consumed = {}
    for name, source in metadata.sources.items() if metadata is not None else ():
        columns = load(context.store, source.consumed).table.to_pydict()
        versions = zip(*(columns[part] for part in ("key", "etag", "size", "last_modified_ms")), strict=True)
        by = dict(zip(versions, columns["checkpoint_id"], strict=True))
        consumed[name] = ConsumedInput(by, source.horizon_ms, source.position)
    return consumed


def without_quarantined(
    consumed: Consumed, quarantined: Iterable[QuarantinedObject], base: Consumed, planned: CheckpointId
) -> Consumed:
    """Return consumed input without the quarantined versions, which a replay leaves out.

    Args:
        base: consumed by the fork point. What it has read stays in its state, quarantined or not.
        planned: the live head at the time of the plan. What was read after it had been released by then.
    """
    left_out: defaultdict[str, set[ObjectVersion]] = defaultdict(set)
    for one in quarantined:
        left_out[one.source].add(one.version)
    return {name: _without(item, left_out[name], base.get(name, NOTHING), planned) for name, item in consumed.items()}


def _without(
    consumed: ConsumedInput, quarantined: Set[ObjectVersion], base: ConsumedInput, planned: CheckpointId
) -> ConsumedInput:
    later = {version[:3] for version, checkpoint in consumed.by.items() if checkpoint > planned}
    left_out = frozenset(quarantined - {version[:3] for version in base.by} - later)
    by = {version: checkpoint for version, checkpoint in consumed.by.items() if version[:3] not in left_out}
    return replace(consumed, by=by, left_out=left_out)


def check_equal(main: Consumed, fork: Consumed) -> None:
    """Raise CommitConflict unless both heads have consumed the same input, except for what the live one forgot."""
    for name in sorted({*main, *fork}):
        live, replayed = main.get(name, NOTHING), fork.get(name, NOTHING)
        differ = (live.by.keys() - replayed.by.keys()) | set(filter(live.lacks, replayed.by))
        if differ:
            keys = ", ".join(sorted(key for key, *_ in differ)[:5])
            raise CommitConflict(
                f"source {name}: the live timeline and the fork have not consumed the same: {len(differ)} object "
                f"versions differ ({keys}).",
                source=name,
            )
        if live.position != replayed.position:
            reached = [0 if position is None else position.next - 1 for position in (live.position, replayed.position)]
            raise CommitConflict(
                f"source {name}: the live timeline and the fork have not consumed the same: they have read its log up "
                f"to the records {reached[0]} and {reached[1]}.",
                source=name,
            )
