"""Epoch answers carry the data plane's results to the job master."""

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
    """What the data plane returns: the subtasks' answers, and the schemas they worked with.

    Attributes:
        answers: every acknowledgement that reached the driver, distinct copies included, and every decline.
        operators: stateful operators by uid. schemas: of every node's rows, `<uid>.late` included.
        spark: to SQL between updates and operators that read them, by the uid of the SQL.
        session_ms: time until Spark was there. job_ms: time of the Spark job.
    """

    answers: tuple[SubtaskAnswer, ...]
    operators: Mapping[str, StatefulOperator]
    schemas: Mapping[str, pa.Schema]
    session_ms: int
    job_ms: int
    spark: Mapping[str, SparkAnswers] = field(default_factory=dict)


class EpochRunner(Protocol):
    """The data plane as the JobMaster sees it."""

    def prepare(self, plan: EpochPlan) -> None:
        """Import what `run` will need. Afterwards another thread may import libraries beside it."""

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Run one epoch. Raises SubtaskDeclined, or what the store raises."""

    def judge(self, plan: EpochPlan, shares: Sequence[GateShare]) -> Mapping[str, PartialResult]:
        """Look at what an epoch that was run would publish, where its tasks run: what is found, by sink.

        Raises: EnvironmentUnusable, StateCorrupt, SubtaskDeclined, or what the store raises.
        """

    def stop(self) -> None:
        """End what `run` or `judge` is doing, from another thread: its session was fenced. Nothing, if nothing runs."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    """The end of a try: acknowledged by every subtask, judged by the gate, durable; not yet committed.

    Attributes:
        handle: of `_metadata`, from the bytes that were put.
        write_ms: of making it durable; 0 for a try that found the checkpoint completed.
        unrecorded: requests beside that, which `_metadata` could not know of: its own bytes, and the heartbeat's.
    """

    metadata: CheckpointMetadata
    handle: ObjectHandle
    write_ms: int = 0
    unrecorded: StoreRequests = NO_REQUESTS

    @property
    def verdict(self) -> GateVerdict:
        return self.metadata.verdict

    @property
    def rows_in(self) -> int:
        return sum(source.rows for source in self.metadata.sources.values())

    @property
    def rows_out(self) -> int:
        return sum(sink.rows for sink in self.metadata.sinks.values())
