"""Divide files or rows into batches of a limited size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from milepost.tables.records import StagedFile

T = TypeVar("T")


def cut_by_size(items: Iterable[T], size: Callable[[T], int], max_size: int) -> Iterator[tuple[T, ...]]:
    """Yield the items in their order, in batches of at most `max_size`. A larger item is a batch of its own.

    Sizes 3 4 9 2 2 with a maximum of 8: (3 4) (9) (2 2).
    """
    batch, total = list[T](), 0
    for item in items:
        if batch and total + size(item) > max_size:
            yield tuple(batch)
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield tuple(batch)


def cut_by_bytes(files: Iterable[StagedFile], max_bytes: int) -> Iterator[tuple[StagedFile, ...]]:
    """Yield the files in their order, in batches of at most `max_bytes`."""
    return cut_by_size(files, lambda file: file.size, max_bytes)
