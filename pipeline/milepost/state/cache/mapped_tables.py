"""Share memory-mapped Arrow files between the tasks of a node.

The first task writes a file, and all tasks map it. The files are in folders of their own next to those of the state
cache, and are deleted like these: a folder is marked with the completed checkpoint whose epoch used it last, and is
deleted once that checkpoint is subsumed (`cache.py`).

    <directory>/lookup-9f2c…/1f0d….4711.9ab3c2d1.12.arrow    a table that checkpoint 12 recorded
                             14.completed                     an epoch that continued checkpoint 14 used it

A file name has the size and the CRC-32 of the content. A process verifies them before its first use of the file. The
files are disposable: an error is logged, and the table is built again in memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from milepost.state.cache.cache import SUFFIX, TEMPORARY, crc32_of, is_private, mark, version_of

_LOCK = "lock"

_mapped: dict[Path, tuple[tuple[int, ...], pa.Table]] = {}
"""Mapped tables of this process: path -> (version of the file, table)."""

logger = logging.getLogger(__name__)


class MappedTables:
    """The tables of one kind, in one folder.

    Args:
        directory: the job's cache directory on the node. name: the lookup operator.
        base: the completed checkpoint that the epoch continues; 0: none.
    """

    def __init__(self, directory: str | os.PathLike[str], name: str, base: int) -> None:
        self._directory = Path(directory)
        self._folder = self._directory / f"lookup-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        self._name, self._base = name, base

    def mapped(self, identity: str, written_by: int, make: Callable[[], pa.Table]) -> pa.Table:
        """Return a table as a mapped file. The first task builds it while the other tasks wait.

        Args:
            identity: digest of everything that the table depends on.
            written_by: the folder is retained at least until this checkpoint is subsumed.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not is_private(self._directory):
                return make()
            self._folder.mkdir(exist_ok=True, mode=0o700)
            for deleted in [path for path in _mapped if not path.exists()]:  # a mapping keeps its disk space in use
                del _mapped[deleted]
            with _locked(self._folder / _LOCK):
                table = self._find(identity)
                if table is None:
                    table = self._build(identity, written_by, make)
                if self._base:
                    mark(self._folder, self._base)
                return table
        except (OSError, pa.ArrowException) as error:
            logger.warning("the node's table of %s cannot be cached (%s); it is built in memory", self._name, error)
            return make()

    def _find(self, identity: str) -> pa.Table | None:
        for path in sorted(self._folder.glob(f"{identity}.*{SUFFIX}")):
            table = _map(path)
            if table is not None:
                return table
            logger.warning("the node's table of %s: %s is damaged; it is replaced", self._name, path.name)
            path.unlink(missing_ok=True)
        return None

    def _build(self, identity: str, written_by: int, make: Callable[[], pa.Table]) -> pa.Table:
        table = make()
        for old in self._folder.iterdir():  # existing mappings stay valid
            if old.suffix in (SUFFIX, TEMPORARY):
                _mapped.pop(old, None)
                old.unlink(missing_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f"{identity}-", suffix=TEMPORARY, dir=self._folder)
        os.close(descriptor)
        temporary = Path(name)
        with pa.OSFile(name, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        entry = self._folder / f"{identity}.{temporary.stat().st_size}.{crc32_of(temporary):08x}.{written_by}{SUFFIX}"
        temporary.replace(entry)
        mapped = _map(entry)
        return table if mapped is None else mapped


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the process ends
        yield


def _map(path: Path) -> pa.Table | None:
    """Map a file if its content matches its name, or return None."""
    version = version_of(path)
    mapped = _mapped.get(path)
    if mapped is not None and mapped[0] == version:
        return mapped[1]
    _, size, checksum, _, _ = path.name.split(".")
    if version[1] != int(size) or f"{crc32_of(path):08x}" != checksum:
        return None
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    _mapped[path] = (version, table)
    return table
