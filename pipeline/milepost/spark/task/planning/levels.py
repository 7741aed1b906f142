"""Plan the levels of an epoch: what their tasks read, run, send and stage.

The job graph is cut into levels by longest path, with one exchange and one stage each (DESIGN 4.2). So each source is
read once, however many nodes consume it. The driver plans everything before the Spark job starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from milepost.epoch import EpochPlan, split_inputs
from milepost.jobspec.job import SourceSpec
from milepost.language.times import in_us
from milepost.operators import PublishesChanges, PublishesState, StatefulOperator
from milepost.operators.base import REJECTED, edge_names
from milepost.protocol.exchange import SubtaskIdentity
from milepost.protocol.records import OperatorUid
from milepost.sources import ObjectReader, build_reader, dead_letter_schema
from milepost.sources.planning import ReferencedFiles
from milepost.spark.task.dead_letter_reader import DeadLetterReader
from milepost.spark.task.output_stage import OutputPlan
from milepost.spark.task.outputs import (
    FILL,
    WHOLE,
    nodes_with_fill_output,
    nodes_with_whole_output,
    outputs,
    readers,
    row_wise_outputs,
)
from milepost.spark.task.planning.clocks import clocks, stamp_of, stateful_ancestors
from milepost.spark.task.planning.nodes import PlannedNodes, SqlSchema, plan_nodes
from milepost.spark.task.row_steps.row_wise import RowWise, row_wise
from milepost.spark.task.row_steps.sql_expression import SqlExpression
from milepost.spark.task.source_task import SourceSplit
from milepost.spark.wire.epoch_clock import LevelShare
from milepost.spark.wire.exchange import BufferLimits, Edge
from milepost.spark.wire.level_plan import LevelPlan, OperatorPlan, WholeOutput, input_plans
from milepost.storage import channel_prefix, state_prefix

_CUT_PARTS = 64
"""If an epoch may be cut, a buffer is at most `spark.buffer_size / 64` and has at most `_CUT_ROWS` rows."""

_CUT_ROWS = 256


@dataclass(frozen=True, slots=True)
class Level:
    """One level: its output stage, its row-wise steps, and the plan of its operators, if any."""

    output: OutputPlan
    row_wise: RowWise
    stateful: LevelPlan | None


@dataclass(frozen=True, slots=True)
class EpochLevels:
    """The plan of an epoch's Spark job, and the schema of every output, including `.late`, `.bad` and `.rejected`."""

    splits: tuple[SourceSplit, ...]
    levels: tuple[Level, ...]
    operators: Mapping[str, StatefulOperator]
    schemas: Mapping[str, pa.Schema]

    @property
    def sql(self) -> tuple[SqlExpression, ...]:
        """The Spark expressions of all SQL operators."""
        return tuple(
            expression for level in self.levels for step in level.row_wise.steps for expression in step.expressions
        )


def plan_levels(plan: EpochPlan, slots: int, sql_schema: SqlSchema, *, emits_sql: bool = False) -> EpochLevels:
    """Plan every level.

    Args:
        slots: number of tasks that Spark runs in parallel.
        sql_schema: returns the schema of a SQL output.
        emits_sql: as in `row_wise`.

    Raises:
        InvalidRequest: the spec does not fit its schemas.
        SubtaskDeclined: Spark rejects the SQL.
    """
    readers = {node.uid: build_reader(node.uid, plan.spec.sources[node.uid]) for node in plan.graph.sources}
    nodes = plan_nodes(plan, readers, sql_schema)
    splits = _splits(plan, readers)
    levels = tuple(
        Level(
            output=_output(plan, number, nodes, len(splits)),
            row_wise=row_wise(plan, number, outputs(plan, number), nodes.schemas, nodes.lookups, emits_sql=emits_sql),
            stateful=_stateful(plan, number, len(splits), slots, nodes) if number else None,
        )
        for number in range(plan.graph.levels + 1)
    )
    return EpochLevels(splits, levels, nodes.operators, nodes.schemas)


def _splits(plan: EpochPlan, readers: Mapping[str, ObjectReader]) -> tuple[SourceSplit, ...]:
    splits = [
        (item, parts, plan.referenced.get(item.name, ReferencedFiles()).among(part.object.key for part in parts))
        for item, parts in split_inputs(plan.spec.sources, plan.inputs, plan.spec.spark.parallelism)
    ]
    return tuple(
        SourceSplit(
            source=item.name,
            identity=SubtaskIdentity(plan.checkpoint_id, plan.token, 0, index),
            store=plan.sources[item.name],
            parts=parts,
            reader=readers[item.name] if not files.columns else _file_reader(plan, item.name, files),
            event_time=plan.spec.sources[item.name].time_column,
            skips_missing=plan.spec.sources[item.name].skips_missing,
            max_ahead_us=_max_ahead_us(plan.spec.sources[item.name]),
            dead_letters=_dead_letters(plan.spec.sources[item.name], readers[item.name]),
            is_landed=plan.spec.sources[item.name].is_landed,
            files=files,
            names_objects=_names_objects(plan, item.name),
        )
        for index, (item, parts, files) in enumerate(splits)
    )


def _names_objects(plan: EpochPlan, source: str) -> bool:
    """Return whether rows of a source may be quarantined before they reach a stateful operator."""
    rejected = [plan.graph.nodes[sink.uid] for sink in plan.graph.sink_inputs.values() if sink.part == REJECTED]
    return any(source in node.sources and 0 in node.levels for node in rejected)


