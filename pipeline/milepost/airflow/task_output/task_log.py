"""The log filter leaves out chatter of libraries, and Python's frames below a foreseen error."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from airflow.sdk.exceptions import AirflowFailException
from structlog.typing import EventDict

from milepost.airflow.task_output.outcome import ToldToStop, told_in_words
from milepost.errors import CheckpointError, ProtocolViolation
from milepost.protocol.records.reasons import CheckpointFailureReason

_CHATTY = ("great_expectations", "boto3", "botocore", "s3transfer", "urllib3")
"""Libraries that fill the log of a task, whose process is its own: each says hundreds of lines of no concern here."""


def keep_task_log_short() -> None:
    """Silence libraries in this process, and have Airflow log foreseen errors by their words alone."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # In place: the logger of Airflow's task runner is bound to this list already, and would not see another one.
    processors = structlog.get_config()["processors"]
    if without_foreseen_frames not in processors:
        processors.insert(0, without_foreseen_frames)


def without_foreseen_frames(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Replace the stack trace of a foreseen error by what it says, in an event of structlog; a bug keeps its frames."""
    error = _raised(event.get("exc_info"))
    if error is not None and _is_foreseen(error):
        del event["exc_info"]
        said = told_in_words(error) if isinstance(error, CheckpointError) else str(error)
        event["event"] = f"{event['event']}: {said}"
    return event


def _raised(exc_info: Any) -> BaseException | None:
    if isinstance(exc_info, tuple):
        exc_info = exc_info[1]
    elif exc_info is True:
        exc_info = sys.exc_info()[1]
    return exc_info if isinstance(exc_info, BaseException) else None


def _is_foreseen(error: BaseException) -> bool:
    """Whether the error's words tell all: it is no bug of ours, nor a failure in Spark or in a user's function."""
    if isinstance(error, AirflowFailException):
        return error.__cause__ is None or _is_foreseen(error.__cause__)
    if isinstance(error, ToldToStop):
        return True
    if not isinstance(error, CheckpointError) or isinstance(error, ProtocolViolation):
        return False
    return error.details.get("reason") != CheckpointFailureReason.TASK_FAILURE.value
