"""Private cache folder that only the current user can write."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from milepost.errors import EnvironmentUnusable


def private_cache() -> Path:
    """Return a folder that only this user can write. Raises EnvironmentUnusable: no such folder exists."""
    configured = os.environ.get("XDG_CACHE_HOME")
    base = Path(configured) if configured else Path(os.environ.get("HOME", "")) / ".cache"
    for folder in (base / "milepost", Path(tempfile.gettempdir()) / f"milepost-{os.getuid()}"):
        if not folder.is_absolute():
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            about = folder.lstat()
        except OSError:
            continue
        ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
        if ours and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise EnvironmentUnusable(
        f"no private cache folder: neither {base / 'milepost'} nor one in {tempfile.gettempdir()} "
        "can be written by this user alone. Nothing was started.",
        hint="set XDG_CACHE_HOME to a folder of this user",
    )
