"""What the log of an epoch's tasks says: what was read, kept and published, in words; and nothing of libraries."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from airflow.sdk._shared.logging.structlog import structlog_processors

from milepost import errors
from milepost.airflow.compat import AirflowTaskTerminated
from milepost.airflow.operators.base import TRIGGER, JobOperator
from milepost.airflow.operators.tasks import TriggerCheckpointOperator
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import TaskInstance, run_epoch_tasks
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob

VARYING = {r"\b(bytes|ms) \d+(?:,\d{3})*": r"\1 {number}"}
"""Sizes of objects and times, which differ between runs."""


@pytest.fixture
def log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the tasks of an epoch of two rows log."""
    gate = "quality: [{sink: table, expectations: [{type: expect_column_to_exist, column: k}]}]\ncheckpointing:"
    job = SparklessJob.create(tmp_path, {"checkpointing:": gate})
    job.land("a.csv", "k,v\n1,x\n2,y\n")
    run = SimpleNamespace(dag_id="small__epoch", run_id="manual__1", run_type="manual", logical_date=None)
    with caplog.at_level(logging.INFO):
        run_epoch_tasks(job.folder / "config" / "small.yaml", run, "file:///lake")
        for name in ("great_expectations", "botocore.credentials", "urllib3.connectionpool"):
            logging.getLogger(name).info("noise of %s", name)
    return list(caplog.records)


def messages(log: list[logging.LogRecord]) -> list[str]:
    """Return Milepost's messages. How they are formatted is up to Airflow, which may have set up logging before."""
    return [record.getMessage() for record in log if record.name.startswith("milepost.")]


@pytest.mark.deep
def test_the_log_of_an_epoch_has_its_figures(log: list[logging.LogRecord]) -> None:
    wording.matches("task_log", messages(log), replace=VARYING)
    reprs = ("{'", "['", "=<", "=(")
    assert not [record for record in log if any(mark in record.getMessage() for mark in reprs)]


def test_a_retry_logs_what_it_means_for_earlier_tries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of two that Airflow started for one task, each log says who acts, and that nothing is done twice."""
    job, pushed = SparklessJob.create(tmp_path), dict[tuple[str, str], Any]()
    job.land("a.csv")
    run = SimpleNamespace(dag_id="small__epoch", run_id="manual__1", run_type="manual", logical_date=None)
    trigger = TriggerCheckpointOperator(task_id=TRIGGER, spec_path=str(job.folder / "config" / "small.yaml"))
    logs = []
    for number in (1, 2):
        context: Any = {"ti": TaskInstance(TRIGGER, pushed, number), "dag_run": run, "params": {}}
        caplog.clear()
        with caplog.at_level(logging.INFO):
            trigger.execute(context)
        logs.append(messages(caplog.records))
    assert "try 2" in str(logs[1]) and "try 1" not in str(logs[0])
    for log in logs:
        wording.matches("task_log", log, replace=VARYING)


def test_libraries_do_not_fill_the_log_of_a_task(log: list[logging.LogRecord]) -> None:
    assert not [record for record in log if "noise of" in record.getMessage()]


@pytest.fixture
def runner_log() -> Iterator[io.BytesIO]:
    """What the logger of Airflow's task runner writes, through the processors that Airflow gives it."""
    before, written = structlog.get_config(), io.BytesIO()
    shared, _, last = structlog_processors(json_output=True)
    structlog.configure(
        processors=[*shared, last], logger_factory=structlog.BytesLoggerFactory(written), cache_logger_on_first_use=True
    )
    yield written
    structlog.configure(**before)


class Failing(JobOperator):
    """A task whose work raises this."""

    def __init__(self, *, error: BaseException, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    def act(self, context: Any) -> None:
        raise self.error from OSError("what lies below")


def logged(error: BaseException, written: io.BytesIO) -> dict[str, Any]:
    """The event with which the task runner ends a task that raised this."""
    runner = structlog.get_logger(logger_name="task")
    runner.info("::group::Pre Execute")
    context: Any = {"ti": TaskInstance("fails", {})}
    try:
        Failing(task_id="fails", spec_path="none.yaml", error=error).execute(context)
    except Exception:  # noqa: BLE001
        runner.exception("Task failed with exception")
    event: dict[str, Any] = json.loads(written.getvalue().splitlines()[-1])
    return event


HINT = "milepost resume small"


@pytest.mark.parametrize(
    "error",
    [
        errors.QualityGateFailed("the epoch is vetoed.", hint=HINT),
        errors.SubtaskDeclined("object a.csv, line 2: no number", reason="BAD_RECORD"),
        errors.SubtaskDeclined("subtask 0/1 declined"),
        errors.Fenced("token 7, current 9."),
        errors.Fenced("token 7, current 8.", hint=errors.NEWER_TRY),
        errors.StoreUnavailable("no answer.", hint="is it up?"),
        AirflowTaskTerminated("run_epoch was told to stop."),
    ],
    ids=["veto", "bad record", "decline", "fenced", "newer try", "asked again", "told to stop"],
)
def test_an_expected_error_is_logged_without_a_stack_trace(error: BaseException, runner_log: io.BytesIO) -> None:
    event = logged(error, runner_log)
    assert str(error.args[0]) in event["event"]
    wording.matches("task_log", event["event"])
    assert event["level"] == "error" and "exception" not in event and b"frames" not in runner_log.getvalue()


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("a bug"),
        errors.ProtocolViolation("an event that is illegal here"),
        errors.SubtaskDeclined("a Spark task failed too often", reason="TASK_FAILURE"),
    ],
    ids=["bug", "illegal event", "function of a user"],
)
def test_a_bug_keeps_its_frames(error: Exception, runner_log: io.BytesIO) -> None:
    event = logged(error, runner_log)
    assert event["event"] == "Task failed with exception"
    places = [at["name"] for cause in event["exception"] for at in cause["frames"]]
    assert "act" in places, event
