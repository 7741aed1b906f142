"""Errors, typed by what the caller must do about them.

Every message says, in this order: who, what, expected and got, what is true now, what to do.
Add a class only if callers must react to it in a new way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import ClassVar


class Action(Enum):
    """What the receiver of the error must do.

    Attributes:
        RETRY: read the current state, then try again.
        SKIP: nothing. Another session does it, or it is done.
        ABORT_CHECKPOINT: abort the epoch; nothing of it becomes visible.
        STOP: stop. A person decides.
        FIX_INPUT: correct the request, the data or the machine, then try again.
    """

    RETRY = "retry"
    SKIP = "skip"
    ABORT_CHECKPOINT = "abort_checkpoint"
    STOP = "stop"
    FIX_INPUT = "fix_input"


class CheckpointError(Exception):
    """Base of all errors that Milepost raises deliberately.

    Attributes:
        action: the reaction that the class requires.
        exit_code: what the CLI exits with (DESIGN 8.2: 1 failed, 2 usage, 3 not found,
            4 fenced or conflict, 5 quality, 6 timeout, 7 corrupt, 8 environment).
        hint: what to do, one line; "" if the message already says it.
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
        """Append a step to the hint."""
        self.hint = f"{self.hint.rstrip('.')}. {step}" if self.hint else step

    def full_message(self, between: str = " ") -> str:
        """Return the message, followed by the hint if there is one."""
        return f"{self.message}{between}{self.hint}" if self.hint else self.message


@contextmanager
def with_hint(kind: type[CheckpointError], hint: str) -> Iterator[None]:
    """Give errors of this kind that leave the block a hint, unless they have their own."""
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
    """A consumed object has another version now. Correct the data, or declare in the spec how to treat changes."""

    action = Action.FIX_INPUT
    exit_code = 1


class SourceReplaced(CheckpointError):
    """A source's log is a copy of another external system than the spec names now. A person decides which is meant."""

    action = Action.STOP
    exit_code = 1


class PositionExpired(CheckpointError):
    """The external system no longer has what follows the end of a source's log. A person decides where to continue.

    A source raises it with the reason as its message, and `earliest` and `latest`: the positions that it still has.
    """

    action = Action.STOP
    exit_code = 1


class SourceWentBack(CheckpointError):
    """The external system is at an earlier position than a source's log, or its history changed. A person decides.

    A source raises it with the reason as its message, and `earliest` and `latest`: the positions that it has.
    """

    action = Action.STOP
    exit_code = 1


class InputVoided(CheckpointError):
    """A checkpoint has read landed rows that proved false. A person rolls the job back, or accepts the false rows."""

    action = Action.STOP
    exit_code = 1


class SourceUnreachable(CheckpointError):
    """The external system of a landed source did not answer, or its reader failed. Nothing was landed."""

    action = Action.RETRY
    exit_code = 8


class NotFound(CheckpointError):
    """The named job, checkpoint, sink or object does not exist."""

    action = Action.FIX_INPUT
    exit_code = 3


class EnvironmentUnusable(CheckpointError):
    """The machine or a service cannot be used as configured: credentials, bucket, Java, disk, store semantics."""

    action = Action.FIX_INPUT
    exit_code = 8


class SparkLost(EnvironmentUnusable):
    """Spark went away during an epoch, or had no free core for it. The same epoch can run again on another Spark."""

    action = Action.RETRY


class JobNotRunnable(CheckpointError):
    """No epoch is triggered until a person acts: the job is FAILED or has ended, or its sinks are unavailable."""

    action = Action.STOP
    exit_code = 1


class ProtocolViolation(CheckpointError):
    """An event that is illegal in the current state. The state is unchanged. A bug in Milepost or in a peer."""

    action = Action.STOP
    exit_code = 1


NEW_RUN = "trigger a new run"
"""Hint for a fenced run whose checkpoint is finished, or belongs to another run."""

NEWER_TRY = "nothing: a newer try of the same run continues the epoch"
"""Hint for a fenced try: its run has started a newer try."""


class Fenced(CheckpointError):
    """A newer session owns the timeline. Nothing was written; do not retry."""

    action = Action.STOP
    exit_code = 4


class Busy(CheckpointError):
    """Another session holds the lease of a pending checkpoint (I10)."""

    action = Action.SKIP
    exit_code = 4


class Subsumed(CheckpointError):
    """The request concerns a checkpoint that completed and has been subsumed since: nothing is left to do."""

    action = Action.SKIP
    exit_code = 3


class CommitConflict(CheckpointError):
    """Another session's transition took the version, so ours did not land. Read the head and decide again."""

    action = Action.RETRY
    exit_code = 4


class PlanOutdated(CommitConflict):
    """A plan that a person approved no longer holds. Nothing was changed. Make a new plan and review it."""

    action = Action.STOP


class Superseded(CheckpointError):
    """A sink's head does not descend from this commit's predecessor (I14): the commit must never land."""

    action = Action.STOP
    exit_code = 4


class CommitOutcomeUnknown(CheckpointError):
    """It is unknown whether the write landed. Delete nothing; read back before retrying."""

    action = Action.RETRY
    exit_code = 1


class StoreUnavailable(CheckpointError):
    """The store did not answer, or answered with an error of its own."""

    action = Action.RETRY
    exit_code = 8


class StateCorrupt(CheckpointError):
    """A stored object is missing or does not match its recorded size or checksum."""

    action = Action.STOP
    exit_code = 7


class SubtaskDeclined(CheckpointError):
    """A subtask declined the checkpoint, so the checkpoint must be aborted."""

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
