"""Build the operators that a spec describes, before Spark has resolved their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from milepost.jobmaster.compatibility.derived_types import DerivedTypes
from milepost.jobmaster.compatibility.recorded_types import recorded_types
from milepost.jobmaster.compatibility.rows_in_flight import has_known_columns
from milepost.jobmaster.job.code import LoadedCode
from milepost.jobspec.graph import JobGraph
from milepost.language import ColumnType, to_arrow
from milepost.operators import BuildOptions, OperatorInput, StatefulOperator, build_operator
from milepost.operators.aggregation import VALUE_COLUMN
from milepost.operators.base import Columns, StatefulSpec
from milepost.operators.process import ProcessOperator
from milepost.protocol.records import WEIGHT_COLUMN


def expected_operator(
    recorded: Mapping[str, pa.Schema],
    spec: StatefulSpec,
    graph: JobGraph,
    loaded: LoadedCode | None,
    derived: DerivedTypes | None = None,
) -> StatefulOperator | None:
    """Return the operator that a spec describes.

    A type that only Spark can resolve is assumed to be unchanged. Planning the epoch's levels checks that assumption,
    before the Spark job starts.

    Args:
        recorded: schema of each of its recorded state tables.
        derived: types from the text of SQL, if the text or a source's types upstream were edited.
    Returns: None if the operator or its input depends on a process class that was not loaded.
    """
    function = None if loaded is None else loaded.functions.get(spec.uid)
    if not has_known_columns(graph, spec.uid) or (isinstance(spec, ProcessOperator) and function is None):
        return None
    calls = getattr(spec, "aggregates", {}).values()
    value_fields = [field for table in recorded.values() for field in table if field.name == VALUE_COLUMN]
    inputs = []
    for name, (table, required) in zip(spec.inputs, spec.state_columns(), strict=True):
        columns = dict.fromkeys([*graph.nodes[name].columns, *required])
        types = recorded_types(pa.schema([*recorded.get(table, ()), *value_fields]), columns, calls)
        stated = graph.nodes[name].columns if derived is None else derived[name]
        inputs.append(_expected_input(graph, name, stated, types))
    condition_flags = [pa.field(name, pa.bool_()) for name, _ in graph.nodes[spec.uid].conditions]
    inputs = [replace(item, schema=_with_fields(item.schema, condition_flags)) for item in inputs]
    return build_operator(spec, inputs, BuildOptions(function, retracts=graph.nodes[spec.uid].retracts))


def _with_fields(schema: pa.Schema, fields: Sequence[pa.Field]) -> pa.Schema:
    return pa.schema([*schema, *(field for field in fields if field.name not in schema.names)])


def _expected_input(graph: JobGraph, name: str, stated: Columns, recorded: Mapping[str, pa.DataType]) -> OperatorInput:
    node, fields = graph.nodes[name], []
    for column, type_ in recorded.items():
        resolved = resolved_type(graph, node.uid, stated.get(column))
        fields.append(pa.field(column, type_ if resolved is None else resolved))
    if node.retracts:
        fields.append(pa.field(WEIGHT_COLUMN, pa.int64()))
    return OperatorInput(pa.schema(fields), node.event_time, node.shift_us, node.stable_key)


def resolved_type(graph: JobGraph, uid: str, type_: ColumnType | None) -> pa.DataType | None:
    """Return the Arrow type of a node's column; None where only Spark can resolve it.

    Spark stores every timestamp in microseconds, so `timestamp_ms` that passed through SQL is `timestamp[us]`.
    """
    arrow_type = None if type_ is None else to_arrow(type_)
    if arrow_type is not None and pa.types.is_timestamp(arrow_type) and _passes_through_sql(graph, uid):
        return pa.timestamp("us", arrow_type.tz)
    return arrow_type


def _passes_through_sql(graph: JobGraph, uid: str) -> bool:
    node = graph.nodes[uid]
    if node.kind == "process":
        return False  # its class declares its columns
    return node.is_select or any(_passes_through_sql(graph, name) for name in node.inputs)