def _file_reader(plan: EpochPlan, name: str, files: ReferencedFiles) -> ObjectReader:
    return build_reader(name, plan.spec.sources[name], files.columns)


def _dead_letters(source: SourceSpec, reader: ObjectReader) -> DeadLetterReader | None:
    rules = source.bad_record_rules
    return (
        None
        if rules is None
        else DeadLetterReader(reader, dead_letter_schema(source), rules.includes_objects, rules.max_bad_records)
    )


def _max_ahead_us(source: SourceSpec) -> int | None:
    ahead = source.max_event_time_ahead
    return None if ahead is None else in_us(ahead)


def _output(plan: EpochPlan, level: int, nodes: PlannedNodes, source_subtasks: int) -> OutputPlan:
    last = level == plan.graph.levels
    edges = tuple(
        Edge(
            producer=name,
            operator=uid,
            key=nodes.operators[uid].routing_keys[position],
            columns=tuple(item.schema.names),
            event_time=node.event_time,
            stamp=stamp_of(plan, level, node, plan.graph.nodes[uid]),
            # If an epoch may be cut, rows in flight are never partial results: a later epoch may have another operator.
            combiner=None if plan.spec.checkpointing.cuts_epochs else nodes.operators[uid].combiner,
            name=edge,
        )
        for name, node, _ in outputs(plan, level)
        for uid in readers(plan, name, node)
        for position, (edge, item) in enumerate(
            zip(edge_names(plan.graph.nodes[uid].inputs), nodes.inputs[uid], strict=True)
        )
        if plan.graph.nodes[uid].inputs[position] == node.uid
    )
    return OutputPlan(
        checkpoint_id=plan.checkpoint_id,
        token=plan.token,
        level=level,
        receivers=0 if last else plan.spec.spark.parallelism,
        max_parallelism=plan.spec.checkpointing.max_parallelism,
        hasher=plan.hasher,
        limits=_limits(plan),
        edges=edges,
        sinks={name: sinks for name, _, sinks in outputs(plan, level) if sinks},
        stagers_before={
            sink: sum(source_subtasks if below == 0 else plan.spec.spark.parallelism for below in lower)
            for _, node, sinks in outputs(plan, level)
            if (lower := [number for number in node.levels if number < level])
            for sink in sinks
        },
        row_wise=row_wise_outputs(plan, level),
        row_rules={
            sink: nodes.row_rules[sink]
            for _, _, sinks in outputs(plan, level)
            for sink in sinks
            if sink in nodes.row_rules
        },
    )


def _limits(plan: EpochPlan) -> BufferLimits:
    """Return small limits if an epoch may be cut, because a buffer is processed whole, however slow its operator."""
    size = plan.spec.spark.buffer_size
    if not plan.spec.checkpointing.cuts_epochs:
        return BufferLimits(size)
    return BufferLimits(max(1, size // _CUT_PARTS), _CUT_ROWS)


def _stateful(plan: EpochPlan, level: int, source_subtasks: int, slots: int, nodes: PlannedNodes) -> LevelPlan:
    parallelism = plan.spec.spark.parallelism
    whole, fill = nodes_with_whole_output(plan), nodes_with_fill_output(plan)
    published = {sink.output for sink in plan.graph.sink_inputs.values()}
    operators_of_level = tuple(
        OperatorPlan(
            operator=nodes.operators[node.uid],
            inputs=input_plans(
                node.uid,
                edge_names(node.inputs),
                [input_.schema for input_ in nodes.inputs[node.uid]],
                nodes.operators[node.uid].routing_keys,
                published,
            ),
            tables=plan.tables(nodes.operators[node.uid]),
            firing=plan.firing.get(node.uid, ()),
            channels=plan.channels.get(node.uid, ()),
            directory=state_prefix(plan.checkpoint_id, plan.token, OperatorUid(node.uid)),
            signature=plan.input_signatures[node.uid],
            clocks=clocks(plan, node),
            whole=_whole_output(nodes.operators[node.uid], node.uid in fill) if node.uid in whole | fill else None,
            retract=node.read if node.retracts else None,
            upstream=stateful_ancestors(plan, node),
            settled_before=all(
                channel is None or not channel.buffers
                for uid in stateful_ancestors(plan, node)
                for channel in plan.channels.get(uid, ())
            ),
        )
        for node in plan.graph.at_level(level)
    )
    return LevelPlan(
        job=plan.spec.name,
        checkpoint_id=plan.checkpoint_id,
        token=plan.token,
        base=plan.base,
        level=level,
        senders=source_subtasks if level == 1 else parallelism,
        parallelism=parallelism,
        max_parallelism=plan.spec.checkpointing.max_parallelism,
        hasher=plan.hasher,
        operators=operators_of_level,
        channel_directory=channel_prefix(plan.checkpoint_id, plan.token),
        cache_directory=plan.cache_directory,
        alignment=plan.alignment,
        share=LevelShare(parallelism, slots, plan.graph.levels - level + 1),
        notifications=plan.notifications,
    )


def _whole_output(operator: StatefulOperator, fills: bool) -> WholeOutput:
    if not isinstance(operator, PublishesState | PublishesChanges):
        raise TypeError(f"output of operator {operator.uid} is no function of its state")
    return WholeOutput(operator.uid + WHOLE, operator, operator.uid + FILL if fills else None)
