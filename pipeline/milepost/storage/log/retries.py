"""Retry the reads that follow a put through a short outage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from milepost.errors import StoreUnavailable

_READS = 5
_MAX_WAIT_S = 2.0

T = TypeVar("T")


def retry_reads(read: Callable[[], T]) -> T:
    """Repeat a read while the store is unavailable. After a put, an unanswered read would mean an unknown outcome.

    Raises: what the last attempt raised.
    """
    reads = Retrying(
        retry=retry_if_exception_type(StoreUnavailable),
        stop=stop_after_attempt(_READS),
        wait=wait_random_exponential(multiplier=0.1, max=_MAX_WAIT_S),
        reraise=True,
    )
    return reads(read)
