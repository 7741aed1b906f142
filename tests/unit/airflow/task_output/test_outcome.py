"""What an error means to the scheduler: every action has one reaction, and the reason reaches `abort_checkpoint`."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from milepost import errors
from milepost.airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTerminated,
    AirflowTaskTimeout,
    DownstreamTasksSkipped,
)
from milepost.airflow.operators.tasks import AbortCheckpointOperator
from milepost.airflow.task_output.outcome import (
    FAILURE_KEY,
    REACTIONS,
    Failure,
    Reaction,
    error_text,
    failure_of,
    translate_errors,
)
from milepost.airflow.task_output.runbook_links import runbook_link
from milepost.errors import Action, CheckpointError
from milepost.protocol.failure.failures import MAX_DETAIL_CHARACTERS
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.runbook.addresses import VARIABLE
from milepost_testkit import wording

LOG = logging.getLogger(__name__)


class TaskInstance:
    """As much of Airflow's task instance as a failing task uses: it keeps what is pushed."""

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def error_classes() -> list[type[CheckpointError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, CheckpointError)]
    return [kind for kind in found if kind is not CheckpointError]


def told(error: BaseException) -> tuple[BaseException, dict[str, Any]]:
    ti = TaskInstance()
    with pytest.raises(BaseException) as caught, translate_errors(ti, LOG):
        raise error
    return caught.value, ti.pushed


def test_every_action_has_a_reaction() -> None:
    assert set(REACTIONS) == set(Action)


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_airflow_retries_only_errors_whose_action_is_retry(kind: type[CheckpointError]) -> None:
    """DESIGN 4.2: retry loops do not multiply. Fenced, a failed gate, bad input: asking again cannot help."""
    raised, pushed = told(kind("what happened", hint="do this"))
    reaction = REACTIONS[kind.action]
    assert isinstance(raised, AirflowFailException) == (reaction is Reaction.FAIL)
    assert isinstance(raised, AirflowSkipException) == (reaction is Reaction.SKIP)
    assert isinstance(raised, kind) == (reaction is Reaction.RETRY)
    assert (FAILURE_KEY in pushed) == (reaction is not Reaction.SKIP)


def test_busy_is_a_skip_and_fenced_a_failure_without_retry() -> None:
    """I10, I3."""
    assert isinstance(told(errors.Busy("busy"))[0], AirflowSkipException)
    assert isinstance(told(errors.Fenced("fenced"))[0], AirflowFailException)
    assert isinstance(told(errors.StoreUnavailable("no answer"))[0], errors.StoreUnavailable)


def test_the_message_names_the_next_step() -> None:
    raised, _ = told(errors.InvalidRequest("the spec is wrong.", hint="correct it"))
    text = str(raised)
    assert all(part in text for part in ("the spec is wrong.", "correct it", "milepost runbook invalid-request"))
    wording.describes(raised)
    fenced, _ = told(errors.Fenced("checkpoint 3: token 7, current 9."))
    assert "checkpoint 3: token 7, current 9." in str(fenced) and "milepost runbook fenced" in str(fenced)
    wording.describes(fenced)
    raised, _ = told(errors.Fenced("checkpoint 3: token 7, current 9.", hint=errors.NEW_RUN))
    assert str(raised) == str(fenced), "said once"


def test_a_try_that_a_newer_one_replaced_requires_no_action() -> None:
    """I3: two schedulers may start a task twice; its run continues by itself, so no new run is requested."""
    raised, _ = told(errors.Fenced("checkpoint 3: token 7, current 8.", hint=errors.NEWER_TRY))
    assert errors.NEWER_TRY in str(raised)
    wording.describes(raised)
    assert errors.NEW_RUN not in str(raised)


def test_airflow_may_retry_a_task_whose_worker_was_stopped() -> None:
    """A worker that is drained tells its tasks; Airflow itself would fail them for good, whatever `retries` says."""
    raised, pushed = told(AirflowTaskTerminated("run_epoch was told to stop"))
    assert isinstance(raised, AirflowException) and not isinstance(raised, AirflowFailException)
    assert str(raised) == "run_epoch was told to stop" and not pushed


