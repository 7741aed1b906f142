"""Model of the retention tiers, which judges each checkpoint by itself."""

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
    """Return the checkpoints that the tiers keep on the live timeline and on each abandoned one.

    An abandoned timeline is judged together with the checkpoints that were completed on a live timeline after it.

    Args:
        head: of the live timeline. left: heads of the abandoned timelines with retained checkpoints.
        lived: checkpoints completed on a live timeline. times_ms: trigger times by id. policy: last, hourly, daily.
    """
    continued = ({*lineage(end), *(number for number in lived if number > end)} for end in left)
    kept: set[int] = set()
    for group in (set(lineage(head)), *continued):
        kept |= kept_by_tiers({number: times_ms[number] for number in group & retained}, *policy)
    return kept


def kept_by_tiers(times_ms: Mapping[int, int], last: int, hourly: int, daily: int) -> set[int]:
    """Return the checkpoints that the tiers keep. times_ms: trigger times by id.

    For checkpoints 1 to 4 at 10:00, 10:30, 11:00 and 11:30, last=1 keeps {4}. hourly=2 keeps the newest one of each of
    the last two hours with checkpoints, {2, 4}.
    """
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
