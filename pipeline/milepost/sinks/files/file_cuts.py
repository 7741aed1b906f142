"""Files, or what is written to them, are cut into parts that are read, joined or written together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from milepost.sinks.records.committables import StagedFile

T = TypeVar("T")


def cut_by_size(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[tuple[T, ...]]:
    """Yield the items in their order, so many together that they have at most so many bytes; a larger one alone."""
    part, total = list[T](), 0
    for item in items:
        if part and total + size(item) > most:
            yield tuple(part)
            part, total = [], 0
        part.append(item)
        total += size(item)
    if part:
        yield tuple(part)


def cut_by_bytes(files: Iterable[StagedFile], most: int) -> Iterator[tuple[StagedFile, ...]]:
    """Yield the files in their order, cut by their sizes."""
    return cut_by_size(files, lambda file: file.size, most)
