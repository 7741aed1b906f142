"""Read and write Iceberg metadata through the object store; never delete.

There is one way to S3 with one set of errors, and pyiceberg holds no credentials. pyiceberg deletes the manifests of a
commit that the catalog refuses. That is unsafe: a transport may repeat a request whose first copy landed, and then the
refusal of the second would delete the files of a landed snapshot. So `delete` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from milepost.errors import NotFound, StateCorrupt
from milepost.protocol.records import ObjectStore, file_url
from milepost.storage import open_store
from milepost.tables.iceberg.locations import key_below, normal_location, table_location

STORE = "milepost.store"
"""The catalog property that holds the table's store."""

OPEN_AT = "milepost.open_at"
"""The catalog property of a reader instead: a function that opens the store of a folder's URL."""


class _FileBuffer(BytesIO):
    """A buffer that is written to its file on close, unless the writing block raised."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__()
        self._file = file
        self._is_complete = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_complete = kind is None
        self.close()

    def close(self) -> None:
        if not self.closed:
            if self._is_complete:
                self._file.put(self.getvalue())
            super().close()


class StoredFile(InputFile, OutputFile):
    """One file at a location. Names of Iceberg metadata files are unique, so no file is ever overwritten."""

    def __init__(self, location: str, store: ObjectStore, key: str) -> None:
        super().__init__(location)
        self.store = store
        self.key = key
        self._size: int | None = None

    def __len__(self) -> int:
        if self._size is None:
            self._size = self.store.stat(self.key).size
        return self._size

    def exists(self) -> bool:
        try:
            self.store.stat(self.key)
        except NotFound:
            return False
        return True

    def open(self, seekable: bool = True) -> BytesIO:
        try:
            return BytesIO(self.store.get(self.key))
        except NotFound as error:
            raise StateCorrupt(
                f"{self.location} is missing, but the table needs it. Nothing was changed.",
                hint="restore that file, or give the sink a new path",
                key=self.key,
            ) from error

    def create(self, overwrite: bool = False) -> _FileBuffer:
        return _FileBuffer(self)

    def put(self, body: bytes) -> None:
        self.store.put(self.key, body)
        self._size = len(body)

    def to_input_file(self) -> StoredFile:
        return self


class StoreFileIO(FileIO):
    """File IO below the table's root, and at other locations that its metadata names.

    pyiceberg constructs it from the catalog's properties. The property `STORE` holds the table's store.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__()
        self._store: ObjectStore = properties[STORE]
        self._root = table_location(self._store.config)

    def new_input(self, location: str) -> StoredFile:
        return self._file(location)

    def new_output(self, location: str) -> StoredFile:
        return self._file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Do nothing; see the module docstring."""

    def _file(self, location: str) -> StoredFile:
        key = key_below(self._root, location)
        if "://" not in key:
            return StoredFile(location, self._store, key)
        return _file_anywhere(location, lambda url: open_store(replace(self._store.config, url=url)))


class ReaderFileIO(StoreFileIO):
    """File IO for a table that is only read, at the locations that its catalog and its metadata name.

    The property `OPEN_AT` holds a function that opens the store of a folder.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        FileIO.__init__(self)
        self._open_at: Callable[[str], ObjectStore] = properties[OPEN_AT]

    def _file(self, location: str) -> StoredFile:
        return _file_anywhere(location, self._open_at)


def file_io(properties: Mapping[str, Any]) -> StoreFileIO:
    """Return the file IO for the properties of a catalog."""
    return ReaderFileIO(properties) if OPEN_AT in properties else StoreFileIO(properties)


def _file_anywhere(location: str, open_at: Callable[[str], ObjectStore]) -> StoredFile:
    folder, _, name = normal_location(location).rpartition("/")
    url = file_url(Path(folder.removeprefix("file://"))) if folder.startswith("file:") else folder
    return StoredFile(location, open_at(url), name)
