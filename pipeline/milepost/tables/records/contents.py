"""The files of a table at a checkpoint, stored as a log of changes (I14).

A checkpoint adds one record per sink to those of the checkpoint that it continues. Each record is an object, referenced
with its digest in `_metadata`, and retained while a checkpoint refers to it. A new record absorbs the preceding records
that are no larger than it. So there are never more than `MAX_RECORDS`, and each file is written to few records::

    sizes of the records   9 4 1, new 1     ->  9 4 2       the new one absorbs the 1
                           9 4 2, new 1     ->  9 4 2 1     1 < 2
                           9 4 2 1, new 1   ->  9 8         it absorbs 1, then 2, then 4

The contents alone define which files a table shows at a checkpoint. The table's own log does not. A move of the table
is the difference between two contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from milepost.codec import Count, decode, encode
from milepost.errors import StateCorrupt
from milepost.protocol.records import ObjectHandle, ObjectStore
from milepost.storage import read_handle, stat_handle, write_content_addressed
from milepost.storage.concurrency import parallel_map
from milepost.tables.records.committables import JoinedFile, SchemaText, StagedFile
from milepost.tables.records.table_address import TableAddress
from milepost.tables.records.table_keys import TableFile, TableJoin, table_key_fault

MAX_RECORDS = 20
"""Maximum number of records of one checkpoint."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table's contents at one checkpoint.

    Attributes:
        checkpoint_id: the newest checkpoint of this ancestry that included the sink.
        address: of the table, as in the spec at that time. location: the resolved address; see
            `JobContext.sink_location`.
        table_id: the table's own identity; None if the table has not been opened yet (a fork).
        schema: of the table: Arrow IPC, base64.
        files, rows: their numbers. For an upsert table in change files, replaced rows count as well.
        records: oldest first. Folded in this order, they give the table's files in commit order.
    """

    checkpoint_id: int
    address: TableAddress
    location: str
    table_id: str | None
    schema: SchemaText
    files: Count
    rows: Count
    records: tuple[ObjectHandle, ...]

    def emptied(self) -> TableContents:
        """Return the empty table, as of checkpoint 0, with the same columns for readers."""
        return replace(self, checkpoint_id=0, files=0, rows=0, records=())


def identity_of(contents: TableContents | None) -> TableContents | None:
    """Return the contents for comparison: None for an empty table, whose columns do not matter."""
    return contents if contents is not None and contents.checkpoint_id else None


@dataclass(frozen=True, slots=True)
class ContentsChange:
    """A change to the files of a table.

    Attributes:
        added: in commit order. removed: keys of removed files.
        whole: `added` replaces the whole table.
        joined: files that replace others of the table, without a change of rows or their order.
    """

    stored_format: ClassVar[str] = "milepost.table-contents/4"

    added: tuple[TableFile, ...]
    removed: tuple[Annotated[str, table_key_fault], ...] = ()
    whole: bool = False
    joined: tuple[TableJoin, ...] = ()

    def check(self) -> str | None:
        """Return why the fields contradict each other, or None if they do not."""
        new = [file.key for file in self.added] + [join.file.key for join in self.joined]
        old = [*self.removed, *(key for join in self.joined for key in join.of)]
        for keys in (new, old):
            if len(set(keys)) < len(keys):
                return "it names a file twice"
        return "it replaces all files, and also removes some" if self.whole and old else None

    def applied_to(self, files: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
        """Return the table's files after this change."""
        return self._remaining(() if self.whole else files) + self.added

    def after(self, earlier: ContentsChange) -> ContentsChange:
        """Return one change with the effect of the earlier one followed by this one.

        earlier: +a +b, -x      this: +c, -a      ->  +b +c, -x
        earlier: j joins x y    this: -j          ->  -x -y
        """
        if self.whole:
            return self
        added = self.applied_to(earlier.added)
        if earlier.whole:
            return ContentsChange(added, whole=True)
        added_earlier = {file.key for file in earlier.added}
        joined_earlier = {join.file.key: join.of for join in earlier.joined}

        def origins(keys: Iterable[str]) -> tuple[str, ...]:
            """Return the files, from before the earlier change, that supply the rows of these files."""
            return tuple(
                origin for key in keys if key not in added_earlier for origin in joined_earlier.get(key, (key,))
            )

        used = {*self.removed, *(key for join in self.joined for key in join.of)}
        joined = [join for join in earlier.joined if join.file.key not in used]
        joined += [JoinedFile(join.file, of) for join in self.joined if (of := origins(join.of))]
        removed = dict.fromkeys((*earlier.removed, *origins(self.removed)))
        return ContentsChange(added, tuple(removed), joined=tuple(joined))

    def _remaining(self, files: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
        """Return the files that remain. A joined file takes the position of its first input."""
        replacements = {join.of[0]: join.file for join in self.joined}
        replaced = {*self.removed, *(key for join in self.joined for key in join.of)}
        remaining = (replacements.get(file.key) if file.key in replaced else file for file in files)
        return tuple(file for file in remaining if file is not None)


class ContentsRecords:
    """The records of one job's tables. Records never change, so each is read once and cached.

    Args:
        store: the job's store.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._cache: dict[str, ContentsChange] = {}

    def files(self, contents: TableContents | None) -> tuple[StagedFile, ...]:
        """Return the files of a table in commit order. `contents`: None for the empty table. Raises StateCorrupt."""
        files: tuple[StagedFile, ...] = ()
        for change in self._changes(() if contents is None else contents.records):
            files = change.applied_to(files)
        return files

    def newest(self, contents: TableContents) -> tuple[StagedFile, ...]:
        """Return the files that the newest record of a table adds, reading no other record. Raises StateCorrupt."""
        (change,) = self._changes(contents.records[-1:])
        return change.applied_to(())

    def read_all(self, tables: Iterable[TableContents]) -> None:
        """Read the records of several contents in parallel, so that `files` finds them cached. Raises StateCorrupt."""
        self._changes(dict.fromkeys(handle for contents in tables for handle in contents.records))

    def extend(
        self, before: Sequence[ObjectHandle], change: ContentsChange, prefix: str, sink: str
    ) -> tuple[ObjectHandle, ...]:
        """Write the record of a checkpoint's change; return the records of its contents, oldest first.

        Args:
            before: records of the checkpoint that it continues. prefix: key prefix of the checkpoint's token.
        Raises: StateCorrupt: a record to absorb cannot be read.
        """
        remaining = [] if change.whole else list(before)
        absorbed: list[ObjectHandle] = []
        size = len(encode(change))
        while remaining and (len(remaining) >= MAX_RECORDS or remaining[-1].size <= size):
            absorbed.append(remaining.pop())
            size += absorbed[-1].size
        for earlier in self._changes(absorbed):
            change = change.after(earlier)
        handle = write_content_addressed(self._store, f"{prefix}{sink}-", ".json", encode(change))
        self._cache[handle.sha256] = change
        return (*remaining, handle)

    def are_stored(self, contents: TableContents) -> bool:
        """Return whether all records of the contents are stored now."""
        try:
            for handle in contents.records:
                stat_handle(self._store, handle)
        except StateCorrupt:
            return False
        return True

    def copy_same(self, contents: TableContents, to: TableContents) -> bool:
        """Copy the records of the contents to the keys of `to`, if both have equal records; return whether they do."""
        pairs = list(zip(contents.records, to.records, strict=False))
        same = all((one.size, one.sha256) == (other.size, other.sha256) for one, other in pairs)
        if not same or len(contents.records) != len(to.records):
            return False
        for one, other in pairs:
            self._store.put(other.key, read_handle(self._store, one))
        return True

    def _changes(self, records: Iterable[ObjectHandle]) -> list[ContentsChange]:
        handles = list(records)
        missing = [handle for handle in handles if handle.sha256 not in self._cache]
        for handle, change in zip(missing, parallel_map(self._store, self._read, missing), strict=True):
            self._cache[handle.sha256] = change
        return [self._cache[handle.sha256] for handle in handles]

    def _read(self, handle: ObjectHandle) -> ContentsChange:
        return decode(ContentsChange, read_handle(self._store, handle), handle.key, key=handle.key)
