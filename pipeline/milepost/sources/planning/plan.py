"""Plan what one epoch reads of one source, from listing, consumed set and limits alone.

A version is (key, etag, size). A version is new if it is listed and not in the consumed set, whatever its key sorts
before. So each version is consumed exactly once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.arrow import int64_array, numpy_array, string_array
from milepost.errors import InvalidRequest, SourceChanged
from milepost.protocol.landed import LandedRange, LogPosition, LogRecord, StoredRecord, range_of
from milepost.sources.contract import SourceObject
from milepost.sources.path_columns import PathColumns
from milepost.sources.planning.consumed import ConsumedSet
from milepost.sources.planning.forgetting import ForgottenRows, find_forgettable
from milepost.sources.planning.listing import BadName, Listing, escape_name, format_object_list

ON_CHANGE = ("fail", "ignore", "reprocess")
_NAMED_IN_AN_ERROR = 5

_SEPARATOR = string_array(["\x00"])[0]

ObjectVersion = tuple[str, str, int]
"""Key, etag and size of an object."""


@dataclass(frozen=True, slots=True)
class SourceRules:
    """Settings that decide which objects of a source one epoch reads.

    Attributes:
        max_files: limit on the objects, at least 1; None is no limit.
        max_bytes: stop before the object that would exceed it, but always take one; None is no limit.
        start: earliest; latest (objects present at the first epoch are recorded, not read); or a time in milliseconds
            since the epoch, UTC: objects last modified before it are never new.
        on_change: reaction to another version of a consumed key: fail, ignore (do not read it) or reprocess (read it
            as new).
        on_bad_name: reaction to an object with an unusable name: fail, or skip.
        settle_ms: objects modified more recently than this are left for a later plan; 0: none.
        partitions: columns that the keys of new objects must have values for.
        expect_every_ms: a source is overdue if nothing lands for longer than this; None: never.
        forget_after_ms: deleted objects that are this much older than the newest one are forgotten; None: never.
    """

    max_files: int | None = None
    max_bytes: int | None = None
    start: str | int = "earliest"
    on_change: str = "fail"
    on_bad_name: str = "fail"
    settle_ms: int = 0
    partitions: PathColumns | None = None
    expect_every_ms: int | None = None
    forget_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogInput:
    """The records of a landed source's log that one epoch reads.

    Attributes:
        position: where the checkpoint that the epoch continues stands; None: before the log.
        newest: the newest record; None: nothing was ever landed.
        records: consecutive, from the position on; () if no record after it has rows.
    """

    position: LogPosition | None
    newest: LogRecord | None
    records: tuple[StoredRecord, ...]

    @property
    def range(self) -> LandedRange | None:
        """The records as an input record stores them; None: there are none."""
        return range_of(self.position, self.records)


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The input of one source in one epoch.

    Attributes:
        objects: objects to read, in ascending key order, which is the plan order.
        baseline: in the first epoch with ``start: latest``: objects to record as consumed without reading them.
        pending_objects, pending_bytes: new objects left for later epochs, because of the limits or `settle_ms`.
        oldest_new_ms: last-modified time of the oldest new object, planned or pending; None: there is none.
        settling: pending objects that are younger than `settle_ms`.
        settles_in_ms: time until the last of them is old enough.
        skipped_hidden, empty: from the listing.
        skipped_before_start: objects older than a `start` time.
        ignored_changes: consumed keys with another version now, under ``on_change: ignore``.
        unknown: objects left out under ``on_change: ignore`` because they are older than the horizon of the consumed
            set, so it is unknown whether they were read.
        bad_names: objects left out under ``on_bad_name: skip``.
        quarantined: unread objects left out because they are quarantined.
        changed: those of `objects` that were consumed before in another version (``reprocess``).
        listed: number of readable objects that match the path now.
        newest_ms: last-modified time of the newest of them.
        newest_seen_ms: like `newest_ms`, but including consumed objects that were deleted; None: there never was one.
        overdue: nothing has landed for longer than `expect_every_ms`, or ever.
        forgets: rows to remove from the consumed set when the epoch completes; None: none.
        log: for a landed source, where its log stands and which records are read; None: the source is files.
    """

    objects: tuple[SourceObject, ...]
    baseline: tuple[SourceObject, ...]
    pending_objects: int
    pending_bytes: int
    oldest_new_ms: int | None
    settling: int
    settles_in_ms: int
    skipped_hidden: int
    empty: tuple[str, ...]
    skipped_before_start: int
    ignored_changes: int
    unknown: tuple[SourceObject, ...]
    bad_names: tuple[BadName, ...]
    changed: tuple[SourceObject, ...]
    listed: int
    newest_ms: int | None
    newest_seen_ms: int | None
    overdue: bool
    forgets: ForgottenRows | None
    log: LogInput | None = None
    quarantined: tuple[SourceObject, ...] = ()

    @property
    def consumed(self) -> tuple[SourceObject, ...]:
        """Objects to add to the consumed set when the epoch completes."""
        return (*self.baseline, *self.objects)

    @property
    def unread(self) -> int:
        """Number of new objects, in this epoch or a later one."""
        return len(self.objects) + self.pending_objects


