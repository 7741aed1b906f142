"""Locate the cache folder of this machine: each node of a cluster has its own disk and home."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

NODE_CACHE_VARIABLE = "MILEPOST_CACHE_DIR"


def node_cache(name: str) -> str:
    """Return the cache folder of a name on this machine. Its content is always disposable."""
    root = os.environ.get(NODE_CACHE_VARIABLE)
    private = Path(tempfile.gettempdir()) / f"milepost-{os.getuid()}"
    base = Path(root) if root else Path.home() / ".cache" / "milepost" if _has_home() else private
    return str(base / "state-1" / name)  # the number is that of the format: another version has its own entries


@dataclass(frozen=True, slots=True)
class EachNodesCache(os.PathLike[str]):
    """Path of a cache folder, resolved in the process that uses it, not in the one that created this object."""

    name: str

    def __fspath__(self) -> str:
        return node_cache(self.name)


def _has_home() -> bool:
    try:
        home = Path.home()
    except RuntimeError:
        return False
    return home.is_dir() and os.access(home, os.W_OK)
