"""Translate operating system errors, each with a hint."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from milepost.errors import (
    CheckpointError,
    EnvironmentUnusable,
    InvalidRequest,
    NotFound,
    StoreUnavailable,
)
from milepost.protocol.records import StoreConfig


class LocalErrors:
    """Creates the errors of one store."""

    def __init__(self, config: StoreConfig, root: Path) -> None:
        self._config = config
        self._root = root

    def absent(self, key: str) -> NotFound:
        return NotFound(f"object {key!r} does not exist in {self._config.url}.", key=key)

    def of_read(self, error: OSError, key: str) -> CheckpointError:
        """Return the error for a failed read. A path through a file, or to a directory, is not an object."""
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
            return self.absent(key)
        return self.of(error, f"object {key!r} cannot be read", key)

    def of(self, error: OSError, doing: str, key: str | None) -> CheckpointError:
        """Return the error for a failed operation.

        Args:
            doing: a clause, e.g. ``object 'a' was not written``.
            key: of the object; None if the operation is not about one object.
        """
        reason = os.strerror(error.errno) if error.errno else str(error)
        message = f"{doing}: store {self._config.url}: {reason}. What was there before is unchanged."
        details = {"key": key} if key is not None else {}
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                hint = f"free space on the disk of {self._root}, then run again"
                return EnvironmentUnusable(message, hint=hint, **details)
            case errno.EROFS | errno.EACCES | errno.EPERM:
                hint = f"give this user access to {self._root}, or choose another location"
                return EnvironmentUnusable(message, hint=hint, **details)
            case errno.EXDEV | errno.EMLINK | errno.EOPNOTSUPP:
                hint = f"{self._root} must be one filesystem with hard links: choose another location"
                return EnvironmentUnusable(message, hint=hint, **details)
            case errno.ENOTDIR | errno.EISDIR | errno.ENAMETOOLONG | errno.ELOOP:
                hint = "a file stands where the key needs a directory, or the reverse, or a name is too long"
                return InvalidRequest(message, hint=hint, **details)
            case _:
                return StoreUnavailable(message, hint="try again; if it persists, check the disk", **details)
