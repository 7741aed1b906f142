"""Evaluate SQL operators as a Spark projection between operator stage and output stage.

A wide frame carries the items of a task: `control` (binary) and one struct column `n_<node>` per node that SQL reads.
In each row exactly one column is set. The rows of other nodes are in `control`, thousands of rows per value.

A SQL operator becomes `CASE WHEN <input is set> AND <WHERE> THEN named_struct(…) END`. Spark evaluates it in the same
stage, and evaluates nothing more of a row that the filter drops.

Each SELECT of a UNION ALL gets its own column. A reader of the operator reads all of them, row by row::

    n_a     n_b     n_both  n_both+2
    a1      null    a1      null        SELECT * FROM a UNION ALL SELECT * FROM b
    null    b1      null    b1
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructField, StructType

from milepost.epoch import EpochPlan
from milepost.errors import InvalidRequest
from milepost.jobspec.job import JobSpec
from milepost.language.sql import ITEM, quote
from milepost.spark.driver.compat import from_arrow_schema, to_arrow_schema
from milepost.spark.driver.spark_errors import refusal
from milepost.spark.task.outputs import SqlOutput
from milepost.spark.task.row_steps.sql_expression import POSITION, SelectedBranch, SqlExpression, column_of, selects
from milepost.spark.wire.task_output import Rows, Stamped, TaskOutput, decode_control, encode_control

CONTROL = "control"

_NO_NODES: Mapping[str, pa.Schema] = MappingProxyType({})

_PIECE_BYTES = 4 << 20
"""Approximate size of a value that holds rows that no SQL reads."""


def wide_type(schemas: Mapping[str, pa.Schema]) -> StructType:
    """Return the Spark type of a wide frame that carries these nodes."""
    fields = [StructField(column_of(node), from_arrow_schema(schema)) for node, schema in schemas.items()]
    return StructType([StructField(CONTROL, BinaryType()), *fields])


def wide_frame(session: SparkSession, rows: pa.Table, schemas: Mapping[str, pa.Schema]) -> DataFrame:
    """Return the wide frame of some rows, with the nullability of `_nullable`, which Arrow requires."""
    type_ = _nullable(wide_type(schemas))
    assert isinstance(type_, StructType)
    return session.createDataFrame(rows, type_)


def infer_schema(session: SparkSession, spec: JobSpec, output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the Arrow schema of a SQL output by Spark's analysis, with the nullability of `_nullable`.

    Args:
        inputs: schema of each output that it reads.

    Raises:
        InvalidRequest: a UNION ALL would cast text to another type.
    """
    frames = []
    for branch in _selects(spec, output, inputs):
        empty = session.createDataFrame([], wide_type({branch.input: inputs[branch.input]}))
        frames.append(added(empty, branch.expression).select(f"`{branch.expression.column}`.*"))
    schemas = [to_arrow_schema(frame.schema) for frame in frames]
    union_schema = to_arrow_schema(
        _nullable(functools.reduce(lambda frame, other: frame.unionAll(other), frames).schema)
    )
    for schema in schemas:
        _refuse_texts(output.node.uid, schema, union_schema)
    return union_schema


def collect(frame: DataFrame) -> pa.Table:
    """Return the rows of a wide frame, with the nullability of `_nullable`."""
    columns = [frame[field.name].cast(_nullable(field.dataType)).alias(field.name) for field in frame.schema]
    return frame.select(columns).toArrow()


def _nullable(type_: DataType, can_be_null: bool = True) -> DataType:
    """Return a type in which every field of a nullable struct is nullable.

    Where a struct is null, so are its fields, and Arrow refuses such rows if Spark calls a field not null. In the wide
    frame the struct of a row is null wherever another node's row is::

        SELECT 1 AS one, array(2) AS two    struct<one: int not null, two: array<int not null> not null>
        becomes                             struct<one: int, two: array<int not null>>

    Args:
        can_be_null: whether a value of this type can be null.
    """
    if isinstance(type_, StructType):
        fields = [(one.name, one.dataType, one.nullable or can_be_null) for one in type_]
        return StructType([StructField(name, _nullable(inner, null), null) for name, inner, null in fields])
    if isinstance(type_, ArrayType):
        return ArrayType(_nullable(type_.elementType, type_.containsNull), type_.containsNull)
    if isinstance(type_, MapType):
        value = _nullable(type_.valueType, type_.valueContainsNull)
        return MapType(_nullable(type_.keyType, False), value, type_.valueContainsNull)
    return type_


