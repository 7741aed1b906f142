"""The law where SQL is Spark's: a sql node is Spark's own batch answer, and what reads it keeps the law.

Each node's rows are read from the tables: a changelog has every row with the checkpoint that published it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.job.spec import SparkSpec
from milepost.spark.driver.engines.session import open_session
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit.law.differences import DIFFERENCES, REFUSED, SAME
from milepost_testkit.law.examples import source_document
from milepost_testkit.law.job import LawJob
from milepost_testkit.law.rows import rows_table
from milepost_testkit.models.data.captured import Captured
from milepost_testkit.models.data.oracle import Watermarks, check

pytestmark = pytest.mark.deep

CLEAN = (
    "SELECT k, abs(f) AS f, CAST(i AS BIGINT) * 3 AS i, x / 4 AS x, d / 3 AS third, CAST(x AS STRING) AS text, "
    "substring(k, 1, 1) AS initial, t, date_trunc('HOUR', t) AS hour FROM a WHERE i IS NOT NULL OR k LIKE 'a%'"
)
WINDOW = {"window": {"tumbling": "30m"}, "aggregates": {"n": "count(*)", "total": "sum(i)", "high": "max(x)"}}
OPERATORS: list[dict[str, Any]] = [
    {"uid": "clean", "kind": "sql", "inputs": ["a"], "sql": CLEAN},
    {"uid": "hourly", "kind": "window", "inputs": ["clean"], "key": ["initial", "f"], **WINDOW},
    {"uid": "kept", "kind": "window", "inputs": ["clean"], "key": ["k"], "allowed_lateness": "30m", **WINDOW},
    {"uid": "once", "kind": "deduplicate", "inputs": ["clean"], "key": ["text", "hour"]},
    {"uid": "totals", "kind": "aggregate", "inputs": ["clean"], "key": ["hour", "x"],
     "aggregates": {"n": "count(text)", "sum_i": "sum(i)", "last": "max(t)"}},
]  # fmt: skip
NODES = ("a", "clean", "hourly", "hourly.late", "kept", "kept.late", "once", "totals")


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return open_session("law", SparkSpec(master="local[2]"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> LawJob:
    """A job of three epochs, at two parallelisms."""
    sinks = [
        {"name": node.replace(".", "_"), "input": node, "format": "parquet", "path": f"../lake/{node}",
         "mode": "changelog"}
        for node in NODES
    ]  # fmt: skip
    document = {
        "name": "law",
        "storage": "../store",
        "sources": {"a": source_document("a", "10m")},
        "operators": OPERATORS,
        "sinks": sinks,
        "spark": {"master": "local[2]"},
        "checkpointing": {"max_parallelism": 8},
    }
    made = LawJob.create(tmp_path_factory.mktemp("law"), document)
    for epoch, parallelism in enumerate((2, 1, 2)):
        made.land("a", rows_table([epoch * 7 + number * 104_729 for number in range(60)], epoch))
        made.set_parallelism(parallelism)
        JobMaster(made.loaded).epochs.run(Session.cli(), SparkEpochRunner())
    return made


def published(job: LawJob) -> Captured:
    """The rows of every node; if nothing was ever in flight, rows have the stamp of their epoch."""
    captured, spec, graph, lineage = Captured(), job.loaded.spec, job.loaded.graph(), job.lineage
    watermarks = None
    for node in NODES:
        rows = job.master.reports.read(node.replace(".", "_"))
        for place, checkpoint in enumerate(lineage):
            stamp_us = watermarks.of_node(node, lineage[:place]) if watermarks and node in graph.nodes else None
            own = rows.filter(pc.field("_checkpoint") == checkpoint).drop(["_op", "_checkpoint"])
            captured.add(node, checkpoint, stamp_us, own)
        watermarks = watermarks or Watermarks(spec, graph, captured, frozenset())
    return captured


def test_operators_behind_sql_keep_the_law(job: LawJob) -> None:
    captured = published(job)
    assert captured.rows("hourly") and captured.rows("hourly.late") and captured.rows("kept.late")
    schemas = {node: pieces[0][2].schema for node, pieces in captured.pieces.items()}
    lineage = job.lineage
    spec, graph = job.loaded.spec, job.loaded.graph()
    check(spec, graph, captured, schemas, {at: lineage[: place + 1] for place, at in enumerate(lineage)})


def test_a_sql_node_is_sparks_batch_answer_over_all_of_its_input_values_and_types(
    job: LawJob, spark: SparkSession
) -> None:
    captured = published(job)
    rows, came = (pa.concat_tables([piece[2] for piece in captured.pieces[node]]) for node in ("clean", "a"))
    spark.createDataFrame(came.combine_chunks()).createOrReplaceTempView("a")
    batch = spark.sql(CLEAN).toArrow()
    assert dict(zip(rows.column_names, rows.schema.types, strict=True)) == {
        field.name: field.type for field in batch.schema
    }
    expected = batch.select(rows.column_names).cast(rows.schema)
    assert Counter(map(repr, rows.to_pylist())) == Counter(map(repr, expected.to_pylist()))


def test_the_listed_differences_of_spark_and_duckdb_are_there(spark: SparkSession) -> None:
    """Nothing that a law relies on differs, and no difference is a rumour."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for one in DIFFERENCES:
            answers = _of_spark(spark, one.in_spark), _of_duckdb(db, one.in_duckdb)
            assert answers == (one.spark, one.duckdb), one.about
            assert repr(answers[0]) != repr(answers[1]), one.about
        for about, query, answer in SAME:
            assert (_of_spark(spark, query), _of_duckdb(db, query)) == (answer, answer), about


def _of_spark(spark: SparkSession, query: str) -> Any:
    try:
        return spark.sql(query).toArrow().column(0).to_pylist()[0]
    except Exception as error:
        if type(error).__name__ not in ("ArithmeticException", "NumberFormatException"):
            raise
        return REFUSED


def _of_duckdb(db: duckdb.DuckDBPyConnection, query: str) -> Any:
    row = db.execute(query).fetchone()
    assert row is not None
    return row[0]
