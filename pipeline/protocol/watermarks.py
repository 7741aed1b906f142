"""Watermarks: what an operator may take for complete. Microseconds since the epoch, UTC; None is minus infinity.

Source: INTERFACE, "Watermark"; DESIGN 4.3. A source without event time has no watermark and holds nobody back.
"""

from __future__ import annotations

from collections.abc import Iterable


def source_watermark(previous_us: int | None, newest_event_us: int | None, delay_us: int) -> int | None:
    """The watermark of a source after an epoch: newest event time delivered so far minus the delay; never goes back.

    Args:
        previous_us: after the previous epoch.
        newest_event_us: among the rows of this epoch; None when it delivered none.
        delay_us: the source's watermark_delay.
    """
    if newest_event_us is None:
        return previous_us
    return latest(previous_us, newest_event_us - delay_us)


def operator_watermark(inputs: Iterable[int | None]) -> int | None:
    """The watermark of an operator: the minimum of its inputs'; without inputs that have one, minus infinity."""
    known = list(inputs)
    if not known or any(value is None for value in known):
        return None
    return min(value for value in known if value is not None)


def latest(left_us: int | None, right_us: int | None) -> int | None:
    """The later of two watermarks."""
    if left_us is None:
        return right_us
    return left_us if right_us is None else max(left_us, right_us)
