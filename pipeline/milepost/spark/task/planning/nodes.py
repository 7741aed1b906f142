"""Plan the nodes of the job graph: output schemas, operators and lookups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from milepost.epoch import EpochPlan
from milepost.jobspec.graph import Node, columns_read, consumed_columns
from milepost.operators import BuildOptions, OperatorInput, StatefulOperator, build_operator
from milepost.operators.base import (
    BAD,
    DELETED_COLUMN,
    REJECTED,
    RowWiseSpec,
    conditions_output,
    edge_names,
    late_output,
    user_columns,
)
from milepost.operators.lookup import Lookup, LookupOperator
from milepost.protocol.records import WEIGHT_COLUMN
from milepost.sources import ObjectReader, build_reader, dead_letter_schema
from milepost.spark.task.outputs import (
    FILL,
    WHOLE,
    SqlOutput,
    nodes_with_fill_output,
    nodes_with_whole_output,
    sql_outputs,
)
from milepost.spark.task.planning.clocks import is_timed
from milepost.spark.task.row_steps.lookup_plan import LookupPlan

if TYPE_CHECKING:
    from milepost.quality import RowRules

SqlSchema = Callable[[SqlOutput, Mapping[str, pa.Schema]], pa.Schema]
"""Return the schema of a SQL output, given those of its inputs. Raises SubtaskDeclined, InvalidRequest."""


@dataclass(frozen=True, slots=True)
class PlannedNodes:
    """The planned nodes of the job graph.

    Attributes:
        schemas: output -> schema of its rows, including `.late`, `.bad` and `.rejected`.
        inputs: uid -> the inputs of each stateful operator.
        operators: uid -> stateful operator.
        lookups: uid -> lookup.
        row_rules: sink -> its rules on single rows, for the sinks that have some.
    """

    schemas: Mapping[str, pa.Schema]
    inputs: Mapping[str, tuple[OperatorInput, ...]]
    operators: Mapping[str, StatefulOperator]
    lookups: Mapping[str, LookupPlan]
    row_rules: Mapping[str, RowRules]


def plan_nodes(plan: EpochPlan, readers: Mapping[str, ObjectReader], sql_schema: SqlSchema) -> PlannedNodes:
    """Plan the nodes in topological order.

    Raises:
        InvalidRequest: the spec does not fit its schemas.
        SubtaskDeclined: Spark rejects the SQL.
    """
    schemas: dict[str, pa.Schema] = {}
    inputs: dict[str, tuple[OperatorInput, ...]] = {}
    operators: dict[str, StatefulOperator] = {}
    lookups: dict[str, LookupPlan] = {}
    made = [*sql_outputs(plan.graph)]
    for node in plan.graph.nodes.values():
        if node.kind == "source":
            schemas[node.uid] = readers[node.uid].schema
            schemas[node.uid + BAD] = dead_letter_schema(plan.spec.sources[node.uid])
        elif node.kind == "static":
            schemas[node.uid] = build_reader(node.uid, plan.spec.sources[node.uid]).schema
        elif node.is_select:
            for output in (candidate for candidate in made if candidate.node == node):
                schemas[output.name] = _sql_schema(output, schemas, sql_schema)
        elif node.kind == "lookup":
            lookups[node.uid] = _lookup(plan, node, schemas)
            schemas[node.uid] = lookups[node.uid].lookup.output_schema
        else:
            if node.has_conditions:
                (mark,) = (candidate for candidate in made if candidate.node == node)
                schemas[mark.name] = _sql_schema(mark, schemas, sql_schema)
            inputs[node.uid] = _inputs(plan, node, schemas)
            operators[node.uid] = _operator(plan, node, inputs[node.uid])
            schemas |= _operator_schemas(plan, node, operators[node.uid], inputs[node.uid], schemas)
    schemas |= {uid + WHOLE: schemas[uid] for uid in nodes_with_whole_output(plan)}
    schemas |= {uid + FILL: schemas[plan.graph.nodes[uid].read] for uid in nodes_with_fill_output(plan)}
    rules = _row_rules(plan, schemas)
    schemas |= {sink + REJECTED: of_sink.rejected_schema for sink, of_sink in rules.items()}
    return PlannedNodes(schemas, inputs, operators, lookups, rules)


def _row_rules(plan: EpochPlan, schemas: Mapping[str, pa.Schema]) -> dict[str, RowRules]:
    suites = [suite for suite in plan.spec.quality if suite.row_rules]
    if not suites:
        return {}
    from milepost.quality import RowRules  # most jobs need not import it

    return {suite.sink: RowRules.of(suite, schemas[plan.graph.sink_inputs[suite.sink].output]) for suite in suites}


def _sql_schema(output: SqlOutput, schemas: Mapping[str, pa.Schema], sql_schema: SqlSchema) -> pa.Schema:
    if output.is_weighted and output.node.uid in schemas:
        return _weighted(schemas[output.node.uid])  # the same rows, with weights
    return sql_schema(output, {name: schemas[name] for name in output.inputs.values()})


def _weighted(schema: pa.Schema) -> pa.Schema:
    """Return the schema of updates as weighted rows: without the delete flag, with a weight of +1 or -1."""
    return pa.schema(
        [*(field for field in schema if field.name != DELETED_COLUMN), pa.field(WEIGHT_COLUMN, pa.int64())]
    )


def _operator(plan: EpochPlan, node: Node, inputs: tuple[OperatorInput, ...]) -> StatefulOperator:
    spec = plan.spec.operator(node.uid)
    assert not isinstance(spec, RowWiseSpec)
    return build_operator(
        spec,
        inputs,
        BuildOptions(
            plan.functions.get(node.uid),
            timed=any(is_timed(plan, name) for name in node.inputs),
            in_pieces=plan.spec.checkpointing.cuts_epochs,
            retracts=node.retracts,
        ),
    )


def _operator_schemas(
    plan: EpochPlan,
    node: Node,
    operator: StatefulOperator,
    inputs: tuple[OperatorInput, ...],
    schemas: Mapping[str, pa.Schema],
) -> dict[str, pa.Schema]:
    """Return the schemas of an operator's outputs, by name.

    For an operator with conditions this includes the marked rows that it reads, reduced to the columns that it is sent.

    Args:
        schemas: schemas of the upstream outputs.
    """
    edges = edge_names(node.inputs)
    output_schemas = {node.uid: operator.output_schema}
    if node.retracts:
        output_schemas[node.read] = _weighted(operator.output_schema)
    output_schemas |= {late_output(node.uid, edges, at): _late(input_.schema) for at, input_ in enumerate(inputs)}
    if node.has_conditions:
        sent = {*inputs[0].schema.names, plan.graph.nodes[node.inputs[0]].event_time}  # the time of rows in flight
        marked = schemas[conditions_output(node.uid)]
        output_schemas[conditions_output(node.uid)] = pa.schema([field for field in marked if field.name in sent])
    return output_schemas


def _lookup(plan: EpochPlan, node: Node, schemas: Mapping[str, pa.Schema]) -> LookupPlan:
    spec = plan.spec.operator(node.uid)
    assert isinstance(spec, LookupOperator)
    left, right = (schemas[name] for name in node.inputs)
    dimension = plan.dimensions[spec.dimension]
    lookup = Lookup.of(spec, left, right, columns_read(plan.spec, plan.graph, node.uid))
    return LookupPlan(lookup, dimension, right, plan.hasher, plan.cache_directory, int(plan.base))


def _inputs(plan: EpochPlan, node: Node, schemas: Mapping[str, pa.Schema]) -> tuple[OperatorInput, ...]:
    """Return an operator's inputs with the columns that it needs, or with all if their late rows are published."""
    needed = consumed_columns(plan.spec, plan.graph, node.uid)
    inputs = []
    for name in node.inputs:
        schema = schemas[conditions_output(node.uid) if node.has_conditions else plan.graph.nodes[name].read]
        if needed is not None:
            schema = pa.schema([field for field in schema if field.name in {*needed, WEIGHT_COLUMN, DELETED_COLUMN}])
        node_read = plan.graph.nodes[name]
        inputs.append(OperatorInput(schema, node_read.event_time, node_read.shift_us, node_read.stable_key))
    return tuple(inputs)


def _late(schema: pa.Schema) -> pa.Schema:
    """Return the schema of late rows: the producer's, without internal columns."""
    return pa.schema([field for field in schema if field.name in user_columns(schema.names)])
