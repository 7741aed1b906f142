"""The sink chain: small head objects, each created only if absent, that say what a table consists of (I14).

Layout below the sink's root::

    _heads/<20 digits of 10^19 - n>.json    head n, from 1; inverted, so that one LIST with limit 1 finds the newest
    _snapshots/<20 digits of n>-<sha256>.json   all live files and all marks as of head n

Order of writes of a commit: staged files -> (every `SNAPSHOT_EVERY` heads) snapshot -> head n+1 = the commit.
A head lists only what it added and names the newest snapshot, so its size does not grow with the table, and a reader
fetches at most one snapshot and `SNAPSHOT_EVERY` heads. No head and no snapshot that a head names is ever deleted:
a freed key would let a frozen writer's put succeed (I6).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from pipeline.protocol.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    NotFound,
    StateCorrupt,
    StoreUnavailable,
    Superseded,
)
from pipeline.protocol.object_store import ObjectStore
from pipeline.sinks.contract import SinkMark, StagedFile
from pipeline.sinks.sink_head import (
    EMPTY_CONTENT,
    HEADS,
    ChainContent,
    ChainOwner,
    MarkEntry,
    SinkHead,
    SnapshotRef,
    content_after,
    content_from_bytes,
    content_to_bytes,
    head_from_bytes,
    head_key,
    head_to_bytes,
    head_version,
    snapshot_key,
)

SNAPSHOT_EVERY = 20
LOST_RACES = 10
"""How often a commit decides again after another writer took its head version."""


class SinkChain:
    """The chain of heads of one table in one store."""

    def __init__(
        self, store: ObjectStore, owner: ChainOwner, *, new_write_id: Callable[[], str] = lambda: uuid4().hex
    ) -> None:
        self._store = store
        self._owner = owner
        self._new_write_id = new_write_id

    def newest(self) -> SinkHead | None:
        """The head, whoever owns it is checked. Raises InvalidRequest (foreign owner), StateCorrupt."""
        for stat in self._store.list(HEADS, limit=1):
            return self.at(head_version(stat.key))
        return None

    def at(self, version: int) -> SinkHead:
        """Head `version` of this owner's table. Raises NotFound, InvalidRequest, StateCorrupt."""
        head = head_from_bytes(head_key(version), self._store.get(head_key(version)))
        if head.version != version:
            raise StateCorrupt(f"{head_key(version)}: says version {head.version}, its name {version}")
        self._check_owner(head.owner)
        return head

    def content(self, head: SinkHead | None) -> ChainContent:
        """The table as of `head`: one snapshot and at most `SNAPSHOT_EVERY` heads are read. Raises StateCorrupt."""
        if head is None:
            return EMPTY_CONTENT
        content = self._snapshot(head.snapshot) if head.snapshot else EMPTY_CONTENT
        first = head.snapshot.version + 1 if head.snapshot else 1
        for version in range(first, head.version + 1):
            content = content_after(content, head if version == head.version else self._linked(version))
        return content

    def find(self, head: SinkHead | None, checkpoint_id: int) -> MarkEntry | None:
        """The commit of that checkpoint in the lineage of `head`, or None."""
        if head is not None and head.mark.checkpoint_id == checkpoint_id:
            return content_after(EMPTY_CONTENT, head).marks[-1]
        return next((m for m in reversed(self.content(head).marks) if m.checkpoint_id == checkpoint_id), None)

    def lineage_has(self, head: SinkHead | None, mark: SinkMark) -> bool:
        """Whether `head` is the mark or descends from it."""
        entry = self.find(head, mark.checkpoint_id)
        return entry is not None and entry.timeline == mark.timeline

    def commit(
        self,
        mark: SinkMark,
        *,
        added: tuple[StagedFile, ...],
        replaced_by: StagedFile | None,
        admit: Callable[[SinkHead | None], str],
        committable_sha256: str,
    ) -> bool:
        """Compare-and-swap the head from the mark's predecessor to the mark (I14).

        Args:
            admit: checks what must hold right before the head is created, or raises; returns the table's schema once
                this is committed on top of the given head.
        Returns:
            True when this call published it; False when the mark, or a descendant, was already there.
        Raises:
            Superseded: the head is neither predecessor, mark nor descendant; nothing was written, never retry.
            InvalidRequest: the path belongs to another job or sink, or holds other content under this mark.
            CommitOutcomeUnknown: delete nothing, call again.
        """
        write_id = self._new_write_id()
        for _ in range(LOST_RACES):
            head = self.newest()
            if self.already(head, mark, committable_sha256):
                return False
            at = head.mark.checkpoint_id if head else None
            if (at or None) != (mark.predecessor or None):
                raise self._superseded(mark, at)
            successor = self._successor(head, mark, write_id, added, replaced_by, admit(head), committable_sha256)
            if self._create(successor):
                return True
        raise CommitOutcomeUnknown(
            f"sink {self._owner.sink}: checkpoint {mark.checkpoint_id} lost the race for the head {LOST_RACES} times. "
            "Nothing of it is visible. Try again.",
            sink=self._owner.sink,
            checkpoint_id=mark.checkpoint_id,
        )

    def already(self, head: SinkHead | None, mark: SinkMark, committable_sha256: str) -> bool:
        """Whether the mark is in the lineage of `head`, with this very content.

        Raises:
            InvalidRequest: that checkpoint id is there with other content or of another timeline: the path survived
                from an earlier life of the job, and saying "done" would lose this epoch's rows.
        """
        if head is None or self._cannot_descend(head, mark):
            return False
        entry = self.find(head, mark.checkpoint_id)
        if entry is None:
            return False
        if (entry.timeline, entry.committable_sha256) != (mark.timeline, committable_sha256):
            raise InvalidRequest(
                f"sink {self._owner.sink}: checkpoint {mark.checkpoint_id} of timeline {mark.timeline} is already "
                f"published here with other content (timeline {entry.timeline}, head {entry.version}): the table at "
                f"{self._store.config.url} is of an earlier life of job {self._owner.job}. Nothing was changed.",
                hint="give the sink a new path, or move the old table away",
                sink=self._owner.sink,
                checkpoint_id=mark.checkpoint_id,
            )
        return True

    def _cannot_descend(self, head: SinkHead, mark: SinkMark) -> bool:
        # The usual commit: its predecessor is the head. A mark never precedes itself, so no lineage is read for it.
        return mark.predecessor == head.mark.checkpoint_id and mark.checkpoint_id > head.mark.checkpoint_id

    def _superseded(self, mark: SinkMark, at: int | None) -> Superseded:
        return Superseded(
            f"sink {self._owner.sink}: commit of checkpoint {mark.checkpoint_id} refused: it follows checkpoint "
            f"{mark.predecessor or 0}, the table is at checkpoint {at or 0}. Nothing was written. Do not retry: "
            "another commit took its place.",
            sink=self._owner.sink,
            checkpoint_id=mark.checkpoint_id,
            predecessor=mark.predecessor,
            head=at,
        )

    def _successor(
        self,
        head: SinkHead | None,
        mark: SinkMark,
        write_id: str,
        added: tuple[StagedFile, ...],
        replaced_by: StagedFile | None,
        schema: str,
        committable_sha256: str,
    ) -> SinkHead:
        version = head.version + 1 if head else 1
        live = 1 if replaced_by else (head.live_files if head else 0) + len(added)
        successor = SinkHead(
            version=version,
            write_id=write_id,
            owner=self._owner,
            mark=mark,
            added=added,
            replaced_by=replaced_by,
            schema=schema,
            committable_sha256=committable_sha256,
            live_files=live,
            snapshot=head.snapshot if head else None,
        )
        if version % SNAPSHOT_EVERY:
            return successor
        content = content_after(self.content(head), successor)
        if len(content.files) != live:
            raise StateCorrupt(
                f"sink {self._owner.sink}: head {version - 1} counts {live - len(added)} live files, the chain lists "
                f"{len(content.files) - len(added)}. Nothing was written."
            )
        body = content_to_bytes(version, content)
        sha256 = hashlib.sha256(body).hexdigest()
        key = snapshot_key(version, sha256)
        self._store.put(key, body)
        return replace(successor, snapshot=SnapshotRef(version, key, len(body), sha256))

    def _create(self, head: SinkHead) -> bool:
        """Create the head object. True: landed. False: another writer's head has that version."""
        key = head_key(head.version)
        try:
            self._store.create(key, head_to_bytes(head))
            return True
        except (CommitConflict, CommitOutcomeUnknown, StoreUnavailable) as error:
            try:
                there = self.at(head.version)
            except (NotFound, StoreUnavailable, EnvironmentUnusable):
                raise CommitOutcomeUnknown(
                    f"sink {self._owner.sink}: nobody knows whether the commit of checkpoint "
                    f"{head.mark.checkpoint_id} landed ({error}). Its files are kept. Try again: a commit that landed "
                    "is recognised.",
                    sink=self._owner.sink,
                    checkpoint_id=head.mark.checkpoint_id,
                ) from error
            return there.write_id == head.write_id

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
