"""The contents of a table belong to the checkpoint: the files it consists of, as records that are folded (I14).

A checkpoint adds one record per sink to those of the checkpoint that it continues. Each record is an object of its
own, named with its digest in `_metadata`, so it is kept for as long as any checkpoint refers to it. A new record takes
in the small ones before it, so that there are never more than `MAX_RECORDS`, and a file is written a few times at most.

What a table was or is to be is said by these alone, never by the table's own log: a move of the table is the
difference between two contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from milepost.codec.fields import Count
from milepost.codec.records import decode, encode
from milepost.errors import StateCorrupt
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.records.committables import JoinedFile, SchemaText, StagedFile
from milepost.sinks.records.table_address import TableAddress
from milepost.sinks.records.table_keys import TableFile, TableJoin, table_key_fault
from milepost.storage.concurrency.parallel_map import parallel_map
from milepost.storage.object_handles import read_handle, stat_handle, write_content_addressed

MAX_RECORDS = 20
"""More records than this are never folded for one checkpoint."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """What a table consists of at one checkpoint.

    Attributes:
        checkpoint_id: the newest checkpoint of this lineage that the sink was part of.
        address: of the table, as the spec said it then. location: the same, resolved, as `JobContext.sink_location`
            names it.
        table_id: the table's own identity; None: nobody has seen the table yet (a fork).
        schema: of the table: Arrow IPC, base64.
        files, rows: how many; of a table of the latest rows, those that were replaced since count as well.
        records: oldest first; folded, they are the table's files in commit order.
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
        """Return the empty table, as of checkpoint 0, with the same columns for who reads it."""
        return replace(self, checkpoint_id=0, files=0, rows=0, records=())


def identity_of(contents: TableContents | None) -> TableContents | None:
    """Return what tells contents of a table from others: not the columns of an empty one."""
    return contents if contents is not None and contents.checkpoint_id else None


@dataclass(frozen=True, slots=True)
class ContentsChange:
    """What one checkpoint does to the files of a table.

    Attributes:
        added: in commit order. removed: keys of files that are no longer part of the table.
        whole: `added` is all there is: what was before does not count.
        joined: files that come in the place of others, which were there before; the rows and their order stay.
    """

    stored_format: ClassVar[str] = "milepost.table-contents/4"

    added: tuple[TableFile, ...]
    removed: tuple[Annotated[str, table_key_fault], ...] = ()
    whole: bool = False
    joined: tuple[TableJoin, ...] = ()

    def check(self) -> str | None:
        """Return what is wrong with values that fit one by one; None when they belong together."""
        new = [file.key for file in self.added] + [one.file.key for one in self.joined]
        old = [*self.removed, *(key for one in self.joined for key in one.of)]
        for keys in (new, old):
            if len(set(keys)) < len(keys):
                return "it names a file twice"
        return "it is whole, and removes files" if self.whole and old else None

    def applied_to(self, files: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
        """Return the table's files after this change."""
        return self._kept(() if self.whole else files) + self.added

    def after(self, earlier: ContentsChange) -> ContentsChange:
        """Return one change that does what the earlier one and then this one do."""
        if self.whole:
            return self
        added = self.applied_to(earlier.added)
        if earlier.whole:
            return ContentsChange(added, whole=True)
        known = {file.key for file in earlier.added}
        before = {one.file.key: one.of for one in earlier.joined}

        def origins(keys: Iterable[str]) -> tuple[str, ...]:
            """Return the files that these were before the earlier change."""
            return tuple(origin for key in keys if key not in known for origin in before.get(key, (key,)))

        used = {*self.removed, *(key for one in self.joined for key in one.of)}
        joined = [one for one in earlier.joined if one.file.key not in used]
        joined += [JoinedFile(one.file, of) for one in self.joined if (of := origins(one.of))]
        removed = dict.fromkeys((*earlier.removed, *origins(self.removed)))
        return ContentsChange(added, tuple(removed), joined=tuple(joined))

    def _kept(self, files: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
        """Return what stays of these files, with the joined ones that begin among them in their places."""
        place = {one.of[0]: one.file for one in self.joined}
        gone = {*self.removed, *(key for one in self.joined for key in one.of)}
        found = (place.get(file.key) if file.key in gone else file for file in files)
        return tuple(file for file in found if file is not None)


class ContentsRecords:
    """The records of one job's tables; each is read once, because none ever changes.

    Args:
        store: of the job.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[str, ContentsChange] = {}

    def files(self, contents: TableContents | None) -> tuple[StagedFile, ...]:
        """Return the files of a table in commit order; None is the empty table. Raises StateCorrupt."""
        files: tuple[StagedFile, ...] = ()
        for change in self._changes(() if contents is None else contents.records):
            files = change.applied_to(files)
        return files

    def read_all(self, tables: Iterable[TableContents]) -> None:
        """Read the records of several contents side by side, each once: `files` finds them. Raises StateCorrupt."""
        self._changes(dict.fromkeys(handle for contents in tables for handle in contents.records))

    def extend(
        self, before: Sequence[ObjectHandle], change: ContentsChange, prefix: str, sink: str
    ) -> tuple[ObjectHandle, ...]:
        """Make durable what a checkpoint does to a table; return the records of its contents, oldest first.

        Args:
            before: records of the checkpoint that it continues. prefix: where the checkpoint's token writes them.
        Raises: StateCorrupt: a record that would be taken in cannot be read.
        """
        kept = [] if change.whole else list(before)
        taken: list[ObjectHandle] = []
        size = len(encode(change))
        while kept and (len(kept) >= MAX_RECORDS or kept[-1].size <= size):
            taken.append(kept.pop())
            size += taken[-1].size
        for earlier in self._changes(taken):
            change = change.after(earlier)
        handle = write_content_addressed(self._store, f"{prefix}{sink}-", ".json", encode(change))
        self._known[handle.sha256] = change
        return (*kept, handle)

    def are_stored(self, contents: TableContents) -> bool:
        """Return whether the records of contents are all in the storage now."""
        try:
            for handle in contents.records:
                stat_handle(self._store, handle)
        except StateCorrupt:
            return False
        return True

    def copy_same(self, contents: TableContents, to: TableContents) -> bool:
        """Write the records of contents where those of others are to be, if they are the same ones; return whether."""
        pairs = list(zip(contents.records, to.records, strict=False))
        same = all((one.size, one.sha256) == (other.size, other.sha256) for one, other in pairs)
        if not same or len(contents.records) != len(to.records):
            return False
        for one, other in pairs:
            self._store.put(other.key, read_handle(self._store, one))
        return True

    def _changes(self, records: Iterable[ObjectHandle]) -> list[ContentsChange]:
        wanted = list(records)
        unknown = [one for one in wanted if one.sha256 not in self._known]
        for handle, change in zip(unknown, parallel_map(self._store, self._read, unknown), strict=True):
            self._known[handle.sha256] = change
        return [self._known[one.sha256] for one in wanted]

    def _read(self, handle: ObjectHandle) -> ContentsChange:
        return decode(ContentsChange, read_handle(self._store, handle), handle.key, key=handle.key)
