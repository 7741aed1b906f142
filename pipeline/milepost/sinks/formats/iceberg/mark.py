"""Find the job's newest move among the snapshots of an Iceberg table.

A move's snapshot carries the mark in its summary, and counts while it is in the history of `main`. The same commit
moves the tag ``milepost`` to it, because another writer may expire snapshots, and no writer expires a tagged one.

    main:      s1 (mark 4)  s2 (mark 7)  s3 (Spark append)       tag milepost -> s2
    find_mark: s2, later snapshots s3

Each retained checkpoint also has a tag ``milepost-<id>``, on the newest snapshot that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from milepost.tables.records import TableOwner

JOB, IDENTITY, SINK = "milepost.job", "milepost.identity", "milepost.sink"
NUMBER, WRITE_ID = "milepost.number", "milepost.write-id"
TAG = "milepost"

_CHECKPOINT_TAG = re.compile(rf"{TAG}-([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class MarkedSnapshot:
    """The snapshot of the job's newest move.

    Attributes:
        snapshot: the snapshot of the move.
        later: foreign snapshots after it in the history of `main`, oldest first.
        is_complete: whether `later` is complete. False if a snapshot between was expired.
    """

    snapshot: Snapshot
    later: tuple[Snapshot, ...]
    is_complete: bool

    @property
    def number(self) -> int:
        return int(_summary(self.snapshot)[NUMBER])

    @property
    def write_id(self) -> str:
        return _summary(self.snapshot)[WRITE_ID]


def owner_of(properties: Mapping[str, str]) -> TableOwner | None:
    """Return the owner that the table's properties name; None if the table is unowned."""
    job, identity, sink = (properties.get(name) for name in (JOB, IDENTITY, SINK))
    if job is None or identity is None or sink is None:
        return None
    return TableOwner(job, identity, sink)


def owner_properties(owner: TableOwner) -> dict[str, str]:
    """Return the table properties that name the owner."""
    return {JOB: owner.job, IDENTITY: owner.identity, SINK: owner.sink}


def history(metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield the snapshots of `main`, newest first, up to the first expired one."""
    yield from ancestors_of(metadata.current_snapshot(), metadata)


def find_mark(metadata: TableMetadata) -> MarkedSnapshot | None:
    """Return the job's newest move; None if the history of `main` has none, or only expired ones."""
    later: list[Snapshot] = []
    for snapshot in history(metadata):
        if is_ours(snapshot):
            return MarkedSnapshot(snapshot, tuple(reversed(later)), is_complete=True)
        later.append(snapshot)
    tag = metadata.refs.get(TAG)
    tagged = metadata.snapshot_by_id(tag.snapshot_id) if tag is not None else None
    # The history ends at an expired snapshot. The tagged move was in it only if the move is older than its oldest one.
    if tagged is None or not is_ours(tagged) or not later or _order(later[-1]) <= _order(tagged):
        return None
    return MarkedSnapshot(tagged, tuple(reversed(later)), is_complete=False)


def _order(snapshot: Snapshot) -> tuple[int, int]:
    """Return a sort key that increases from each snapshot to the next.

    A parent id cannot replace it: some writers clear the parent id of the oldest snapshot when they expire its parent,
    others keep it.
    """
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def is_ours(snapshot: Snapshot) -> bool:
    """Return whether the snapshot is a move of a Milepost job."""
    summary = _summary(snapshot)
    return WRITE_ID in summary and summary.get(NUMBER, "").isdecimal()


def tag_of(checkpoint_id: int) -> str:
    """Return the tag by which engines read the table as of the checkpoint."""
    return f"{TAG}-{checkpoint_id}"


def outdated_tags(tags: Iterable[str], retained: frozenset[int]) -> list[str]:
    """Return the checkpoint tags of checkpoints that are no longer retained."""
    matches = ((tag, _CHECKPOINT_TAG.fullmatch(tag)) for tag in tags)
    return sorted(tag for tag, match in matches if match is not None and int(match[1]) not in retained)


def unneeded_snapshots(metadata: TableMetadata, before_ms: int, at_most: int) -> list[Snapshot]:
    """Return the job's snapshots to expire: without a branch or tag, and too old or too many.

    Args:
        before_ms: UTC; older snapshots are returned.
        at_most: number of newer snapshots to retain.
    """
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    free = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in referenced and is_ours(snapshot)]
    free.sort(key=_order)
    old = sum(snapshot.timestamp_ms < before_ms for snapshot in free)
    return free[: max(old, len(free) - at_most)]


def operation(snapshot: Snapshot) -> str:
    """Return the operation that the snapshot's summary states, as Iceberg names it."""
    return snapshot.summary.operation.value if snapshot.summary is not None else "overwrite"


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}
