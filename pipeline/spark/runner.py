"""Runs one epoch's plan as one Spark job and returns what its subtasks answered."""

from __future__ import annotations

import time

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.epoch_run import EpochAnswers
from pipeline.planning import EpochPlan
from pipeline.protocol.acknowledgements import decode_answer
from pipeline.protocol.barrier import AckEvent, EventKind, acknowledgement, carry
from pipeline.protocol.errors import CheckpointExpired
from pipeline.spark.deadline import Deadline
from pipeline.spark.epoch_graph import epoch_frame
from pipeline.spark.levels import EpochLevels, plan_levels
from pipeline.spark.refusals import crash, refusal
from pipeline.spark.session import open_session


class SparkEpochRunner:
    """The data plane behind `JobMaster.run_epoch`; keeps one session per process."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._running: str | None = None

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Run the epoch's job to its end.

        Returns: every acknowledgement that reached the driver (distinct copies) and every decline.
        Raises:
            SubtaskDeclined: SQL that Spark refuses or that fails on a value, or a task that failed too often.
            CheckpointExpired: the job was still running at the end of `plan.timeout_ms`.
        """
        started = time.monotonic()
        session = self._open(plan)
        opened = time.monotonic()
        tag = f"{plan.spec.name}/{plan.token}"
        session.sparkContext.addJobTag(tag)
        deadline = Deadline(session, tag, plan.timeout_ms)
        self._running = tag
        epoch: EpochLevels | None = None
        try:
            epoch = plan_levels(session, plan)
            rows = epoch_frame(session, plan, epoch).select("kind", "payload").collect()
        except (PySparkException, Py4JJavaError) as error:
            if deadline.passed:
                raise CheckpointExpired(
                    f"checkpoint {plan.checkpoint_id}: its Spark job was still running after {plan.timeout_ms} ms and "
                    "was cancelled. Nothing of this epoch is visible.",
                    hint="raise checkpointing.timeout, or plan less per epoch with limits_per_epoch",
                ) from error
            if isinstance(error, Py4JJavaError):
                raise crash(plan.checkpoint_id, error) from error
            raise refusal(plan.checkpoint_id, error, epoch.sql if epoch is not None else {}) from error
        except BaseException:
            session.sparkContext.cancelJobsWithTag(tag)
            raise
        finally:
            self._running = None
            deadline.cancel()
            session.sparkContext.removeJobTag(tag)
        events = [AckEvent.decode(bytes(row.payload)) for row in rows if row.kind == EventKind.ACK.value]
        declines = [decode_answer(bytes(row.payload).decode()) for row in rows if row.kind == EventKind.CANCEL.value]
        finished = time.monotonic()
        return EpochAnswers(
            answers=(*(acknowledgement(ack) for ack in carry(events)), *declines),
            operators=epoch.operators,
            schemas=epoch.schemas,
            session_ms=round((opened - started) * 1000),
            job_ms=round((finished - opened) * 1000),
        )

    def stop(self) -> None:
        """Cancel the Spark job of the running epoch, from any thread: its session does not lead any more."""
        session, tag = self._session, self._running
        if session is not None and tag is not None:
            session.sparkContext.cancelJobsWithTag(tag)

    def _open(self, plan: EpochPlan) -> SparkSession:
        if self._session is None:
            self._session = open_session(plan.spec.name, plan.spec.spark)
        return self._session
