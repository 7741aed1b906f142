"""A node's cache lies where that node says: each machine of a cluster has a disk and a home of its own."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

NODE_CACHE_VARIABLE = "MILEPOST_CACHE_DIR"


def node_cache(name: str) -> str:
    """Return the folder on this machine for what a node keeps under a name; always disposable."""
    root = os.environ.get(NODE_CACHE_VARIABLE)
    private = Path(tempfile.gettempdir()) / f"milepost-{os.getuid()}"
    base = Path(root) if root else Path.home() / ".cache" / "milepost" if _has_home() else private
    return str(base / "state-1" / name)  # of one format: another version's entries are its own


@dataclass(frozen=True, slots=True)
class EachNodesCache(os.PathLike[str]):
    """The folder under a name as the process has it that asks for its path, wherever this was made."""

    name: str

    def __fspath__(self) -> str:
        return node_cache(self.name)


def _has_home() -> bool:
    try:
        home = Path.home()
    except RuntimeError:
        return False
    return home.is_dir() and os.access(home, os.W_OK)
