"""Assign a source's planned objects to subtasks, and cut large objects into parts.

The assignment depends only on the objects' keys and sizes, the spec and the parallelism. So the trigger, the run and
each retry compute the same one, without a request to the store. The reader of a part finds where its records begin and
end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from milepost.errors import InvalidRequest
from milepost.jobspec.job import SourceSpec
from milepost.sources.contract import ObjectPart, SourceObject
from milepost.sources.kernel.streams import CODECS, MAX_WHOLE_READ_BYTES

UNIT_BYTES = 16 << 20
"""Smallest size of a part, approximately."""

_UNITS_PER_SUBTASK = 16
"""Limit on the units of one object: fine enough that the subtasks' shares differ by less than a tenth."""


def is_divisible(source: SourceSpec, obj: SourceObject) -> bool:
    """Return whether several subtasks may read an object: it is large and can be read from its middle."""
    return obj.size > MAX_WHOLE_READ_BYTES and indivisible_reason(source, obj) is None


def indivisible_reason(source: SourceSpec, obj: SourceObject) -> str | None:
    """Return why an object has a single reader whatever its size; None: a large one can have several."""
    return "compressed" if obj.key.endswith(tuple(CODECS)) else source.indivisible_reason


def count_indivisible_objects(source: SourceSpec, objects: Iterable[SourceObject]) -> dict[str, int]:
    """Count the large objects that have a single reader, by reason."""
    reasons = (indivisible_reason(source, obj) for obj in objects if obj.size > MAX_WHOLE_READ_BYTES)
    return dict(Counter(reason for reason in reasons if reason is not None))


def assign_splits(
    source: SourceSpec, objects: Sequence[SourceObject], parallelism: int
) -> tuple[tuple[ObjectPart, ...], ...]:
    """Cut the planned objects into contiguous splits of about equal bytes.

    Splits are contiguous in plan order, so that (channel, sequence) order is plan order whatever the parallelism.

    Three small objects of 10, 20 and 30 bytes and parallelism 2: the cut nearest to 30 bytes is between the second and
    the third, so the splits are (10, 20) and (30). A large divisible object is cut into equal units first: one of
    96 MiB becomes 6 units of 16 MiB, which two subtasks read as [0, 48 MiB) and [48 MiB, 96 MiB).

    Args:
        objects: in plan order.
        parallelism: at least 1.

    Returns:
        Up to `parallelism` splits, none of them empty; fewer only if there are fewer units.

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
        nearest = int(np.searchsorted(middles, ends[-1] * index / splits))
        # Leave at least one unit on either side of each cut.
        cuts.append(min(max(nearest, cuts[-1] + 1), len(units) - (splits - index)))
    cuts.append(len(units))
    return tuple(tuple(_merged_units(objects, units[a:b])) for a, b in pairwise(cuts))


_Unit = tuple[int, int, int]
"""Index of an object, and a half-open byte range of it."""


def _units(source: SourceSpec, at: int, obj: SourceObject, parallelism: int) -> list[_Unit]:
    """Return the units of one object, in order. A unit is never cut further."""
    if not is_divisible(source, obj):
        return [(at, 0, obj.size)]
    count = min(obj.size // UNIT_BYTES, _UNITS_PER_SUBTASK * parallelism)
    if count > parallelism:
        count -= count % parallelism  # a single object is shared evenly
    return [(at, start, stop) for start, stop in pairwise(obj.size * unit // count for unit in range(count + 1))]


def _merged_units(objects: Sequence[SourceObject], units: Sequence[_Unit]) -> Iterator[ObjectPart]:
    """Merge the adjacent units of each object into one part."""
    for at, of_object in groupby(units, itemgetter(0)):
        ranges = [(start, stop) for _, start, stop in of_object]
        yield ObjectPart(objects[at], ranges[0][0], ranges[-1][1])
