"""Take over another job's table in place, as of a savepoint of that job (TABLES 1.9).

Order of writes: read the table -> the mark's record, in this job's storage -> one compare-and-set commit of the format,
which sets the owner and the mark -> the reservation's successor. That commit makes late commits of the old job fail:
a handle from before it is outdated, and one from after it shows another owner.

After a crash before the commit, nothing has changed. After a crash after it, a retry finds its own table and writes the
successor. It also rewrites the records of the mark's contents, if they were deleted with the failed attempt's
checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from milepost.errors import CommitConflict, CommitOutcomeUnknown, InvalidRequest, StateCorrupt
from milepost.protocol.records import ObjectStore
from milepost.sinks.contract import TableTarget
from milepost.sinks.table.table_mover import MAX_LOST_RACES
from milepost.sinks.table_format import OpenTable, TableFormat
from milepost.tables.records import (
    ContentsRecords,
    Mark,
    MarkRecords,
    TableContents,
    TableOwner,
    TableView,
    ViewMark,
    decode_schema,
    describe_owner,
    identity_of,
    is_same_owner,
    staged_by,
    write_successor,
)


@dataclass(frozen=True, slots=True)
class Takeover:
    """Checks and performs the takeover for one sink.

    Attributes:
        store: rooted at the table. marks, records: in the job's storage.
    """

    sink: str
    store: ObjectStore
    table_format: TableFormat
    marks: MarkRecords
    records: ContentsRecords

    def table_view(self, contents: TableContents | None) -> TableView | None:
        """Return how the table shows contents, for a takeover; None if no known mark of the table has them."""
        marks = [] if contents is None else list(self.marks.with_contents(contents))
        if not marks:
            return None
        view_marks = tuple(ViewMark(mark.number, mark.write_id) for mark in marks)
        return TableView(marks[0].table_id, view_marks, tuple(file.key for file in self.records.files(contents)))

    def check(self, previous_owner: TableOwner, owner: TableOwner, view: TableView) -> OpenTable | None:
        """Return the table if it may be taken over; None if it has been. Changes nothing.

        Args:
            previous_owner: the other job's sink. Its identity is ignored, because marks are unique to one job identity.
            view: the table as the savepoint has it.
        Raises: InvalidRequest: the table is not as in the savepoint.
        """
        if self.table_format.is_database:
            raise self._refused(
                "a table in a database cannot be taken over in this version",
                "give the sink another table: the savepoint has its rows",
            )
        table = self.table_format.open()
        if table is None:
            raise self._refused("the table no longer exists", "give the sink a new path: the savepoint has its rows")
        if is_same_owner(table.owner, owner):
            self._check_taken(table, view)
            return None
        if table.owner is None or (table.owner.job, table.owner.sink) != (previous_owner.job, previous_owner.sink):
            actual = "has no owner" if table.owner is None else f"belongs to {describe_owner(table.owner)}"
            raise self._refused(
                f"it {actual}, the savepoint is of sink {previous_owner.sink} of job {previous_owner.job}",
                "give the sink another path",
            )
        job = previous_owner.job
        fresh = f"milepost cancel {job} --savepoint ends that job with a savepoint of its table"
        if table.table_id != view.table_id or ViewMark(table.number, table.write_id or "") not in view.marks:
            raise self._refused("it does not show the savepoint", f"{fresh}; start from that one")
        removed = {key for commit in table.foreign_commits() for key in commit.removed} & {*view.keys}
        live = table.live_files()
        missing = removed if live is None else removed | ({*view.keys} - live.keys())
        if missing:
            raise self._refused(
                f"other writers have since changed or rewritten {len(missing)} of its files, such as {min(missing)}",
                f"let job {job} run an epoch, then: {fresh}; start from that one",
            )
        resurrected = _resurrected_files(table, view)
        if resurrected:
            raise self._refused(
                f"{len(resurrected)} files that it had removed are live again, such as {min(resurrected)}",
                f"milepost realign {job} {previous_owner.sink} removes them again; then: {fresh}; start from that one",
            )
        return table

    def is_complete(self, owner: TableOwner, view: TableView) -> bool:
        """Return whether the owner has the table and it shows the savepoint, as far as is known."""
        table = None if self.table_format.is_database else self.table_format.open()
        if table is None or not is_same_owner(table.owner, owner):
            return False
        try:
            self._check_taken(table, view)
        except InvalidRequest:
            return False
        return True

    def take_over(self, previous_owner: TableOwner, owner: TableOwner, view: TableView, target: TableTarget) -> None:
        """Set the owner of the table, in one commit that changes nothing for readers.

        Args:
            target: the savepoint's contents as contents of this job, with the same files. Its number is the mark's.
        Raises: InvalidRequest: as `check`. CommitOutcomeUnknown: delete nothing, call again.
        """
        write_id = uuid4().hex
        for _ in range(MAX_LOST_RACES):
            table = self.check(previous_owner, owner, view)
            if table is None:
                self._restore_records(target)
                write_successor(self.store, owner)
                return
            contents = target.contents
            table.check(decode_schema(contents.schema) if contents is not None else None)
            mark = self.marks.record(Mark(target.number, 0, write_id, table.table_id, target.timeline, contents))
            try:
                table.claim(owner, table.missing_properties(owner), (mark.number, mark.write_id))
            except (CommitConflict, CommitOutcomeUnknown):
                continue  # the next check finds out which commit won
        raise CommitOutcomeUnknown(
            f"sink {self.sink}: the table at {self.store.config.url} was not taken over: other writers changed it "
            f"{MAX_LOST_RACES} times, or the outcome is unknown. Try again.",
            sink=self.sink,
        )

    def _check_taken(self, table: OpenTable, view: TableView) -> None:
        """Refuse a table of this very job that does not show the savepoint."""
        mark = self.marks.at(table.number) if table.number else None
        if mark is None or mark.write_id != table.write_id:
            raise self._is_another()
        try:
            keys = tuple(file.key for file in self.records.files(identity_of(mark.contents)))
        except StateCorrupt:  # deleted with the checkpoint of a failed attempt; `take_over` compares before it rewrites
            return
        if keys != view.keys:
            raise self._is_another()

    def _restore_records(self, target: TableTarget) -> None:
        """Rewrite the records of the mark that the table carries if they were deleted: its next move needs them.

        Raises: InvalidRequest: they differ from the target's records.
        """
        table = self.table_format.open()
        mark = None if table is None else self.marks.at(table.number)
        taken = None if mark is None else identity_of(mark.contents)
        if taken is None or self.records.are_stored(taken):
            return
        if target.contents is None or not self.records.copy_same(target.contents, taken):
            raise self._is_another()

    def _is_another(self) -> InvalidRequest:
        return self._refused(
            "it already belongs to this job and does not show the savepoint",
            "give the sink a new path: the savepoint has its rows",
        )

    def _refused(self, reason: str, hint: str) -> InvalidRequest:
        return InvalidRequest(
            f"sink {self.sink}: the table at {self.store.config.url} cannot be taken over from the savepoint: "
            f"{reason}. Nothing was changed.",
            hint=hint,
            sink=self.sink,
        )


def _resurrected_files(table: OpenTable, view: TableView) -> set[str]:
    """Return the keys of the other job's files that a restore made live in addition to the savepoint's files.

    This includes files that were compacted since, because their rows are still live.
    """
    resurrected: set[str] = set()
    for commit in table.foreign_commits():
        if not commit.keeps_rows:
            resurrected -= commit.removed
        resurrected |= {file.key for file in commit.added if staged_by(file.key) is not None}
    return resurrected - {*view.keys}