def plan_source(
    name: str,
    listing: Listing,
    consumed: ConsumedSet,
    rules: SourceRules,
    now_ms: int,
    *,
    first_epoch: bool = False,
    quarantined: Collection[ObjectVersion] = (),
) -> SourcePlan:
    """Choose the objects that one epoch reads.

    Args:
        name: name of the source, for messages.
        listing: the current listing.
        consumed: consumed set of the checkpoint that the epoch continues.
        now_ms: current time of the clock that stamps the objects.
        first_epoch: whether the source has no consumed set yet.
        quarantined: versions that are not read. One that `start` skips is skipped like others.

    Raises:
        SourceChanged: a consumed object has another version and `on_change` is fail; or it is unknown whether an
            object was read, because it is older than the horizon, and `on_change` is not ignore.
        InvalidRequest: an object's name cannot be used and `on_bad_name` is fail; or a rule is out of bounds.
    """
    _check_rules(name, rules)
    fresh, changed = _diff(listing.objects, consumed.table)
    modified = np.fromiter((o.last_modified_ms for o in listing.objects), np.int64, len(listing.objects))
    too_old = fresh & (modified < rules.start) if isinstance(rules.start, int) else np.zeros_like(fresh)
    fresh &= ~too_old
    skips_all = rules.start == "latest" and first_epoch
    held = _held(listing.objects, () if skips_all else quarantined) & (fresh | changed)
    fresh, changed = fresh & ~held, changed & ~held
    if rules.on_change == "fail" and changed.any():
        raise _changed_error(name, [listing.objects[i] for i in np.flatnonzero(changed)], consumed)
    take = fresh | changed if rules.on_change == "reprocess" else fresh
    without_values = _without_values(rules.partitions, [listing.objects[i] for i in np.flatnonzero(take)])
    bad_names = (*listing.bad_names, *without_values.values())
    if bad_names and rules.on_bad_name == "fail":
        raise _bad_names_error(name, bad_names)
    if without_values:
        take &= np.fromiter((o.key not in without_values for o in listing.objects), bool, len(listing.objects))
    horizon_ms = consumed.horizon_ms
    unknown = take & (modified < horizon_ms) if horizon_ms is not None else np.zeros_like(take)
    if horizon_ms is not None and unknown.any() and rules.on_change != "ignore":
        raise _unknown_error(name, [listing.objects[i] for i in np.flatnonzero(unknown)], horizon_ms)
    take &= ~unknown
    ages_ms = now_ms - modified
    young = take & (ages_ms >= 0) & (ages_ms < rules.settle_ms)  # a timestamp in the future gives no age
    new = [listing.objects[i] for i in np.flatnonzero(take & ~young)]
    pending = [listing.objects[i] for i in np.flatnonzero(young)]
    oldest_new_ms = _oldest((*new, *pending))
    unread = (*new, *pending, *(listing.objects[i] for i in np.flatnonzero(held)))
    baseline: list[SourceObject] = []
    if skips_all:
        baseline, new = new, []
    count = _within_limits(new, rules.max_files, rules.max_bytes)
    read = tuple(new[:count])
    pending = [*new[count:], *pending]
    seen = [int(modified.max())] if len(modified) else []
    seen += [pc.max(consumed.table["last_modified_ms"]).as_py()] if len(consumed) else []
    newest_seen_ms = max(seen, default=None)
    rewritten = {listing.objects[i].key for i in np.flatnonzero(changed)}
    return SourcePlan(
        objects=read,
        baseline=tuple(baseline),
        pending_objects=len(pending),
        pending_bytes=sum(obj.size for obj in pending),
        oldest_new_ms=oldest_new_ms,
        settling=int(young.sum()),
        settles_in_ms=int(rules.settle_ms - ages_ms[young].min()) if young.any() else 0,
        skipped_hidden=listing.skipped_hidden,
        empty=listing.empty,
        skipped_before_start=int(too_old.sum()),
        ignored_changes=int(changed.sum()) if rules.on_change == "ignore" else 0,
        unknown=tuple(listing.objects[i] for i in np.flatnonzero(unknown)),
        bad_names=bad_names,
        changed=tuple(obj for obj in read if obj.key in rewritten),
        listed=len(listing.objects),
        newest_ms=int(modified.max()) if len(modified) else None,
        newest_seen_ms=newest_seen_ms,
        overdue=_is_overdue(rules, newest_seen_ms, now_ms),
        forgets=_forgotten(listing, consumed, rules, min(now_ms, *seen), _oldest(unread)) if read else None,
        quarantined=tuple(listing.objects[i] for i in np.flatnonzero(held)),
    )


