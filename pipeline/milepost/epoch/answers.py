"""Results that the data plane returns to the job master."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from milepost.epoch.gate_shares import GateShare
from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.plan import EpochPlan
from milepost.epoch.spark_answers import SparkAnswers
from milepost.operators import StatefulOperator
from milepost.protocol.exchange import SubtaskAnswer
from milepost.protocol.records import ObjectHandle
from milepost.quality import GateVerdict, PartialResult
from milepost.storage import NO_REQUESTS, StoreRequests


@dataclass(frozen=True, slots=True)
class EpochAnswers:
    """Subtask answers of one epoch, with the schemas that the subtasks used.

    Attributes:
        answers: every acknowledgement that reached the driver, distinct copies included, and every decline.
        operators: stateful operators by uid.
        schemas: row schema of every node by name, `<uid>.late` included.
        session_ms: time until the Spark session was ready.
        job_ms: duration of the Spark job.
        spark: Spark's answers to SQL between an updating operator and its reader, by the uid of the SQL.
    """

    answers: tuple[SubtaskAnswer, ...]
    operators: Mapping[str, StatefulOperator]
    schemas: Mapping[str, pa.Schema]
    session_ms: int
    job_ms: int
    spark: Mapping[str, SparkAnswers] = field(default_factory=dict)


class EpochRunner(Protocol):
    """Interface of the data plane to the JobMaster."""

    def prepare(self, plan: EpochPlan) -> None:
        """Import the modules that `run` needs. After it, another thread may import libraries while `run` is active."""

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Run one epoch. Raises SubtaskDeclined, or an error of the store."""

    def judge(self, plan: EpochPlan, shares: Sequence[GateShare]) -> Mapping[str, PartialResult]:
        """Evaluate the quality gate on the staged rows of an epoch, in Spark tasks.

        Returns: the partial result of each sink, by sink name.
        Raises: EnvironmentUnusable, StateCorrupt, SubtaskDeclined, or an error of the store.
        """

    def stop(self) -> None:
        """Stop a running `run` or `judge` from another thread, after its session was fenced. Otherwise do nothing."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Report of an attempt whose checkpoint is durable but not yet committed.

    Every subtask has acknowledged it and the quality gate has judged it.

    Attributes:
        handle: handle of `_metadata`, computed from the bytes that were put.
        write_ms: time to make the checkpoint durable. 0 if the checkpoint was already completed.
        unrecorded: requests that `_metadata` cannot contain: those of its own write, and the heartbeat's.
        completed_ms: when the checkpoint was completed, if it was before this attempt, which then did nothing.
    """

    metadata: CheckpointMetadata
    handle: ObjectHandle
    write_ms: int = 0
    unrecorded: StoreRequests = NO_REQUESTS
    completed_ms: int | None = None

    @property
    def verdict(self) -> GateVerdict:
        return self.metadata.verdict

    @property
    def rows_in(self) -> int:
        return sum(source.rows for source in self.metadata.sources.values())

    @property
    def rows_out(self) -> int:
        return sum(sink.rows for sink in self.metadata.sinks.values())
