"""Shorten task logs: no library chatter, and no stack traces of expected errors."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.task_output.outcome import StopRequested, error_text
from milepost.errors import CheckpointError, ProtocolViolation
from milepost.protocol.records import CheckpointFailureReason

_CHATTY = ("great_expectations", "boto3", "botocore", "s3transfer", "urllib3")
"""Libraries that log hundreds of irrelevant lines per task. Each task has its own process, so others are unaffected."""


def keep_task_log_short() -> None:
    """Silence libraries in this process, and make Airflow log expected errors without stack traces."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # In place: the logger of Airflow's task runner already holds this list object.
    processors = structlog.get_config()["processors"]
    if without_expected_traces not in processors:
        processors.insert(0, without_expected_traces)


def without_expected_traces(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Replace the stack trace of an expected error with its text, in a structlog event. A bug keeps its trace."""
    error = _raised(event.get("exc_info"))
    if error is not None and _is_expected(error):
        del event["exc_info"]
        text = error_text(error) if isinstance(error, CheckpointError) else str(error)
        event["event"] = f"{event['event']}: {text}"
    return event


def _raised(exc_info: Any) -> BaseException | None:
    if isinstance(exc_info, tuple):
        exc_info = exc_info[1]
    elif exc_info is True:
        exc_info = sys.exc_info()[1]
    return exc_info if isinstance(exc_info, BaseException) else None


def _is_expected(error: BaseException) -> bool:
    """Return whether an error's text is enough: it is not a bug of ours, nor a failure in Spark or in user code."""
    if isinstance(error, AirflowFailException):
        return error.__cause__ is None or _is_expected(error.__cause__)
    if isinstance(error, StopRequested):
        return True
    if not isinstance(error, CheckpointError) or isinstance(error, ProtocolViolation):
        return False
    return error.details.get("reason") != CheckpointFailureReason.TASK_FAILURE.value
