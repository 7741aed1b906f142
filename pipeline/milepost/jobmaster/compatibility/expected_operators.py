"""An expected operator is what a spec says of it, as far as that is known before Spark is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from milepost.jobmaster.compatibility.recorded_types import recorded_types
from milepost.jobmaster.compatibility.rows_in_flight import has_known_columns
from milepost.jobmaster.job.code import LoadedCode
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.graph.rules.join import SIDES
from milepost.jobspec.job.operators.join import PairedOperator
from milepost.jobspec.job.spec import ProcessOperator, StatefulSpec
from milepost.jobspec.values.types import ColumnType, to_arrow
from milepost.operators.aggregation.distinct_values import VALUE_COLUMN
from milepost.operators.build import build_operator
from milepost.operators.contract import ONLY_TABLE, OperatorInput, StatefulOperator
from milepost.protocol.records.state_columns import WEIGHT_COLUMN


def expected_operator(
    recorded: Mapping[str, pa.Schema], spec: StatefulSpec, graph: JobGraph, loaded: LoadedCode | None
) -> StatefulOperator | None:
    """Return the operator as the spec tells it; None: it, or what it reads, depends on a class that was not loaded.

    A type that only Spark knows is taken to be what it was. Whether it still is, is checked when the epoch's levels are
    planned, before its Spark job.

    Args:
        recorded: columns of its state, by table.
    """
    function = None if loaded is None else loaded.functions.get(spec.uid)
    if not has_known_columns(graph, spec.uid) or (isinstance(spec, ProcessOperator) and function is None):
        return None
    calls = getattr(spec, "aggregates", {}).values()
    values = [field for table in recorded.values() for field in table if field.name == VALUE_COLUMN]
    inputs = []
    for name, (table, needed) in zip(spec.inputs, _needed_columns(spec), strict=True):
        columns = dict.fromkeys([*graph.nodes[name].columns, *needed])
        types = recorded_types(pa.schema([*recorded.get(table, ()), *values]), columns, calls)
        inputs.append(_expected_input(graph, name, types))
    marks = [pa.field(name, pa.bool_()) for name, _ in graph.nodes[spec.uid].conditions]
    inputs = [replace(one, schema=_with_fields(one.schema, marks)) for one in inputs]
    return build_operator(spec, inputs, function, retracts=graph.nodes[spec.uid].retracts)


def _with_fields(schema: pa.Schema, fields: Sequence[pa.Field]) -> pa.Schema:
    return pa.schema([*schema, *(field for field in fields if field.name not in schema.names)])


def _needed_columns(spec: StatefulSpec) -> list[tuple[str, list[str]]]:
    """Return of each input the table that shows its types, and columns that it has, whatever else it has."""
    if isinstance(spec, PairedOperator):
        return [(side, [pair[at] for pair in spec.key]) for at, side in enumerate(SIDES)]
    ordered = [*getattr(spec, "sequence_by", ()), *(name for name, _ in getattr(spec, "order_by", ()))]
    calls = getattr(spec, "aggregates", {}).values()
    needed = [*spec.key, *ordered, *(column for call in calls for column in call.columns)]
    return [(ONLY_TABLE, needed)] * len(spec.inputs)


def _expected_input(graph: JobGraph, name: str, recorded: Mapping[str, pa.DataType]) -> OperatorInput:
    node, fields = graph.nodes[name], []
    for column, type_ in recorded.items():
        known = resolved_type(graph, node.uid, node.columns.get(column))
        fields.append(pa.field(column, type_ if known is None else known))
    if node.retracts:
        fields.append(pa.field(WEIGHT_COLUMN, pa.int64()))
    return OperatorInput(pa.schema(fields), node.event_time, node.shift_us, node.stable_key)


def resolved_type(graph: JobGraph, uid: str, type_: ColumnType | None) -> pa.DataType | None:
    """Return the type that a node's column really has; None where only Spark knows it."""
    known = None if type_ is None else to_arrow(type_)
    if known is not None and pa.types.is_timestamp(known) and _through_sql(graph, uid):
        return pa.timestamp("us", known.tz)  # all that Spark has
    return known


def _through_sql(graph: JobGraph, uid: str) -> bool:
    node = graph.nodes[uid]
    if node.kind == "process":
        return False  # its columns are what its class declares
    return node.kind == "sql" or any(_through_sql(graph, name) for name in node.inputs)