class SqlSchemas:
    """Cached schemas of a session's SQL outputs. Each analysis takes 35 ms."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._known: dict[object, pa.Schema] = {}

    def of(self, plan: EpochPlan, output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema as `infer_schema` does. Also raises SubtaskDeclined if Spark rejects the SQL."""
        selected = _selects(plan.spec, output, inputs)
        key = (tuple(selected), *inputs.items())
        if key not in self._known:
            try:
                self._known[key] = infer_schema(self._session, plan.spec, output, inputs)
            except AnalysisException as error:
                raise refusal(plan.checkpoint_id, error, [branch.expression for branch in selected]) from error
        return self._known[key]


def _selects(spec: JobSpec, output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> list[SelectedBranch]:
    return selects(spec, output, inputs, {name: (column_of(name),) for name in inputs})


def _refuse_texts(uid: str, schema: pa.Schema, union_schema: pa.Schema) -> None:
    """Refuse a UNION ALL that casts text. '10:00:00' as a timestamp depends on the current day, and a cast may fail."""
    for before, after in zip(schema, union_schema, strict=True):
        if _texts(before.type) != _texts(after.type) and _texts(before.type):
            raise InvalidRequest(
                f"operator {uid}: the column {after.name} is text in one SELECT of its UNION ALL and {after.type} in "
                "another. Nothing was changed.",
                hint=f"make it one type in each SELECT: CAST({before.name} AS …), or to_timestamp(…) with a pattern",
            )


def _texts(type_: pa.DataType) -> int:
    """Return the number of string fields in a type."""
    inner = [type_.field(index).type for index in range(type_.num_fields)]
    return int(pa.types.is_string(type_) or pa.types.is_large_string(type_)) + sum(map(_texts, inner))


def project(
    frame: DataFrame, expressions: Iterable[SqlExpression], columns: Mapping[str, tuple[str, ...]]
) -> DataFrame:
    """Add each expression's column in order, then select the columns that the output stage consumes.

    Args:
        columns: node -> its columns in the wide frame, as in `SqlStep`.
    """
    for expression in expressions:
        frame = added(frame, expression)
    return frame.select(CONTROL, *(f"`{column}`" for of_node in columns.values() for column in of_node))


def added(frame: DataFrame, one: SqlExpression) -> DataFrame:
    """Add an expression's column. After an explode, only the first row of a list has the other columns::

    n_src        __place  __item    n_src        n_made
    [a, [p, q]]  0        p         [a, [p, q]]  [a, p]
    [a, [p, q]]  1        q         null         [a, q]
    [b, []]      null     null      [b, []]      null
    """
    text = (
        one.text
        if one.union_schema is None
        else f"CAST({one.text} AS {_type_text(from_arrow_schema(one.union_schema))})"
    )
    made = f"{text} AS `{one.column}`"
    if one.list_sql is None:
        return frame.selectExpr("*", made)
    others = [f"CASE WHEN coalesce(`{POSITION}`, 0) = 0 THEN `{name}` END AS `{name}`" for name in frame.columns]
    exploded = frame.selectExpr("*", f"posexplode_outer({one.list_sql}) AS (`{POSITION}`, `{ITEM}`)")
    return exploded.selectExpr(*others, made)


def _type_text(type_: DataType) -> str:
    """Return a type in SQL syntax, with quoted field names."""
    if isinstance(type_, StructType):
        return f"STRUCT<{', '.join(f'{quote(field.name)}: {_type_text(field.dataType)}' for field in type_.fields)}>"
    if isinstance(type_, ArrayType):
        return f"ARRAY<{_type_text(type_.elementType)}>"
    if isinstance(type_, MapType):
        return f"MAP<{_type_text(type_.keyType)}, {_type_text(type_.valueType)}>"
    return type_.simpleString()


def encode_output(
    items: Iterable[TaskOutput], schemas: Mapping[str, pa.Schema], unread_schemas: Mapping[str, pa.Schema] = _NO_NODES
) -> Iterator[pa.RecordBatch]:
    """Encode a task's items as batches of the wide frame. Rows of nodes without a reader are dropped.

    Args:
        schemas: schema of each node with a column of its own.
        unread_schemas: schema of each other node whose rows a later step needs.

    Two tables of `clicks`, stamped 5 and 7 s, then `RowsDone`::

        control                                        n_clicks
        {"item":"stamped","lateness_us":5000000}       null
        null                                           row 1
        null                                           row 2
        {"item":"stamped","lateness_us":7000000}       null
        null                                           row 3
        {"item":"rows_done"}                           null
    """
    types = {node: pa.struct(list(to_arrow_schema(from_arrow_schema(schema)))) for node, schema in schemas.items()}
    layout = pa.schema([pa.field(CONTROL, pa.binary()), *(pa.field(column_of(n), t) for n, t in types.items())])

    def control(body: bytes) -> pa.RecordBatch:
        columns = [pa.array([body], pa.binary()), *(pa.nulls(1, t) for t in types.values())]
        return pa.RecordBatch.from_arrays(columns, schema=layout)

    stamped = Stamped(None)
    for item in items:
        if isinstance(item, Rows):
            if item.node in unread_schemas and item.rows.num_rows:
                schema = unread_schemas[item.node]
                for piece in _pieces(item.rows.select(schema.names).cast(schema)):
                    yield control(encode_control(replace(item, rows=piece)))
            elif item.node in types and item.rows.num_rows:
                if (item.lateness_us, item.object) != (stamped.lateness_us, stamped.object):
                    stamped = Stamped(item.lateness_us, item.object)
                    yield control(encode_control(stamped))
                yield from _encode_rows(item, types, layout)
        else:
            yield control(encode_control(item))


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in pieces of about `_PIECE_BYTES`. A longer piece has a single row."""
    length = max(1, rows.num_rows * _PIECE_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, length):
        piece = rows.slice(start, length)
        is_skewed = piece.num_rows > 1 and piece.nbytes > 2 * _PIECE_BYTES
        yield from _pieces(piece) if is_skewed else (piece,)


def _encode_rows(item: Rows, types: Mapping[str, pa.StructType], layout: pa.Schema) -> Iterator[pa.RecordBatch]:
    fields = types[item.node]
    rows = item.rows.select([field.name for field in fields]).cast(pa.schema(list(fields)))
    for batch in rows.to_batches():
        struct = pa.StructArray.from_arrays(batch.columns, fields=list(fields))
        columns = [pa.nulls(batch.num_rows, pa.binary())]
        for node, kind in types.items():
            columns.append(struct if node == item.node else pa.nulls(batch.num_rows, kind))
        yield pa.RecordBatch.from_arrays(columns, schema=layout)


def decode_output(
    batches: Iterable[pa.RecordBatch], schemas: Mapping[str, pa.Schema], columns: Mapping[str, tuple[str, ...]]
) -> Iterator[TaskOutput]:
    """Decode the projection's batches, the inverse of `encode_output`.

    A batch may interleave rows of different nodes. The order of each node's rows, and their order relative to control
    items, is preserved. The rows of a node with several columns are ordered by their row of the frame, then by column.

    Args:
        schemas: schema of each node that has columns of its own and that a later step consumes.
        columns: node -> its columns in the wide frame.
    """
    stamped = Stamped(None)
    for batch in batches:
        control = batch.column(CONTROL)
        at = pc.indices_nonzero(control.is_valid()).to_pylist()
        start = 0
        for index in [*at, batch.num_rows]:
            part = batch.slice(start, index - start)
            for node, schema in schemas.items():
                rows = _decode_rows([part.column(column) for column in columns[node]], schema)
                if rows.num_rows:
                    yield Rows(node, rows, stamped.lateness_us, object=stamped.object)
            if index < batch.num_rows:
                item = decode_control(control[index].as_py())
                if isinstance(item, Stamped):
                    stamped = item
                else:
                    yield item
            start = index + 1


def _decode_rows(structs: list[pa.StructArray], schema: pa.Schema) -> pa.Table:
    """Return the rows of one node from its columns of the wide frame."""
    tables = [pa.table(struct.drop_null().flatten(), names=schema.names).cast(schema) for struct in structs]
    if len(tables) == 1 or not any(table.num_rows for table in tables[1:]):
        return tables[0]
    places = np.concatenate([np.flatnonzero(struct.is_valid().to_numpy(zero_copy_only=False)) for struct in structs])
    return pa.concat_tables(tables).take(pa.array(np.argsort(places, kind="stable")))
