"""Unnamed temporary files for data that is too large for memory."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from milepost.errors import EnvironmentUnusable
from milepost.protocol.records import unusable_disk_error

_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


@contextmanager
def on_scratch_disk(what: str, *, who: str = "", now_true: str = "Nothing was changed.") -> Iterator[None]:
    """Translate errors of the scratch disk, the machine's temporary folder.

    Args:
        what: what the disk cannot do, e.g. "take an object".
        who: prefix of the message that names the owner, with a colon.
        now_true: sentence that says what is true now.
    Raises:
        EnvironmentUnusable: the disk is full or broken.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        raise _refused(what, error, who, now_true) from error


@contextmanager
def scratch_file(what: str, *, who: str = "") -> Iterator[IO[bytes]]:
    """Yield an unnamed and unbuffered file on the scratch disk. Args: as in `on_scratch_disk`.

    Raises:
        EnvironmentUnusable: the file cannot be created.
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
