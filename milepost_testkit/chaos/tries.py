"""Record the input and output of each attempt in a file before it can commit."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from unittest.mock import patch

import pyarrow as pa

from milepost.epoch.answers import EpochAnswers
from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.plan import EpochPlan, SourceInput
from milepost.jobmaster.savepoints import restored_copy
from milepost.jobspec.job.spec import QualitySpec
from milepost.jobspec.load.load import LoadedJob
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.ids import TimelineId
from milepost.spark.driver.engines.standalone import is_standalone
from milepost.spark.driver.runner import SparkEpochRunner
from milepost.spark.task.row_steps.lookup_plan import read_copy
from milepost.spark.wire.task_output import Rows, TaskOutput
from milepost.storage.open import open_store
from milepost_testkit.models.data.captured import Begin
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.tasks.clocks import ticking

Piece = tuple[str, int | None, pa.Table]
"""A node's output (`<uid>.late` of its late rows), the lateness stamp of its rows (us; None: none), and these."""

LANDED = "landed"
"""The version of a file of an external system, which never changes."""


@dataclass
class Try:
    """One attempt of an epoch.

    Attributes:
        base: the checkpoint that it continues. inputs: object versions (name, etag) that it reads, by source.
        uids, sinks: of its spec. quality: the suites that judged it. begin: its starting position.
        pieces: rows that its nodes emitted, in order. schemas: of every node's rows. `replay` adds both for Spark.
    """

    checkpoint_id: int
    token: int
    base: int
    inputs: Mapping[str, tuple[tuple[str, str], ...]]
    uids: frozenset[str]
    sinks: frozenset[str]
    quality: tuple[QualitySpec, ...]
    parallelism: int
    begin: Begin
    pieces: list[Piece] = field(default_factory=list)
    schemas: Mapping[str, pa.Schema] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.checkpoint_id}-{self.token}"

    def rows(self, output: str) -> pa.Table:
        """Return all rows of one output."""
        empty = self.schemas[output].empty_table()
        return pa.concat_tables([empty, *(rows for name, _, rows in self.pieces if name == output)])


def read_try(folder: Path, checkpoint_id: int, token: int) -> Try:
    """Return a recorded attempt."""
    made: Try = pickle.loads((folder / f"{checkpoint_id}-{token}").read_bytes())
    return made


def _leave(plan: EpochPlan, folder: Path, pieces: list[Piece], schemas: Mapping[str, pa.Schema]) -> Try:
    """Record an attempt atomically, and return it."""
    spec = plan.spec
    made = Try(
        checkpoint_id=int(plan.checkpoint_id),
        token=int(plan.token),
        base=int(plan.base),
        inputs={one.name: tuple(_versions_read(one)) for one in plan.inputs},
        uids=frozenset(one.uid for one in spec.operators),
        sinks=frozenset(one.name for one in spec.sinks),
        quality=tuple(spec.quality),
        parallelism=spec.spark.parallelism,
        begin=Begin.of(plan),
        pieces=pieces,
        schemas=dict(schemas),
    )
    _put(folder / made.name, made)
    return made


def _versions_read(source: SourceInput) -> Iterable[tuple[str, str]]:
    """Return the objects that an epoch reads. Of a log it is the files of the records: record 2 is file 0000."""
    if source.landed is not None:
        sequences = dict.fromkeys(int(PurePosixPath(obj.key).parts[0]) for obj in source.objects)
        return ((f"{sequence - 2:04}", LANDED) for sequence in sequences)
    return ((PurePosixPath(obj.key).name.partition(".")[0], obj.etag) for obj in source.objects)


def _put(file: Path, content: object) -> None:
    part = file.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(content))
    part.rename(file)


@contextmanager
def leaving_origins(folder: Path) -> Iterator[None]:
    """Record the original of each checkpoint restored during the block, before it can complete."""
    imported_metadata = restored_copy.imported_metadata

    def leaving(metadata: CheckpointMetadata, pending: PendingCheckpoint, timeline: TimelineId) -> CheckpointMetadata:
        origin = int(metadata.checkpoint_id), int(metadata.token)
        _put(folder / f"{pending.checkpoint_id}-{pending.token}", origin)
        return imported_metadata(metadata, pending, timeline)

    with patch.object(restored_copy, "imported_metadata", leaving):
        yield


def read_origin(folder: Path, checkpoint_id: int, token: int) -> tuple[int, int]:
    """Return the checkpoint and token that a restored checkpoint is a copy of."""
    origin: tuple[int, int] = pickle.loads((folder / f"{checkpoint_id}-{token}").read_bytes())
    return origin


class CapturingRunner(SparklessRunner):
    """A data plane that records the rows of each attempt in a file before it can commit.

    Attributes:
        newest: the last recorded attempt; None if there is none yet.
    """

    def __init__(self, job: LoadedJob, folder: Path) -> None:
        super().__init__(seen=self._keep, sql=any(one.kind == "sql" for one in job.spec.operators), clock=ticking())
        self._folder = folder
        self._pieces: list[Piece] = []
        self.newest: Try | None = None

    def run(self, plan: EpochPlan) -> EpochAnswers:
        self._pieces.clear()
        answers = super().run(plan)
        self.newest = _leave(plan, self._folder, [*_dimensions(plan), *self._pieces], answers.schemas)
        return answers

    def _keep(self, plan: EpochPlan, item: TaskOutput) -> None:
        if isinstance(item, Rows):
            self._pieces.append((item.node, item.lateness_us, item.rows))


class SparkRunner(SparkEpochRunner):
    """Spark, with the input of each attempt recorded. newest: the last attempt; None if there is none yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.newest: Try | None = None

    def run(self, plan: EpochPlan) -> EpochAnswers:
        answers = super().run(plan)
        self.newest = _leave(plan, self._folder, [], answers.schemas)
        return answers


def _dimensions(plan: EpochPlan) -> Iterator[Piece]:
    """Yield the dimension snapshots of the epoch."""
    for name, dimension in plan.dimensions.items():
        yield name, None, read_copy(open_store(plan.job_store), dimension)


def new_runner(job: LoadedJob, folder: Path) -> CapturingRunner | SparkRunner:
    """Return the data plane of a job: Spark if its spec has a server or cluster, else this process."""
    return SparkRunner(folder) if runs_on_spark(job) else CapturingRunner(job, folder)


def runs_on_spark(job: LoadedJob) -> bool:
    """Return whether a job's spec has a Spark server or cluster."""
    return job.spark_server() is not None or is_standalone(job.spec.spark.master)
