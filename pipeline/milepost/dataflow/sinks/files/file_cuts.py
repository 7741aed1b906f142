"""Files are cut into parts that are read, or joined, together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from milepost.dataflow.sinks.records.committables import StagedFile


def cut_by_bytes(files: Iterable[StagedFile], most: int) -> Iterator[tuple[StagedFile, ...]]:
    """Yield the files in their order, so many together that they have at most so many bytes; a larger one alone."""
    part, size = list[StagedFile](), 0
    for file in files:
        if part and size + file.size > most:
            yield tuple(part)
            part, size = [], 0
        part.append(file)
        size += file.size
    if part:
        yield tuple(part)
