"""What the tasks of an epoch hand on to each other by XCom: ids and measured times, never data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from milepost.airflow.operators.base import TRIGGER
from milepost.epoch.step_clock import PlanTimes, Unrecorded
from milepost.protocol.codec.records import from_json

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class TriggeredCheckpoint:
    """The checkpoint that the tasks of a run act for, as `trigger_checkpoint` leaves it."""

    checkpoint_id: int
    epoch: int
    timeline: str
    token: int
    times: PlanTimes


@dataclass(frozen=True, slots=True)
class EpochTry:
    """The token under which the newest try of `run_epoch` ran, and what it did, in words for the run's note.

    Attributes:
        unrecorded: handed on to the task that records it.
    """

    checkpoint_id: int
    timeline: str
    token: int
    figures: str
    unrecorded: Unrecorded = field(default_factory=Unrecorded)


@dataclass(frozen=True, slots=True)
class ValidatedCheckpoint:
    """A checkpoint that `validate` found fit to complete. unrecorded: as `EpochTry` has it."""

    checkpoint_id: int
    timeline: str
    token: int
    unrecorded: Unrecorded = field(default_factory=Unrecorded)


@dataclass(frozen=True, slots=True)
class UnpublishedSink:
    """A sink that must be told of a completed checkpoint."""

    checkpoint_id: int
    timeline: str
    token: int
    sink: str


def left_by(task_id: str, kind: type[Record], left: object) -> Record:
    """Return what a task left. Raises StateCorrupt: it is something else."""
    return from_json(kind, left, f"what {task_id} left", hint=f"clear the run from {TRIGGER} on, or trigger a new run")
