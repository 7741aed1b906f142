"""Results of an abort, and of the end and the start of an incarnation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.codec import OmitNone
from milepost.protocol.manifest.timelines import job_phase
from milepost.protocol.records import ManifestState


@dataclass(frozen=True, slots=True)
class AbortedCheckpoint:
    """A checkpoint that was aborted.

    Attributes:
        tolerated: whether the job keeps running. counted: whether it counts as a failure.
        consecutive_failures: including this one.
    """

    outcome: str
    checkpoint_id: int
    reason: str
    detail: str
    tolerated: bool
    counted: bool
    consecutive_failures: int
    job_status: str


@dataclass(frozen=True, slots=True)
class NothingAborted:
    """No checkpoint was aborted: ``already_completed``, ``nothing_pending`` or ``another_pending``."""

    outcome: str
    message: str
    tolerated: OmitNone[bool] = None


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The status of a job after a command.

    Attributes:
        status: of the incarnation. job_status: of the job. head: None for the empty state.
    """

    outcome: str
    status: str
    job_status: str
    incarnation: int
    timeline: str
    head: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob(JobOutcome):
    """An incarnation that has ended, and what its clean-up published: a line per checkpoint and sink."""

    published: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """How much of a table was copied."""

    files: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCopy:
    """A copy of a checkpoint.

    Attributes:
        left_out: sinks that are no longer in the spec. name: of a savepoint.
    """

    checkpoint_id: int
    location: str
    objects: int
    bytes: int
    sinks: Mapping[str, CopiedTable]
    left_out: tuple[str, ...]
    name: OmitNone[str] = None


@dataclass(frozen=True, slots=True)
class SavedHead:
    """An existing savepoint of the head."""

    name: str
    checkpoint_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CanceledJob(EndedJob):
    """A canceled job.

    Attributes:
        aborted_checkpoint: that was pending. savepoint: of the last checkpoint, if requested.
    """

    aborted_checkpoint: int | None
    savepoint: OmitNone[CheckpointCopy | SavedHead] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedJob(JobOutcome):
    """A job whose next incarnation is open. rolled_back_from: the head before a rollback."""

    rolled_back_from: int | None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Whether the job was FAILED, and its status now."""

    resumed: bool
    status: str


def outcome_of(state: ManifestState, outcome: str) -> JobOutcome:
    """Return the result for a job in this state."""
    return JobOutcome(
        outcome=outcome,
        status=state.status.value,
        job_status=job_phase(state).value,
        incarnation=state.incarnation,
        timeline=state.live,
        head=int(state.timeline().head) or None,
    )
