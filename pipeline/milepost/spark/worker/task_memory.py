"""Task memory bounds what one task's rows and state take, and spills the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget, is_out_of_memory
from milepost.state.buffers import SpillFile


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """What the tasks of an epoch may hold, wherever they run.

    Attributes:
        bytes: as of `MemoryBudget`. directory: where their files lie.
    """

    bytes: int
    directory: str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Memory:
    """A task's budget, and the file on the node's disk that takes what is beyond it."""

    budget: MemoryBudget
    spill: SpillFile


@contextmanager
def task_memory(directory: str | os.PathLike[str], budget: MemoryBudget = UNLIMITED) -> Iterator[Memory]:
    """The memory of a task whose file lies in `directory`, made when it is needed, and gone at the end."""
    spill = SpillFile(directory)
    try:
        yield Memory(budget, spill)
    finally:
        spill.close()


@contextmanager
def explain_out_of_memory(who: str, budget: MemoryBudget) -> Iterator[None]:
    """Raise EnvironmentUnusable, which says what to set, in place of whatever says that memory ran out."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise budget.exceeded(who, error) from error
