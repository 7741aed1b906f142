"""Levels say what the tasks of an epoch's plan do: schemas, operators, edges, SQL.

The job graph is cut into levels by longest path, one exchange and one stage each (DESIGN 4.2), so the sources are read
once whatever consumes them. Everything here is decided on the driver, before the Spark job starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from milepost.dataflow.operators.aggregation.aggregate import AggregateByKey
from milepost.dataflow.operators.aggregation.aggregate_over_updates import AggregateOverUpdates
from milepost.dataflow.operators.build import build_operator
from milepost.dataflow.operators.contract import ONLY_TABLE, WEIGHT_COLUMN, OperatorInput, StatefulOperator
from milepost.dataflow.operators.joins.lookup import Lookup
from milepost.dataflow.operators.latest import LatestByKey
from milepost.dataflow.operators.materialized import MaterializedOperator
from milepost.dataflow.operators.top import TopByKey
from milepost.dataflow.sources.build import build_reader
from milepost.dataflow.sources.contract import ObjectReader
from milepost.dataflow.sources.dead_letters import SCHEMA as DEAD_LETTERS
from milepost.epoch.plan import EpochPlan, split_inputs
from milepost.protocol.exchange.barrier import SubtaskIdentity
from milepost.protocol.exchange.watermarks import latest, operator_watermark
from milepost.protocol.records.ids import OperatorUid
from milepost.spark.task.output_stage import OutputPlan
from milepost.spark.task.outputs import (
    FILL,
    WHOLE,
    SqlOutput,
    fill_outputs,
    outputs,
    readers,
    row_wise_outputs,
    sql_outputs,
    whole_outputs,
)
from milepost.spark.task.row_steps.lookup_stage import LookupPlan
from milepost.spark.task.row_steps.row_wise import RowWise, row_wise
from milepost.spark.task.row_steps.sql_expression import SqlExpression
from milepost.spark.task.source_task import SourceSplit
from milepost.spark.task.whole_objects import WholeObjects
from milepost.spark.wire.epoch_clock import LevelShare
from milepost.spark.wire.exchange import BufferLimits, Edge, OwnStamp, Stamp
from milepost.spark.wire.level_plan import (
    Clock,
    LevelPlan,
    OperatorPlan,
    SourceClock,
    UpstreamClock,
    WholeOutput,
    fired_us,
    input_plans,
    start_watermark_us,
)
from milepost.spec.graph.columns_read import columns_read
from milepost.spec.graph.edges import BAD, DELETED_COLUMN, columns_of_users, edge_names, late_output, marked_output
from milepost.spec.graph.graph import Node
from milepost.spec.graph.in_flight import consumed_columns
from milepost.spec.graph.state_rules import OUTPUT_TABLE
from milepost.spec.job.operators.lookup import LookupOperator
from milepost.spec.job.source_spec import SourceSpec
from milepost.spec.job.spec import RowWiseSpec
from milepost.storage.layout import channel_prefix, state_prefix

_MICROSECOND = 1_000_000

_CUT_PARTS = 64
"""Where an epoch may be cut, a buffer is at most this part of `spark.buffer_size`, and has at most `_CUT_ROWS` rows."""

_CUT_ROWS = 256


@dataclass(frozen=True, slots=True)
class Level:
    """One level: its output, its SQL and lookups, and for stateful levels what its subtasks run."""

    output: OutputPlan
    row_wise: RowWise
    stateful: LevelPlan | None


@dataclass(frozen=True, slots=True)
class EpochLevels:
    """The whole Spark job of one epoch, and the schema of every node's rows (`.late` and `.bad` included)."""

    splits: tuple[SourceSplit, ...]
    levels: tuple[Level, ...]
    operators: Mapping[str, StatefulOperator]
    schemas: Mapping[str, pa.Schema]

    @property
    def sql(self) -> tuple[SqlExpression, ...]:
        """The Spark expressions of all SQL operators."""
        return tuple(one for level in self.levels for step in level.row_wise.steps for one in step.expressions)


OperatorInputs = Mapping[str, tuple[OperatorInput, ...]]
"""What each stateful operator gets of its inputs, by uid."""

