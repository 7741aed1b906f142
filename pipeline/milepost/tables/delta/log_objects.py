"""Read the objects of a Delta log, one per version."""

from __future__ import annotations

import json
from typing import Any

from milepost.errors import NotFound, StateCorrupt
from milepost.protocol.records import ObjectStore

LOG = "_delta_log/"


def log_key(version: int) -> str:
    """Return the key of one version's object."""
    return f"{LOG}{version:020d}.json"


def read_commit(store: ObjectStore, version: int) -> bytes | None:
    """Return the object of one version; None if the log does not have it. Raises what the store raises."""
    try:
        return store.get(log_key(version))
    except NotFound:
        return None


def parse_actions(version: int, body: bytes) -> list[dict[str, Any]]:
    """Return the actions of one version's object. Raises StateCorrupt: it is not a commit."""
    try:
        actions = [json.loads(line) for line in body.splitlines() if line.strip()]
    except ValueError as error:
        raise _unreadable(version) from error
    if not all(isinstance(action, dict) for action in actions):
        raise _unreadable(version)
    return actions


def _unreadable(version: int) -> StateCorrupt:
    key = log_key(version)
    return StateCorrupt(f"{key} of a Delta table is not a commit: expected JSON objects, one per line.", key=key)
