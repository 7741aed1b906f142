"""Map Milepost's errors to Airflow's reactions: retry, skip, or fail without retries.

This is the only such mapping. Retry loops must not multiply (DESIGN 4.2): Airflow retries only what may succeed on the
same checkpoint. An error that needs a new checkpoint or a person fails immediately.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from logging import Logger
from typing import Any

from milepost.airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTerminated,
    AirflowTaskTimeout,
)
from milepost.airflow.task_output.form_links import for_airflow
from milepost.airflow.task_output.runbook_links import runbook_link
from milepost.codec import from_json, to_json
from milepost.errors import NEW_RUN, Action, Busy, CheckpointError, CheckpointExpired, Fenced
from milepost.protocol.failure import MAX_DETAIL_CHARACTERS, detail_for, reason_for
from milepost.protocol.records import CheckpointFailureReason

FAILURE_KEY = "failure"
"""XCom key of a failed task's `Failure`. `abort_checkpoint` records its reason and detail."""


class Reaction(Enum):
    """What the scheduler does with the task."""

    RETRY = "retry"
    SKIP = "skip"
    FAIL = "fail"


REACTIONS: dict[Action, Reaction] = {
    Action.RETRY: Reaction.RETRY,
    Action.SKIP: Reaction.SKIP,
    Action.ABORT_CHECKPOINT: Reaction.FAIL,
    Action.STOP: Reaction.FAIL,
    Action.FIX_INPUT: Reaction.FAIL,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task failed, small enough for an XCom.

    Attributes:
        reason: name of a `CheckpointFailureReason`.
        detail: why, for people; it may quote a refused value. step: what to do, "" if unknown. Neither has secrets.
        runbook: URL of its runbook page, or the command that prints it.
    """

    reason: str
    detail: str
    step: str
    runbook: str

    @classmethod
    def from_xcom(
        cls,
        value: object,
        task_id: str | None,
        lost: CheckpointFailureReason = CheckpointFailureReason.TASK_FAILURE,
    ) -> Failure:
        """Decode the XCom of a failed task. Without one the task was killed or lost, for the reason `lost`."""
        if value is None:
            which = f"task {task_id}" if task_id else "a task"
            return cls(
                lost.value,
                f"{which} ended without an error (killed, marked failed, or its worker was lost); see its log",
                "",
                runbook_link(LookupError()),
            )
        return from_json(cls, value, f"failure in the XCom of {task_id}", hint="trigger a new run")


class Aborted(AirflowFailException):
    """Ends the task that aborted the epoch. hint: what to do now, as in our errors."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class StopRequested(AirflowException):
    """Ends a task whose process was stopped. Airflow may retry it."""


def failure_of(error: BaseException) -> Failure:
    """Return the failure of an error: its reason, text and next step."""
    if isinstance(error, AirflowTaskTimeout):
        return Failure(
            CheckpointFailureReason.CHECKPOINT_EXPIRED.value,
            "the task reached its execution_timeout, which is before the checkpoint's deadline",
            "",
            runbook_link(CheckpointExpired("")),
        )
    step = for_airflow(error.hint) if isinstance(error, CheckpointError | Aborted) else ""
    detail = detail_for(error)[:MAX_DETAIL_CHARACTERS]
    return Failure(reason_for(error).value, detail, step[:MAX_DETAIL_CHARACTERS], runbook_link(error))


def error_text(error: CheckpointError) -> str:
    """Return the text of an error for a task's log: message, next step and runbook link."""
    if isinstance(error, Fenced) and error.hint in ("", NEW_RUN):
        # DESIGN 8.3, rule 3: the words that people search for in the log of a fenced task.
        text = f"fenced; {NEW_RUN}: {error.message}"
    else:
        fenced = "fenced: " if isinstance(error, Fenced) else ""
        hint = f" What to do: {for_airflow(error.hint).rstrip('.')}." if error.hint else ""
        text = f"{fenced}{error.message}{hint}"
    return f"{text} Runbook: {runbook_link(error)}"


@contextmanager
def translate_errors(ti: Any, log: Logger, *, if_busy: Reaction = Reaction.SKIP) -> Iterator[None]:
    """Translate an error of the block to an Airflow exception, after pushing its `Failure` for `abort_checkpoint`.

    Args:
        ti: the running task instance; gets the XCom `FAILURE_KEY`.
        log: gets the error's message and hint, without a stack for errors that Milepost raises on purpose.
        if_busy: the reaction if another session holds the lease.
    Raises:
        AirflowSkipException: another session holds the lease.
        AirflowFailException: a retry cannot help, so Airflow does not use the remaining `retries`.
        StopRequested: the process was stopped; Airflow may retry.
        BaseException: the error itself; Airflow may retry.
    """
    try:
        yield
    except CheckpointError as error:
        reaction = if_busy if isinstance(error, Busy) else REACTIONS[error.action]
        if reaction is Reaction.SKIP:
            log.warning("%s", error_text(error))
            raise AirflowSkipException(error.message) from error
        ti.xcom_push(key=FAILURE_KEY, value=to_json(failure_of(error)))
        if reaction is Reaction.RETRY:
            raise
        raise AirflowFailException(error_text(error)) from error
    except AirflowTaskTimeout as error:
        failure = failure_of(error)
        ti.xcom_push(key=FAILURE_KEY, value=to_json(failure))
        raise AirflowFailException(failure.detail) from error
    except AirflowTaskTerminated as error:
        # Airflow never retries a task that ends with AirflowTaskTerminated, but after a worker shutdown a retry can
        # continue.
        raise StopRequested(str(error)) from None
    except AirflowFailException as error:
        ti.xcom_push(key=FAILURE_KEY, value=to_json(failure_of(error)))
        raise
    except AirflowException:
        # Not failures: a skip, or a request to skip others or to trigger a run.
        raise
    except Exception as error:
        ti.xcom_push(key=FAILURE_KEY, value=to_json(failure_of(error)))
        raise
