"""Which checkpoints the tiers of retention keep, by the words of the spec, one checkpoint at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

HOUR_MS = 3_600_000


def kept_on_timelines(
    retained: Set[int],
    lineage: Callable[[int], list[int]],
    head: int,
    left: Iterable[int],
    lived: Set[int],
    times_ms: Mapping[int, int],
    policy: tuple[int, int, int],
) -> set[int]:
    """What the tiers keep on the live timeline, and on each that a switch has left, which goes on with the live one.

    Args:
        head: of the live timeline. left: heads of the timelines that a switch has left, where some of it is retained.
        lived: what was completed on a live timeline. times_ms: when each was triggered. policy: last, hourly, daily.
    """
    gone_on = ({*lineage(one), *(number for number in lived if number > one)} for one in left)
    kept: set[int] = set()
    for group in (set(lineage(head)), *gone_on):
        kept |= kept_by_tiers({one: times_ms[one] for one in group & retained}, *policy)
    return kept


def kept_by_tiers(times_ms: Mapping[int, int], last: int, hourly: int, daily: int) -> set[int]:
    """Which checkpoints the tiers keep. Args: times_ms: when each was triggered, by id."""
    kept = set()
    for number, at in times_ms.items():
        newer = {other: time for other, time in times_ms.items() if other > number}
        if len(newer) < last:
            kept.add(number)
        for tier, length in ((hourly, HOUR_MS), (daily, 24 * HOUR_MS)):
            newest_of_its_interval = all(time // length != at // length for time in newer.values())
            later_intervals = {time // length for time in times_ms.values() if time // length > at // length}
            if newest_of_its_interval and len(later_intervals) < tier:
                kept.add(number)
    return kept
