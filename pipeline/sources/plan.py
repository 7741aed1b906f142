"""What one epoch reads of one source: a pure function of the listing, the consumed set and the limits.

A version is (key, etag, size). New is what the listing shows and the set does not hold, whatever its name order; each
version is therefore consumed exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.protocol.errors import InvalidRequest, SourceChanged
from pipeline.sources.consumed import ConsumedSet
from pipeline.sources.contract import SourceObject
from pipeline.sources.objects import Listing

ON_CHANGE = ("fail", "ignore", "reprocess")
_NAMED_IN_AN_ERROR = 5


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The input of one source in one epoch.

    Attributes:
        objects: to read, in ascending key order: the plan order.
        baseline: with ``start: latest``, in the first epoch: to record as consumed without reading.
        pending_objects, pending_bytes: new as well, left for later epochs by the limits.
        oldest_new_ms: last-modified time of the oldest new object, planned or left; None: none.
        skipped_hidden, skipped_empty: from the listing. skipped_before_start: older than a `start` time.
        ignored_changes: consumed keys that differ now, under ``on_change: ignore``.
        changed: those of `objects` whose key was consumed before in another version (``reprocess``).
    """

    objects: tuple[SourceObject, ...]
    baseline: tuple[SourceObject, ...] = ()
    pending_objects: int = 0
    pending_bytes: int = 0
    oldest_new_ms: int | None = None
    skipped_hidden: int = 0
    skipped_empty: int = 0
    skipped_before_start: int = 0
    ignored_changes: int = 0
    changed: tuple[SourceObject, ...] = ()

    @property
    def consumed(self) -> tuple[SourceObject, ...]:
        """What the consumed set must gain when the epoch completes."""
        return (*self.baseline, *self.objects)


def plan_source(
    name: str,
    listing: Listing,
    consumed: ConsumedSet,
    *,
    max_files: int | None = None,
    max_bytes: int | None = None,
    start: str | int = "earliest",
    on_change: str = "fail",
    first_epoch: bool = False,
) -> SourcePlan:
    """Choose the objects that one epoch reads.

    Args:
        name: of the source, for messages.
        listing: what is there now.
        consumed: what the checkpoint that the epoch continues has consumed.
        max_files: at most so many objects, at least 1; None is no limit.
        max_bytes: stop before the object that would exceed it, but always take one; None is no limit.
        start: earliest; latest (what the first epoch finds is recorded, not read); or a time in milliseconds since
            the epoch, UTC: objects last modified before it are never new.
        on_change: what a consumed key in another version means: fail, ignore (it stays as consumed) or reprocess
            (the other version is new).
        first_epoch: whether the source has no consumed set yet.

    Raises:
        SourceChanged: a consumed object differs now and `on_change` is fail. Nothing was planned.
        InvalidRequest: an argument is out of bounds.
    """
    _check_arguments(name, max_files, max_bytes, start, on_change)
    fresh, changed = _diff(listing.objects, consumed.table)
    if on_change == "fail" and changed.any():
        raise _changed(name, [listing.objects[i] for i in np.flatnonzero(changed)], consumed)
    take = fresh | changed if on_change == "reprocess" else fresh
    before_start = 0
    if isinstance(start, int):
        modified = np.fromiter((o.last_modified_ms for o in listing.objects), np.int64, len(listing.objects))
        too_old = fresh & (modified < start)
        before_start = int(too_old.sum())
        take &= ~too_old
    new = [listing.objects[i] for i in np.flatnonzero(take)]
    baseline: list[SourceObject] = []
    if start == "latest" and first_epoch:
        baseline, new = new, []
    count = _within_limits(new, max_files, max_bytes)
    read = tuple(new[:count])
    rewritten = {listing.objects[i].key for i in np.flatnonzero(changed)}
    return SourcePlan(
        objects=read,
        baseline=tuple(baseline),
        pending_objects=len(new) - count,
        pending_bytes=sum(obj.size for obj in new[count:]),
        oldest_new_ms=min((obj.last_modified_ms for obj in new), default=None),
        skipped_hidden=listing.skipped_hidden,
        skipped_empty=listing.skipped_empty,
        skipped_before_start=before_start,
        ignored_changes=int(changed.sum()) if on_change == "ignore" else 0,
        changed=tuple(obj for obj in read if obj.key in rewritten),
    )


