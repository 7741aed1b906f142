"""Reading a sink chain: its heads, the table as of any of them, and every lineage the table ever had.

A lineage is what one head descends from: the commits, and the steps of follows, that its content is made of. A follow
begins a lineage on top of an older point; the head right before it is the end of the lineage that was left, and stays
readable. So the whole history is the newest lineage and, follow by follow, the ones before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from milepost.dataflow.sinks.committables import SinkMark, StagedFile
from milepost.dataflow.sinks.sink_head import (
    EMPTY_CONTENT,
    HEADS,
    ChainContent,
    ChainOwner,
    MarkEntry,
    SinkHead,
    SnapshotRef,
    content_after,
    content_from_bytes,
    head_from_bytes,
    head_key,
    head_version,
    mark_entry,
)
from milepost.protocol.records.errors import InvalidRequest, NotFound, StateCorrupt
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.at_once import at_once
from milepost.storage.newest import newest_object


@dataclass(frozen=True, slots=True)
class TablePoint:
    """The table as of one checkpoint of its history.

    Attributes:
        marks: its lineage, oldest first, itself last; () for the empty table.
        files: its live files in commit order. live_files: how many were recorded.
        schema: None while nothing was ever published.
    """

    marks: tuple[MarkEntry, ...]
    files: tuple[StagedFile, ...]
    live_files: int
    schema: str | None


EMPTY_TABLE = TablePoint((), (), 0, None)


class ChainReader:
    """Reads the chain of heads of one table in one store.

    Args:
        remembers: what was read once is not read again, for one look: no head or snapshot is ever changed.
    """

    def __init__(self, store: ObjectStore, owner: ChainOwner, *, remembers: bool = False) -> None:
        self._store = store
        self._owner = owner
        self._remembers = remembers
        self._known_heads: dict[int, SinkHead] = {}
        self._known_contents: dict[int, ChainContent] = {}

    def newest(self) -> SinkHead | None:
        """Return the head, whoever owns it is checked. Raises InvalidRequest (foreign owner), StateCorrupt."""
        newest = newest_object(self._store, HEADS, head_key, head_version)
        return None if newest is None else self.at(head_version(newest.key))

    def at(self, version: int) -> SinkHead:
        """Head `version` of this owner's table. Raises NotFound, InvalidRequest, StateCorrupt."""
        if version in self._known_heads:
            return self._known_heads[version]
        head = head_from_bytes(head_key(version), self._store.get(head_key(version)))
        if head.version != version:
            raise StateCorrupt(f"{head_key(version)}: says version {head.version}, its name {version}")
        self._check_owner(head.owner)
        if self._remembers:
            self._known_heads[version] = head
        return head

    def content(self, head: SinkHead | None) -> ChainContent:
        """Return the table as of `head`: one snapshot and at most `SNAPSHOT_EVERY` heads are read.

        Raises StateCorrupt.
        """
        if head is None:
            return EMPTY_CONTENT
        if head.version in self._known_contents:
            return self._known_contents[head.version]
        content = self._snapshot(head.snapshot) if head.snapshot else EMPTY_CONTENT
        after = head.snapshot.version if head.snapshot else 0
        for older in at_once(self._store, self._linked, range(after + 1, head.version)):
            content = content_after(content, older)
        content = content_after(content, head) if after < head.version else content
        if self._remembers:
            self._known_contents[head.version] = content
        return content

    def find(self, head: SinkHead | None, checkpoint_id: int) -> MarkEntry | None:
        """Return the newest entry of that checkpoint in the lineage of `head`, or None."""
        if head is not None and head.mark.checkpoint_id == checkpoint_id:
            return mark_entry(head)
        return _entry_of(self.content(head).marks, checkpoint_id)

    def find_anywhere(self, head: SinkHead | None, checkpoint_id: int, timeline: str | None = None) -> MarkEntry | None:
        """The newest entry of that checkpoint, and timeline if given, in the whole history up to `head`, or None.

        Raises: StateCorrupt: not found, in a history that cannot be read as a whole.
        """
        if head is None:
            return None
        if _is_of(mark_entry(head), checkpoint_id, timeline):
            return mark_entry(head)
        try:
            found = (_entry_of(marks, checkpoint_id, timeline) for marks in self.lineages(head, up_to=checkpoint_id))
            return next((entry for entry in found if entry is not None), None)
        except StateCorrupt:
            # A damaged snapshot, or a gap, hides the marks before it. But each head says its own: a table can still go
            # back to before the damage.
            entry = self._scan(head, checkpoint_id, timeline)
            if entry is None:
                raise
            return entry

    def lineages(self, head: SinkHead | None, *, up_to: int = 0) -> Iterator[tuple[MarkEntry, ...]]:
        """Yield the marks of the lineage of `head`, then of each one that was left, newest first.

        Args:
            up_to: only lineages that reach this checkpoint id; ids rise along a lineage, so no other can have it.
        """
        while head is not None:
            if head.mark.checkpoint_id >= up_to:
                yield self.content(head).marks
            left = head.followed_at - 1
            head = self._linked(left) if left > 0 else None

    def lineage_has(self, head: SinkHead | None, mark: SinkMark) -> bool:
        """Return whether `head` is the mark or descends from it."""
        entry = self.find(head, mark.checkpoint_id)
        return entry is not None and (entry.timeline == mark.timeline or self.is_of_a_follow(entry))

    def is_of_a_follow(self, entry: MarkEntry) -> bool:
        """Return whether a follow wrote it.

        Then it names the timeline that followed, not that of the checkpoint's commit.
        """
        return self._linked(entry.version).followed is not None

    def point_of(self, head: SinkHead) -> TablePoint:
        """Return the table as of a head. Raises StateCorrupt."""
        content = self.content(head)
        return TablePoint(content.marks, content.files, head.live_files, head.schema)

    def point(self, entry: MarkEntry) -> TablePoint:
        """Return the table as of an entry that `find` or `find_anywhere` gave. Raises StateCorrupt."""
        head = self._linked(entry.version)
        whole = self.point_of(head)
        if entry == mark_entry(head):
            return whole
        steps = head.followed.steps if head.followed is not None else ()
        step = next((step for step in steps if step.checkpoint_id == entry.checkpoint_id), None)
        if step is None or entry not in whole.marks:
            raise StateCorrupt(
                f"sink {self._owner.sink}: {head_key(entry.version)} does not hold checkpoint {entry.checkpoint_id}",
                key=head_key(entry.version),
            )
        marks = whole.marks[: whole.marks.index(entry) + 1]
        return TablePoint(marks, whole.files[: step.live_files], step.live_files, step.schema)

    def base_point(self, head: SinkHead | None, base: SinkMark | None) -> TablePoint:
        """Return the table as of a mark anywhere in the history up to `head`; None is the empty table.

        Raises: NotFound: it was never published. StateCorrupt.
        """
        if base is None or base.checkpoint_id == 0:
            return EMPTY_TABLE
        entry = self.find_anywhere(head, base.checkpoint_id, base.timeline)
        if entry is not None:
            return self.point(entry)
        raise NotFound(
            f"sink {self._owner.sink}: checkpoint {base.checkpoint_id} of timeline {base.timeline} was never published "
            "to its table. Nothing was written.",
            sink=self._owner.sink,
            checkpoint_id=base.checkpoint_id,
        )

    def mark_of(self, entry: MarkEntry) -> SinkMark:
        """Return the mark of an entry that `find` or `find_anywhere` gave."""
        head = self._linked(entry.version)
        if entry == mark_entry(head):
            return head.mark
        before = self.point(entry).marks[-2:-1]
        return SinkMark(entry.timeline, entry.checkpoint_id, before[0].checkpoint_id if before else None)

    def versions_of(self, head: SinkHead | None, checkpoint_id: int) -> set[int]:
        """Return the versions of all heads, of whatever lineage up to `head`, that published this checkpoint.

        Reads the whole history, whatever the id: who deletes by the answer must not trust a chain with a gap.
        """
        return {
            entry.version for marks in self.lineages(head) for entry in marks if entry.checkpoint_id == checkpoint_id
        }

    def _check_owner(self, found: ChainOwner) -> None:
        mine = self._owner
        if (found.job, found.sink) != (mine.job, mine.sink):
            raise InvalidRequest(
                f"sink {mine.sink} of job {mine.job}: the path {self._store.config.url} already belongs to sink "
                f"{found.sink} of job {found.job}. Nothing was changed.",
                hint="give the sink a path of its own",
                sink=mine.sink,
            )
        if (found.mode, found.key) != (mine.mode, mine.key):
            raise InvalidRequest(
                f"sink {mine.sink}: the table at {self._store.config.url} was written with mode {found.mode} and key "
                f"{list(found.key)}, the spec says mode {mine.mode} and key {list(mine.key)}. Nothing was changed.",
                hint="give the sink a new path, or undo the change of mode or key",
                sink=mine.sink,
            )

    def _scan(self, head: SinkHead, checkpoint_id: int, timeline: str | None) -> MarkEntry | None:
        """Like `find_anywhere`, head by head, leaving out what cannot be read."""
        for version in range(head.version, 0, -1):
            with suppress(NotFound, StateCorrupt):
                one = self.at(version)
                steps = one.followed.steps if one.followed is not None else ()
                marks = [
                    MarkEntry(version, one.mark.timeline, step.checkpoint_id, step.committable_sha256) for step in steps
                ]
                entry = _entry_of((*marks, mark_entry(one)), checkpoint_id, timeline)
                if entry is not None:
                    return entry
        return None

    def _linked(self, version: int) -> SinkHead:
        try:
            return self.at(version)
        except NotFound as error:
            raise StateCorrupt(
                f"sink {self._owner.sink}: {head_key(version)} is missing from the chain", key=head_key(version)
            ) from error

    def _snapshot(self, ref: SnapshotRef) -> ChainContent:
        try:
            body = self._store.get(ref.key)
        except NotFound as error:
            raise StateCorrupt(f"sink {self._owner.sink}: snapshot {ref.key} is missing", key=ref.key) from error
        if len(body) != ref.size or hashlib.sha256(body).hexdigest() != ref.sha256:
            raise StateCorrupt(f"sink {self._owner.sink}: snapshot {ref.key} does not match its checksum", key=ref.key)
        return content_from_bytes(ref, body)


def _entry_of(marks: tuple[MarkEntry, ...], checkpoint_id: int, timeline: str | None = None) -> MarkEntry | None:
    return next((entry for entry in reversed(marks) if _is_of(entry, checkpoint_id, timeline)), None)


def _is_of(entry: MarkEntry, checkpoint_id: int, timeline: str | None) -> bool:
    return entry.checkpoint_id == checkpoint_id and timeline in (None, entry.timeline)
