"""Watermarks: what an operator may take for complete. Microseconds since the epoch, UTC; None is minus infinity.

Source: DESIGN 8.1; DESIGN 4.3. A source without event time has no watermark and holds nobody back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

END_OF_TIME_US = 2**63 - 1
"""Plus infinity: the watermark of a source that has ended. No other reaches it; every timer and window is due."""

BEGINNING_OF_TIME_US = -(2**63)
"""The least event time."""


def source_watermark(previous_us: int | None, newest_event_us: int | None, delay_us: int) -> int | None:
    """The watermark of a source after an epoch: newest event time delivered so far minus the delay; never goes back.

    It stays within what an event time can be, and below the end of time.

    Args:
        previous_us: after the previous epoch.
        newest_event_us: among the rows of this epoch; None when it delivered none.
        delay_us: the source's watermark_delay.
    """
    if newest_event_us is None:
        return previous_us
    newest_us = min(newest_event_us - delay_us, END_OF_TIME_US - 1)
    return latest(previous_us, max(newest_us, BEGINNING_OF_TIME_US))


def held_back(watermark_us: int | None, holdback_us: int) -> int | None:
    """Return the watermark of an operator's output: its own, less how old its rows may be; at the end of time, that."""
    if watermark_us is None or watermark_us == END_OF_TIME_US:
        return watermark_us
    return max(watermark_us - holdback_us, BEGINNING_OF_TIME_US)


def operator_watermark(inputs: Iterable[int | None]) -> int | None:
    """Return the watermark of an operator: the minimum of its inputs'; without inputs that have one, minus infinity."""
    known = list(inputs)
    if not known or any(value is None for value in known):
        return None
    return min(value for value in known if value is not None)


def firing_watermark(previous_us: int | None, input_us: int | None, in_flight: Iterable[int | None]) -> int | None:
    """The firing watermark of a subtask after an epoch; never goes back, never passes a row that is still to come.

    A run that leaves nothing in flight takes a row of lateness stamp s when it has fired up to s and no further. Held
    at the least stamp in flight, a run that leaves rows behind fires and forgets at the same rows: both give the same.

    Args:
        previous_us: of this subtask in the checkpoint that the epoch continued.
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


def is_beyond(watermark_us: int | None, before_us: int | None) -> TypeGuard[int]:
    """Return whether a watermark is later than the one before it."""
    return watermark_us is not None and (before_us is None or watermark_us > before_us)
