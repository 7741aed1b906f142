"""The whole history of one table as it stands now: every head and snapshot is read once, and remembered."""

from __future__ import annotations

from pipeline.protocol.object_store import ObjectStore
from pipeline.sinks.chain_reader import ChainReader
from pipeline.sinks.contract import Committable, TableReference
from pipeline.sinks.sink_head import ChainContent, ChainOwner, SinkHead, committable_digest


class TableHistory(ChainReader):
    """Answers for the head that was newest when it was first asked; made for one look, and thrown away."""

    def __init__(self, store: ObjectStore, owner: ChainOwner) -> None:
        super().__init__(store, owner)
        self._newest: tuple[SinkHead | None] | None = None
        self._heads: dict[int, SinkHead] = {}
        self._contents: dict[int, ChainContent] = {}

    def newest(self) -> SinkHead | None:
        """As in the chain, asked once."""
        if self._newest is None:
            self._newest = (super().newest(),)
        return self._newest[0]

    def at(self, version: int) -> SinkHead:
        """As in the chain, read once."""
        if version not in self._heads:
            self._heads[version] = super().at(version)
        return self._heads[version]

    def content(self, head: SinkHead | None) -> ChainContent:
        """As in the chain, read once."""
        if head is None:
            return super().content(head)
        if head.version not in self._contents:
            self._contents[head.version] = super().content(head)
        return self._contents[head.version]

    def shows(self, timeline: str, checkpoint_id: int, committable: Committable) -> bool:
        """Whether the newest head is exactly this checkpoint on this timeline, with this content."""
        head = self.newest()
        return (
            head is not None
            and (head.mark.timeline, head.mark.checkpoint_id) == (timeline, checkpoint_id)
            and head.committable_sha256 == committable_digest(committable)
        )

    def live(self) -> tuple[TableReference, ...]:
        """The files that a reader of the newest head opens. Raises StateCorrupt."""
        head = self.newest()
        if head is None:
            return ()
        via = (f"head {head.version} of checkpoint {head.mark.checkpoint_id}",)
        return tuple(TableReference(file.key, file.size, via) for file in self.content(head).files)

    def as_of(self, checkpoint_id: int) -> tuple[TableReference, ...] | None:
        """The files of the table as of a checkpoint's newest mark; None when it has none. Raises StateCorrupt."""
        entry = self.find_anywhere(self.newest(), checkpoint_id)
        if entry is None:
            return None
        via = (f"head {entry.version} of checkpoint {checkpoint_id}",)
        return tuple(TableReference(file.key, file.size, via) for file in self.point(entry).files)
