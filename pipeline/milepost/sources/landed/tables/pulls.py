"""Divide the data files of a table into records of a log, by size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from milepost.sources.landed.tables.data_files import DataFile

P = TypeVar("P")


def take_files(start: P, steps: Iterable[tuple[P, DataFile | None]], max_bytes: int) -> tuple[P, tuple[DataFile, ...]]:
    """Return the place that one record reads to, and its files: at least one, if there is one.

    With `max_bytes` 100, files of 60, 30 and 20 bytes are two records::

        place  a    file 60    file 30 | file 20
        end         b          c         d

    Args:
        steps: each file with the place after it. A step without a file moves the place.
    """
    files: list[DataFile] = []
    size, end = 0, start
    for place, file in steps:
        if file is not None:
            if files and size + file.size > max_bytes:
                break
            files.append(file)
            size += file.size
        end = place
    return end, tuple(files)
