"""Runs one epoch's plan as one Spark job and returns what its subtasks answered."""

from __future__ import annotations

import logging
import time

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from pipeline.config.load import LoadedJob
from pipeline.epoch_run import EpochAnswers, metrics_directory
from pipeline.planning import EpochPlan
from pipeline.protocol.acknowledgements import decode_answer
from pipeline.protocol.barrier import BarrierEvent, EventKind, acknowledgement, carry
from pipeline.protocol.errors import SubtaskDeclined
from pipeline.spark.epoch_graph import epoch_frame
from pipeline.spark.levels import plan_levels
from pipeline.spark.session import open_session

_LOG = logging.getLogger(__name__)


class SparkEpochRunner:
    """The data plane behind `JobMaster.run_epoch`; keeps one session per process."""

    def __init__(self, job: LoadedJob) -> None:
        self._job = job
        self._session: SparkSession | None = None

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Run the epoch's job to its end.

        Returns: every acknowledgement that reached the driver (distinct copies) and every decline.
        Raises:
            SubtaskDeclined: SQL that Spark refuses or that fails on a value, or a task that failed too often.
        """
        started = time.monotonic()
        session = self._open(plan)
        opened = time.monotonic()
        tag = f"{plan.spec.name}/{plan.token}"
        session.addTag(tag)
        try:
            epoch = plan_levels(session, plan)
            metrics_prefix = metrics_directory(plan.checkpoint_id, plan.token)
            rows = epoch_frame(session, plan, epoch, metrics_prefix).select("kind", "payload").collect()
        except PySparkException as error:
            raise _declined(plan, error) from error
        except BaseException:
            session.interruptTag(tag)
            raise
        finally:
            session.removeTag(tag)
        events = [BarrierEvent.decode(bytes(row.payload)) for row in rows if row.kind == EventKind.BARRIER.value]
        declines = [decode_answer(bytes(row.payload).decode()) for row in rows if row.kind == EventKind.CANCEL.value]
        finished = time.monotonic()
        return EpochAnswers(
            answers=(*(acknowledgement(barrier) for barrier in carry(events)), *declines),
            operators=epoch.operators,
            schemas=epoch.schemas,
            session_ms=round((opened - started) * 1000),
            job_ms=round((finished - opened) * 1000),
        )

    def _open(self, plan: EpochPlan) -> SparkSession:
        if self._session is None:
            self._session = open_session(plan.spec.name, plan.spec.spark)
        return self._session


def _declined(plan: EpochPlan, error: PySparkException) -> SubtaskDeclined:
    """A typed refusal for what Spark raised; the user's SQL is told apart from a failing task."""
    condition = error.getCondition() or ""
    first = _first_line(error)
    if isinstance(error, AnalysisException) or (condition and not condition.startswith("FAILED_")):
        reason, message = "SQL_ERROR", f"SQL of job {plan.spec.name} cannot run: {first}"
    else:
        reason, message = "TASK_FAILURE", f"a Spark task failed too often: {first}"
    _LOG.debug("checkpoint %s: Spark refused the epoch", plan.checkpoint_id, exc_info=error)
    return SubtaskDeclined(f"checkpoint {plan.checkpoint_id}: {message}", reason=reason)


def _first_line(error: PySparkException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
