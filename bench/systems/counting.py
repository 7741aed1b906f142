"""Counts what Milepost asks of its stores, by operation."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

_OPERATIONS = ("get", "get_if_match", "stat", "put", "create", "list", "delete")


@contextlib.contextmanager
def counted_requests() -> Iterator[Counter[str]]:
    """Count the requests of this process to local stores while the context is open; each list or delete is one."""
    from milepost.storage.local.store import LocalStore

    counts: Counter[str] = Counter()
    originals = {name: getattr(LocalStore, name) for name in _OPERATIONS}

    def counting(name: str) -> Any:
        def call(store: LocalStore, *arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return originals[name](store, *arguments, **named)

        return call

    try:
        for name in _OPERATIONS:
            setattr(LocalStore, name, counting(name))
        yield counts
    finally:
        for name, original in originals.items():
            setattr(LocalStore, name, original)
