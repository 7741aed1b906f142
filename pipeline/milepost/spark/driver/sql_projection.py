"""SQL operators as one Spark projection between a task's operator stage and its output stage.

A wide frame carries the items of a task: `control` (binary) and one struct column `n_<node>` per node, of which
exactly one is set in a row. A SQL operator becomes `CASE WHEN <input is set> AND <WHERE> THEN named_struct(…) END`, so
it is Spark SQL itself that evaluates it, in the same stage, and a row that a filter drops is evaluated no further.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from milepost.spark.task.sql_expression import column_of, projection
from milepost.spark.wire.task_output import Rows, Stamped, TaskOutput, decode_control, encode_control
from milepost.spec.graph.graph import Node
from milepost.spec.job.spec import JobSpec

CONTROL = "control"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark exchanges rows of this type; its timestamps are microseconds, UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def wide_type(schemas: Mapping[str, pa.Schema]) -> StructType:
    """Spark type of a wide frame that carries these nodes."""
    fields = [StructField(column_of(node), from_arrow_schema(schema)) for node, schema in schemas.items()]
    return StructType([StructField(CONTROL, BinaryType()), *fields])


def infer_schema(session: SparkSession, spec: JobSpec, node: Node, input_schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of a SQL operator's rows, by Spark's own analysis; every column may be null.

    In the wide frame a column that Spark calls non-null is null wherever another node's row is.
    """
    empty = session.createDataFrame([], wide_type({node.inputs[0]: input_schema}))
    wide = empty.selectExpr(projection(spec, node, input_schema.names))
    struct = arrow_schema(wide.schema).field(0).type
    return pa.schema([field.with_nullable(True) for field in struct])


def project(frame: DataFrame, expressions: Iterable[str], keep: Iterable[str]) -> DataFrame:
    """Add each SQL operator's column in order, then keep the columns that the output stage consumes."""
    for expression in expressions:
        frame = frame.selectExpr("*", expression)
    return frame.select(CONTROL, *(f"`{column_of(node)}`" for node in keep))


def encode_output(items: Iterable[TaskOutput], schemas: Mapping[str, pa.Schema]) -> Iterator[pa.RecordBatch]:
    """A task's items as batches of the wide frame; rows of nodes that nobody reads are left out."""
    types = {node: pa.struct(list(arrow_schema(from_arrow_schema(schema)))) for node, schema in schemas.items()}
    layout = pa.schema([pa.field(CONTROL, pa.binary()), *(pa.field(column_of(n), t) for n, t in types.items())])

    def control(body: bytes) -> pa.RecordBatch:
        columns = [pa.array([body], pa.binary()), *(pa.nulls(1, t) for t in types.values())]
        return pa.RecordBatch.from_arrays(columns, schema=layout)

    lateness_us: int | None = None
    for item in items:
        if isinstance(item, Rows):
            if item.node in types and item.rows.num_rows:
                if item.lateness_us != lateness_us:
                    lateness_us = item.lateness_us
                    yield control(encode_control(Stamped(lateness_us)))
                yield from _encode_rows(item, types, layout)
        else:
            yield control(encode_control(item))


def _encode_rows(item: Rows, types: Mapping[str, pa.StructType], layout: pa.Schema) -> Iterator[pa.RecordBatch]:
    wanted = types[item.node]
    rows = item.rows.select([field.name for field in wanted]).cast(pa.schema(list(wanted)))
    for batch in rows.to_batches():
        struct = pa.StructArray.from_arrays(batch.columns, fields=list(wanted))
        columns = [pa.nulls(batch.num_rows, pa.binary())]
        for node, kind in types.items():
            columns.append(struct if node == item.node else pa.nulls(batch.num_rows, kind))
        yield pa.RecordBatch.from_arrays(columns, schema=layout)


def decode_output(batches: Iterable[pa.RecordBatch], schemas: Mapping[str, pa.Schema]) -> Iterator[TaskOutput]:
    """The inverse, after the projection; `schemas` are those of the columns that the output stage consumes.

    Rows of different nodes may come interleaved in one batch; each node's own order, and its order relative to
    control items, is kept.
    """
    lateness_us: int | None = None
    for batch in batches:
        control = batch.column(CONTROL)
        at = pc.indices_nonzero(control.is_valid()).to_pylist()
        start = 0
        for index in [*at, batch.num_rows]:
            yield from _decode_rows(batch.slice(start, index - start), schemas, lateness_us)
            if index < batch.num_rows:
                item = decode_control(control[index].as_py())
                if isinstance(item, Stamped):
                    lateness_us = item.lateness_us
                else:
                    yield item
            start = index + 1


def _decode_rows(batch: pa.RecordBatch, schemas: Mapping[str, pa.Schema], lateness_us: int | None) -> Iterator[Rows]:
    if batch.num_rows == 0:
        return
    for node, schema in schemas.items():
        struct = batch.column(column_of(node)).drop_null()
        if len(struct):
            yield Rows(node, pa.table(struct.flatten(), names=schema.names).cast(schema), lateness_us)
