"""What a test asks of the timers in a state handle."""

from __future__ import annotations

from milepost.state.runs.handles import StateHandle


def next_timer(handle: StateHandle) -> int | None:
    """The earliest timer that has not fired, in microseconds; None without one."""
    return min((timer for _, timer in handle.timers), default=None)
