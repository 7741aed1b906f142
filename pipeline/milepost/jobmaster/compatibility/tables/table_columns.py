"""Compare the columns of existing tables with the rows that the spec writes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobmaster.compatibility.derived_types import DerivedTypes
from milepost.jobmaster.compatibility.expected_operators import resolved_type
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph import JobGraph, SinkInput
from milepost.tables.records import SchemaText, decode_schema


def missing_columns(schema: SchemaText, rows: SinkInput) -> Iterator[str]:
    """Yield a line for each column of a table that the rows lack."""
    for name in decode_schema(schema).names:
        if name not in rows.columns:
            yield f"the table's column {name} would be missing from the rows"


def changed_types(
    schema: SchemaText, rows: SinkInput, graph: JobGraph, derived: DerivedTypes | None = None
) -> Iterator[str]:
    """Yield a line for each column of a table that would change its type, as far as the new type is known.

    Args:
        derived: types from the text of SQL, if the query of the rows or a type of its sources was edited.
    """
    for field in decode_schema(schema):
        type_ = rows.columns.get(field.name)
        if type_ is None and derived is not None and not rows.part:
            type_ = derived[rows.uid].get(field.name)
        row_type = resolved_type(graph, rows.uid, type_)
        # Two spellings of a nested type may be equal. The sink compares those when it prepares the commit.
        if row_type is not None and not pa.types.is_nested(row_type) and row_type != field.type:
            yield f"the table's column {field.name} is {field.type}, the rows would have {row_type}"


def check_switched_tables(context: JobContext, head: CheckpointMetadata | None, graph: JobGraph, command: str) -> None:
    """Refuse a backfill with rows that do not fit the head's tables, which would show them after the switch.

    A table of Delta, Iceberg or Postgres cannot change the type of a column; the managed Parquet table can.

    Args:
        command: the backfill command, as typed.
    Raises: InvalidRequest.
    """
    for name, rows in graph.sink_inputs.items():
        contents = None if head is None else head.tables.get(name)
        if contents is None or contents.address.sink_format.is_managed or not rows.columns_known:
            continue
        if contents.location == context.sink_location(name) and (
            faults := [*changed_types(contents.schema, rows, graph)]
        ):
            raise InvalidRequest(
                f"sink {name}: {'; '.join(faults)}. Its table cannot change the type of a column. Nothing was changed.",
                hint=f"give sink {name} a new name and path, then: {command}",
                sink=name,
            )
