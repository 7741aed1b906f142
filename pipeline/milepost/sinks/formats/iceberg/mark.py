"""The mark of a table in Iceberg: which of its snapshots was our newest move, as its metadata shows it.

A snapshot says it in its summary, and counts as long as it is in the history of `main`. A tag moves along with it in
the same commit, because others may expire snapshots: none expires one that has a tag. Each retained checkpoint has a
tag of its own beside it, ``milepost-<id>``, at the newest snapshot that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from milepost.sinks.records.reservation import TableOwner

JOB, IDENTITY, SINK = "milepost.job", "milepost.identity", "milepost.sink"
NUMBER, WRITE_ID = "milepost.number", "milepost.write-id"
TAG = "milepost"

_OF_CHECKPOINT = re.compile(rf"{TAG}-([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class FoundMark:
    """Our newest move.

    Attributes:
        snapshot: that made it. since: later ones in the history of `main`, oldest first.
        is_unbroken: no snapshot between them was expired, so `since` is all that came after it.
    """

    snapshot: Snapshot
    since: tuple[Snapshot, ...]
    is_unbroken: bool

    @property
    def number(self) -> int:
        return int(_summary(self.snapshot)[NUMBER])

    @property
    def write_id(self) -> str:
        return _summary(self.snapshot)[WRITE_ID]


def owner_of(properties: Mapping[str, str]) -> TableOwner | None:
    """Return whose a table says that it is; None: nobody's."""
    job, identity, sink = (properties.get(name) for name in (JOB, IDENTITY, SINK))
    if job is None or identity is None or sink is None:
        return None
    return TableOwner(job, identity, sink)


def owner_properties(owner: TableOwner) -> dict[str, str]:
    """Return what a table says of its owner."""
    return {JOB: owner.job, IDENTITY: owner.identity, SINK: owner.sink}


def history(metadata: TableMetadata) -> Iterator[Snapshot]:
    """Return the snapshots of `main`, newest first, up to the first that was expired."""
    yield from ancestors_of(metadata.current_snapshot(), metadata)


def find_mark(metadata: TableMetadata) -> FoundMark | None:
    """Return our newest move; None: there is none in the history of `main`, or none that was not expired."""
    since: list[Snapshot] = []
    for snapshot in history(metadata):
        if is_ours(snapshot):
            return FoundMark(snapshot, tuple(reversed(since)), is_unbroken=True)
        since.append(snapshot)
    tag = metadata.refs.get(TAG)
    tagged = metadata.snapshot_by_id(tag.snapshot_id) if tag is not None else None
    if tagged is None or not is_ours(tagged) or not since or _age(since[-1]) <= _age(tagged):
        return None
    return FoundMark(tagged, tuple(reversed(since)), is_unbroken=False)


def _age(snapshot: Snapshot) -> tuple[int, int]:
    """Return what rises from each snapshot to the next: below ours in a history without it, ours is not in it.

    Whether the oldest one has a parent says nothing: some writers forget it with the parent, others do not.
    """
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def is_ours(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is a move of ours."""
    summary = _summary(snapshot)
    return WRITE_ID in summary and summary.get(NUMBER, "").isdecimal()


def tag_of(checkpoint_id: int) -> str:
    """Return the tag by which engines read the table as of a checkpoint."""
    return f"{TAG}-{checkpoint_id}"


def outdated_tags(tags: Iterable[str], retained: frozenset[int]) -> list[str]:
    """Return those of a table's tags that are of checkpoints that are gone."""
    found = ((tag, _OF_CHECKPOINT.fullmatch(tag)) for tag in tags)
    return sorted(tag for tag, match in found if match is not None and int(match[1]) not in retained)


def unneeded_snapshots(metadata: TableMetadata, before_ms: int, at_most: int) -> list[Snapshot]:
    """Return the snapshots of ours that no branch or tag needs: those from before a time, and all but so many newest.

    Args:
        before_ms: UTC.
    """
    needed = {ref.snapshot_id for ref in metadata.refs.values()}
    free = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in needed and is_ours(snapshot)]
    free.sort(key=_age)
    old = sum(snapshot.timestamp_ms < before_ms for snapshot in free)
    return free[: max(old, len(free) - at_most)]


def operation(snapshot: Snapshot) -> str:
    """Return what a snapshot says that it did, in the words of the format."""
    return snapshot.summary.operation.value if snapshot.summary is not None else "overwrite"


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}
