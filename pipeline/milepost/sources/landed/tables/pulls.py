"""Divide the data files of a table into records of a log, by size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from itertools import compress
from typing import Generic, TypeVar

from milepost.sources.landed.contract import PassedFiles
from milepost.sources.landed.tables.data_files import DataFile, missing_files

P = TypeVar("P")


class Lost(Enum):
    """A step over a commit that was deleted, so its files are not known."""

    COMMIT = "commit"


REFERENCED_FILES = 1_000
"""Maximum number of files that a record refers to, because a reader of its position reads the whole record."""


class FileSteps(Generic[P]):
    """The files after a place, of which one record after the other takes the next ones.

    Attributes:
        place: up to which files were taken.

    Args:
        steps: each file with the place after it. A step without a file moves the place.
    """

    def __init__(self, start: P, steps: Iterable[tuple[P, DataFile | Lost | None]]) -> None:
        self.place, self._steps = start, iter(steps)
        self._waiting: tuple[P, DataFile | Lost | None] | None = None

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
            if isinstance(file, DataFile):
                if files and (size + file.size > max_bytes or len(files) == max_files):
                    break
                files.append(file)
                size += file.size
            self.place, self._waiting = place, None
        return self.place, tuple(files)


def take_files(start: P, steps: Iterable[tuple[P, DataFile | None]], max_bytes: int) -> tuple[P, tuple[DataFile, ...]]:
    """Return the place that one record reads to, and the files that it copies."""
    return FileSteps(start, steps).take(max_bytes, by_reference=False)


def after_loss(
    start: P, steps: Iterable[tuple[P, DataFile | Lost | None]], is_passed: Callable[[P], bool] = lambda _: False
) -> tuple[P, PassedFiles]:
    """Return the place after the newest file or commit that is lost, and what is between.

    With file b lost, the place is after b, and two files are passed, of which one is lost::

        file a    file b    file c    end of the commit

    Args:
        steps: as of `FileSteps`. is_passed: whether a step to a place is passed although nothing after it is lost.
    """
    every = [*steps]
    files = [(at, step) for at, (_, step) in enumerate(every) if isinstance(step, DataFile)]
    lost = {at for at, _ in compress(files, missing_files([file for _, file in files]))}
    commits = [at for at, (_, step) in enumerate(every) if step is Lost.COMMIT]
    chosen = [at for at, (place, _) in enumerate(every) if is_passed(place)]
    last = max((*lost, *commits, *chosen), default=-1)
    if last < 0:
        return start, PassedFiles(0, 0)
    passed = PassedFiles(sum(at <= last for at, _ in files), len(lost), len(commits))
    is_whole = last + 1 < len(every) and every[last + 1][1] is None  # the commit has no more files
    return every[last + is_whole][0], passed
