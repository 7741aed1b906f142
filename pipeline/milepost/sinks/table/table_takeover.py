"""A takeover makes another job's table this one's, where it is, as a savepoint of the other job shows it (TABLES 1.9).

Order: the table is looked at -> the mark's record, in this job's storage -> one commit of the format, compare-and-set,
after which the table is this job's and carries that mark -> the reservation's successor. By that commit the old job's
late ones fail: a handle from before it is outdated, one from after it shows another owner. Stopped before it, nothing
has changed; stopped after it, whoever does it again finds its own table, and writes the successor; and the records of
the mark's contents, if they were collected with the checkpoint of the try that died.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from milepost.errors import CommitConflict, CommitOutcomeUnknown, InvalidRequest, StateCorrupt
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.contract import TableTarget
from milepost.sinks.records.committables import decode_schema
from milepost.sinks.records.contents import ContentsRecords, TableContents, identity_of
from milepost.sinks.records.marks import Mark, MarkRecords
from milepost.sinks.records.reservation import TableOwner, is_same, named, succeed
from milepost.sinks.records.shown_table import ShownMark, ShownTable
from milepost.sinks.records.table_keys import staged_by
from milepost.sinks.table.table_mover import LOST_RACES
from milepost.sinks.table_format import OpenTable, TableFormat


@dataclass(frozen=True, slots=True)
class Takeover:
    """One sink's.

    Attributes:
        store: rooted at the table. marks, records: in the job's storage.
    """

    sink: str
    store: ObjectStore
    form: TableFormat
    marks: MarkRecords
    records: ContentsRecords

    def shown_as(self, contents: TableContents | None) -> ShownTable | None:
        """Return how the table shows contents, for who takes it over; None: it never did, as far as is known."""
        marks = [] if contents is None else list(self.marks.of(contents))
        if not marks:
            return None
        shown = tuple(ShownMark(mark.number, mark.write_id) for mark in marks)
        return ShownTable(marks[0].table_id, shown, tuple(file.key for file in self.records.files(contents)))

    def check(self, before: TableOwner, owner: TableOwner, shown: ShownTable) -> OpenTable | None:
        """Return the table when it may be taken, None when it was taken; changes nothing.

        Args:
            before: the other job's sink: its identity does not matter, since the marks are of one life alone.
            shown: the table as the savepoint has it.
        Raises: InvalidRequest: it is not the table that the savepoint shows.
        """
        if self.form.is_database:
            raise self._refused(
                "a table in a database is not taken over in this version",
                "give the sink another table: the savepoint has its rows",
            )
        table = self.form.open()
        if table is None:
            raise self._refused("there is no table any more", "give the sink a new path: the savepoint has its rows")
        if is_same(table.owner, owner):
            self._check_taken(table, shown)
            return None
        if table.owner is None or (table.owner.job, table.owner.sink) != (before.job, before.sink):
            whose = "nobody's" if table.owner is None else f"of {named(table.owner)}"
            raise self._refused(
                f"it is {whose}, the savepoint is of sink {before.sink} of job {before.job}",
                "give the sink another path",
            )
        fresh = f"milepost cancel {before.job} --savepoint ends that job with a savepoint of what its table shows"
        if table.table_id != shown.table_id or ShownMark(table.number, table.write_id or "") not in shown.marks:
            raise self._refused("it shows something else than the savepoint", f"{fresh}; start from that one")
        taken = {key for commit in table.foreign() for key in commit.removed} & {*shown.keys}
        live = table.live()
        gone = taken if live is None else taken | ({*shown.keys} - live.keys())
        if gone:
            raise self._refused(
                f"others changed or rewrote {len(gone)} files of it since, {min(gone)} among them",
                f"let job {before.job} run an epoch, then: {fresh}; start from that one",
            )
        back = _brought_back(table, shown)
        if back:
            raise self._refused(
                f"{len(back)} files that it had taken out were brought back, {min(back)} among them",
                f"milepost realign {before.job} {before.sink} takes them out again; then: {fresh}; start from that one",
            )
        return table

    def is_done(self, owner: TableOwner, shown: ShownTable) -> bool:
        """Return whether the table is the owner's and shows what the savepoint has, as far as is known."""
        table = None if self.form.is_database else self.form.open()
        if table is None or not is_same(table.owner, owner):
            return False
        try:
            self._check_taken(table, shown)
        except InvalidRequest:
            return False
        return True

    def take(self, before: TableOwner, owner: TableOwner, shown: ShownTable, target: TableTarget) -> None:
        """Make the table the owner's, in one commit that changes nothing that readers see.

        Args:
            target: the savepoint's contents as this job has them, where they lie; its number is the new mark's.
        Raises: InvalidRequest as `check`. CommitOutcomeUnknown: delete nothing, do it again.
        """
        write_id = uuid4().hex
        for _ in range(LOST_RACES):
            table = self.check(before, owner, shown)
            if table is None:
                self._write_again(target)
                succeed(self.store, owner)
                return
            contents = target.contents
            table.check(decode_schema(contents.schema) if contents is not None else None)
            mark = self.marks.record(Mark(target.number, 0, write_id, table.table_id, target.timeline, contents))
            try:
                table.claim(owner, table.lacks(owner), (mark.number, mark.write_id))
            except (CommitConflict, CommitOutcomeUnknown):
                continue  # the next look says who won
        raise CommitOutcomeUnknown(
            f"sink {self.sink}: the table at {self.store.config.url} was not taken over: others changed it "
            f"{LOST_RACES} times meanwhile, or nobody knows. Try again.",
            sink=self.sink,
        )

    def _check_taken(self, table: OpenTable, shown: ShownTable) -> None:
        """Refuse a table of this very job that shows anything but what was taken."""
        mark = self.marks.at(table.number) if table.number else None
        if mark is None or mark.write_id != table.write_id:
            raise self._is_another()
        try:
            keys = tuple(file.key for file in self.records.files(identity_of(mark.contents)))
        except StateCorrupt:  # collected with the checkpoint of a try that died: `take` compares what it writes again
            return
        if keys != shown.keys:
            raise self._is_another()

    def _write_again(self, target: TableTarget) -> None:
        """Write the records of the mark that the table carries, if they are gone: its next move begins with them.

        Raises: InvalidRequest: they are others than the target's.
        """
        table = self.form.open()
        mark = None if table is None else self.marks.at(table.number)
        taken = None if mark is None else identity_of(mark.contents)
        if taken is None or self.records.are_stored(taken):
            return
        if target.contents is None or not self.records.copy_same(target.contents, taken):
            raise self._is_another()

    def _is_another(self) -> InvalidRequest:
        return self._refused(
            "it is this job's already and shows something else", "give the sink a new path: the savepoint has its rows"
        )

    def _refused(self, why: str, hint: str) -> InvalidRequest:
        return InvalidRequest(
            f"sink {self.sink}: the table at {self.store.config.url} cannot be taken over from the savepoint: {why}. "
            "Nothing of it was changed.",
            hint=hint,
            sink=self.sink,
        )


def _brought_back(table: OpenTable, shown: ShownTable) -> set[str]:
    """Return files of the other job that a restore made live beside those of the savepoint, by their keys.

    Ones that were put together with others since are among them: their rows are still there.
    """
    back: set[str] = set()
    for commit in table.foreign():
        if not commit.keeps_rows:
            back -= commit.removed
        back |= {file.key for file in commit.added if staged_by(file.key) is not None}
    return back - {*shown.keys}
