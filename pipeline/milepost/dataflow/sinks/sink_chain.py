"""The sink chain: small head objects, each created only if absent, that say what a table consists of (I14).

Layout below the sink's root::

    _heads/<20 digits of 10^19 - n>.json    head n, from 1; inverted, so that one LIST with limit 1 finds the newest
    _snapshots/<20 digits of n>-<sha256>.json   all live files and all marks as of head n

Order of writes of a commit: staged files -> (every `SNAPSHOT_EVERY` heads) snapshot -> head n+1 = the commit.
A head lists only what it added and names the newest snapshot, so its size does not grow with the table, and a reader
fetches at most one snapshot and `SNAPSHOT_EVERY` heads. No head is ever deleted: a freed key would let a frozen
writer's put succeed (I6). Snapshots go when no checkpoint that is kept is read through them (`table_history.py`).

Two kinds of head. A commit adds an epoch to its predecessor, on one timeline. A follow lets the table show what a
decision of the manifest (rollback, fast-forward) made of it: any point of its history plus checkpoints that were never
committed, in one atomic step and without moving a file, because its snapshot is of its own version and says everything.
Commits carry the decision on. So a commit of a timeline that was left finds another timeline at the head and never
lands, and of two decisions the newer one wins in either order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NoReturn
from uuid import uuid4

from milepost.dataflow.sinks.chain_reader import ChainReader, TablePoint
from milepost.dataflow.sinks.committables import SinkMark, StagedFile
from milepost.dataflow.sinks.sink_head import (
    ChainContent,
    ChainOwner,
    Followed,
    FollowedStep,
    MarkEntry,
    SinkHead,
    SnapshotRef,
    content_after,
    content_to_bytes,
    head_key,
    head_to_bytes,
    snapshot_key,
)
from milepost.protocol.records.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    NotFound,
    ProtocolViolation,
    StateCorrupt,
    StoreUnavailable,
    Superseded,
)
from milepost.protocol.records.object_store import ObjectStore

SNAPSHOT_EVERY = 20
LOST_RACES = 10
"""How often a commit decides again after another writer took its head version."""


@dataclass(frozen=True, slots=True)
class Addition:
    """What one checkpoint adds to the table: its plain files, in subtask order."""

    checkpoint_id: int
    files: tuple[StagedFile, ...]
    committable_sha256: str


class SinkChain(ChainReader):
    """Reads and extends the chain of heads of one table in one store."""

    def __init__(
        self,
        store: ObjectStore,
        owner: ChainOwner,
        *,
        new_write_id: Callable[[], str] = lambda: uuid4().hex,
        remembers: bool = False,
    ) -> None:
        super().__init__(store, owner, remembers=remembers)
        self._new_write_id = new_write_id
        self._stands_at: tuple[SinkHead | None] | None = None

    def as_it_stands(self) -> SinkChain:
        """This chain for one look: what of it was read is not read again, but for a commit, which looks for newer."""
        chain = SinkChain(self._store, self._owner, new_write_id=self._new_write_id, remembers=True)
        chain._stands_at = (super(SinkChain, chain).newest(),)
        return chain

    def newest(self) -> SinkHead | None:
        """As of the look, for a chain made for one."""
        return super().newest() if self._stands_at is None else self._stands_at[0]

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
            ProtocolViolation: the mark is not above its predecessor.
            CommitOutcomeUnknown: delete nothing, call again.
        """
        if mark.checkpoint_id <= (mark.predecessor or 0):
            raise ProtocolViolation(
                f"sink {self._owner.sink}: checkpoint {mark.checkpoint_id} cannot follow checkpoint "
                f"{mark.predecessor or 0}: ids rise along a lineage (I5). Nothing was written."
            )
        write_id = self._new_write_id()
        for _ in range(LOST_RACES):
            head = super().newest()
            if self.already(head, mark, committable_sha256):
                return False
            at = head.mark.checkpoint_id if head else None
            if (at or None) != (mark.predecessor or None):
                raise self._superseded(mark, head)
            if head is not None and head.mark.timeline != mark.timeline:
                raise self._superseded(mark, head)
            successor = self._successor(head, mark, write_id, added, replaced_by, admit(head), committable_sha256)
            if self._create(successor):
                return True
        self._lost_every_race(mark)

    def follow(
        self,
        base: SinkMark | None,
        additions: Sequence[Addition],
        mark: SinkMark,
        *,
        decision: int,
        admit: Callable[[TablePoint], Sequence[str]],
    ) -> bool:
        """Compare-and-swap by decision: one new head whose content is the table as of `base`, then the additions.

        Args:
            base: anywhere in the history, also in a lineage that was left; None for the empty table.
            mark: its checkpoint is that of the last addition, else of the base, else 0.
            decision: manifest version of the decision, from 1.
            admit: checks the base and the additions, or raises; returns the table's schema after each addition.
        Returns:
            True when this call wrote the head; False when the table followed this decision before.
        Raises:
            Superseded: the table follows a newer decision; nothing was written, never retry.
            NotFound: the base is not in the history. CommitOutcomeUnknown: delete nothing, call again.
            InvalidRequest: foreign owner, or a table of an earlier life of the job.
        """
        self._check_follow(base, additions, mark, decision)
        write_id = self._new_write_id()
        for _ in range(LOST_RACES):
            head = super().newest()
            if self._followed_already(head, mark, decision):
                return False
            point = self.base_point(head, base)
            schemas = admit(point)
            if self._create(self._reconciled(head, point, additions, schemas, mark, decision, write_id)):
                return True
        self._lost_every_race(mark)

    def already(self, head: SinkHead | None, mark: SinkMark, committable_sha256: str) -> bool:
        """Return whether the mark is in the lineage of `head`, with this very content.

        Raises:
            InvalidRequest: that checkpoint id is there with other content or of another timeline: the path survived
                from an earlier life of the job, and saying "done" would lose this epoch's rows.
        """
        if head is None or mark.checkpoint_id > head.mark.checkpoint_id:
            return False  # ids rise along a lineage: the usual commit reads none
        entry = self.find(head, mark.checkpoint_id)
        if entry is None:
            return False
        ours = entry.timeline == mark.timeline or self.is_of_a_follow(entry)
        if not ours or entry.committable_sha256 != committable_sha256:
            raise InvalidRequest(
                f"sink {self._owner.sink}: checkpoint {mark.checkpoint_id} of timeline {mark.timeline} is already "
                f"published here with other content (timeline {entry.timeline}, head {entry.version}): the table at "
                f"{self._store.config.url} is of an earlier life of job {self._owner.job}. Nothing was changed.",
                hint="give the sink a new path, or move the old table away",
                sink=self._owner.sink,
                checkpoint_id=mark.checkpoint_id,
            )
        return True

    def _superseded(self, mark: SinkMark, head: SinkHead | None) -> Superseded:
        at = f"checkpoint {head.mark.checkpoint_id} of timeline {head.mark.timeline}" if head else "checkpoint 0"
        return Superseded(
            f"sink {self._owner.sink}: commit of checkpoint {mark.checkpoint_id} refused: it follows checkpoint "
            f"{mark.predecessor or 0} on timeline {mark.timeline}, the table is at {at}. Nothing was written. Do not "
            "retry: another commit took its place.",
            sink=self._owner.sink,
            checkpoint_id=mark.checkpoint_id,
            predecessor=mark.predecessor,
            head=head.mark.checkpoint_id if head else None,
        )

    def _lost_every_race(self, mark: SinkMark) -> NoReturn:
        raise CommitOutcomeUnknown(
            f"sink {self._owner.sink}: checkpoint {mark.checkpoint_id} lost the race for the head {LOST_RACES} times. "
            "Nothing of it is visible. Try again.",
            sink=self._owner.sink,
            checkpoint_id=mark.checkpoint_id,
        )

    def _check_follow(
        self, base: SinkMark | None, additions: Sequence[Addition], mark: SinkMark, decision: int
    ) -> None:
        ids = [base.checkpoint_id if base else 0, *(addition.checkpoint_id for addition in additions)]
        if decision < 1 or any(one >= other for one, other in pairwise(ids)):
            raise ProtocolViolation(
                f"sink {self._owner.sink}: decision {decision} to follow checkpoints {ids} makes no sense. Nothing was "
                "written."
            )
        if mark.checkpoint_id != ids[-1]:
            raise ProtocolViolation(
                f"sink {self._owner.sink}: was to follow to checkpoint {mark.checkpoint_id} with the content of "
                f"checkpoint {ids[-1]}. Nothing was written."
            )

    def _followed_already(self, head: SinkHead | None, mark: SinkMark, decision: int) -> bool:
        if head is None or head.decision < decision:
            return False
        if head.decision > decision:
            raise Superseded(
                f"sink {self._owner.sink}: refused to follow decision {decision} to checkpoint {mark.checkpoint_id}: "
                f"the table follows decision {head.decision} since head {head.followed_at}. Nothing was written. Do "
                "not retry: the newer decision counts.",
                sink=self._owner.sink,
                checkpoint_id=mark.checkpoint_id,
                head=head.mark.checkpoint_id,
            )
        there = self._linked(head.followed_at).mark
        if (there.timeline, there.checkpoint_id) != (mark.timeline, mark.checkpoint_id):
            raise InvalidRequest(
                f"sink {self._owner.sink}: by decision {decision} its table at {self._store.config.url} follows "
                f"checkpoint {there.checkpoint_id} of timeline {there.timeline}, not checkpoint {mark.checkpoint_id} "
                f"of timeline {mark.timeline}: it is of an earlier life of job {self._owner.job}. Nothing was changed.",
                hint="give the sink a new path, or move the old table away",
                sink=self._owner.sink,
                checkpoint_id=mark.checkpoint_id,
            )
        return True

    def _reconciled(
        self,
        head: SinkHead | None,
        base: TablePoint,
        additions: Sequence[Addition],
        schemas: Sequence[str],
        mark: SinkMark,
        decision: int,
        write_id: str,
    ) -> SinkHead:
        version = head.version + 1 if head else 1
        files, marks = base.files, base.marks
        steps = []
        for addition, schema_then in zip(additions, schemas, strict=True):
            files += addition.files
            steps.append(FollowedStep(addition.checkpoint_id, addition.committable_sha256, len(files), schema_then))
            marks += (MarkEntry(version, mark.timeline, addition.checkpoint_id, addition.committable_sha256),)
        schema = schemas[-1] if schemas else base.schema
        if not additions:
            sha256 = marks[-1].committable_sha256 if marks else ""
            marks += (MarkEntry(version, mark.timeline, mark.checkpoint_id, sha256),)
        if mark.checkpoint_id == 0 and head is not None:
            schema = head.schema  # the empty table keeps its columns for readers; no commit is held to them
        successor = SinkHead(
            version=version,
            write_id=write_id,
            owner=self._owner,
            mark=mark,
            added=tuple(file for addition in additions for file in addition.files),
            replaced_by=None,
            schema=schema,
            committable_sha256=marks[-1].committable_sha256,
            live_files=len(files),
            snapshot=None,
            decision=decision,
            followed_at=version,
            followed=Followed(base.marks[-1] if base.marks else None, tuple(steps[:-1])),
        )
        return replace(successor, snapshot=self._put_snapshot(version, ChainContent(files, marks)))

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
            decision=head.decision if head else 0,
            followed_at=head.followed_at if head else 0,
            followed=None,
        )
        if version % SNAPSHOT_EVERY:
            return successor
        content = content_after(self.content(head), successor)
        if len(content.files) != live:
            raise StateCorrupt(
                f"sink {self._owner.sink}: head {version - 1} counts {live - len(added)} live files, the chain lists "
                f"{len(content.files) - len(added)}. Nothing was written."
            )
        return replace(successor, snapshot=self._put_snapshot(version, content))

    def _put_snapshot(self, version: int, content: ChainContent) -> SnapshotRef:
        body = content_to_bytes(version, content)
        sha256 = hashlib.sha256(body).hexdigest()
        key = snapshot_key(version, sha256)
        self._store.put(key, body)
        return SnapshotRef(version, key, len(body), sha256)

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
