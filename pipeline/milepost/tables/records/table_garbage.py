"""Lists of garbage files of a table, stored with the table until the files are deleted (I8).

A list is `_milepost/garbage/<20 digits of a manifest version>-<sha256>.json`, named by its content. It only states
since when its files are garbage. Before files are deleted, this is proven again. So a list that is lost, unreadable,
copied or forged costs time, and never a needed file. The files of an unreadable list are listed again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from milepost.codec import decode, encode
from milepost.errors import NotFound, StateCorrupt
from milepost.protocol.records import ObjectStore
from milepost.tables.records.table_keys import OWN, staged_by

GARBAGE = f"{OWN}garbage/"
MAX_LISTED = 10_000
"""Files in one list. The next collection lists the rest."""

_LIST_KEY = re.compile(rf"{GARBAGE}(\d{{20}})-([0-9a-f]{{64}})\.json")

_HINT = "delete the list: it only names files to delete later, and the next collection writes a new one"


def _file_fault(key: str) -> str | None:
    return None if staged_by(key) is not None else f"{key!r} is not a staged file of a table"


@dataclass(frozen=True, slots=True)
class TableGarbageList:
    """Files of one table that one collection found unreferenced.

    Attributes:
        manifest_version: of the collection. since_ms: when it began, by the clock of the sink's store.
        files: keys below the table, ascending, each a key that staging could have chosen.
    """

    stored_format: ClassVar[str] = "milepost.table-garbage/2"

    manifest_version: int
    since_ms: int
    files: tuple[Annotated[str, _file_fault], ...]

    def check(self) -> str | None:
        """Return the fault of values that fit one by one; None when they belong together."""
        ordered = self.files == tuple(sorted(set(self.files)))
        return None if ordered and self.manifest_version > 0 else "its files are out of order, or it has no version"

    @property
    def key(self) -> str:
        """The key of the list's object."""
        return f"{GARBAGE}{self.manifest_version:020d}-{hashlib.sha256(list_to_bytes(self)).hexdigest()}.json"


@dataclass(frozen=True, slots=True)
class TableGarbageLists:
    """The lists of one table, oldest first.

    Attributes:
        unreadable: key and fault of each unreadable list, for people. Such a list and its files are never deleted.
    """

    lists: tuple[TableGarbageList, ...]
    unreadable: tuple[str, ...]

    @property
    def files(self) -> frozenset[str]:
        """The files in the readable lists."""
        return frozenset(file for listed in self.lists for file in listed.files)


def is_list_key(key: str) -> bool:
    return _LIST_KEY.fullmatch(key) is not None


def list_to_bytes(listed: TableGarbageList) -> bytes:
    """Encode a list as canonical JSON."""
    return encode(listed)


def list_from_bytes(key: str, body: bytes) -> TableGarbageList:
    """Decode a list.

    Raises: StateCorrupt: it is invalid, or it lists a key that no staging could have chosen.
    """
    listed = decode(TableGarbageList, body, key, hint=_HINT, key=key)
    if listed.key != key:
        raise StateCorrupt(f"{key} contains another list than its name states", hint=_HINT, key=key)
    return listed


class TableGarbage:
    """The lists of one table."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def clock_ms(self) -> int:
        """Return the time of the sink's store, by which the age of a list is measured."""
        return self._store.clock_ms()

    def lists(self) -> TableGarbageLists:
        """Return all lists."""
        return self.read(stat.key for stat in self._store.list(GARBAGE) if is_list_key(stat.key))

    def read(self, keys: Iterable[str]) -> TableGarbageLists:
        """Return the lists at these keys that still exist."""
        lists, unreadable = [], []
        for key in sorted(keys):
            try:
                lists.append(list_from_bytes(key, self._store.get(key)))
            except NotFound:  # deleted after its files
                continue
            except StateCorrupt as error:
                unreadable.append(error.message)
        return TableGarbageLists(tuple(lists), tuple(unreadable))

    def add(self, listed: TableGarbageList) -> None:
        """Write a list durably, before any of its files is deleted (phase one)."""
        self._store.put(listed.key, list_to_bytes(listed))

    def delete(self, listed: TableGarbageList, files: Sequence[str]) -> None:
        """Delete these files of a list, then the list (phase two). After an interruption, the next call repeats it.

        Raises: StoreUnavailable, EnvironmentUnusable: the list stays.
        """
        self._store.delete(files)
        self._store.delete([listed.key])
