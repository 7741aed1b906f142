"""XCom carries what the tasks of an epoch hand on to each other: ids and measured times, never data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from milepost.airflow.operators.base import TRIGGER
from milepost.codec.records import from_json
from milepost.epoch.timing.step_clock import PlanTimes, Unrecorded

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class HandedOn:
    """The checkpoint that the tasks of a run act for, and the token of the try."""

    checkpoint_id: int
    timeline: str
    token: int


@dataclass(frozen=True, slots=True)
class TriggeredCheckpoint(HandedOn):
    """What `trigger_checkpoint` leaves. unrecorded: nothing, since `times` has what it asked."""

    epoch: int
    times: PlanTimes
    unrecorded: ClassVar[Unrecorded] = Unrecorded()


@dataclass(frozen=True, slots=True)
class EpochTry(HandedOn):
    """The token under which the newest try of `run_epoch` ran, and what it did, in words for the run's note.

    Attributes:
        unrecorded: handed on to the task that records it.
    """

    figures: str
    unrecorded: Unrecorded = field(default_factory=Unrecorded)


@dataclass(frozen=True, slots=True)
class ValidatedCheckpoint(HandedOn):
    """A checkpoint that `validate` found fit to complete. unrecorded: as `EpochTry` has it."""

    unrecorded: Unrecorded = field(default_factory=Unrecorded)


@dataclass(frozen=True, slots=True)
class UnpublishedSink(HandedOn):
    """A sink that must be told of a completed checkpoint."""

    sink: str


def left_by(task_id: str, kind: type[Record], left: object) -> Record:
    """Return what a task left. Raises StateCorrupt: it is something else."""
    return from_json(kind, left, f"what {task_id} left", hint=f"clear the run from {TRIGGER} on, or trigger a new run")
