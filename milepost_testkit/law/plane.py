"""Run epochs of any spec with the product's tasks, but without a job master.

The job master's work around an epoch (plans, commits, tables) costs more than the epoch and is omitted. All code that
determines rows is the product's. A checkpoint is a value: a rollback, a fork or another attempt is an epoch that
continues an older one.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.codec.records import from_json
from milepost.epoch.code_hash import CODE_HASH
from milepost.epoch.dimensions import DimensionSnapshot
from milepost.epoch.metadata import StateTableSnapshot
from milepost.epoch.plan import EpochAlignment, EpochPlan, SourceInput, expected_subtasks, split_inputs
from milepost.jobmaster.run.checkpoint_metadata import newest_event_us
from milepost.jobmaster.run.payloads import payloads_of
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.graph.in_flight import input_signatures
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.load import LoadedJob
from milepost.protocol.exchange.acknowledgements import VerifiedAnswers, verify
from milepost.protocol.exchange.watermarks import source_watermark
from milepost.protocol.records.ids import CheckpointId, Epoch, FencingToken, TimelineId
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.subtask.task_lifecycle import Notifications
from milepost.sources.contract import SourceObject
from milepost.spark.wire.task_output import Rows, TaskOutput
from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget
from milepost.state.buffers.channel_state import ChannelStateHandle
from milepost.state.layers.key_hash import KeyHash
from milepost.state.runs.handles import StateHandle
from milepost_testkit.models.data.captured import Begin, Captured
from milepost_testkit.models.data.kinds.lookups import STATIC, copy_of, static_rows
from milepost_testkit.rows.key_hashes import KEYED
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.graphs import build_graph
from milepost_testkit.stores.memory_store import MemorySpace, MemoryStore
from milepost_testkit.tasks.clocks import ticking

ALIGNED = EpochAlignment(None, None, 0, False)
LAST = EpochAlignment(None, None, 0, True)


@dataclass(frozen=True)
class OperatorState:
    """The state of one operator's subtasks in a checkpoint, as in `_metadata`."""

    tables: Mapping[str, StateTableSnapshot]
    firing: tuple[int | None, ...]
    channels: tuple[ChannelStateHandle | None, ...]


@dataclass(frozen=True)
class Checkpoint:
    """The result of an epoch that later epochs continue.

    Attributes:
        number: of its epoch, from 1; 0 for the empty state. lineage: the epochs that led to it, its own included.
        watermarks_us: by source.
    """

    number: int = 0
    lineage: tuple[int, ...] = ()
    watermarks_us: Mapping[str, int | None] = field(default_factory=dict)
    states: Mapping[str, OperatorState] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        """Number of buffers in flight to a later epoch."""
        return sum(one.buffers for state in self.states.values() for one in state.channels if one is not None)

    @property
    def parallelism(self) -> int:
        """Number of subtasks per operator; 0 for the empty state."""
        return max((len(state.firing) for state in self.states.values()), default=0)


@dataclass(frozen=True)
class EpochOptions:
    """How to run an epoch. Except for idle sources, no option may change the results once nothing is in flight.

    Attributes:
        parallelism: subtasks of every level. budget: of each task. cut_ms: time limit of each task, by a clock
            that advances by 1 ms per read; None reads all input. last: event time ends with the epoch.
        attempts: number of attempts. All but the last one are aborted after their tasks have ended.
        cold: the node's cache has nothing of the job.
        idle_before, idle: sources that no operator waits for, as in `SourceInput`.
    """

    parallelism: int = 1
    budget: MemoryBudget = UNLIMITED
    cut_ms: int | None = None
    last: bool = False
    attempts: int = 1
    cold: bool = False
    idle_before: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()

    @property
    def alignment(self) -> EpochAlignment:
        return LAST if self.last else ALIGNED if self.cut_ms is None else EpochAlignment(self.cut_ms, None, 0, False)


