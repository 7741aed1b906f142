"""The scratch disk is the machine's temporary folder: what memory is not to hold waits there, without a name."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from milepost.protocol.records.disks import unusable_disk_error
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
        raise _refused(what, error, who, now_true) from error


@contextmanager
def scratch_file(what: str, *, who: str = "") -> Iterator[IO[bytes]]:
    """Yield a file there, without a name and without a buffer. Args: as of `on_scratch_disk`.

    Raises: EnvironmentUnusable: none can be made, for whatever reason.
    """
    with ExitStack() as opened:
        try:
            file = opened.enter_context(tempfile.TemporaryFile(buffering=0))
        except OSError as error:
            raise _refused(what, error, who, "Nothing was changed.") from error
        yield file


def _refused(what: str, error: OSError, who: str, now_true: str) -> EnvironmentUnusable:
    elsewhere = "set TMPDIR to a folder on another disk"
    return unusable_disk_error(tempfile.gettempdir(), what, error, alternative=elsewhere, now_true=now_true, prefix=who)
