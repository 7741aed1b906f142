"""Clocks of tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable


def ticking(step_ms: int = 1) -> Callable[[], int]:
    """Return a clock that moves on by a step with each reading."""
    counter = itertools.count(1_000_000, step_ms)
    return lambda: next(counter)