def _held(objects: Sequence[SourceObject], quarantined: Collection[ObjectVersion]) -> np.ndarray:
    """Return a mask over the listing: the quarantined versions."""
    versions = frozenset(quarantined)
    return np.fromiter(((obj.key, obj.etag, obj.size) in versions for obj in objects), bool, len(objects))


def _oldest(objects: Iterable[SourceObject]) -> int | None:
    return min((obj.last_modified_ms for obj in objects), default=None)


def _is_overdue(rules: SourceRules, newest_seen_ms: int | None, now_ms: int) -> bool:
    if rules.expect_every_ms is None:
        return False
    return newest_seen_ms is None or now_ms - newest_seen_ms > rules.expect_every_ms


def _forgotten(
    listing: Listing, consumed: ConsumedSet, rules: SourceRules, newest_ms: int, oldest_unread_ms: int | None
) -> ForgottenRows | None:
    """Return the rows to forget, all older than every unread object.

    The horizon must not pass an unread object, which includes quarantined ones: it would no longer count as new.
    """
    if rules.forget_after_ms is None or not consumed.needs_compaction:
        return None
    before_ms = newest_ms - rules.forget_after_ms
    before_ms = before_ms if oldest_unread_ms is None else min(before_ms, oldest_unread_ms)
    forgets = find_forgettable(consumed.table, (obj.key for obj in listing.objects), before_ms)
    if forgets is None or consumed.horizon_ms is None:
        return forgets
    return replace(forgets, horizon_ms=max(forgets.horizon_ms, consumed.horizon_ms))