class Plane:
    """Runs epochs of one spec below a folder, and captures the rows of every node.

    Attributes:
        captured: rows of each node (`<uid>.late` for its late rows) by epoch number.
        checkpoints: all created checkpoints. schemas: of every node's rows, late ones included.
        ended: numbers of the epochs that ended event time.
    """

    def __init__(self, spec: JobSpec, folder: Path, hasher: KeyHash = KEYED) -> None:
        self.spec = spec
        self.checkpoints: list[Checkpoint] = []
        self.ended: set[int] = set()
        self.schemas: Mapping[str, pa.Schema] = {}
        self._hasher = hasher
        self.graph: JobGraph = build_graph(spec)
        self.captured = Captured()
        self._folder = folder
        still = MemorySpace(clock_ms=lambda: 0)
        self._stores = {url: MemoryStore(url, still) for url in map(_url, ("job", *spec.sources))}
        self._numbers = itertools.count(1)
        self._tokens = itertools.count(1)
        self._signatures = input_signatures(spec, self.graph)

    def put(self, source: str, key: str, rows: pa.Table) -> SourceObject:
        """Store rows as a Parquet object of a source."""
        body = io.BytesIO()
        pq.write_table(rows, body, compression="none")
        stat = self._stores[_url(source)].put(key, body.getvalue())
        return SourceObject(key, stat.etag, stat.size, stat.last_modified_ms)

    def epoch(
        self, base: Checkpoint, objects: Mapping[str, tuple[SourceObject, ...]], options: EpochOptions
    ) -> Checkpoint:
        """Run an epoch from a checkpoint over new objects of each source. Return its checkpoint."""
        number = next(self._numbers)
        if options.last:
            self.ended.add(number)
        for _ in range(options.attempts - 1):
            self._attempt(number, base, objects, options)
            self.captured.forget(number)
        self.checkpoints.append(self._attempt(number, base, objects, options))
        return self.checkpoints[-1]

    def _attempt(
        self, number: int, base: Checkpoint, objects: Mapping[str, tuple[SourceObject, ...]], options: EpochOptions
    ) -> Checkpoint:
        plan = self._plan(number, base, objects, options)
        self.captured.begins[number] = Begin.of(plan)
        runner = SparklessRunner(
            budget=options.budget,
            opener=lambda config: self._stores[config.url],
            clock=ticking(),
            seen=self._keep,
            sql=any(node.is_select for node in self.graph.nodes.values()),
            stages=False,
            node=None if options.cold else f"{self._folder}/node",
        )
        if plan.dimensions:
            self.captured.add(STATIC, number, None, static_rows(number))
        answers = runner.run(plan)
        self.schemas = answers.schemas
        sources = len(split_inputs(plan.spec.sources, plan.inputs, options.parallelism))
        expected = expected_subtasks(sources, self.graph.levels, options.parallelism)
        verified = verify(plan.checkpoint_id, plan.token, expected, answers.answers)
        states = {
            uid: _state_of(payloads_of(verified, "operators", uid), plan.tables(operator))
            for uid, operator in answers.operators.items()
        }
        watermarks = {name: self._watermark_us(name, base, verified) for name in self.spec.streams}
        return Checkpoint(number, (*base.lineage, number), watermarks, states)

    def _keep(self, plan: EpochPlan, item: TaskOutput) -> None:
        if isinstance(item, Rows):
            self.captured.add(item.node, int(plan.checkpoint_id), item.lateness_us, item.rows)

    def _watermark_us(self, name: str, base: Checkpoint, verified: VerifiedAnswers) -> int | None:
        newest_us = newest_event_us(payloads_of(verified, "sources", name))
        delay_us = round(self.spec.sources[name].watermark_delay.total_seconds() * 1_000_000)
        return source_watermark(base.watermarks_us.get(name), newest_us, delay_us)

    def _plan(
        self, number: int, base: Checkpoint, objects: Mapping[str, tuple[SourceObject, ...]], options: EpochOptions
    ) -> EpochPlan:
        spark = self.spec.spark.model_copy(update={"parallelism": options.parallelism})
        spec = self.spec.model_copy(update={"spark": spark})
        known = base.states
        return EpochPlan(
            job=LoadedJob(spec, self._folder, "", "", self._folder),
            spec=spec,
            graph=self.graph,
            checkpoint_id=CheckpointId(number),
            token=FencingToken(next(self._tokens)),
            timeline=TimelineId(1),
            epoch=Epoch(len(base.lineage) + 1),
            base=CheckpointId(base.number),
            hasher=self._hasher,
            inputs=tuple(
                SourceInput(
                    name,
                    objects.get(name, ()),
                    (),
                    {},
                    0,
                    0,
                    None,
                    idle=name in options.idle,
                    idle_before=name in options.idle_before,
                )
                for name in sorted(self.spec.streams)
            ),
            held_back=None,
            watermarks_us=base.watermarks_us,
            partitions={},
            states={uid: state.tables for uid, state in known.items()},
            firing={uid: state.firing for uid, state in known.items()},
            channels={uid: state.channels for uid, state in known.items()},
            input_signatures=self._signatures,
            alignment=options.alignment,
            notifications=Notifications(),
            job_store=StoreConfig(_url("job")),
            sources={name: StoreConfig(_url(name)) for name in spec.sources},
            sinks={sink.name: StoreConfig(_url("lake")) for sink in spec.sinks},
            buckets={},
            filled=frozenset(),
            maintenance={},
            server=None,
            functions={},
            code_hash=CODE_HASH,
            cache_directory="",
            timeout_ms=600_000,
            dimensions=self._dimensions(number),
        )

    def _dimensions(self, number: int) -> dict[str, DimensionSnapshot]:
        """Return the dimension copies of an epoch, always new: the static source changes with every epoch."""
        store, rows = self._stores[_url("job")], static_rows(number)
        return {name: copy_of(store, rows, number, FencingToken(1)) for name in self.spec.dimensions}


def _url(name: str) -> str:
    return f"file:///memory/{name}"


def _state_of(acks: list[dict[str, Any]], tables: Mapping[str, StateTableSnapshot]) -> OperatorState:
    return OperatorState(
        tables={
            name: replace(
                table, handles=tuple(from_json(StateHandle, ack["state"][name], "state handle") for ack in acks)
            )
            for name, table in tables.items()
        },
        firing=tuple(ack["firing_us"] for ack in acks),
        channels=tuple(
            None if ack["channel"] is None else from_json(ChannelStateHandle, ack["channel"], "channel state handle")
            for ack in acks
        ),
    )