SqlSchema = Callable[[SqlOutput, Mapping[str, pa.Schema]], pa.Schema]
"""The schema of an output of SQL, of those of the outputs that it reads. Raises SubtaskDeclined, InvalidRequest."""


def plan_levels(plan: EpochPlan, slots: int, sql_schema: SqlSchema) -> EpochLevels:
    """Build every level, for `slots` tasks at once.

    Raises: InvalidRequest when the spec does not fit its schemas, SubtaskDeclined for SQL.
    """
    readers = {node.uid: build_reader(node.uid, plan.spec.sources[node.uid]) for node in plan.graph.sources}
    schemas, inputs, operators, lookups = _schemas(plan, readers, sql_schema)
    schemas |= {uid + WHOLE: schemas[uid] for uid in whole_outputs(plan)}
    schemas |= {uid + FILL: schemas[plan.graph.nodes[uid].read] for uid in fill_outputs(plan)}
    splits = _splits(plan, readers)
    levels = tuple(
        Level(
            output=_output(plan, number, inputs, operators, len(splits)),
            row_wise=row_wise(plan, number, outputs(plan, number), schemas, lookups),
            stateful=_stateful(plan, number, len(splits), slots, inputs, operators) if number else None,
        )
        for number in range(plan.graph.levels + 1)
    )
    return EpochLevels(splits, levels, operators, schemas)


def _schemas(
    plan: EpochPlan, readers: Mapping[str, ObjectReader], sql_schema: SqlSchema
) -> tuple[dict[str, pa.Schema], OperatorInputs, dict[str, StatefulOperator], dict[str, LookupPlan]]:
    schemas: dict[str, pa.Schema] = {}
    inputs: dict[str, tuple[OperatorInput, ...]] = {}
    operators: dict[str, StatefulOperator] = {}
    lookups: dict[str, LookupPlan] = {}
    made = [*sql_outputs(plan.graph)]
    for node in plan.graph.nodes.values():
        if node.kind == "source":
            schemas[node.uid] = readers[node.uid].schema
            schemas[node.uid + BAD] = DEAD_LETTERS
        elif node.kind == "static":
            schemas[node.uid] = build_reader(node.uid, plan.spec.sources[node.uid]).schema
        elif node.kind == "sql":
            for output in (one for one in made if one.node == node):
                schemas[output.name] = _sql_schema(output, schemas, sql_schema)
        elif node.kind == "lookup":
            lookups[node.uid] = _lookup(plan, node, schemas)
            schemas[node.uid] = lookups[node.uid].lookup.output_schema
        else:
            if node.reads_marked:
                (mark,) = (one for one in made if one.node == node)
                schemas[mark.name] = _sql_schema(mark, schemas, sql_schema)
            own = inputs[node.uid] = _inputs(plan, node, schemas)
            spec = plan.spec.operator(node.uid)
            assert not isinstance(spec, RowWiseSpec)
            operator = build_operator(
                spec,
                own,
                plan.functions.get(node.uid),
                timed=any(_reaching(plan, name) for name in node.inputs),
                in_pieces=plan.spec.checkpointing.cuts_epochs,
                retracts=node.retracts,
            )
            operators[node.uid] = operator
            schemas[node.uid] = operator.output_schema
            if node.retracts:
                schemas[node.read] = _weighted(operator.output_schema)
            edges = edge_names(node.inputs)
            schemas |= {late_output(node.uid, edges, at): _late(one.schema) for at, one in enumerate(own)}
            if node.reads_marked:
                sent = {*own[0].schema.names, plan.graph.nodes[node.inputs[0]].event_time}  # which times rows in flight
                marked = schemas[marked_output(node.uid)]
                schemas[marked_output(node.uid)] = pa.schema([field for field in marked if field.name in sent])
    return schemas, inputs, operators, lookups


def _sql_schema(output: SqlOutput, schemas: Mapping[str, pa.Schema], sql_schema: SqlSchema) -> pa.Schema:
    if output.weighted and output.node.uid in schemas:
        return _weighted(schemas[output.node.uid])  # of the same rows
    return sql_schema(output, {name: schemas[name] for name in output.inputs.values()})


