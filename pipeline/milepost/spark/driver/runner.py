"""Run one epoch's plan as one Spark job and return its subtasks' answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from milepost.epoch import EpochAnswers, EpochPlan, GateShare
from milepost.errors import CheckpointError, CheckpointExpired, SparkLost
from milepost.quality import PartialResult
from milepost.spark.driver.deadline import Deadline
from milepost.spark.driver.engines.engine import SPARK_ERRORS, Engine, epoch_tag
from milepost.spark.driver.engines.open_engine import load_engine, open_engine
from milepost.spark.driver.epoch_graph import Stage, epoch_frame, epoch_stages
from milepost.spark.driver.executors.probe import libraries_of_plan, probe
from milepost.spark.driver.executors.unusable import unusable
from milepost.spark.driver.frame_cache import FrameCache
from milepost.spark.driver.gate_job import judge
from milepost.spark.driver.interrupts import one_interrupt
from milepost.spark.driver.lost_tasks import lost_task
from milepost.spark.driver.spark_answers import spark_answers
from milepost.spark.driver.spark_errors import crash, full_disk, refusal
from milepost.spark.driver.sql_projection import SqlSchemas
from milepost.spark.driver.starvation import StarvationWatch
from milepost.spark.task.epoch_tasks import subtask_answers
from milepost.spark.task.planning.levels import EpochLevels, plan_levels
from milepost.spark.worker.worker_memory import UNLIMITED_BYTES, budget_bytes
from milepost.state.cache import EachNodesCache


@dataclass(slots=True)
class _Job:
    """Progress of an epoch's job, for the explanation of a Spark error.

    Attributes:
        opened_s: monotonic time at which the probe of the session succeeded; 0 before.
        task_bytes: memory budget of each task.
        epoch: the planned levels; None before planning, and for the quality gate.
    """

    opened_s: float = 0.0
    task_bytes: int = UNLIMITED_BYTES
    epoch: EpochLevels | None = None


@dataclass(frozen=True, slots=True)
class _WarmSession:
    """A session with the caches of earlier epochs, valid while its `spark.conf` stays the same."""

    session: SparkSession
    conf: Mapping[str, str]
    schemas: SqlSchemas
    frames: FrameCache

    def serves(self, engine: Engine, plan: EpochPlan) -> bool:
        return self.session is engine.session and self.conf == plan.spec.spark.conf


class SparkEpochRunner:
    """The Spark data plane of `JobMaster.epochs.run_epoch`. It reuses its session between epochs."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._warm: _WarmSession | None = None
        self._running: str | None = None
        self._ends_s = 0.0
        """Deadline of the latest epoch, by the monotonic clock."""

    def prepare(self, plan: EpochPlan) -> None:
        """Import the modules that the plan's kind of session needs.

        PySpark has import cycles. Two threads that import them concurrently may see a partly initialised module.
        """
        load_engine(plan)

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Run the epoch's job to its end.

        Returns:
            Every distinct acknowledgement that reached the driver, and every decline.

        Raises:
            EnvironmentUnusable: Spark or its executors cannot run epochs. Nothing was run.
            InvalidRequest: the spec does not fit its schemas, or Spark's answers differ from the recorded ones.
            SubtaskDeclined: Spark rejects the SQL, the SQL fails on a value, or a task failed too often.
            CheckpointExpired: the job was still running after `plan.timeout_ms`.
            SparkLost: Spark ended, or its cluster had no core for the job before the deadline.
        """
        started = time.monotonic()
        engine = self._engine = open_engine(plan, self._engine)
        self._ends_s = time.monotonic() + plan.timeout_ms / 1000
        job = _Job()
        with one_interrupt(), self._job(engine, plan, job):
            plan, warm = _placed(plan, engine), self._warmed(engine, plan)
            epoch = job.epoch = plan_levels(plan, engine.slots, partial(warm.schemas.of, plan))
            answers = spark_answers(engine.session, plan, epoch)
            rows = _collected(engine, warm.frames, len(epoch.splits), epoch_stages(plan, epoch, job.task_bytes))
        finished = time.monotonic()
        return EpochAnswers(
            answers=subtask_answers((row.kind, bytes(row.payload)) for row in rows),
            operators=epoch.operators,
            schemas=epoch.schemas,
            spark=answers,
            session_ms=round((job.opened_s - started) * 1000),
            job_ms=round((finished - job.opened_s) * 1000),
        )

    def judge(self, plan: EpochPlan, shares: Sequence[GateShare]) -> dict[str, PartialResult]:
        """Run the quality gate on the staged rows of the latest epoch, within that epoch's remaining time.

        Raises: as `run`, and as `gate_job.judge`.
        """
        engine = self._engine = open_engine(plan, self._engine)
        with one_interrupt(), self._job(engine, plan, _Job()):
            return judge(engine.session, plan, tuple(shares))

    def _warmed(self, engine: Engine, plan: EpochPlan) -> _WarmSession:
        """Return the warm session of the previous epoch, or a new one if the session or its settings changed."""
        if self._warm is None or not self._warm.serves(engine, plan):
            session = engine.session
            self._warm = _WarmSession(session, dict(plan.spec.spark.conf), SqlSchemas(session), FrameCache(session))
        return self._warm

    @contextmanager
    def _job(self, engine: Engine, plan: EpochPlan, job: _Job) -> Iterator[None]:
        """Run the block's jobs under the epoch's tag and deadline. Translate Spark's errors."""
        tag = epoch_tag(plan, plan.token)
        deadline = Deadline(engine, tag, max(1, round((self._ends_s - time.monotonic()) * 1000)))
        starvation = StarvationWatch(engine, plan.checkpoint_id)
        self._running = tag
        try:
            with engine.tagged(tag):
                job.task_bytes = budget_bytes(probe(engine, libraries_of_plan(plan)))
                job.opened_s = time.monotonic()
                yield
        except SPARK_ERRORS as error:
            translated = _meaning(engine, plan, job, error, late=deadline.passed)
            if translated is None:
                raise
            raise translated from error
        except BaseException as error:
            engine.interrupt(tag)
            # If the JVM ends while it answers, PySpark raises an unrelated error.
            if isinstance(error, Exception) and not isinstance(error, CheckpointError):
                lost = engine.lost(error)
                if lost is not None:
                    raise lost from error
            raise
        finally:
            self._running = None
            deadline.cancel()
            starvation.cancel()

    def stop(self) -> None:
        """Cancel the Spark job of the running epoch, because this process is no longer the leader. Thread-safe."""
        engine, tag = self._engine, self._running
        if engine is not None and tag is not None:
            engine.interrupt(tag)


