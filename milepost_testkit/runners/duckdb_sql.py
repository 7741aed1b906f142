"""SQL without Spark: DuckDB evaluates the very expressions that Spark would get, over the same wide rows.

For graphs and histories, of which Spark would take a second each. sqlglot writes Spark's text for DuckDB, so it is of
use where both mean the same: plain arithmetic, comparisons, `explode`. What Spark answers has tests of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot

from milepost.jobspec.job.spec import JobSpec
from milepost.language.sql.plan import ITEM
from milepost.spark.driver.sql_projection import CONTROL, decode_output, encode_output
from milepost.spark.task.outputs import SqlOutput
from milepost.spark.task.row_steps.row_wise import SqlStep
from milepost.spark.task.row_steps.sql_expression import POSITION, SqlExpression, column_of, selects
from milepost.spark.wire.task_output import TaskOutput


def duckdb_schema(spec: JobSpec, output: SqlOutput, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of an output of SQL, as DuckDB types them; those of a UNION ALL are of its first SELECT."""
    one = selects(spec, output, inputs, {name: (column_of(name),) for name in inputs})[0]
    return _schema(column_of(one.input), inputs[one.input], one.expression)


@lru_cache(maxsize=10_000)
def _schema(column: str, schema: pa.Schema, expression: SqlExpression) -> pa.Schema:
    empty = pa.table({column: pa.array([], pa.struct(list(schema)))})
    return pa.schema(list(_added(empty, expression).schema.field(expression.column).type))


def projected(step: SqlStep, items: Iterable[TaskOutput]) -> Iterator[TaskOutput]:
    """Yield items behind a projection, which is Spark's otherwise."""
    batches = [*encode_output(items, step.input_schemas, step.unread_schemas)]
    rows = pa.Table.from_batches(batches).combine_chunks()
    for group in _independent(step.expressions):
        if len(group) == 1:
            rows = _added(rows, group[0], step.output_schemas.get(_output_of(step, group[0])))
            continue
        made = _evaluated(rows, *(one.text for one in group))
        for one, values in zip(group, made, strict=True):
            rows = rows.append_column(one.column, _cast(one, values, step.output_schemas.get(_output_of(step, one))))
    names = [CONTROL, *(column for columns in step.columns.values() for column in columns)]
    yield from decode_output(rows.select(names).combine_chunks().to_batches(), step.output_schemas, step.columns)


def _independent(expressions: Iterable[SqlExpression]) -> Iterator[list[SqlExpression]]:
    """Yield expressions in order, grouped so that none reads the column of another one of its group."""
    group: list[SqlExpression] = []
    for one in expressions:
        reads = f"{one.text} {one.list_sql}"
        is_alone = one.list_sql is not None or any(f"`{other.column}`" in reads for other in group)
        if group and (is_alone or group[0].list_sql is not None):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _output_of(step: SqlStep, one: SqlExpression) -> str:
    return next((name for name, columns in step.columns.items() if one.column in columns), "")


def _added(rows: pa.Table, one: SqlExpression, schema: pa.Schema | None = None) -> pa.Table:
    every = rows if one.list_sql is None else _exploded(rows, _evaluated(rows, one.list_sql)[0])
    made = _cast(one, _evaluated(every, one.text)[0], schema)
    if one.list_sql is not None:
        first = pc.equal(pc.fill_null(every.column(POSITION), 0), 0)
        columns = [pc.if_else(first, every.column(name), pa.scalar(None, every.schema.field(name).type))
                   for name in rows.column_names]  # fmt: skip
        every = pa.table(columns, schema=rows.schema)
    return every.append_column(one.column, made)


def _cast(one: SqlExpression, made: pa.Array, schema: pa.Schema | None) -> pa.Array:
    """Return rows with the types of a schema, by their places as Spark does it."""
    wanted = one.union_schema if one.union_schema is not None else schema
    if wanted is None:
        return made
    values = [value.cast(field.type) for value, field in zip(made.flatten(), wanted, strict=True)]
    return pa.StructArray.from_arrays(values, fields=list(wanted), mask=made.is_null())


def _exploded(rows: pa.Table, lists: pa.Array) -> pa.Table:
    """Return a row for each value of a list, at least one."""
    flat = pc.list_flatten(lists) if len(lists) else lists.values
    numbers, places, items = [], [], []
    at = 0
    for row, length in enumerate(pc.fill_null(pc.list_value_length(lists), 0).to_pylist()):
        numbers += [row] * max(1, length)
        places += [*range(length)] or [None]
        items += [*range(at, at + length)] or [None]
        at += length
    taken = rows.take(pa.array(numbers, pa.int64()))
    taken = taken.append_column(POSITION, pa.array(places, pa.int32()))
    return taken.append_column(ITEM, flat.take(pa.array(items, pa.int64())))


def _evaluated(rows: pa.Table, *texts: str) -> list[pa.Array]:
    """Return what each expression is of each row."""
    columns = ", ".join(f"{_for_duckdb(text)} AS made_{number}" for number, text in enumerate(texts))
    db = _database()
    db.register("wide", rows)
    made = db.sql(f"SELECT {columns} FROM wide").to_arrow_table()
    return [column.combine_chunks() for column in made.columns]


_LOCAL = threading.local()


def _database() -> duckdb.DuckDBPyConnection:
    """Return this thread's connection. To open one takes as long as to evaluate an expression."""
    if not hasattr(_LOCAL, "connection"):
        _LOCAL.connection = _process_database().cursor()
        _LOCAL.connection.execute("SET TimeZone = 'UTC'")
    connection: duckdb.DuckDBPyConnection = _LOCAL.connection
    return connection


@cache
def _process_database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


@cache
def _for_duckdb(text: str) -> str:
    return sqlglot.transpile(text, read="spark", write="duckdb")[0]