def _weighted(schema: pa.Schema) -> pa.Schema:
    """Return the columns of updates as rows that come and are taken back have them."""
    return pa.schema(
        [*(field for field in schema if field.name != DELETED_COLUMN), pa.field(WEIGHT_COLUMN, pa.int64())]
    )


def _lookup(plan: EpochPlan, node: Node, schemas: Mapping[str, pa.Schema]) -> LookupPlan:
    spec = plan.spec.operator(node.uid)
    assert isinstance(spec, LookupOperator)
    left, right = (schemas[name] for name in node.inputs)
    dimension = plan.dimensions[spec.dimension]
    lookup = Lookup.of(spec, left, right, columns_read(plan.spec, plan.graph, node.uid))
    return LookupPlan(lookup, dimension, right, plan.hasher, plan.cache_directory, int(plan.base))


def _inputs(plan: EpochPlan, node: Node, schemas: Mapping[str, pa.Schema]) -> tuple[OperatorInput, ...]:
    """Return what an operator needs of each input; all of its columns when the late rows are published."""
    needed = consumed_columns(plan.spec, plan.graph, node.uid)
    found = []
    for name in node.inputs:
        schema = schemas[marked_output(node.uid) if node.reads_marked else plan.graph.nodes[name].read]
        if needed is not None:
            schema = pa.schema([field for field in schema if field.name in {*needed, WEIGHT_COLUMN, DELETED_COLUMN}])
        node_read = plan.graph.nodes[name]
        found.append(OperatorInput(schema, node_read.event_time, node_read.shift_us, node_read.stays))
    return tuple(found)


def _late(schema: pa.Schema) -> pa.Schema:
    """Return the columns of late rows: those of the producer, without what marks rows for the operator alone."""
    return pa.schema([field for field in schema if field.name in columns_of_users(schema.names)])


def _splits(plan: EpochPlan, readers: Mapping[str, ObjectReader]) -> tuple[SourceSplit, ...]:
    splits = split_inputs(plan.spec.sources, plan.inputs, plan.spec.spark.parallelism)
    return tuple(
        SourceSplit(
            source=item.name,
            identity=SubtaskIdentity(plan.checkpoint_id, plan.token, 0, index),
            store=plan.sources[item.name],
            parts=parts,
            reader=readers[item.name],
            event_time=plan.spec.sources[item.name].event_time,
            on_missing=plan.spec.sources[item.name].on_missing,
            max_ahead_us=_max_ahead_us(plan.spec.sources[item.name]),
            dead_letters=_dead_letters(plan.spec.sources[item.name], readers[item.name]),
        )
        for index, (item, parts) in enumerate(splits)
    )


def _dead_letters(source: SourceSpec, reader: ObjectReader) -> WholeObjects | None:
    if source.bad_records == "fail":
        return None
    return WholeObjects(reader, source.on_bad_object == "dead_letter", source.max_bad_records)


def _max_ahead_us(source: SourceSpec) -> int | None:
    ahead = source.max_event_time_ahead
    return None if ahead is None else ahead // timedelta(microseconds=1)


def _output(
    plan: EpochPlan,
    level: int,
    inputs: OperatorInputs,
    operators: Mapping[str, StatefulOperator],
    source_subtasks: int,
) -> OutputPlan:
    last = level == plan.graph.levels
    edges = tuple(
        Edge(
            producer=name,
            operator=uid,
            key=operators[uid].routing_keys[position],
            columns=tuple(one.schema.names),
            event_time=node.event_time,
            stamp=_stamp(plan, level, node, plan.graph.nodes[uid]),
            # Where an epoch may be cut, what is in flight are rows: a later epoch's operator may be another one.
            combiner=None if plan.spec.checkpointing.cuts_epochs else operators[uid].combiner,
            name=edge,
        )
        for name, node, _ in outputs(plan, level)
        for uid in readers(plan, name, node)
        for position, (edge, one) in enumerate(zip(edge_names(plan.graph.nodes[uid].inputs), inputs[uid], strict=True))
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
            if (lower := [one for one in node.levels if one < level])
            for sink in sinks
        },
        row_wise=row_wise_outputs(plan, level),
    )


