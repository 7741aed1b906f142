"""Nodes of the job graph as an epoch runs them: the schema of all that they put out, their operators, their lookups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from milepost.epoch import EpochPlan
from milepost.jobspec.graph import (
    BAD,
    DELETED_COLUMN,
    Node,
    columns_read,
    conditions_output,
    consumed_columns,
    edge_names,
    late_output,
    user_columns,
)
from milepost.jobspec.job import RowWiseSpec
from milepost.jobspec.job.operators import LookupOperator
from milepost.operators import OperatorInput, StatefulOperator, build_operator
from milepost.operators.joins import Lookup
from milepost.protocol.records import WEIGHT_COLUMN
from milepost.sources import SCHEMA as DEAD_LETTERS
from milepost.sources import ObjectReader, build_reader
from milepost.spark.task.outputs import (
    FILL,
    WHOLE,
    SqlOutput,
    nodes_with_fill_output,
    nodes_with_whole_output,
    sql_outputs,
)
from milepost.spark.task.planning.clocks import is_timed
from milepost.spark.task.row_steps.lookup_stage import LookupPlan

SqlSchema = Callable[[SqlOutput, Mapping[str, pa.Schema]], pa.Schema]
"""The schema of an output of SQL, of those of the outputs that it reads. Raises SubtaskDeclined, InvalidRequest."""


@dataclass(frozen=True, slots=True)
class PlannedNodes:
    """What the nodes are.

    Attributes:
        schemas: of the rows of every output (`.late` and `.bad` included), by its name.
        inputs: what each stateful operator gets of its inputs, by uid. operators, lookups: by uid.
    """

    schemas: Mapping[str, pa.Schema]
    inputs: Mapping[str, tuple[OperatorInput, ...]]
    operators: Mapping[str, StatefulOperator]
    lookups: Mapping[str, LookupPlan]


def plan_nodes(plan: EpochPlan, readers: Mapping[str, ObjectReader], sql_schema: SqlSchema) -> PlannedNodes:
    """Return what the nodes are, from the sources on.

    Raises: InvalidRequest when the spec does not fit its schemas, SubtaskDeclined for SQL.
    """
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
            if node.has_conditions:
                (mark,) = (one for one in made if one.node == node)
                schemas[mark.name] = _sql_schema(mark, schemas, sql_schema)
            inputs[node.uid] = _inputs(plan, node, schemas)
            operators[node.uid] = _operator(plan, node, inputs[node.uid])
            schemas |= _operator_schemas(plan, node, operators[node.uid], inputs[node.uid], schemas)
    schemas |= {uid + WHOLE: schemas[uid] for uid in nodes_with_whole_output(plan)}
    schemas |= {uid + FILL: schemas[plan.graph.nodes[uid].read] for uid in nodes_with_fill_output(plan)}
    return PlannedNodes(schemas, inputs, operators, lookups)


def _sql_schema(output: SqlOutput, schemas: Mapping[str, pa.Schema], sql_schema: SqlSchema) -> pa.Schema:
    if output.is_weighted and output.node.uid in schemas:
        return _weighted(schemas[output.node.uid])  # of the same rows
    return sql_schema(output, {name: schemas[name] for name in output.inputs.values()})


def _weighted(schema: pa.Schema) -> pa.Schema:
    """Return the columns of updates as rows that come and are taken back have them."""
    return pa.schema(
        [*(field for field in schema if field.name != DELETED_COLUMN), pa.field(WEIGHT_COLUMN, pa.int64())]
    )


def _operator(plan: EpochPlan, node: Node, inputs: tuple[OperatorInput, ...]) -> StatefulOperator:
    spec = plan.spec.operator(node.uid)
    assert not isinstance(spec, RowWiseSpec)
    return build_operator(
        spec,
        inputs,
        plan.functions.get(node.uid),
        timed=any(is_timed(plan, name) for name in node.inputs),
        in_pieces=plan.spec.checkpointing.cuts_epochs,
        retracts=node.retracts,
    )


def _operator_schemas(
    plan: EpochPlan,
    node: Node,
    operator: StatefulOperator,
    inputs: tuple[OperatorInput, ...],
    schemas: Mapping[str, pa.Schema],
) -> dict[str, pa.Schema]:
    """Return the schemas of an operator's outputs, by name; of marked rows that it reads, without what it is not sent.

    Args:
        schemas: of the outputs before it.
    """
    edges = edge_names(node.inputs)
    found = {node.uid: operator.output_schema}
    if node.retracts:
        found[node.read] = _weighted(operator.output_schema)
    found |= {late_output(node.uid, edges, at): _late(one.schema) for at, one in enumerate(inputs)}
    if node.has_conditions:
        sent = {*inputs[0].schema.names, plan.graph.nodes[node.inputs[0]].event_time}  # which times rows in flight
        marked = schemas[conditions_output(node.uid)]
        found[conditions_output(node.uid)] = pa.schema([field for field in marked if field.name in sent])
    return found


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
        schema = schemas[conditions_output(node.uid) if node.has_conditions else plan.graph.nodes[name].read]
        if needed is not None:
            schema = pa.schema([field for field in schema if field.name in {*needed, WEIGHT_COLUMN, DELETED_COLUMN}])
        node_read = plan.graph.nodes[name]
        found.append(OperatorInput(schema, node_read.event_time, node_read.shift_us, node_read.stable_key))
    return tuple(found)


def _late(schema: pa.Schema) -> pa.Schema:
    """Return the columns of late rows: those of the producer, without what marks rows for the operator alone."""
    return pa.schema([field for field in schema if field.name in user_columns(schema.names)])