def _diff(objects: Sequence[SourceObject], consumed: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks over the listing: new keys, and consumed keys in another version."""
    if not len(objects) or not consumed.num_rows:
        return np.ones(len(objects), dtype=np.bool_), np.zeros(len(objects), dtype=np.bool_)
    keys = string_array([obj.key for obj in objects])
    etags = string_array([obj.etag for obj in objects])
    sizes = int64_array(obj.size for obj in objects)
    consumed_versions = _version(consumed["key"], consumed["etag"], consumed["size"])
    is_consumed_key = numpy_array(pc.is_in(keys, value_set=consumed["key"]))
    is_consumed_version = numpy_array(pc.is_in(_version(keys, etags, sizes), value_set=consumed_versions))
    return ~is_consumed_key, is_consumed_key & ~is_consumed_version


def _version(keys: pa.Array, etags: pa.Array, sizes: pa.Array) -> pa.Array:
    # A version as one string, e.g. "a/1.csv\x00etag\x00120". A key has no control character, so no two versions
    # can give the same string.
    return pc.binary_join_element_wise(keys, etags, pc.cast(sizes, pa.string()), _SEPARATOR)


def _within_limits(objects: Sequence[SourceObject], max_files: int | None, max_bytes: int | None) -> int:
    # Sizes 5, 4, 6 end at 5, 9, 15. A limit of 10 bytes takes two, of 15 three, of 3 still one.
    count = len(objects)
    if max_files is not None:
        count = min(count, max_files)
    if max_bytes is not None and count:
        ends = np.cumsum([obj.size for obj in objects[:count]])
        count = min(count, max(1, int(np.searchsorted(ends, max_bytes, side="right"))))
    return count


def _check_rules(name: str, rules: SourceRules) -> None:
    for key, value in (("max_files", rules.max_files), ("max_bytes", rules.max_bytes)):
        if value is not None and value < 1:
            raise InvalidRequest(f"source {name}: limits_per_epoch.{key} is at least 1, got {value}.")
    if isinstance(rules.start, str) and rules.start not in ("earliest", "latest"):
        raise InvalidRequest(f"source {name}: start is earliest, latest or a time, got {rules.start!r}.")
    if rules.on_change not in ON_CHANGE:
        raise InvalidRequest(f"source {name}: on_change is one of {', '.join(ON_CHANGE)}, got {rules.on_change!r}.")


def _without_values(partitions: PathColumns | None, objects: Sequence[SourceObject]) -> dict[str, BadName]:
    """Return by key the objects with keys that lack a partition value. Each directory is parsed once."""
    if partitions is None or not partitions.fields:
        return {}
    faults: dict[str, str | None] = {}
    bad_names = {}
    for obj in objects:
        directory = obj.key.rpartition("/")[0]
        if directory not in faults:
            faults[directory] = partitions.fault(obj)
        fault = faults[directory]
        if fault is not None:
            bad_names[obj.key] = BadName(escape_name(obj.key), fault)
    return bad_names


def _bad_names_error(name: str, bad_names: Sequence[BadName]) -> InvalidRequest:
    lines = [f"{bad.name}: {bad.reason}" for bad in bad_names[:_NAMED_IN_AN_ERROR]]
    return InvalidRequest(
        f"source {name}: objects with a name that cannot be used: {len(bad_names)}."
        f"{format_object_list(lines, len(bad_names))}\nNothing was planned.",
        hint=f"Rename or remove them, narrow the source's path, or set sources.{name}.on_bad_name to skip.",
        source=name,
        names=[bad.name for bad in bad_names],
    )


def _unknown_error(name: str, objects: Sequence[SourceObject], horizon_ms: int) -> SourceChanged:
    lines = [f"{obj.key}: modified {_time(obj.last_modified_ms)}" for obj in objects[:_NAMED_IN_AN_ERROR]]
    return SourceChanged(
        f"source {name}: objects modified before {_time(horizon_ms)}: {len(objects)}. Older objects that were "
        "deleted have been forgotten (`forget_after`), so it is unknown whether these were read."
        f"{format_object_list(lines, len(objects))}\nNothing was planned.",
        hint="Land new copies of objects that were not read, and move those that were read out of the source's path. "
        f"Or set sources.{name}.on_change to ignore: such objects are left out and counted.",
        source=name,
        keys=[obj.key for obj in objects],
    )


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def _changed_error(name: str, objects: Sequence[SourceObject], consumed: ConsumedSet) -> SourceChanged:
    lines = []
    for obj in objects[:_NAMED_IN_AN_ERROR]:
        row = consumed.table.filter(pc.equal(consumed.table["key"], obj.key)).to_pylist()[-1]
        lines.append(
            f"{obj.key}: consumed by checkpoint {row['checkpoint_id']} as {row['etag']} ({row['size']} bytes, "
            f"modified {_time(row['last_modified_ms'])}), now {obj.etag} ({obj.size} bytes, "
            f"modified {_time(obj.last_modified_ms)})"
        )
    return SourceChanged(
        f"source {name}: objects that changed after they were consumed: {len(objects)}."
        f"{format_object_list(lines, len(objects))}\n"
        "Nothing was planned. The published tables still contain the consumed versions.",
        hint="Restore the consumed versions (local files with their modification time, SIZE-NANOSECONDS), or set "
        f"sources.{name}.on_change to ignore or reprocess.",
        source=name,
        keys=[obj.key for obj in objects],
    )
