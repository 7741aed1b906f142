"""Translate errors of the `deltalake` library into Milepost's errors, on one line and without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

from milepost.errors import CheckpointError
from milepost.tables.delta.locations import DeltaLocation

FAULTS = (DeltaError, OSError, ValueError, TypeError)
"""Exceptions that the library raises."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ANSWER = re.compile(r"<\?xml.*?<Code>(\w+)</Code>.*", re.DOTALL)
"""The full response of a server, which may quote an access key."""

_MAX_REASON = 400
"""Characters."""


@contextmanager
def translated_errors(location: DeltaLocation, make: Callable[[str], CheckpointError]) -> Iterator[None]:
    """Translate errors of the library that the block raises. The original is not chained, as it may contain secrets.

    Args:
        make: returns Milepost's error for a reason of one line.
    """
    reason = None
    try:
        yield
    except FAULTS as error:
        reason = parse_reason(location, error)
    if reason is not None:
        raise make(reason)


def parse_reason(location: DeltaLocation, error: BaseException) -> str:
    """Return the library's message on one line and without secrets."""
    text = _ANSWER.sub(r"\1", _COLOURS.sub("", str(error))).replace("↳", ":")
    line = " ".join(text.split()).replace(" :", ":")
    return location.without_secrets(line)[:_MAX_REASON] or type(error).__name__
