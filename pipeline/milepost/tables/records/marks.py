"""Marks: which contents a table carries, and which transition of the manifest put them there (I14).

No table format can store this. A Delta application transaction is one number whose history expires, and Iceberg's
summaries are deleted with their snapshots. So a mark is a record in the job's storage, the same for all formats::

    sinks/<sink>/marks/<20 digits of the number>.json

It is created only if absent, before the format's commit, which carries just the number and the write id. The number is
the manifest version of the transition that made the contents the table's target: the completion of a checkpoint, or a
switch of the live timeline. It increases across all timelines, so the later decision wins in whatever order two moves
arrive::

    version 97 completes checkpoint 42, version 98 rolls back to checkpoint 40
    97 then 98     the table shows 42, then 40 (mark 98, previous 97)
    98 then 97     the table shows 40; the late move finds number 98 > 97 and changes nothing

A retry of the same transition finds the record and uses its write id, so it recognises the commit of the first attempt.
A record without a commit is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar
from weakref import WeakKeyDictionary

from milepost.codec import decode, encode
from milepost.errors import CommitConflict, CommitOutcomeUnknown, NotFound, StateCorrupt
from milepost.protocol.records import ObjectStore, mark_key, marks_prefix
from milepost.storage import require_own_key
from milepost.tables.records.contents import TableContents, identity_of
from milepost.tables.records.table_keys import table_key_fault

_WRITE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Mark:
    """The contents of a table after a transition of the manifest.

    Attributes:
        number: manifest version of the transition.
        previous: number that the table carried when this record was created; 0 for none.
        write_id: identifies the format's commit, 32 hexadecimal digits.
        table_id: the table's own identity.
        timeline: the live timeline after the transition.
        contents: for checkpoint 0 the columns only; None if the table never had contents.
    """

    stored_format: ClassVar[str] = "milepost.table-mark/1"

    number: int
    previous: int
    write_id: str
    table_id: str
    timeline: str
    contents: TableContents | None

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint that the table shows; 0 for the empty table."""
        return 0 if self.contents is None else self.contents.checkpoint_id

    def check(self) -> str | None:
        """Return the fault of values that fit one by one; None when they belong together."""
        if not 0 <= self.previous < self.number:
            return f"mark {self.number} follows {self.previous}"
        return None if _WRITE_ID.fullmatch(self.write_id) else "its write id is not 32 hexadecimal digits"


def _decision(mark: Mark) -> tuple[object, ...]:
    """Return the part of a mark that every attempt at the same transition must share."""
    return mark.table_id, mark.timeline, identity_of(mark.contents)


_cache: WeakKeyDictionary[ObjectStore, dict[str, Mark]] = WeakKeyDictionary()
"""The mark last read or written, by store and sink. It is used only for a table that carries its write id."""


class MarkRecords:
    """The marks of one sink.

    Args:
        store: of the job.
    """

    def __init__(self, store: ObjectStore, sink: str) -> None:
        self._store = store
        self._sink = sink

    def matching(self, number: int, write_id: str | None, table_id: str) -> Mark | None:
        """Return the mark that a table with these values carries; None if it is not this job's. Raises StateCorrupt."""
        cached = _cache.get(self._store, {}).get(self._sink)
        mark = cached if cached is not None and cached.number == number else None
        if mark is None or (mark.write_id, mark.table_id) != (write_id, table_id):
            mark = self.at(number)
        return mark if mark is not None and (mark.write_id, mark.table_id) == (write_id, table_id) else None

    def at(self, number: int) -> Mark | None:
        """Return the mark with this number; None if there is no record. Raises StateCorrupt."""
        key = mark_key(self._sink, number)
        try:
            body = self._store.get(key)
        except NotFound:
            return None
        mark = decode(Mark, body, key, key=key)
        if mark.number != number:
            raise StateCorrupt(f"{key} contains mark {mark.number}", key=key)
        for handle in () if mark.contents is None else mark.contents.records:
            require_own_key(handle.key)
        return self._remember(mark)

    def _remember(self, mark: Mark) -> Mark:
        _cache.setdefault(self._store, {})[self._sink] = mark
        return mark

    def with_contents(self, contents: TableContents) -> Iterator[Mark]:
        """Yield the marks with these contents, newest first. Raises StateCorrupt."""
        for number in reversed(self.numbers()):
            mark = self.at(number)
            if mark is not None and identity_of(mark.contents) == identity_of(contents):
                yield mark

    def record(self, mark: Mark) -> Mark:
        """Create the record and return it; if an earlier attempt created one, return that, with its write id.

        Raises:
            StateCorrupt: the stored record has other contents. CommitOutcomeUnknown, StoreUnavailable: nothing was
            moved; call again.
        """
        key = mark_key(self._sink, mark.number)
        try:
            self._store.create(key, encode(mark))
            return self._remember(mark)
        except (CommitConflict, CommitOutcomeUnknown):
            stored = self.at(mark.number)
            if stored is None:
                raise
        if _decision(stored) != _decision(mark):
            raise StateCorrupt(
                f"sink {self._sink}: {key} has other contents than checkpoint {mark.checkpoint_id} of timeline "
                f"{mark.timeline}. Nothing was moved.",
                key=key,
                sink=self._sink,
            )
        return stored

    def numbers(self) -> list[int]:
        """Return the numbers of all records, ascending."""
        prefix = marks_prefix(self._sink)
        return sorted(int(stat.key[len(prefix) : -len(".json")]) for stat in self._store.list(prefix))

    def published_since(self, number: int) -> list[int]:
        """Return when each mark above a number was recorded, ascending, in ms by the store's clock."""
        listing = self._store.list(marks_prefix(self._sink), start_after=mark_key(self._sink, number))
        return sorted(stat.last_modified_ms for stat in listing)

    def delete(self, numbers: list[int]) -> None:
        self._store.delete([mark_key(self._sink, number) for number in numbers])


@dataclass(frozen=True, slots=True)
class ViewMark:
    """A mark with which a table shows the savepoint."""

    number: int
    write_id: str


@dataclass(frozen=True, slots=True)
class TableView:
    """A table that shows a savepoint.

    Attributes:
        table_id: the table's own identity. marks: the table carries one of these. keys: of its files, in commit order.
    """

    table_id: str
    marks: tuple[ViewMark, ...]
    keys: tuple[Annotated[str, table_key_fault], ...]