def test_a_message_leads_to_the_page_that_this_airflow_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or to where a team has the pages; without an address of the server, to the command that prints the page."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/one/")
    assert runbook_link(errors.Busy("x")) == "https://airflow.example.com/one/milepost/runbook/busy"
    assert "/milepost/runbook/store-unavailable" in error_text(errors.StoreUnavailable("no answer."))
    monkeypatch.setenv(VARIABLE, "https://docs.example.com/runbook")
    assert runbook_link(errors.Busy("x")) == "https://docs.example.com/runbook/busy.html"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.QualityGateFailed("x"), "QUALITY_GATE_FAILED"),
        (errors.SubtaskDeclined("x"), "CHECKPOINT_DECLINED"),
        (errors.SubtaskDeclined("x", reason="BAD_RECORD"), "BAD_RECORD"),
        (errors.SubtaskDeclined("x", reason="no such reason"), "CHECKPOINT_DECLINED"),
        (errors.StateCorrupt("x"), "STATE_CORRUPT"),
        (errors.InvalidRequest("x", reason="SPEC_REFUSED"), "SPEC_REFUSED"),
        (AirflowTaskTimeout("x"), "CHECKPOINT_EXPIRED"),
        (RuntimeError("spark is gone"), "TASK_FAILURE"),
    ],
)
def test_the_reason_of_an_error_is_one_of_the_closed_vocabulary(error: BaseException, reason: str) -> None:
    assert failure_of(error).reason == reason
    assert reason in CheckpointFailureReason.__members__


def test_reaching_the_execution_timeout_is_an_expired_checkpoint_and_is_not_retried() -> None:
    """I10: `execution_timeout` ends before the deadline; another try would begin with the lease nearly over."""
    raised, pushed = told(AirflowTaskTimeout("too long"))
    assert isinstance(raised, AirflowFailException)
    assert pushed[FAILURE_KEY]["reason"] == "CHECKPOINT_EXPIRED"


def test_a_bug_is_left_to_airflow_and_its_reason_is_kept() -> None:
    raised, pushed = told(ZeroDivisionError("a bug"))
    assert isinstance(raised, ZeroDivisionError)
    why = {"reason": "TASK_FAILURE", "detail": "ZeroDivisionError: a bug", "step": ""}
    assert pushed[FAILURE_KEY] == why | {"runbook": "milepost runbook unexpected-error"}


def test_a_request_to_airflow_is_not_a_failure() -> None:
    raised, pushed = told(DownstreamTasksSkipped(tasks=["run_epoch"]))
    assert isinstance(raised, DownstreamTasksSkipped)
    assert not pushed


def test_the_failure_xcom_has_a_bounded_size() -> None:
    _, pushed = told(RuntimeError("x" * 100_000))
    assert len(pushed[FAILURE_KEY]["detail"]) == MAX_DETAIL_CHARACTERS


def test_the_abort_reports_a_killed_task_without_an_xcom() -> None:
    failure = Failure.from_xcom(None, "run_epoch")
    assert failure.reason == "TASK_FAILURE"
    assert "run_epoch" in failure.detail
    wording.matches("run_facts", failure.detail)


def test_a_trigger_that_was_lost_is_a_failed_trigger() -> None:
    """It may have recorded its checkpoint before it could tell the id: the abort finds that one by the session."""

    class Instance:
        def xcom_pull(self, task_ids: str, key: str = "return_value") -> None:
            return None

    failure = AbortCheckpointOperator(task_id="abort_checkpoint", spec_path="").failure(Instance())
    assert failure.reason == "TRIGGER_CHECKPOINT_FAILURE"
    assert "trigger_checkpoint" in failure.detail
    wording.matches("run_facts", failure.detail)
