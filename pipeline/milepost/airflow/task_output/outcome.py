"""The only place that says what one of our errors means to Airflow: retry, skip, or fail for good.

Retry loops must not multiply (DESIGN 4.2): Airflow retries only what may succeed by being asked again, on the same
checkpoint. Whatever needs a new checkpoint or a person fails at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from logging import Logger
from typing import Any

from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTerminated,
    AirflowTaskTimeout,
)

from milepost.airflow.task_output.form_links import for_airflow
from milepost.airflow.task_output.runbook_links import runbook_link
from milepost.codec.records import from_json, to_json
from milepost.errors import NEW_RUN, Action, Busy, CheckpointError, CheckpointExpired, Fenced
from milepost.protocol.failure.abort_reasons import detail_for, reason_for
from milepost.protocol.failure.failures import MAX_DETAIL_CHARACTERS
from milepost.protocol.records.reasons import CheckpointFailureReason

FAILURE_KEY = "failure"
"""XCom key under which a failing task leaves what `abort_checkpoint` records as reason and detail."""


class Reaction(Enum):
    """What the scheduler shall do."""

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
        reason: name of a `CheckpointFailureReason`. detail, step: why, and what to do, for people; without row data or
            secrets. step: "" where nobody knows. runbook: where its page is.
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
        """Return what the failed task left; a task that left nothing was killed or lost, which is the reason `lost`."""
        if value is None:
            which = f"task {task_id}" if task_id else "a task"
            return cls(
                lost.value,
                f"{which} ended without saying why (killed, marked failed, or its worker was lost); see its log",
                "",
                runbook_link(LookupError()),
            )
        return from_json(cls, value, f"failure that {task_id} left", hint="trigger a new run")


class Aborted(AirflowFailException):
    """What ends a task that gave the epoch up. Attributes: hint: what is to be done now, as our errors have it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ToldToStop(AirflowException):
    """What ends a task whose process was told to stop: a next try may go on, unless Airflow has begun one already."""


def failure_of(error: BaseException) -> Failure:
    """Name the reason of an error, and what it says."""
    if isinstance(error, AirflowTaskTimeout):
        return Failure(
            CheckpointFailureReason.CHECKPOINT_EXPIRED.value,
            "the task reached its execution_timeout, which lies before the checkpoint's deadline",
            "",
            runbook_link(CheckpointExpired("")),
        )
    step = for_airflow(error.hint) if isinstance(error, CheckpointError | Aborted) else ""
    detail = detail_for(error)[:MAX_DETAIL_CHARACTERS]
    return Failure(reason_for(error).value, detail, step[:MAX_DETAIL_CHARACTERS], runbook_link(error))


def told_in_words(error: CheckpointError) -> str:
    """Return what the error says to whoever reads a task's log: its message, what to do, and where more is said."""
    if isinstance(error, Fenced) and error.hint in ("", NEW_RUN):
        # DESIGN 8.3, rule 3: the words a person looks for in the log of a task that came too late.
        said = f"fenced; {NEW_RUN}: {error.message}"
    else:
        fenced = "fenced: " if isinstance(error, Fenced) else ""
        hint = f" What to do: {for_airflow(error.hint).rstrip('.')}." if error.hint else ""
        said = f"{fenced}{error.message}{hint}"
    return f"{said} Runbook: {runbook_link(error)}"


@contextmanager
def translate_errors(ti: Any, log: Logger, *, if_busy: Reaction = Reaction.SKIP) -> Iterator[None]:
    """Turn an error of the block into what Airflow understands, after leaving its reason for `abort_checkpoint`.

    Args:
        ti: the running task instance; receives the XCom `FAILURE_KEY`.
        log: gets the error's message and hint, without a stack for errors that Milepost raises on purpose.
        if_busy: what it means that another session holds the lease.
    Raises:
        AirflowSkipException: another session holds the lease.
        AirflowFailException: asking again cannot help; `retries` are not used up.
        ToldToStop: the process was told to stop, for Airflow to retry.
        BaseException: the error itself, for Airflow to retry.
    """
    try:
        yield
    except CheckpointError as error:
        reaction = if_busy if isinstance(error, Busy) else REACTIONS[error.action]
        if reaction is Reaction.SKIP:
            log.warning("%s", told_in_words(error))
            raise AirflowSkipException(error.message) from error
        ti.xcom_push(key=FAILURE_KEY, value=to_json(failure_of(error)))
        if reaction is Reaction.RETRY:
            raise
        raise AirflowFailException(told_in_words(error)) from error
    except AirflowTaskTimeout as error:
        failure = failure_of(error)
        ti.xcom_push(key=FAILURE_KEY, value=to_json(failure))
        raise AirflowFailException(failure.detail) from error
    except AirflowTaskTerminated as told:
        # Airflow fails a task for good that ends by this; where only its worker goes down, a next try can go on.
        raise ToldToStop(str(told)) from None
    except AirflowFailException as error:
        ti.xcom_push(key=FAILURE_KEY, value=to_json(failure_of(error)))
        raise
    except AirflowException:
        # Not failures: a skip, or a request to skip others or to trigger a run.
        raise
    except Exception as error:
        ti.xcom_push(key=FAILURE_KEY, value=to_json(failure_of(error)))
        raise