def _limits(plan: EpochPlan) -> BufferLimits:
    """Small buffers where time may run out: one is processed whole, however slow its operator."""
    size = plan.spec.spark.buffer_size
    if not plan.spec.checkpointing.cuts_epochs:
        return BufferLimits(size)
    return BufferLimits(max(1, size // _CUT_PARTS), _CUT_ROWS)


def _stamp(plan: EpochPlan, level: int, producer: Node, receiver: Node) -> Stamp | OwnStamp:
    """Return how the rows of an edge are stamped."""
    clocks = _clocks(plan, receiver)
    start, fired = start_watermark_us(clocks), fired_us(plan.firing.get(receiver.uid, ()))
    if level == 0:
        return Stamp(latest(start, fired))
    made_by = _clocks_of(plan, producer.uid)
    holdback_us = max((clock.holdback_us for clock in made_by if isinstance(clock, UpstreamClock)), default=0)
    return OwnStamp(holdback_us, Stamp(start) if len(clocks) > 1 else None, fired)


def _stateful(
    plan: EpochPlan,
    level: int,
    source_subtasks: int,
    slots: int,
    inputs: OperatorInputs,
    operators: Mapping[str, StatefulOperator],
) -> LevelPlan:
    parallelism = plan.spec.spark.parallelism
    whole, fill = whole_outputs(plan), fill_outputs(plan)
    operators_of_level = tuple(
        OperatorPlan(
            operator=operators[node.uid],
            inputs=input_plans(
                node.uid,
                edge_names(node.inputs),
                [one.schema for one in inputs[node.uid]],
                operators[node.uid].routing_keys,
            ),
            tables=plan.tables(operators[node.uid]),
            firing=plan.firing.get(node.uid, ()),
            channels=plan.channels.get(node.uid, ()),
            directory=state_prefix(plan.checkpoint_id, plan.token, OperatorUid(node.uid)),
            signature=plan.input_signatures[node.uid],
            clocks=_clocks(plan, node),
            whole=_whole_output(operators[node.uid], fills=node.uid in fill) if node.uid in whole | fill else None,
            retract=node.read if node.retracts else None,
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


def _whole_output(operator: StatefulOperator, *, fills: bool) -> WholeOutput:
    if not isinstance(operator, AggregateByKey | AggregateOverUpdates | TopByKey | LatestByKey | MaterializedOperator):
        raise TypeError(f"output of operator {operator.uid} is no function of its state")
    table = OUTPUT_TABLE if isinstance(operator, MaterializedOperator) else ONLY_TABLE
    return WholeOutput(operator.uid + WHOLE, operator, table, operator.uid + FILL if fills else None)


def _clocks(plan: EpochPlan, node: Node) -> tuple[Clock, ...]:
    """Return what tells an operator how far its inputs are, each producer once."""
    return tuple(dict.fromkeys(clock for name in node.inputs for clock in _clocks_of(plan, name)))


def _clocks_of(plan: EpochPlan, producer: str) -> tuple[Clock, ...]:
    """Return what tells how far a producer is. Nothing where no source with event time reaches it."""
    node = plan.graph.nodes[producer]
    if node.kind in ("sql", "lookup"):
        return _clocks(plan, node)
    if not _reaching(plan, producer):
        return ()
    if node.is_stateful:
        start_us = operator_watermark(plan.firing.get(node.uid, ()))
        idle_before, idle = _are_idle(plan, node)
        return (UpstreamClock(node.uid, node.holdback_us, start_us, idle_before, idle),)
    delay_us = round(plan.spec.sources[node.uid].watermark_delay.total_seconds() * _MICROSECOND)
    return (SourceClock(node.uid, plan.watermarks_us.get(node.uid), delay_us, *_are_idle(plan, node)),)


def _are_idle(plan: EpochPlan, node: Node) -> tuple[bool, bool]:
    """Return whether all sources with event time that reach a node are idle: at the start of the epoch, at its end."""
    timed = [item for item in plan.inputs if item.name in node.sources and plan.spec.sources[item.name].event_time]
    return (
        bool(timed) and all(item.idle_before for item in timed),
        bool(timed) and all(item.idle for item in timed),
    )


def _reaching(plan: EpochPlan, producer: str) -> bool:
    """Return whether a source with event time reaches a node."""
    return any(plan.spec.sources[name].event_time is not None for name in plan.graph.nodes[producer].sources)
