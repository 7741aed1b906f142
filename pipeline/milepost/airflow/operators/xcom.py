"""The XCom records that an epoch's tasks exchange: ids and measured times, never rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from milepost.airflow.operators.base import TRIGGER
from milepost.codec import from_json
from milepost.epoch.timing import PlanTimes, Unrecorded

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class CheckpointXCom:
    """The checkpoint that the tasks of a run act for, and the fencing token of the try.

    As JSON in XCom: {"checkpoint_id": 7, "timeline": "main", "token": 3}, plus the fields of the subclass.
    """

    checkpoint_id: int
    timeline: str
    token: int


@dataclass(frozen=True, slots=True)
class TriggeredCheckpoint(CheckpointXCom):
    """Result of `trigger_checkpoint`. `unrecorded` is always empty, because `times` includes its requests."""

    epoch: int
    times: PlanTimes
    unrecorded: ClassVar[Unrecorded] = Unrecorded()


@dataclass(frozen=True, slots=True)
class RanEpoch(CheckpointXCom):
    """Result of `run_epoch`. `token` is that of the newest try.

    Attributes:
        figures: what the epoch did, as text for the run's note.
        unrecorded: requests that a later task records.
    """

    figures: str
    unrecorded: Unrecorded = field(default_factory=Unrecorded)


@dataclass(frozen=True, slots=True)
class ValidatedCheckpoint(CheckpointXCom):
    """Result of `validate`, if the checkpoint may complete. unrecorded: requests that a later task records."""

    unrecorded: Unrecorded = field(default_factory=Unrecorded)


@dataclass(frozen=True, slots=True)
class UnpublishedSink(CheckpointXCom):
    """A sink that must publish a completed checkpoint."""

    sink: str


def decode_xcom(task_id: str, kind: type[Record], value: object) -> Record:
    """Decode the XCom of a task. Raises StateCorrupt: it has another shape."""
    return from_json(kind, value, f"XCom of {task_id}", hint=f"clear the run from {TRIGGER} on, or trigger a new run")
