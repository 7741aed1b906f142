"""A data plane in this process: one epoch of a small job without Spark, with real readers, operators, state and sinks.

For what the master does around an epoch. One stateful level, no SQL; event time moves the source's watermark and
nothing else; the exchange is a filter.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.spec import SqlOperator
from pipeline.epoch_run import EpochAnswers
from pipeline.operators.build import build_operator
from pipeline.operators.contract import StatefulOperator
from pipeline.planning import EpochPlan, split_inputs
from pipeline.protocol.acknowledgements import Acknowledgement, ConsumedAttempt, SubtaskAnswer
from pipeline.protocol.errors import NotFound
from pipeline.protocol.ids import OperatorUid
from pipeline.protocol.object_store import ObjectStore, StoreConfig
from pipeline.protocol.watermarks import END_OF_TIME_US, operator_watermark
from pipeline.sinks.build import build_sink
from pipeline.sinks.contract import staged_file_to_json
from pipeline.sources.build import build_reader
from pipeline.sources.contract import SourceObject, SourceReader
from pipeline.state.key_groups import key_group, key_group_range, key_hash, subtask_of_key_group
from pipeline.state.keyed_state import restore_state
from pipeline.storage.layout import state_prefix
from pipeline.storage.open import open_store


def _keep(answers: tuple[SubtaskAnswer, ...]) -> Iterable[SubtaskAnswer]:
    return answers


def _nothing(plan: EpochPlan) -> None:
    return None


@dataclass
class SparklessRunner:
    """Runs epochs here and now.

    Attributes:
        before: called with each plan first; what it raises is what the data plane raises. after: called last, when all
            is staged and uploaded.
        answers: what reaches the driver of what the subtasks answered.
        opener: opens the stores that the subtasks write to.
        plans: of the epochs that were run, in order. told_to_stop: set when the session was fenced meanwhile.
    """

    before: Callable[[EpochPlan], None] = _nothing
    after: Callable[[EpochPlan], None] = _nothing
    answers: Callable[[tuple[SubtaskAnswer, ...]], Iterable[SubtaskAnswer]] = _keep
    opener: Callable[[StoreConfig], ObjectStore] = open_store
    plans: list[EpochPlan] = field(default_factory=list)
    told_to_stop: threading.Event = field(default_factory=threading.Event)

    def prepare(self, plan: EpochPlan) -> None:
        """Nothing: all that it needs is imported."""

    def stop(self) -> None:
        """Remember it; what `before` or `after` waits for may look at it."""
        self.told_to_stop.set()

    def run(self, plan: EpochPlan) -> EpochAnswers:
        """Read, process, snapshot, stage and acknowledge; every object is written below the plan's token."""
        self.plans.append(plan)
        self.before(plan)
        store = self.opener(plan.job_store)
        schemas = {name: build_reader(name, spec).schema for name, spec in plan.spec.sources.items()}
        rows: dict[str, list[pa.Table]] = {name: [schemas[name].empty_table()] for name in schemas}
        found: list[Acknowledgement] = []
        for index, (item, objects) in enumerate(split_inputs(plan.inputs, plan.spec.spark.parallelism)):
            reader, source = build_reader(item.name, plan.spec.sources[item.name]), open_store(plan.sources[item.name])
            read, missing = _read(reader, source, objects, plan.spec.sources[item.name].on_missing)
            rows[item.name] += read
            ack = {"rows": sum(table.num_rows for table in read), "objects": len(objects), "missing": missing}
            newest_us = _newest_event_us(plan.spec.sources[item.name].event_time, read)
            payload = {"sources": {item.name: {**ack, "newest_event_us": newest_us}}, "sinks": {}}
            found.append(_acknowledgement(plan, 0, index, payload, ()))
        consumed = tuple(ConsumedAttempt(0, ack.subtask, ack.attempt_digest) for ack in found)
        operators: dict[str, StatefulOperator] = {}
        for node in plan.graph.at_level(1):
            spec = plan.spec.operator(node.uid)
            assert not isinstance(spec, SqlOperator)
            operators[node.uid] = build_operator(
                spec, schemas[node.inputs[0]], None, plan.functions.get(node.uid), timed=False
            )
            schemas[node.uid] = operators[node.uid].output_schema
        inputs = {node.uid: pa.concat_tables(rows[node.inputs[0]]) for node in plan.graph.at_level(1)}
        for subtask in range(plan.spec.spark.parallelism):
            acks, sinks = {}, {}
            for uid, operator in operators.items():
                acks[uid], output = _process(plan, subtask, operator, inputs[uid], store)
                for name in plan.graph.nodes[uid].sinks if output.num_rows else ():
                    sinks[name] = _stage(plan, subtask, name, output, self.opener(plan.sinks[name]))
            found.append(_acknowledgement(plan, 1, subtask, {"operators": acks, "sinks": sinks}, consumed))
        self.after(plan)
        return EpochAnswers(tuple(self.answers(tuple(found))), operators, schemas, session_ms=0, job_ms=0)


