"""Splits of a source's planned objects: who reads what, objects that are large read in parts by several.

A split follows from the objects' keys and sizes, the spec and the parallelism alone: the trigger, the run and each
retry come to the same, and nobody asks the store. Where a part's records begin and end is for its reader to find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from milepost.errors import InvalidRequest
from milepost.jobspec.job.source_spec import SourceSpec
from milepost.sources.contract import ObjectPart, SourceObject
from milepost.sources.readers.streams import CODECS, MAX_WHOLE_READ_BYTES

UNIT_BYTES = 16 << 20
"""A part of an object has at least about so many bytes."""

_UNITS_PER_SUBTASK = 16
"""An object is divided so finely at most: the shares of the subtasks differ by less than a tenth of one."""


def is_divisible(source: SourceSpec, obj: SourceObject) -> bool:
    """Return whether several subtasks may read an object: one that can be read from its middle, and is large."""
    return obj.size > MAX_WHOLE_READ_BYTES and indivisible_reason(source, obj) is None


def indivisible_reason(source: SourceSpec, obj: SourceObject) -> str | None:
    """Return why an object has one reader, however large it is; None: it has several where it is large."""
    return "compressed" if obj.key.endswith(tuple(CODECS)) else source.indivisible_reason


def count_indivisible_objects(source: SourceSpec, objects: Iterable[SourceObject]) -> dict[str, int]:
    """Return how many large objects have one reader each, by why."""
    reasons = (indivisible_reason(source, obj) for obj in objects if obj.size > MAX_WHOLE_READ_BYTES)
    return dict(Counter(reason for reason in reasons if reason is not None))


def assign_splits(
    source: SourceSpec, objects: Sequence[SourceObject], parallelism: int
) -> tuple[tuple[ObjectPart, ...], ...]:
    """Cut the planned objects into contiguous splits of about equal bytes.

    Contiguous in plan order, so that (channel, sequence) order is plan order whatever the parallelism.

    Args:
        objects: in plan order.
        parallelism: at least 1.

    Returns:
        At most `parallelism` splits, none of them empty; fewer only where there is nothing left to cut.

    Raises:
        InvalidRequest: parallelism is below 1.
    """
    if parallelism < 1:
        raise InvalidRequest(f"parallelism of a source is at least 1, got {parallelism}.")
    units = [unit for at, obj in enumerate(objects) for unit in _units(source, at, obj, parallelism)]
    splits = min(parallelism, len(units))
    if splits == 0:
        return ()
    sizes = np.array([stop - start for _, start, stop in units], dtype=np.float64)
    ends = np.cumsum(sizes)
    middles = ends - sizes / 2
    cuts = [0]
    for index in range(1, splits):
        wanted = int(np.searchsorted(middles, ends[-1] * index / splits))
        # Leave at least one unit on either side of each cut.
        cuts.append(min(max(wanted, cuts[-1] + 1), len(units) - (splits - index)))
    cuts.append(len(units))
    return tuple(tuple(_joined(objects, units[a:b])) for a, b in pairwise(cuts))


_Unit = tuple[int, int, int]
"""Index of an object, and a range of its bytes."""


def _units(source: SourceSpec, at: int, obj: SourceObject, parallelism: int) -> list[_Unit]:
    """Return what of an object is never divided further, in order."""
    if not is_divisible(source, obj):
        return [(at, 0, obj.size)]
    count = min(obj.size // UNIT_BYTES, _UNITS_PER_SUBTASK * parallelism)
    if count > parallelism:
        count -= count % parallelism  # an object alone is cut evenly
    return [(at, start, stop) for start, stop in pairwise(obj.size * unit // count for unit in range(count + 1))]


def _joined(objects: Sequence[SourceObject], units: Sequence[_Unit]) -> Iterator[ObjectPart]:
    """Yield what one split reads of each object: its units follow on each other."""
    for at, of_object in groupby(units, itemgetter(0)):
        ranges = [(start, stop) for _, start, stop in of_object]
        yield ObjectPart(objects[at], ranges[0][0], ranges[-1][1])
