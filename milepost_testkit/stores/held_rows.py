"""Limit memory to a few rows, so that a command spills to disk in many small runs."""

from __future__ import annotations

import pytest

from milepost.spill import external_sort, spilled_rows
from milepost.storage import object_handles


def hold_few_rows(patch: pytest.MonkeyPatch, held_bytes: int = 100) -> None:
    """Limit the memory for rows to `held_bytes`, run pieces to a row or two, and object reads to 64 bytes."""
    for module in (spilled_rows, external_sort):
        patch.setattr(module, "HELD_BYTES", held_bytes)
    patch.setattr(spilled_rows, "_PIECE_BYTES", 100)
    patch.setattr(external_sort, "_MERGED_RUNS", 3)
    patch.setattr(object_handles, "IN_MEMORY_BYTES", 64)
    patch.setattr(object_handles, "_REQUEST_BYTES", 50)
