"""A mark says which contents a table carries, and by which transition of the manifest (I14).

No format keeps that for us: Delta's transactions of an application are one number whose history expires, Iceberg's
summaries go with their snapshots. So it is a record of ours, in the job's storage and alike for all formats::

    sinks/<sink>/marks/<20 digits of the number>.json

It is created only if absent, before the format's commit, which carries the number and the write id alone. The number
is the manifest version of the transition that made a checkpoint the table's target: its completion, or a switch of the
live timeline. It rises over all timelines, so of two moves the later decision wins in either order, and a commit that
comes late finds a number above its own. Whoever tries the same transition again finds the record and takes over its
write id. A record without a commit is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

from milepost.codec.records import decode, encode
from milepost.errors import CommitConflict, CommitOutcomeUnknown, NotFound, StateCorrupt
from milepost.protocol.records.layout import mark_key, marks_prefix
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.records.contents import TableContents, identity_of
from milepost.storage.layout import require_own_key

_WRITE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a table carries once a transition of the manifest has reached it.

    Attributes:
        number: manifest version of that transition.
        previous: number that the table carried when this record was made; 0: none.
        write_id: of the format's commit, 32 hexadecimal digits.
        table_id: the table's own identity.
        timeline: the live one since that transition.
        contents: what the table consists of, of checkpoint 0 its columns alone; None: it never had any.
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
        """Return what is wrong with values that fit one by one; None when they belong together."""
        if not 0 <= self.previous < self.number:
            return f"mark {self.number} follows {self.previous}"
        return None if _WRITE_ID.fullmatch(self.write_id) else "its write id is not 32 hexadecimal digits"


def _decision(mark: Mark) -> tuple[object, ...]:
    """Return what one transition decides, whoever carries it out."""
    return mark.table_id, mark.timeline, identity_of(mark.contents)


_known: WeakKeyDictionary[ObjectStore, dict[str, Mark]] = WeakKeyDictionary()
"""By store and sink: the mark that was last read or written. It counts for a table that carries its write id."""


class MarkRecords:
    """The marks of one sink.

    Args:
        store: of the job.
    """

    def __init__(self, store: ObjectStore, sink: str) -> None:
        self._store = store
        self._sink = sink

    def carried(self, number: int, write_id: str | None, table_id: str) -> Mark | None:
        """Return the mark that a table carries by these; None: it is none of this job's. Raises StateCorrupt."""
        known = _known.get(self._store, {}).get(self._sink)
        mark = known if known is not None and known.number == number else None
        if mark is None or (mark.write_id, mark.table_id) != (write_id, table_id):
            mark = self.at(number)
        return mark if mark is not None and (mark.write_id, mark.table_id) == (write_id, table_id) else None

    def at(self, number: int) -> Mark | None:
        """Return the mark of a number; None: there is no such record. Raises StateCorrupt."""
        key = mark_key(self._sink, number)
        try:
            body = self._store.get(key)
        except NotFound:
            return None
        mark = decode(Mark, body, key, key=key)
        if mark.number != number:
            raise StateCorrupt(f"{key}: says that it is mark {mark.number}", key=key)
        for handle in () if mark.contents is None else mark.contents.records:
            require_own_key(handle.key)
        return self._keep(mark)

    def _keep(self, mark: Mark) -> Mark:
        _known.setdefault(self._store, {})[self._sink] = mark
        return mark

    def of(self, contents: TableContents) -> Iterator[Mark]:
        """Return the marks that give the table these contents, newest first. Raises StateCorrupt."""
        for number in reversed(self.numbers()):
            mark = self.at(number)
            if mark is not None and identity_of(mark.contents) == identity_of(contents):
                yield mark

    def record(self, mark: Mark) -> Mark:
        """Create the record, or find the one of an earlier try, whose write id counts. Returns what is there.

        Raises:
            StateCorrupt: the same transition was to give the table another content. CommitOutcomeUnknown,
            StoreUnavailable: nothing was moved; call again.
        """
        key = mark_key(self._sink, mark.number)
        try:
            self._store.create(key, encode(mark))
            return self._keep(mark)
        except (CommitConflict, CommitOutcomeUnknown):
            there = self.at(mark.number)
            if there is None:
                raise
        if _decision(there) != _decision(mark):
            raise StateCorrupt(
                f"sink {self._sink}: {key} gives the table another content than checkpoint {mark.checkpoint_id} of "
                f"timeline {mark.timeline} has. Nothing was moved.",
                key=key,
                sink=self._sink,
            )
        return there

    def numbers(self) -> list[int]:
        """Return the numbers of all records, ascending."""
        prefix = marks_prefix(self._sink)
        return sorted(int(stat.key[len(prefix) : -len(".json")]) for stat in self._store.list(prefix))

    def forget(self, numbers: list[int]) -> None:
        """Delete the records of numbers that the table is beyond."""
        self._store.delete([mark_key(self._sink, number) for number in numbers])
