"""Both branches of a difference between versions of PySpark do the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from milepost.jobspec.job.spec import SparkSpec
from milepost.spark.driver import compat
from milepost.spark.driver.engines.session import open_session


@pytest.fixture
def spark() -> SparkSession:
    return open_session("compat", SparkSpec(master="local[2]"))


@pytest.mark.parametrize("receivers", [1, 2, 7, 31])
def test_without_an_exchange_by_id_each_row_goes_to_the_same_task(
    receivers: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(0, 5 * receivers, 1, 3).selectExpr(f"CAST(id % {receivers} AS INT) AS subtask", "id")

    def assignments() -> list[tuple[int, int, int]]:
        numbered = compat.exchange(rows, receivers).selectExpr("spark_partition_id()", "subtask", "id")
        return sorted(tuple(row) for row in numbered.collect())

    by_id = assignments()
    monkeypatch.setattr(compat, "EXCHANGE_BY_ID", (5, 0))
    assert assignments() == by_id
    assert all(task == subtask for task, subtask, _ in by_id)


def test_a_release_is_the_first_two_numbers_of_a_version() -> None:
    assert [compat.release_of(text) for text in ("4.0.5", "4.1.0-amzn-1", "4.2.0.dev1")] == [(4, 0), (4, 1), (4, 2)]


def test_types_survive_a_round_trip_through_arrow() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("wall", pa.timestamp("us")), ("k", pa.int64())])
    spark_schema = compat.from_arrow_schema(schema)
    assert [field.dataType.simpleString() for field in spark_schema] == ["timestamp", "timestamp_ntz", "bigint"]
    assert compat.to_arrow_schema(spark_schema) == schema
