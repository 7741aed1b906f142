"""Table references are what head and retained checkpoints need of each sink's table (I8, I14).

A retained checkpoint needs the files of the table as of its newest mark in the table's history. Where it was never
published it needs what was staged for it, and for its unpublished ancestors, back to the newest published one, which
need not be retained itself: that is the way by which a table is put there (`routes.find_route`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.dataflow.sinks.committables import Committable, StagedFile, TableReference
from milepost.dataflow.sinks.sink_head import data_key_owner, snapshot_version
from milepost.dataflow.sinks.table_history import TableHistory
from milepost.epoch.metadata import CheckpointMetadata, SinkPosition, SinkSnapshot
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.pruning import may_be_listed


@dataclass(frozen=True, slots=True)
class TableShare:
    """What one retained checkpoint says of the sinks: where their tables stood, and what it staged for them."""

    marks: Mapping[str, SinkPosition]
    sinks: Mapping[str, SinkSnapshot]

    @classmethod
    def of(cls, metadata: CheckpointMetadata) -> TableShare:
        """Without what else the metadata holds, which may be much."""
        return cls(metadata.marks, metadata.sinks)


@dataclass(frozen=True, slots=True)
class TableNeeds:
    """Which files and snapshots of a table are needed.

    Attributes:
        files: by key. newest: version of the newest head; a snapshot of a later one may belong to a commit under way.
        unknown: why more may be needed, so that nothing of the table may go; None when this is all.
    """

    files: Mapping[str, TableReference]
    newest: int
    unknown: str | None

    def frees(self, state: ManifestState, key: str) -> bool:
        """Return whether an object below the table may be listed, and deleted, as needed by nothing.

        Nothing but a staged file or a snapshot ever may. A snapshot is written before the head that names it; once a
        head of its version is there, whoever comes late with another one finds the version taken.
        """
        if key in self.files or self.unknown is not None:
            return False
        owner, version = data_key_owner(key), snapshot_version(key)
        if owner is not None:
            return may_be_listed(state, *owner)
        return version is not None and version <= self.newest


def staged_files(committable: Committable) -> tuple[StagedFile, ...]:
    """Return every file that a commit of it may name."""
    compaction = committable.compaction
    return (*committable.files, *((compaction.file,) if compaction else ()))


def table_needs(
    state: ManifestState, shares: Mapping[CheckpointId, TableShare], sink: str, location: str, history: TableHistory
) -> TableNeeds:
    """Find what a table's newest head and the retained checkpoints need.

    Args:
        state: read after the table's objects were listed. shares: of every retained checkpoint of `state`.
        location: of the sink, as checkpoints name it.
        history: of its table, not asked for anything before `state` was read.
    Raises: StateCorrupt: the chain cannot be read. InvalidRequest: the path is another job's or sink's.
    """
    files: dict[str, TableReference] = {}
    lost: list[str] = []
    for checkpoint_id in sorted(shares):
        found, problem = _needed_by(state, shares, checkpoint_id, sink, location, history)
        files.update((reference.key, reference) for reference in found)
        lost += [problem] if problem is not None else []
    files.update((reference.key, reference) for reference in (*history.links(), *history.live()))
    return TableNeeds(files, history.version, _not_shown(state, shares, sink, history) or next(iter(lost), None))


def _needed_by(
    state: ManifestState,
    shares: Mapping[CheckpointId, TableShare],
    checkpoint_id: CheckpointId,
    sink: str,
    location: str,
    history: TableHistory,
) -> tuple[list[TableReference], str | None]:
    """Return what the table needs to be put at one retained checkpoint; and why that is not all of it, or None.

    A checkpoint whose table was elsewhere is looked for here too: one place can be written in two ways.
    """
    top = (f"manifest version {state.version}", f"retained checkpoint {checkpoint_id}")
    position = shares[checkpoint_id].marks.get(sink)
    found: list[TableReference] = []
    at = position.checkpoint_id if position is not None else 0
    while at and position is not None:
        published = history.as_of(at)
        if published is not None:
            found += [TableReference(one.key, one.size, (*top, *one.chain)) for one in published]
            return found, None
        snapshot = shares[CheckpointId(at)].sinks.get(sink) if CheckpointId(at) in shares else None
        if snapshot is None:
            if position.location != location:
                return found, None
            return (
                found,
                f"checkpoint {checkpoint_id} cannot be shown: checkpoint {at} is neither published nor retained",
            )
        found += list(_staged(snapshot, (*top, f"staged for checkpoint {at}")))
        at = snapshot.predecessor or 0
    return found, None


def _staged(snapshot: SinkSnapshot, chain: tuple[str, ...]) -> Iterator[TableReference]:
    for file in staged_files(snapshot.committable):
        yield TableReference(file.key, file.size, chain)


def _not_shown(
    state: ManifestState, shares: Mapping[CheckpointId, TableShare], sink: str, history: TableHistory
) -> str | None:
    """Return why the table cannot be taken for this job's, as it stands; None when it shows the job's head.

    Until it does, a commit or a switch has yet to reach it. Or it has moved on: then another life or a copy of the job
    writes it, and it is needed by checkpoints that nobody here knows of.
    """
    head = state.head()
    if head is None:
        return "the job is at checkpoint 0, which no table proves to be its own"
    snapshot = shares[head.checkpoint_id].sinks.get(sink)
    if snapshot is None:
        return f"checkpoint {head.checkpoint_id}, the head, has nothing of it"
    if not history.shows(state.live, head.checkpoint_id, snapshot.committable):
        return f"its table does not show checkpoint {head.checkpoint_id} of timeline {state.live}, the job's head"
    return None
