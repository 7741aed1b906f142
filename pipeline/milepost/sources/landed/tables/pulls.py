"""Divide the data files of a table into records of a log, by size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import chain, compress
from typing import Generic, TypeAlias, TypeVar

from milepost.sources.landed.contract import PassedFiles
from milepost.sources.landed.tables.data_files import DataFile, missing_files

P = TypeVar("P")


class Lost(Enum):
    """A step over a commit that was deleted, so its files are not known."""

    COMMIT = "commit"


Step: TypeAlias = tuple[P, DataFile | Lost | None]
"""A file with the position after it. A step without a file only moves the position."""

REFERENCED_FILES = 1_000
"""Maximum number of files that a record refers to. To find the end of a record, its whole list of files is read."""


class FileSteps(Generic[P]):
    """Divides the files after a position into records.

    A record continues the steps of the record before it, so that a large commit is read once for all of its records.
    """

    def __init__(self) -> None:
        self._end: P | None = None
        self._steps: Iterator[Step[P]] = iter(())

    def take(
        self,
        start: P,
        steps_after: Callable[[P], Iterator[Step[P]]],
        max_bytes: int,
        *,
        by_reference: bool = False,
    ) -> tuple[P, tuple[DataFile, ...]]:
        """Return the position that one record reads to, and its files: at least one, if there is one.

        With `max_bytes` 100, files of 60, 30 and 20 bytes are two records::

            position  a    file 60    file 30 | file 20
            end            b          c         d

        Args:
            steps_after: yields the steps after a position. Called unless the record before ended at `start`.
        """
        steps = self._steps if self._end == start else steps_after(start)
        self._end = None  # after an error the steps are read again
        files: list[DataFile] = []
        max_files = REFERENCED_FILES if by_reference else None
        end, size = start, 0
        for position, file in steps:
            if isinstance(file, DataFile):
                if files and (size + file.size > max_bytes or len(files) == max_files):
                    steps = chain([(position, file)], steps)
                    break
                files.append(file)
                size += file.size
            end = position
        self._end, self._steps = end, steps
        return end, tuple(files)


def after_loss(
    start: P, steps: Iterable[Step[P]], is_passed: Callable[[P], bool] = lambda _: False
) -> tuple[P, PassedFiles]:
    """Return the position after the newest lost file or commit, and the files that a gap up to there passes.

    With file b lost, the position is after b, and two files are passed, of which one is lost::

        file a    file b    file c    end of the commit

    Args:
        is_passed: whether a step to a position is passed even if nothing after it is lost.
    """
    every = [*steps]
    files = [(at, step) for at, (_, step) in enumerate(every) if isinstance(step, DataFile)]
    lost = {at for at, _ in compress(files, missing_files([file for _, file in files]))}
    commits = [at for at, (_, step) in enumerate(every) if step is Lost.COMMIT]
    chosen = [at for at, (position, _) in enumerate(every) if is_passed(position)]
    last = max((*lost, *commits, *chosen), default=-1)
    if last < 0:
        return start, PassedFiles(0, 0)
    passed = PassedFiles(sum(at <= last for at, _ in files), len(lost), len(commits))
    is_whole = last + 1 < len(every) and every[last + 1][1] is None  # the commit has no more files
    return every[last + is_whole][0], passed
