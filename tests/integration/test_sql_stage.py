"""A SQL operator is Spark SQL itself, run inside the stage between host and tail (INTERFACE, "SQL")."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.spec import JobSpec, SparkSpec
from pipeline.protocol.barrier import SubtaskIdentity
from pipeline.protocol.ids import CheckpointId, FencingToken
from pipeline.protocol.reasons import CheckpointFailureReason
from pipeline.spark.items import Declined, Item, Rows, RowsDone
from pipeline.spark.session import open_session
from pipeline.spark.sql_projection import (
    decode_items,
    encode_items,
    infer_schema,
    project,
    projection,
    wide_type,
)
from tests.harness.graphs import build_graph

TABLE = pa.table(
    {
        "name": pa.array(["a'b", None, "c`d", "zürich", ""]),
        "n": pa.array([1, None, -3, 7, 0], pa.int32()),
        "x": pa.array([0.5, float("nan"), None, -2.25, 1e300]),
        "t": pa.array([0, 1_357_000_000_000_000, None, -1, 86_400_000_000], pa.timestamp("us", "UTC")),
        "tags": pa.array([["p", "q"], [], None, ["r"], ["s"]], pa.list_(pa.string())),
    }
)
STATEMENTS = [
    "SELECT * FROM src WHERE n IS NOT NULL",
    "SELECT name, n + 1 AS next, x * 2 AS twice FROM src WHERE n >= 0 OR x < 0",
    "SELECT upper(name) AS `loud name`, date_trunc('DAY', t) AS day, hour(t) AS hour FROM src",
    "SELECT CASE WHEN n > 0 THEN 'up' WHEN n < 0 THEN 'down' END AS way, coalesce(name, 'none') AS label FROM src",
    "SELECT CAST(n AS STRING) AS text, n / 2 AS half, n % 2 AS odd, size(tags) AS count FROM src WHERE n IS NOT NULL",
    "SELECT src.name AS name, named_struct('a', n, 'b', x) AS pair FROM src WHERE name LIKE '%''%' OR name = ''",
    "SELECT nanvl(x, 0.0) AS x, isnan(x) AS was_nan, to_date(t) AS day FROM src",
]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return open_session("sql-stage", SparkSpec(master="local[2]"))


def _spec(sql: str) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "job",
            "storage": "store",
            "sources": {
                "src": {
                    "format": "json",
                    "path": "in/*.json",
                    "schema": {
                        "name": "string",
                        "n": "int32",
                        "x": "float64",
                        "t": "timestamp[us, UTC]",
                        "tags": "list<string>",
                    },
                }
            },
            "operators": [{"uid": "made", "kind": "sql", "inputs": ["src"], "sql": sql}],
            "sinks": [{"name": "out", "input": "made", "format": "parquet", "path": "out", "mode": "append"}],
        }
    )


class Encode:
    """A host that puts out the table, one decline, and the end of its rows."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        identity = SubtaskIdentity(CheckpointId(1), FencingToken(2), 0, 0)
        decline = Declined(identity.decline(CheckpointFailureReason.BAD_RECORD, "x"))
        items: list[Item] = [Rows("src", TABLE.slice(0, 3)), Rows("src", TABLE.slice(3)), RowsDone(), decline]
        yield from encode_items(items, {"src": TABLE.schema})


class Collect:
    """A tail that hands its input to the driver, batch by batch, as it got it."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"body": [sink.getvalue().to_pybytes()]})


def _items(staged: DataFrame, schema: pa.Schema) -> list[Item]:
    bodies = [bytes(row.body) for row in staged.mapInArrow(Collect(), "body binary").collect()]
    batches = [batch for body in bodies for batch in pa.ipc.open_stream(body)]
    return list(decode_items(batches, {"made": schema}))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_the_stage_gives_what_spark_sql_gives_for_the_same_statement(spark: SparkSession, sql: str) -> None:
    spec = _spec(sql)
    node = build_graph(spec).nodes["made"]
    schema = infer_schema(spark, spec, node, TABLE.schema)
    wide = spark.range(0, 1, 1, 1).mapInArrow(Encode(), wide_type({"src": TABLE.schema}))
    staged = project(wide, [projection(spec, node, TABLE.schema.names)], ["made"])
    items = _items(staged, schema)
    rows = [item for item in items if isinstance(item, Rows)]
    spark.createDataFrame(TABLE).createOrReplaceTempView("src")
    expected = spark.sql(sql).toArrow()
    assert isinstance(items[-2], RowsDone) and isinstance(items[-1], Declined)
    actual = pa.concat_tables([item.rows for item in rows]) if rows else schema.empty_table()
    assert repr(actual.to_pylist()) == repr(expected.cast(schema).to_pylist())
    assert actual.schema.names == expected.schema.names


def test_a_row_that_the_filter_drops_is_never_evaluated(spark: SparkSession) -> None:
    """ANSI mode would fail on 1/0 and on the bad cast: the filter guards them, as in any SQL engine's WHERE."""
    spec = _spec("SELECT 10 / n AS share, CAST(name AS INT) AS bad FROM src WHERE n > 100 AND n <> 0")
    node = build_graph(spec).nodes["made"]
    wide = spark.range(0, 1, 1, 1).mapInArrow(Encode(), wide_type({"src": TABLE.schema}))
    staged = project(wide, [projection(spec, node, TABLE.schema.names)], ["made"])
    items = _items(staged, infer_schema(spark, spec, node, TABLE.schema))
    assert len(items) == 2 and not [item for item in items if isinstance(item, Rows)]
