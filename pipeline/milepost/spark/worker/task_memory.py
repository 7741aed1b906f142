"""Limit the memory of a task's rows and state, and spill the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget, is_out_of_memory
from milepost.state.buffers import SpillFile


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """The memory budget that the driver plans for an epoch's tasks.

    Attributes:
        bytes: as in `MemoryBudget`.
        directory: folder of their spill files.
    """

    bytes: int
    directory: str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Memory:
    """A task's memory budget, and its spill file on the node's disk."""

    budget: MemoryBudget
    spill: SpillFile


@contextmanager
def task_memory(directory: str | os.PathLike[str], budget: MemoryBudget = UNLIMITED) -> Iterator[Memory]:
    """Yield a task's memory. Its spill file in `directory` is created on first use and deleted at the end."""
    spill = SpillFile(directory)
    try:
        yield Memory(budget, spill)
    finally:
        spill.close()


@contextmanager
def explain_out_of_memory(who: str, budget: MemoryBudget) -> Iterator[None]:
    """Replace any out-of-memory error by EnvironmentUnusable, which names the settings to change."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise budget.exceeded(who, error) from error
