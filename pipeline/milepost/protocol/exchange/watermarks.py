"""Watermarks: up to which event time input is complete. Microseconds since the epoch, UTC; None is minus infinity.

Source: DESIGN 8.1; DESIGN 4.3. A source without event time has no watermark and delays no other source. For example::

    source a    newest event 12:00, delay 5 min     11:55
    source b    newest event 12:10, delay 5 min     12:05
    operator over a and b                           11:55, the minimum
    its output, rows up to 1 min old                11:54
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeGuard

END_OF_TIME_US = 2**63 - 1
"""Plus infinity: the watermark of a source that has ended. Only then every timer and window is due."""

BEGINNING_OF_TIME_US = -(2**63)
"""The smallest event time."""


def source_watermark(previous_us: int | None, newest_event_us: int | None, delay_us: int) -> int | None:
    """Return a source's watermark after an epoch: the newest delivered event time minus the delay; never decreases.

    The result is a valid event time below the end of time.

    Args:
        previous_us: after the previous epoch.
        newest_event_us: among the rows of this epoch; None: it delivered none.
        delay_us: the source's watermark_delay.
    """
    if newest_event_us is None:
        return previous_us
    newest_us = min(newest_event_us - delay_us, END_OF_TIME_US - 1)
    return latest(previous_us, max(newest_us, BEGINNING_OF_TIME_US))


def newest_by_partition(before: Mapping[str, int], subtasks: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the newest event time of each partition of a source after an epoch.

    Args:
        before: after the previous epoch. subtasks: what each source subtask read, by partition.
    """
    newest = dict(before)
    for read in subtasks:
        for partition, newest_us in read.items():
            newest[partition] = max(newest.get(partition, newest_us), newest_us)
    return dict(sorted(newest.items()))


def delivered_event_time(
    newest_us: int | None, partitions: Mapping[str, int], behind: Collection[str] | None
) -> int | None:
    """Return the event time up to which a source was read; None: it is unknown, so its watermark stays.

    A partition that is behind has rows still to come that are older than those of a faster one. So its own newest time
    counts. One that was read to its end holds nothing back::

        partition 0    newest 12:00    read to its end
        partition 1    newest 11:30    behind
        partition 2    newest 11:00    read to its end
        the source     11:30           12:00 once partition 1 is read to its end, if it has no newer rows

    Source: SOURCES, Watermark.

    Args:
        newest_us: newest event time of this epoch's rows, which counts for a source without partitions.
        partitions: newest event time of each partition, also of earlier epochs.
        behind: those that were not read to their end. None: the epoch read no record, so which ones are behind is as
            before, and the watermark stays.
    """
    if behind is None or (not partitions and not behind):
        return newest_us
    return operator_watermark((max(partitions.values(), default=None), *(partitions.get(name) for name in behind)))


def output_watermark(watermark_us: int | None, holdback_us: int) -> int | None:
    """Return the watermark of an operator's output: its own minus the age of its rows; the end of time stays."""
    if watermark_us is None or watermark_us == END_OF_TIME_US:
        return watermark_us
    return max(watermark_us - holdback_us, BEGINNING_OF_TIME_US)


def operator_watermark(inputs: Iterable[int | None]) -> int | None:
    """Return an operator's watermark, the minimum of its inputs'; minus infinity without inputs that have one."""
    watermarks = list(inputs)
    if not watermarks or any(value is None for value in watermarks):
        return None
    return min(value for value in watermarks if value is not None)


def firing_watermark(previous_us: int | None, input_us: int | None, in_flight: Iterable[int | None]) -> int | None:
    """Return a subtask's firing watermark after an epoch. It never decreases and never passes a row still in flight.

    A run that leaves nothing in flight processes a row of lateness stamp s when it has fired up to s and no further.
    Held at the smallest stamp in flight, a run that leaves rows behind fires and expires at the same rows, so both give
    the same result.

    Args:
        previous_us: of this subtask in the checkpoint that the epoch continues.
        input_us: watermark of the subtask's inputs at the end of the epoch.
        in_flight: lateness stamps of the rows that the subtask leaves in flight.
    """
    stamps = list(in_flight)
    return latest(previous_us, operator_watermark((input_us, *stamps)))


def latest(left_us: int | None, right_us: int | None) -> int | None:
    """Return the later of two watermarks."""
    if left_us is None:
        return right_us
    return left_us if right_us is None else max(left_us, right_us)


def is_later(watermark_us: int | None, before_us: int | None) -> TypeGuard[int]:
    """Return whether a watermark is later than the previous one."""
    return watermark_us is not None and (before_us is None or watermark_us > before_us)
