"""Errors, typed by what the caller must do about them.

Wording of every message: who, what, expected and got, what is now true, what to do.
A new class is only warranted by a new reaction of the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import ClassVar


class Action(Enum):
    """What whoever receives the error must do.

    Attributes:
        RETRY: the same again, once what is there now has been read.
        SKIP: nothing: somebody else does it, or it is done.
        ABORT_CHECKPOINT: give the epoch up; nothing of it becomes visible.
        STOP: no more by itself; a person decides.
        FIX_INPUT: put right what was given: the request, the data or the machine. Then again.
    """

    RETRY = "retry"
    SKIP = "skip"
    ABORT_CHECKPOINT = "abort_checkpoint"
    STOP = "stop"
    FIX_INPUT = "fix_input"


class CheckpointError(Exception):
    """Base of all errors that Milepost raises on purpose.

    Attributes:
        action: the reaction that the class asks for.
        exit_code: what the CLI exits with (DESIGN 8.2: 1 failed, 2 usage, 3 not found,
            4 fenced or conflict, 5 quality, 6 timeout, 7 corrupt, 8 environment).
        hint: what to do, one line, or "" when the message already says it.
        details: ids and values for ``--json``, JSON-compatible.
    """

    action: ClassVar[Action] = Action.STOP
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def add_hint(self, step: str) -> None:
        """Say one more thing to do, behind the hint that is there."""
        self.hint = f"{self.hint.rstrip('.')}. {step}" if self.hint else step

    def full_message(self, between: str = " ") -> str:
        """Return the message and, where there is one, the hint behind it."""
        return f"{self.message}{between}{self.hint}" if self.hint else self.message


@contextmanager
def with_hint(kind: type[CheckpointError], hint: str) -> Iterator[None]:
    """Give the errors of a kind that leave the block this hint, unless they have one of their own."""
    try:
        yield
    except kind as error:
        error.hint = error.hint or hint
        raise


class InvalidRequest(CheckpointError):
    """The caller's input (spec, argument, form value) is wrong; nothing was changed."""

    action = Action.FIX_INPUT
    exit_code = 2


class SourceChanged(CheckpointError):
    """A consumed object now has another version: the data must be put right, or the spec must say what that means."""

    action = Action.FIX_INPUT
    exit_code = 1


class NotFound(CheckpointError):
    """What was named (a job, a checkpoint, a sink, an object) does not exist."""

    action = Action.FIX_INPUT
    exit_code = 3


class EnvironmentUnusable(CheckpointError):
    """The machine or a service cannot be used as configured: credentials, bucket, Java, disk, store rules."""

    action = Action.FIX_INPUT
    exit_code = 8


class SparkLost(EnvironmentUnusable):
    """The Spark of an epoch went away amid it, or had no core for it; one that has some runs the same epoch."""

    action = Action.RETRY


class JobNotRunnable(CheckpointError):
    """No epoch is triggered until a person acts: the job is FAILED or has ended, or its sinks do not answer."""

    action = Action.STOP
    exit_code = 1


class ProtocolViolation(CheckpointError):
    """An event that is illegal in the present state; the state is untouched. A bug of ours or of a peer."""

    action = Action.STOP
    exit_code = 1


NEW_RUN = "trigger a new run"
"""What a fenced run is to do whose checkpoint is over, or another's."""

NEWER_TRY = "nothing: a newer try of the same run goes on with the epoch"
"""What a fenced try is to do whose run has begun another."""


class Fenced(CheckpointError):
    """A newer session owns the timeline. Nothing was written; do not retry."""

    action = Action.STOP
    exit_code = 4


class Busy(CheckpointError):
    """Another session holds the lease of a pending checkpoint (I10)."""

    action = Action.SKIP
    exit_code = 4


class Subsumed(CheckpointError):
    """What is asked for is about a checkpoint that completed and is subsumed by now: there is nothing left to do."""

    action = Action.SKIP
    exit_code = 3


class CommitConflict(CheckpointError):
    """Somebody else's transition took the version; ours did not land. Read the head and decide again."""

    action = Action.RETRY
    exit_code = 4


class PlanOutdated(CommitConflict):
    """What a person approved is not so any more, and nothing was changed. Make a new plan, and look at it."""

    action = Action.STOP


class Superseded(CheckpointError):
    """A sink's head does not descend from this commit's predecessor (I14): the commit must never land."""

    action = Action.STOP
    exit_code = 4


class CommitOutcomeUnknown(CheckpointError):
    """Nobody knows whether the write landed. Delete nothing; read back before trying again."""

    action = Action.RETRY
    exit_code = 1


class StoreUnavailable(CheckpointError):
    """The store did not answer, or answered with a fault of its own."""

    action = Action.RETRY
    exit_code = 8


class StateCorrupt(CheckpointError):
    """A stored object is missing or does not match its recorded size or checksum."""

    action = Action.STOP
    exit_code = 7


class SubtaskDeclined(CheckpointError):
    """A subtask answered the checkpoint with a decline; the checkpoint must be aborted."""

    action = Action.ABORT_CHECKPOINT
    exit_code = 1


class CheckpointExpired(CheckpointError):
    """The checkpoint's deadline passed before it was complete."""

    action = Action.ABORT_CHECKPOINT
    exit_code = 6


class QualityGateFailed(CheckpointError):
    """The quality gate vetoed the epoch; nothing of it is visible."""

    action = Action.ABORT_CHECKPOINT
    exit_code = 5
