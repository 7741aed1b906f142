"""Errors of the `deltalake` library become ours: one line, without what is secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

from milepost.errors import CheckpointError
from milepost.sinks.formats.delta.delta_location import DeltaLocation

FAULTS = (DeltaError, OSError, ValueError, TypeError)
"""What the library raises."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ANSWER = re.compile(r"<\?xml.*?<Code>(\w+)</Code>.*", re.DOTALL)
"""A server's answer in full, which may quote a key."""

_LONGEST = 400
"""Characters of one reason."""


@contextmanager
def translated_errors(location: DeltaLocation, make: Callable[[str], CheckpointError]) -> Iterator[None]:
    """Raise what the library raises in the block as our error; what it said of its own goes no further.

    Args:
        make: our error, of the reason in one line.
    """
    reason = None
    try:
        yield
    except FAULTS as error:
        reason = parse_reason(location, error)
    if reason is not None:
        raise make(reason)


def parse_reason(location: DeltaLocation, error: BaseException) -> str:
    """Return what the library said, in one line and without what is secret."""
    text = _ANSWER.sub(r"\1", _COLOURS.sub("", str(error))).replace("↳", ":")
    line = " ".join(text.split()).replace(" :", ":")
    return location.without_secrets(line)[:_LONGEST] or type(error).__name__
