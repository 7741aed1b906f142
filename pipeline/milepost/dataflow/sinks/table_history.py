"""The whole history of one table as it stands now: every head and snapshot is read once, and remembered."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.dataflow.sinks.chain_reader import ChainReader
from milepost.dataflow.sinks.committables import Committable, StagedFile, TableReference
from milepost.dataflow.sinks.sink_head import ChainOwner, SinkHead, committable_digest
from milepost.protocol.records.object_store import ObjectStore


class TableHistory(ChainReader):
    """Answers for the head that was newest when it was first asked; made for one look, and thrown away."""

    def __init__(self, store: ObjectStore, owner: ChainOwner) -> None:
        super().__init__(store, owner, remembers=True)
        self._newest: tuple[SinkHead | None] | None = None

    def newest(self) -> SinkHead | None:
        """As in the chain, asked once."""
        if self._newest is None:
            self._newest = (super().newest(),)
        return self._newest[0]

    def shows(self, timeline: str, checkpoint_id: int, committable: Committable) -> bool:
        """Return whether the newest head is exactly this checkpoint on this timeline, with this content."""
        head = self.newest()
        return (
            head is not None
            and (head.mark.timeline, head.mark.checkpoint_id) == (timeline, checkpoint_id)
            and head.committable_sha256 == committable_digest(committable)
        )

    @property
    def version(self) -> int:
        """Of the newest head; 0 before the first."""
        head = self.newest()
        return head.version if head is not None else 0

    def live(self) -> tuple[TableReference, ...]:
        """Return what a reader of the newest head opens besides heads: files, and the newest snapshot.

        Raises StateCorrupt.
        """
        head = self.newest()
        return (
            () if head is None else (*_snapshot(head), *_files(head, head.mark.checkpoint_id, self.content(head).files))
        )

    def links(self) -> tuple[TableReference, ...]:
        """The snapshots that lead through the history: of each follow, and of the end of the lineage that it left.

        Raises: StateCorrupt.
        """
        found: list[TableReference] = []
        head = self.newest()
        while head is not None and head.followed_at:
            found += _snapshot(self._linked(head.followed_at))
            left = head.followed_at - 1
            head = self._linked(left) if left else None
            found += _snapshot(head) if head is not None else ()
        return tuple(found)

    def as_of(self, checkpoint_id: int) -> tuple[TableReference, ...] | None:
        """Return what a reader of a checkpoint's newest mark opens besides heads; None: it has none.

        Raises StateCorrupt.
        """
        entry = self.find_anywhere(self.newest(), checkpoint_id)
        if entry is None:
            return None
        head = self._linked(entry.version)
        return (*_snapshot(head), *_files(head, checkpoint_id, self.point(entry).files))


def _files(head: SinkHead, checkpoint_id: int, files: tuple[StagedFile, ...]) -> Iterator[TableReference]:
    for file in files:
        yield TableReference(file.key, file.size, (f"head {head.version} of checkpoint {checkpoint_id}",))


def _snapshot(head: SinkHead) -> tuple[TableReference, ...]:
    if head.snapshot is None:
        return ()
    via = (f"head {head.version} of checkpoint {head.mark.checkpoint_id}",)
    return (TableReference(head.snapshot.key, head.snapshot.size, via),)
