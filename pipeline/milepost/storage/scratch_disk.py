"""The scratch disk is the machine's temporary folder: what memory is not to hold waits there, without a name."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.protocol.records.errors import EnvironmentUnusable

_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


@contextmanager
def on_scratch_disk(what: str, *, who: str = "", now_true: str = "Nothing was changed.") -> Iterator[None]:
    """Write and read there. Raises EnvironmentUnusable: it is full, or does not work.

    Args:
        what: it cannot do then, as "take an object". who: whose that is, and a colon. now_true: a sentence.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        raise EnvironmentUnusable(
            f"{who}{tempfile.gettempdir()} cannot {what} ({error}). {now_true}",
            hint="Free space there, or set TMPDIR to a folder on another disk.",
        ) from error