def assign_splits(objects: Sequence[SourceObject], parallelism: int) -> tuple[tuple[SourceObject, ...], ...]:
    """Cut the planned objects into contiguous splits of about equal bytes.

    Contiguous in plan order, so that (channel, sequence) order is plan order whatever the parallelism.

    Args:
        objects: in plan order.
        parallelism: at least 1.

    Returns:
        min(parallelism, number of objects) splits, none of them empty.

    Raises:
        InvalidRequest: parallelism is below 1.
    """
    if parallelism < 1:
        raise InvalidRequest(f"parallelism of a source is at least 1, got {parallelism}.")
    splits = min(parallelism, len(objects))
    if splits == 0:
        return ()
    ends = np.cumsum([obj.size for obj in objects], dtype=np.float64)
    middles = ends - np.array([obj.size for obj in objects]) / 2
    cuts = [0]
    for index in range(1, splits):
        wanted = int(np.searchsorted(middles, ends[-1] * index / splits))
        # Leave at least one object on either side of each cut.
        cuts.append(min(max(wanted, cuts[-1] + 1), len(objects) - (splits - index)))
    cuts.append(len(objects))
    return tuple(tuple(objects[a:b]) for a, b in pairwise(cuts))


def _diff(objects: Sequence[SourceObject], consumed: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks over the listing: new keys, and consumed keys in a version not consumed."""
    keys = pa.array([obj.key for obj in objects], pa.string())
    etags = pa.array([obj.etag for obj in objects], pa.string())
    sizes = pa.array([obj.size for obj in objects], pa.int64())
    known_key = pc.is_in(keys, value_set=consumed["key"]).to_numpy(zero_copy_only=False)
    known = pc.is_in(
        _version(keys, etags, sizes), value_set=_version(consumed["key"], consumed["etag"], consumed["size"])
    ).to_numpy(zero_copy_only=False)
    return ~known_key, known_key & ~known


def _version(keys: pa.Array, etags: pa.Array, sizes: pa.Array) -> pa.Array:
    # No key holds a control character, so the separator cannot be forged.
    return pc.binary_join_element_wise(keys, etags, pc.cast(sizes, pa.string()), "\x00")


def _within_limits(objects: Sequence[SourceObject], max_files: int | None, max_bytes: int | None) -> int:
    count = len(objects)
    if max_files is not None:
        count = min(count, max_files)
    if max_bytes is not None and count:
        ends = np.cumsum([obj.size for obj in objects[:count]])
        count = min(count, max(1, int(np.searchsorted(ends, max_bytes, side="right"))))
    return count


def _check_arguments(name: str, max_files: int | None, max_bytes: int | None, start: str | int, on_change: str) -> None:
    for key, value in (("max_files", max_files), ("max_bytes", max_bytes)):
        if value is not None and value < 1:
            raise InvalidRequest(f"source {name}: limits_per_epoch.{key} is at least 1, got {value}.")
    if isinstance(start, str) and start not in ("earliest", "latest"):
        raise InvalidRequest(f"source {name}: start is earliest, latest or a time, got {start!r}.")
    if on_change not in ON_CHANGE:
        raise InvalidRequest(f"source {name}: on_change is one of {', '.join(ON_CHANGE)}, got {on_change!r}.")


def _changed(name: str, objects: Sequence[SourceObject], consumed: ConsumedSet) -> SourceChanged:
    lines = []
    for obj in objects[:_NAMED_IN_AN_ERROR]:
        row = consumed.table.filter(pc.equal(consumed.table["key"], obj.key)).to_pylist()[-1]
        lines.append(
            f"\n  {obj.key}: consumed by checkpoint {row['checkpoint_id']} as {row['etag']} ({row['size']} bytes), "
            f"now {obj.etag} ({obj.size} bytes)"
        )
    more = f"\n  and {len(objects) - _NAMED_IN_AN_ERROR} more" if len(objects) > _NAMED_IN_AN_ERROR else ""
    return SourceChanged(
        f"source {name}: {len(objects)} object(s) changed after they were consumed.{''.join(lines)}{more}\n"
        "Nothing was planned; what is published still holds the consumed versions.",
        hint=f"Put the consumed versions back, or set sources.{name}.on_change to ignore or reprocess.",
        source=name,
        keys=[obj.key for obj in objects],
    )