def _read(
    reader: SourceReader, store: ObjectStore, objects: Iterable[SourceObject], on_missing: str
) -> tuple[list[pa.Table], list[str]]:
    """The objects' rows, and the keys that were gone and skipped."""
    tables, missing = [], []
    for obj in objects:
        try:
            tables += [pa.Table.from_batches([batch]) for batch in reader.read(store, obj)]
        except NotFound:
            if on_missing != "skip":
                raise
            missing.append(obj.key)
    return tables, missing


def _newest_event_us(event_time: str | None, tables: Iterable[pa.Table]) -> int | None:
    if event_time is None:
        return None
    newest = [pc.max(table[event_time].cast(pa.int64())).as_py() for table in tables if table.num_rows]
    return max(newest, default=None)


def _process(
    plan: EpochPlan, subtask: int, operator: StatefulOperator, rows: pa.Table, store: ObjectStore
) -> tuple[dict[str, Any], pa.Table]:
    groups = plan.spec.checkpointing.max_parallelism
    parallelism = plan.spec.spark.parallelism
    owners = subtask_of_key_group(key_group(key_hash(rows, operator.routing_key), groups), groups, parallelism)
    own = rows.filter(pa.array(np.asarray(owners == subtask, dtype=np.bool_)))
    firing_before = operator_watermark(plan.firing.get(operator.uid, ()))
    firing_us = END_OF_TIME_US if plan.alignment.final else firing_before
    state = restore_state(
        operator.uid,
        operator.key,
        plan.state_schema(operator),
        routing_key=operator.routing_key,
        handles=plan.states.get(operator.uid, ()),
        key_groups=key_group_range(groups, parallelism, subtask),
        max_parallelism=groups,
        watermark_us=firing_before,
        store=store,
        checkpoint_id=plan.base,
        job=plan.spec.name,
        cache=None,
    )
    run = operator.begin(state, firing_before)
    output = pa.concat_tables([run.rows(own, None).rows, run.finish(firing_us)])
    snapshot = state.freeze(firing_us).encode(state_prefix(plan.checkpoint_id, plan.token, OperatorUid(operator.uid)))
    for upload in snapshot.uploads:
        store.put(upload.key, upload.body)
    counts = {"rows_in": own.num_rows, "rows_out": output.num_rows, "late_rows": 0, "processed_bytes": own.nbytes}
    aligned = {"firing_us": firing_us, "channel": None, "unaligned": False}
    return {**counts, **aligned, "state": snapshot.handle.to_json()}, output


def _stage(plan: EpochPlan, subtask: int, name: str, rows: pa.Table, store: ObjectStore) -> dict[str, Any]:
    key = plan.graph.sink_inputs[name].key
    sink = build_sink(plan.spec.sink(name), job=plan.spec.name, key=key, store=store)
    file = sink.stage(rows, checkpoint_id=plan.checkpoint_id, token=plan.token, subtask=subtask)
    assert file is not None
    return staged_file_to_json(file)


def _acknowledgement(
    plan: EpochPlan, level: int, subtask: int, payload: dict[str, Any], consumed: tuple[ConsumedAttempt, ...]
) -> Acknowledgement:
    digest = hashlib.sha256(json.dumps([level, subtask, payload], sort_keys=True).encode()).hexdigest()
    return Acknowledgement(plan.checkpoint_id, plan.token, level, subtask, digest, consumed, payload)
