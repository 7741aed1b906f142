"""Patience: reads after a write wait through short outages, for there an unanswered read costs an unknown outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from milepost.protocol.records.errors import StoreUnavailable

_READS = 5
_MAX_WAIT_S = 2.0

T = TypeVar("T")


def patiently(read: Callable[[], T]) -> T:
    """Read; again for as long as an outage is short. Raises: what the last try did."""
    reads = Retrying(
        retry=retry_if_exception_type(StoreUnavailable),
        stop=stop_after_attempt(_READS),
        wait=wait_random_exponential(multiplier=0.1, max=_MAX_WAIT_S),
        reraise=True,
    )
    return reads(read)