def _meaning(engine: Engine, plan: EpochPlan, job: _Job, error: Exception, *, late: bool) -> CheckpointError | None:
    """Return the checkpoint error that a Spark error means; None if it is unknown.

    Args:
        late: whether the epoch's deadline had passed.
    """
    if late:
        return _expired(engine, plan)
    if (lost := engine.lost(error)) is not None:
        return lost
    if not job.opened_s:
        return unusable(engine, error)
    splits, sql = ((), ()) if job.epoch is None else (job.epoch.splits, job.epoch.sql)
    if (died := lost_task(plan, splits, str(error))) is not None:
        return died
    if (full := full_disk(plan.checkpoint_id, str(error))) is not None:
        return full
    if isinstance(error, Py4JJavaError):
        return crash(plan.checkpoint_id, error)
    return refusal(plan.checkpoint_id, error, sql) if isinstance(error, PySparkException) else None


def _expired(engine: Engine, plan: EpochPlan) -> CheckpointError:
    """Return the error of a job that missed its deadline: it was slow, or it got no executor."""
    why = engine.why_starved()
    if why is None:
        return CheckpointExpired(
            f"checkpoint {plan.checkpoint_id}: its Spark job was still running after {plan.timeout_ms} ms and "
            "was cancelled. Nothing of this epoch is visible.",
            hint="raise checkpointing.timeout, or plan less per epoch with limits_per_epoch",
        )
    return SparkLost(
        f"checkpoint {plan.checkpoint_id}: {engine.name} allocated no executor within {plan.timeout_ms} ms: {why}. "
        "Nothing of this epoch is visible.",
        hint="end idle applications that hold cores, such as a stuck driver, or limit applications with "
        "`spark.cores.max` below `spark.conf`. If cores are free, `spark.executor.memory` or `spark.executor.cores` "
        "exceeds what a worker has",
    )


def _placed(plan: EpochPlan, engine: Engine) -> EpochPlan:
    """Return the plan. If its tasks run on other machines, each node chooses its own cache directory."""
    return plan if engine.is_here else replace(plan, cache_directory=EachNodesCache(Path(plan.cache_directory).name))


def _collected(engine: Engine, frames: FrameCache, subtasks: int, stages: Sequence[Stage]) -> list[Row]:
    if not engine.is_own:
        return epoch_frame(engine.session, subtasks, stages).collect()
    with frames.frame(subtasks, stages) as frame:
        return frame.collect()
