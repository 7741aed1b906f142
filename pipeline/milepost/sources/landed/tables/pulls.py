"""Divide the data files of a table into records of a log, by size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from milepost.sources.landed.tables.data_files import DataFile

P = TypeVar("P")

REFERENCED_FILES = 1_000
"""Maximum number of files that a record refers to, because a reader of its position reads the whole record."""


class FileSteps(Generic[P]):
    """The files after a place, of which one record after the other takes the next ones.

    Attributes:
        place: up to which files were taken.

    Args:
        steps: each file with the place after it. A step without a file moves the place.
    """

    def __init__(self, start: P, steps: Iterable[tuple[P, DataFile | None]]) -> None:
        self.place, self._steps = start, iter(steps)
        self._waiting: tuple[P, DataFile | None] | None = None

    def take(self, max_bytes: int, *, by_reference: bool) -> tuple[P, tuple[DataFile, ...]]:
        """Return the place that one record reads to, and its files: at least one, if there is one.

        With `max_bytes` 100, files of 60, 30 and 20 bytes are two records::

            place  a    file 60    file 30 | file 20
            end         b          c         d
        """
        files: list[DataFile] = []
        max_files = REFERENCED_FILES if by_reference else None
        size = 0
        while (step := self._waiting or next(self._steps, None)) is not None:
            place, file = self._waiting = step
            if file is not None:
                if files and (size + file.size > max_bytes or len(files) == max_files):
                    break
                files.append(file)
                size += file.size
            self.place, self._waiting = place, None
        return self.place, tuple(files)


def take_files(start: P, steps: Iterable[tuple[P, DataFile | None]], max_bytes: int) -> tuple[P, tuple[DataFile, ...]]:
    """Return the place that one record reads to, and the files that it copies."""
    return FileSteps(start, steps).take(max_bytes, by_reference=False)
