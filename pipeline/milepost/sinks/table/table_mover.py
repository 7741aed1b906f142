"""A table moves by the difference between two contents, in one commit that carries a number (I14, DESIGN 7).

Commit, catching up, a switch to a fork and a rollback are the same act. Order: the mark's record -> the format's
commit, on the handle that was read -> confirmation in the manifest. Any error of a commit is an unknown outcome until
the table is opened again: the write id of the record says whether it landed, whoever sent it.

Files that others appended are left alone, also when going back. A rewrite of ours that says that it keeps the rows
(a compaction by the engine) counts as our content; any other change of our rows is refused, and the sink waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    StateCorrupt,
    StoreUnavailable,
    Superseded,
)
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.contract import TablePosition, TableTarget
from milepost.sinks.files.table_files import TableFiles
from milepost.sinks.files.table_schema import widened_schema
from milepost.sinks.records.committables import StagedFile, decode_schema
from milepost.sinks.records.contents import ContentsChange, ContentsRecords, TableContents, identity_of
from milepost.sinks.records.marks import Mark, MarkRecords
from milepost.sinks.records.reservation import reserved_for
from milepost.sinks.staging.small_files import same_rows
from milepost.sinks.table.others_changes import changes_of_others
from milepost.sinks.table.table_history import files_of_ours
from milepost.sinks.table.table_ownership import TableOwnership
from milepost.sinks.table_format import OpenTable, TableFormat, TableMove
from milepost.storage.concurrency.background import prefetch

LOST_RACES = 10
"""How often a move decides again after another writer changed the table."""

_LOG = logging.getLogger(__name__)


class TableMover:
    """Moves one sink's table.

    Args:
        store: rooted at the table. marks, records: in the job's storage.
    """

    def __init__(
        self,
        sink: str,
        job: str,
        store: ObjectStore,
        form: TableFormat,
        marks: MarkRecords,
        records: ContentsRecords,
        ownership: TableOwnership,
    ) -> None:
        self._sink, self._job, self._store = sink, job, store
        self._format, self._marks, self._records, self._ownership = form, marks, records, ownership
        self._files = TableFiles(sink, store)

    def look(self) -> tuple[OpenTable | None, TablePosition]:
        """Return the table as it is now, and where it stands."""
        table = self._format.open()
        return table, self._position(table)

    def look_ahead(self) -> None:
        """Look at a table of a format that keeps what it saw, for the `move` that follows."""
        if self._format.keeps_looks:
            with suppress(CheckpointError):
                self.look()

    def probe(self) -> str:
        """Say what the table is, asked now. Raises what keeps an epoch from writing it."""
        table, position = self.look()
        if table is None:
            shown = "there is none yet; the first epoch makes it"
        else:
            table.check(table.schema)
            shown = f"it shows {position}"
        return "; ".join(filter(None, (shown, self._format.probe())))

    def created(self, schema: pa.Schema) -> tuple[OpenTable, TablePosition]:
        """Make an empty table, and return it; one that another made first counts as well. Raises InvalidRequest."""
        self._make(schema)
        table, position = self.look()
        if table is None:
            raise InvalidRequest(
                f"sink {self._sink}: {self._store.config.url} is not reserved for it any more. Nothing was published.",
                hint="somebody deletes below the sink's path: find out who, then run again",
                sink=self._sink,
            )
        return table, position

    def check_position(self, position: TablePosition, base: TableContents | None) -> None:
        """Refuse a table that is not where this lineage left it: its commit could never follow (I14)."""
        left = 0 if base is None else base.checkpoint_id
        if position.is_known and position.checkpoint_id == left:
            return
        raise InvalidRequest(
            f"sink {self._sink}: its table shows {position}, this job left it at checkpoint {left}. Nothing was "
            "published.",
            hint="it was moved, deleted or restored, or a copy of the job writes it: put it back, or use a new path; if"
            f" the job's state is to count: milepost realign {self._job} {self._sink}",
            sink=self._sink,
        )

    def check_columns(self, contents: TableContents | None) -> None:
        """Refuse contents of which a column has another type than in the table. Raises InvalidRequest."""
        table = None if contents is None else self._format.open()
        if contents is not None and table is not None and table.schema is not None:
            widened_schema(self._sink, table.schema, decode_schema(contents.schema))

    def move(self, target: TableTarget, before_commit: Callable[[], None]) -> bool:
        """Move the table; see `MovingSink.move`."""
        write_id = uuid4().hex
        for attempt in range(LOST_RACES):
            seen = None if attempt else self._seen_before(target)
            if seen is None:  # it may have to be made, or settled, before its commit
                before_commit()
            table, position = seen or self.look()
            if table is not None:
                self._ownership.refuse_others(table)
            if position.number >= target.number and not _overrules(target, position):
                return self._is_passed(position, target)
            if table is None:
                if target.contents is None:
                    return False  # nobody ever prepared a commit to it
                made_anew = target.contents.table_id is not None and not target.realigns
                if made_anew or not self._make(decode_schema(target.contents.schema)):
                    raise self._waits("there is no table any more")
                continue
            self._check_target(table, position, target)
            planned = None if target.contents is None or target.realigns else target.contents.table_id
            if table.owner is None:
                before_commit()
                if not self._ownership.settle(table, planned):
                    continue
            if table.schema is not None and target.contents is not None:
                wider = widened_schema(self._sink, table.schema, decode_schema(target.contents.schema))
                if len(wider) > len(table.schema):
                    before_commit()
                    with suppress(CommitConflict):  # maybe by this very commit, whose answer was lost: look again
                        table.widen(wider)
                    continue
            contents = target.contents or (position.contents.emptied() if position.contents is not None else None)
            previous = position.number if position.number < target.number else 0
            mark = Mark(target.number, previous, write_id, table.table_id, target.timeline, contents)
            if self._commit(table, position, mark, target, before_commit):
                return True
        raise CommitOutcomeUnknown(
            f"sink {self._sink}: checkpoint {target.checkpoint_id} lost the race for the table {LOST_RACES} times. "
            "Nothing of it is visible. Try again.",
            sink=self._sink,
            checkpoint_id=target.checkpoint_id,
        )

    def files_now(self, table: OpenTable, position: TablePosition, *, realigns: bool = False) -> dict[str, StagedFile]:
        """Return our files of the table as it is: those of its mark, and of rewrites that kept their rows, by key.

        Args:
            realigns: also what others made of our files when they changed our rows, or brought back of those that we
                had taken out: it gives way to the job's state.
        Raises: InvalidRequest: others took rows of ours out, mixed theirs in, or brought rows of ours back.
        """
        made = changes_of_others(self._records.files(position.contents), table.foreign())
        if made.fault is not None and (made.is_mixed or not realigns):
            raise self._waits(made.fault, is_mixed=made.is_mixed)
        ours, back = made.files, made.back
        live = table.live()
        gone = [] if live is None else sorted(ours.keys() - live.keys())
        if gone and not realigns:
            raise self._waits(f"{len(gone)} of its files are not live any more, {gone[0]} among them")
        if back and not realigns:
            raise self._waits(f"{len(back)} files that it had taken out are live again, {min(back)} among them")
        return {key: file for key, file in {**ours, **back}.items() if key not in gone}

    def rewritten(self, table: OpenTable, position: TablePosition, recorded: Sequence[StagedFile]) -> ContentsChange:
        """Return what engines made of our files without changing rows. Raises InvalidRequest: they changed some."""
        now = self.files_now(table, position)
        before = {file.key for file in recorded}
        return ContentsChange(
            tuple(file for key, file in now.items() if key not in before),
            tuple(file.key for file in recorded if file.key not in now),
        )

    def _seen_before(self, target: TableTarget) -> tuple[OpenTable, TablePosition] | None:
        """Return the table as it was seen a moment ago, if a commit comes next, which compares."""
        table = self._format.recent()
        if table is None or not table.number:
            return None
        position = self._position(table)
        is_next = position.is_known and position.number < target.number and position.checkpoint_id == target.follows
        return (table, position) if is_next else None

    def _position(self, table: OpenTable | None) -> TablePosition:
        if table is None or not table.number:
            return TablePosition(0, None)
        mark = self._marks.carried(table.number, table.write_id, table.table_id)
        return TablePosition(table.number, mark, table.readers_version)

    def _make(self, schema: pa.Schema) -> bool:
        """Make an empty table for whom its place is reserved; False: it is reserved for nobody."""
        reserved = reserved_for(self._store)
        if reserved is None:
            return False
        self._format.create(reserved.owner, schema)
        return True

    def _is_passed(self, position: TablePosition, target: TableTarget) -> bool:
        """Return False when the target, or a mark that came after it, is there. Raises Superseded, InvalidRequest."""
        if not position.is_known:
            raise self._waits(f"it carries mark {position.number}, which is not of this job")
        at = position.mark
        while at is not None and at.number > target.number:
            at = self._marks.at(at.previous) if at.previous >= target.number else None
        if at is None:
            raise Superseded(
                f"sink {self._sink}: checkpoint {target.checkpoint_id} of timeline {target.timeline} is superseded: "
                f"the table shows {position}. Nothing was moved. Do not retry: the later decision counts.",
                sink=self._sink,
                checkpoint_id=target.checkpoint_id,
                head=position.checkpoint_id,
            )
        if identity_of(at.contents) != identity_of(target.contents):
            raise StateCorrupt(
                f"sink {self._sink}: the table's mark {at.number} has another content than checkpoint "
                f"{target.checkpoint_id}. Nothing was changed.",
                sink=self._sink,
            )
        return False

    def _check_target(self, table: OpenTable, position: TablePosition, target: TableTarget) -> None:
        if not position.is_known and not target.realigns:
            raise self._waits(f"it carries mark {position.number}, which is not of this job")
        planned = target.contents.table_id if target.contents is not None else None
        made_anew = planned is not None and planned != table.table_id and not position.number
        if made_anew and not target.realigns:
            raise self._waits("it was dropped and made anew")
        if target.follows is not None and position.checkpoint_id != target.follows:
            raise Superseded(
                f"sink {self._sink}: checkpoint {target.checkpoint_id} of timeline {target.timeline} refused: it "
                f"follows checkpoint {target.follows}, the table shows {position}. Nothing was moved. Do not retry: "
                "another commit took its place.",
                sink=self._sink,
                checkpoint_id=target.checkpoint_id,
                predecessor=target.follows,
                head=position.checkpoint_id,
            )

    def _commit(
        self,
        table: OpenTable,
        position: TablePosition,
        mark: Mark,
        target: TableTarget,
        before_commit: Callable[[], None],
    ) -> bool:
        """Commit on this handle. True: it landed. False: somebody else's commit came before; decide again.

        The mark is recorded, and the files that are added are looked for, before the format's commit.
        """
        move = prefetch(self._store, lambda: self._planned(table, position, mark, target), "table-move")
        recorded = self._marks.record(mark)
        before_commit()
        try:
            table.commit(replace(move(), write_id=recorded.write_id))
            return True
        except (CommitConflict, CommitOutcomeUnknown, StoreUnavailable) as error:
            try:
                now = self._format.open()
            except (StoreUnavailable, EnvironmentUnusable):
                now = None
            if now is not None and (now.number, now.write_id) == (recorded.number, recorded.write_id):
                _LOG.info("sink %s: the commit of mark %s had landed: %s", self._sink, mark.number, error.message)
                return True
            if now is not None and (now.version != table.version or isinstance(error, CommitConflict)):
                return False  # a commit on that handle can never land any more
            raise CommitOutcomeUnknown(
                f"sink {self._sink}: nobody knows whether the commit of checkpoint {mark.checkpoint_id} landed "
                f"({error}). Its files are kept. Try again: a commit that landed is recognised.",
                sink=self._sink,
                checkpoint_id=mark.checkpoint_id,
            ) from error

    def _planned(self, table: OpenTable, position: TablePosition, mark: Mark, target: TableTarget) -> TableMove:
        """Return what a commit changes; the files that it adds are there."""
        if position.is_known and not target.realigns:
            with suppress(StateCorrupt):  # it is met again by who needs it
                self._records.read_all(one for one in (position.contents, mark.contents) if one is not None)
        now, is_trusted = self._ours_now(table, position, target.realigns)
        then = self._records.files(mark.contents)
        listed = table.live()
        live = now if listed is None else listed
        wanted = {file.key for file in then}
        added = tuple(file for file in then if file.key not in live)
        removed = tuple(file for key, file in now.items() if key not in wanted)
        self._files.check(added)
        schema = table.schema or (decode_schema(mark.contents.schema) if mark.contents is not None else pa.schema([]))
        before = tuple(now.values()) if is_trusted else None
        same = same_rows(removed, added)
        return TableMove(
            mark.number,
            mark.write_id,
            added,
            removed,
            schema,
            same,
            checkpoint_id=mark.checkpoint_id,
            retained=target.retained,
            before=before,
            after=then,
        )

    def _ours_now(
        self, table: OpenTable, position: TablePosition, realigns: bool
    ) -> tuple[Mapping[str, StagedFile], bool]:
        """Return our files of the table as it is, and whether those are what it shows, as far as is known.

        Records are collected with their checkpoint, also where the table still shows that: its sink was out of the spec
        while the job went back, or an older state of the table was restored. Then whatever of ours is live counts; by
        itself only where nobody else has changed the table since.
        """
        if position.is_known:
            try:
                return self.files_now(table, position, realigns=realigns), not realigns
            except StateCorrupt:
                if not realigns and table.foreign():
                    raise
        ours, unknown = files_of_ours(table)
        if unknown:
            raise InvalidRequest(
                f"sink {self._sink}: its table at {self._store.config.url} has {len(unknown)} files of others, "
                f"{unknown[0]} among them, and nobody can tell any more whether rows of this job are in them. "
                "Nothing was moved.",
                hint="take them out of the table if they are, then try again; or give the sink a new name and path, to "
                "begin a new table",
                sink=self._sink,
            )
        return ours, False

    def _waits(self, why: str, *, is_mixed: bool = False) -> InvalidRequest:
        hint = f"put it back; or let the job's state count: milepost realign {self._job} {self._sink}"
        if is_mixed:
            hint = (
                "put the table back to its version before that, as its own history can (RESTORE, or a rollback to a "
                "snapshot); or give the sink a new name and path, to begin a new table"
            )
        return InvalidRequest(
            f"sink {self._sink}: its table at {self._store.config.url} is not as this job left it: {why}. "
            "Nothing was moved.",
            hint=hint,
            sink=self._sink,
        )


def _overrules(target: TableTarget, position: TablePosition) -> bool:
    """Return whether a target counts although the table carries a greater number: a person has decided so.

    The number is of a later state of the job, whose storage was restored to an older one, or of a copy of the job.
    """
    return target.realigns and not position.is_known
