"""Move a table to given contents by one numbered commit of the difference (I14, DESIGN 7).

An epoch's commit, catching up, a switch to a fork and a rollback are the same operation.

    table shows files a b c, target contents a c d     ->  one commit: -b +d, number 97
    number 97 again, after a crash                     ->  nothing: the table carries 97 already
    number 95, of a writer that was paused             ->  refused: Superseded

Order of writes: the mark's record -> the format's commit, on the handle that was read -> confirmation in the manifest.
Any error of a commit is an unknown outcome until the table is opened again. Then the write id in the record decides
whether the commit landed, whichever process sent it.

Files that another writer appended are left alone, also by a rollback. A foreign rewrite that declares that it keeps
the rows (a compaction by an engine) counts as the job's content. Any other foreign change of the job's rows is refused,
and the sink waits.
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
from milepost.protocol.records import ObjectStore
from milepost.sinks.contract import TablePosition, TableTarget
from milepost.sinks.parquet_files.table_files import TableFiles
from milepost.sinks.parquet_files.table_schema import widened_schema
from milepost.sinks.staging.small_files import same_rows
from milepost.sinks.table.foreign_commits import find_own_files, follow_foreign_commits
from milepost.sinks.table.table_ownership import TableOwnership
from milepost.sinks.table_format import OpenTable, TableFormat, TableMove
from milepost.storage.concurrency import prefetch
from milepost.tables.records import (
    ContentsChange,
    ContentsRecords,
    Mark,
    MarkRecords,
    StagedFile,
    TableContents,
    decode_schema,
    identity_of,
    read_reservation,
)

MAX_LOST_RACES = 10
"""Number of attempts of a move when other writers keep changing the table."""

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
        table_format: TableFormat,
        marks: MarkRecords,
        records: ContentsRecords,
        ownership: TableOwnership,
    ) -> None:
        self._sink, self._job, self._store = sink, job, store
        self._format, self._marks, self._records, self._ownership = table_format, marks, records, ownership
        self._files = TableFiles(sink, store)

    def read_table(self) -> tuple[OpenTable | None, TablePosition]:
        """Return the table as it is now, and its position."""
        table = self._format.open()
        return table, self._position(table)

    def prefetch_table(self) -> None:
        """Read the table for the `move` that follows, if the format caches what it reads."""
        if self._format.caches_reads:
            with suppress(CheckpointError):
                self.read_table()

    def probe(self) -> str:
        """Return a description of the table as of now. Raises what would keep an epoch from writing it."""
        table, position = self.read_table()
        if table is None:
            shown = "there is none yet; the first epoch creates it"
        else:
            table.check(table.schema)
            shown = f"it shows {position}"
        return "; ".join(filter(None, (shown, self._format.probe())))

    def create_table(self, schema: pa.Schema) -> tuple[OpenTable, TablePosition]:
        """Create an empty table, and open it. A table that another writer creates first is opened instead.

        Raises: InvalidRequest: the location is no longer reserved.
        """
        self._create(schema)
        table, position = self.read_table()
        if table is None:
            raise InvalidRequest(
                f"sink {self._sink}: {self._store.config.url} is no longer reserved for it. Nothing was published.",
                hint="another process deletes objects below the sink's path: find it, then run again",
                sink=self._sink,
            )
        return table, position

    def check_position(self, position: TablePosition, base: TableContents | None) -> None:
        """Refuse a table that does not show the checkpoint that the epoch continues (I14)."""
        expected = 0 if base is None else base.checkpoint_id
        if position.is_known and position.checkpoint_id == expected:
            return
        raise InvalidRequest(
            f"sink {self._sink}: its table shows {position}, expected checkpoint {expected}. Nothing was published.",
            hint="it was moved, deleted or restored, or a copy of the job writes it: restore it, or use a new path; to "
            f"replace its rows by the job's state: milepost realign {self._job} {self._sink}",
            sink=self._sink,
        )

    def check_columns(self, contents: TableContents | None) -> None:
        """Refuse contents with a column of another type than the table's. Raises InvalidRequest."""
        table = None if contents is None else self._format.open()
        if contents is not None and table is not None and table.schema is not None:
            widened_schema(self._sink, table.schema, decode_schema(contents.schema))

    def move(self, target: TableTarget, before_commit: Callable[[], None]) -> bool:
        """Move the table; see `MovingSink.move`."""
        write_id = uuid4().hex
        for attempt in range(MAX_LOST_RACES):
            cached = None if attempt else self._cached_read(target)
            if cached is None:  # the table may have to be created or claimed before its commit
                before_commit()
            table, position = cached or self.read_table()
            if table is not None:
                self._ownership.refuse_foreign_owner(table)
            if position.number >= target.number and not _overrules(target, position):
                return self._check_already_moved(position, target)
            if table is None:
                if target.contents is None:
                    return False  # no commit to this table was ever prepared
                was_dropped = target.contents.table_id is not None and not target.realigns
                if was_dropped or not self._create(decode_schema(target.contents.schema)):
                    raise self._blocked("the table no longer exists")
                continue
            self._check_target(table, position, target)
            expected_id = None if target.contents is None or target.realigns else target.contents.table_id
            if table.owner is None:
                before_commit()
                if not self._ownership.ensure_owned(table, expected_id):
                    continue
            if table.schema is not None and target.contents is not None:
                wider = widened_schema(self._sink, table.schema, decode_schema(target.contents.schema))
                if len(wider) > len(table.schema):
                    before_commit()
                    with suppress(CommitConflict):  # possibly caused by this very commit, so open the table again
                        table.widen(wider)
                    continue
            contents = target.contents or (position.contents.emptied() if position.contents is not None else None)
            previous = position.number if position.number < target.number else 0
            mark = Mark(target.number, previous, write_id, table.table_id, target.timeline, contents)
            if self._commit(table, position, mark, target, before_commit):
                return True
        raise CommitOutcomeUnknown(
            f"sink {self._sink}: checkpoint {target.checkpoint_id} lost the race for the table {MAX_LOST_RACES} times. "
            "None of its changes are visible. Try again.",
            sink=self._sink,
            checkpoint_id=target.checkpoint_id,
        )

    def current_files(
        self, table: OpenTable, position: TablePosition, *, realigns: bool = False
    ) -> dict[str, StagedFile]:
        """Return the job's live files: those of the mark, or foreign rewrites that kept their rows, by key.

        Args:
            realigns: include files with foreign changes of the job's rows, and resurrected files. The move of a
                realignment replaces them by the job's state.
        Raises: InvalidRequest: a foreign commit removed rows of the job, mixed foreign rows in, or resurrected rows.
        """
        changes = follow_foreign_commits(self._records.files(position.contents), table.foreign_commits())
        if changes.fault is not None and (changes.is_mixed or not realigns):
            raise self._blocked(changes.fault, is_mixed=changes.is_mixed)
        own, resurrected = changes.files, changes.resurrected
        live = table.live_files()
        missing = [] if live is None else sorted(own.keys() - live.keys())
        if missing and not realigns:
            raise self._blocked(f"{len(missing)} of its files are no longer live, such as {missing[0]}")
        if resurrected and not realigns:
            raise self._blocked(
                f"{len(resurrected)} files that it had removed are live again, such as {min(resurrected)}"
            )
        return {key: file for key, file in {**own, **resurrected}.items() if key not in missing}

    def rewritten(self, table: OpenTable, position: TablePosition, recorded: Sequence[StagedFile]) -> ContentsChange:
        """Return the foreign rewrites of the job's files. Raises InvalidRequest: a foreign commit changed rows."""
        now = self.current_files(table, position)
        before = {file.key for file in recorded}
        return ContentsChange(
            tuple(file for key, file in now.items() if key not in before),
            tuple(file.key for file in recorded if file.key not in now),
        )

    def _cached_read(self, target: TableTarget) -> tuple[OpenTable, TablePosition] | None:
        """Return the cached read of the table if a commit follows, which compares the version in any case."""
        table = self._format.recent()
        if table is None or not table.number:
            return None
        position = self._position(table)
        is_next = position.is_known and position.number < target.number and position.checkpoint_id == target.follows
        return (table, position) if is_next else None

    def _position(self, table: OpenTable | None) -> TablePosition:
        if table is None or not table.number:
            return TablePosition(0, None)
        mark = self._marks.matching(table.number, table.write_id, table.table_id)
        return TablePosition(table.number, mark, table.readers_version)

    def _create(self, schema: pa.Schema) -> bool:
        """Create an empty table for the owner of the reservation. False: the location is not reserved."""
        reserved = read_reservation(self._store)
        if reserved is None:
            return False
        self._format.create(reserved.owner, schema)
        return True

    def _check_already_moved(self, position: TablePosition, target: TableTarget) -> bool:
        """Return False if the table carries the target's mark, or a later mark that followed it.

        The marks form a chain by `previous`. A table at mark 9 (previous 7, whose previous is 4) has had target 7, and
        supersedes target 8: the decision of 9 was made without it.

        Raises: Superseded, InvalidRequest, StateCorrupt.
        """
        if not position.is_known:
            raise self._blocked(f"it carries mark {position.number}, which is not of this job")
        mark = position.mark
        while mark is not None and mark.number > target.number:
            mark = self._marks.at(mark.previous) if mark.previous >= target.number else None
        if mark is None:
            raise Superseded(
                f"sink {self._sink}: checkpoint {target.checkpoint_id} of timeline {target.timeline} is superseded: "
                f"the table shows {position}. Nothing was moved. Do not retry: the later decision counts.",
                sink=self._sink,
                checkpoint_id=target.checkpoint_id,
                head=position.checkpoint_id,
            )
        if identity_of(mark.contents) != identity_of(target.contents):
            raise StateCorrupt(
                f"sink {self._sink}: the table's mark {mark.number} has other contents than checkpoint "
                f"{target.checkpoint_id}. Nothing was changed.",
                sink=self._sink,
            )
        return False

    def _check_target(self, table: OpenTable, position: TablePosition, target: TableTarget) -> None:
        if not position.is_known and not target.realigns:
            raise self._blocked(f"it carries mark {position.number}, which is not of this job")
        expected_id = target.contents.table_id if target.contents is not None else None
        was_recreated = expected_id is not None and expected_id != table.table_id and not position.number
        if was_recreated and not target.realigns:
            raise self._blocked("it was dropped and recreated")
        if target.follows is not None and position.checkpoint_id != target.follows:
            raise Superseded(
                f"sink {self._sink}: checkpoint {target.checkpoint_id} of timeline {target.timeline} refused: it "
                f"follows checkpoint {target.follows}, the table shows {position}. Nothing was moved. Do not retry: "
                "another commit replaced it.",
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
        """Commit on this handle. True: the commit landed. False: a foreign commit came first; decide again.

        The mark's record is written, and the added files are checked, before the format's commit.
        """
        move = prefetch(self._store, lambda: self._plan_move(table, position, mark, target), "table-move")
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
                return False  # a commit on that handle can no longer land
            raise CommitOutcomeUnknown(
                f"sink {self._sink}: it is unknown whether the commit of checkpoint {mark.checkpoint_id} landed "
                f"({error}). Its files were not deleted. Try again: a commit that landed is recognised.",
                sink=self._sink,
                checkpoint_id=mark.checkpoint_id,
            ) from error

    def _plan_move(self, table: OpenTable, position: TablePosition, mark: Mark, target: TableTarget) -> TableMove:
        """Return the changes of a commit. Raises StateCorrupt: a file to add is missing."""
        if position.is_known and not target.realigns:
            with suppress(StateCorrupt):  # the caller that needs the record meets the error again
                tables = (position.contents, mark.contents)
                self._records.read_all(contents for contents in tables if contents is not None)
        now, is_trusted = self._own_files(table, position, target.realigns)
        then = self._records.files(mark.contents)
        listed = table.live_files()
        live = now if listed is None else listed
        target_keys = {file.key for file in then}
        added = tuple(file for file in then if file.key not in live)
        removed = tuple(file for key, file in now.items() if key not in target_keys)
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

    def _own_files(
        self, table: OpenTable, position: TablePosition, realigns: bool
    ) -> tuple[Mapping[str, StagedFile], bool]:
        """Return the job's live files, and whether they are known to be exactly what the table shows.

        Records are deleted with their checkpoint, even if the table still shows it: the sink was out of the spec
        during a rollback, or an older state of the table was restored. Then all live files of the job count. Without
        a realignment that requires that no foreign commit followed.
        """
        if position.is_known:
            try:
                return self.current_files(table, position, realigns=realigns), not realigns
            except StateCorrupt:
                if not realigns and table.foreign_commits():
                    raise
        own, unknown = find_own_files(table)
        if unknown:
            raise InvalidRequest(
                f"sink {self._sink}: its table at {self._store.config.url} has {len(unknown)} foreign files, such "
                f"as {unknown[0]}, and it is unknown whether they contain rows of this job. Nothing was moved.",
                hint="remove them from the table if they do, then try again; or give the sink a new name and path "
                "for a new table",
                sink=self._sink,
            )
        return own, False

    def _blocked(self, reason: str, *, is_mixed: bool = False) -> InvalidRequest:
        hint = f"restore it; or replace its rows by the job's state: milepost realign {self._job} {self._sink}"
        if is_mixed:
            hint = (
                "restore the table's version before that (RESTORE, or a rollback to a snapshot); or give the sink a "
                "new name and path for a new table"
            )
        return InvalidRequest(
            f"sink {self._sink}: its table at {self._store.config.url} differs from what this job wrote: {reason}. "
            "Nothing was moved.",
            hint=hint,
            sink=self._sink,
        )


def _overrules(target: TableTarget, position: TablePosition) -> bool:
    """Return whether a realignment moves the table although the table carries a greater number.

    The greater number stems from a copy of the job, or from the time before the job's storage was restored.
    """
    return target.realigns and not position.is_known
