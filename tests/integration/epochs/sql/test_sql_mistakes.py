"""What `lint` refuses of SQL by its types is what Spark refuses; what it lets through of them Spark reads."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milepost.jobspec.job.spec import SparkSpec
from milepost.language.sql import cast_types
from milepost.language.sql.diagnostics import check_mistakes
from milepost.language.sql.sql_parse import SqlProblem
from milepost.language.sql.struct_fields import check_fields
from milepost.language.types import parse_type
from milepost.spark.driver.engines.session import open_session

COLUMNS = {
    "id": "bigint",
    "at": "timestamp",
    "paid": "boolean",
    "raw": "binary",
    "tags": "array<bigint>",
    "user": "struct<id: bigint, home: struct<city: string>>",
    "items": "array<struct<price: double, parts: array<struct<n: bigint>>>>",
}
TYPES = {
    "id": parse_type("int64"),
    "at": parse_type("timestamp[us, UTC]"),
    "paid": parse_type("bool"),
    "raw": parse_type("binary"),
    "tags": parse_type("list<int64>"),
    "user": parse_type("struct<id: int64, home: struct<city: string>>"),
    "items": parse_type("list<struct<price: float64, parts: list<struct<n: int64>>>>"),
}
PARAMETERS = {
    "array": "array<int>",
    "char": "char(3)",
    "character": "character(3)",
    "geography": "geography(4326)",
    "geometry": "geometry(4326)",
    "interval": "interval day",
    "map": "map<int, int>",
    "struct": "struct<a: int>",
    "varchar": "varchar(3)",
}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return open_session("sql-mistakes", SparkSpec(master="local[2]"))


def refused_by_spark(spark: SparkSession, sql: str) -> bool:
    rows = spark.createDataFrame([], ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items()))
    rows.createOrReplaceTempView("t")
    try:
        return spark.sql(sql).schema is None
    except PySparkException:
        return True


def refused_by_lint(sql: str) -> bool:
    try:
        check_mistakes(sql, TYPES)
        check_fields(sql, "t", TYPES)
    except SqlProblem:
        return True
    return False


@pytest.mark.deep
@pytest.mark.parametrize(
    "expression",
    [
        "at + 1",
        "1 + at",
        "at * 2",
        "paid + 1",
        "paid * id",
        "raw + 1",
        "tags * 2",
        "user + 1",
        "items - id",
        "user.ids",
        "user.home.town",
        "user.home.city.x",
        "id.x",
        "tags.x",
        "items.prize",
        "items[0].parts[1].m",
        "filter(items, x -> x.prise > 1)",
        "exists(items, i -> exists(i.parts, p -> p.m = 1))",
    ],
)
def test_an_expression_that_lint_refuses_is_refused_by_spark(spark: SparkSession, expression: str) -> None:
    sql = f"SELECT {expression} AS q FROM t"
    assert refused_by_lint(sql) and refused_by_spark(spark, sql)


@pytest.mark.deep
@pytest.mark.parametrize(
    "expression",
    [
        "USER.Home.City",
        "(user).home.city",
        "items.price",
        "items.parts",
        "items[0].parts[1].n",
        "filter(items, x -> x.price > 1 AND user.id > 0)",
        "transform(items, (x, i) -> x.parts[i].n)",
        "transform(items, x -> x.price)[0]",
        "at + INTERVAL 1 DAY",
        "tags[0] + id",
        "id::int < 5 AND id::bigint > 2",
        "CAST(NULL AS STRUCT<a: ARRAY<INT>, b DECIMAL(9, 2) NOT NULL COMMENT 'x, y', c: MAP<INT, STRUCT<d LONG>>>)",
    ],
)
def test_an_expression_that_lint_lets_through_is_read_by_spark(spark: SparkSession, expression: str) -> None:
    sql = f"SELECT {expression} AS q FROM t"
    assert not refused_by_lint(sql) and not refused_by_spark(spark, sql)


@pytest.mark.parametrize("condition", ["id", "at", "tags", "user", "raw"])
def test_a_column_that_is_no_condition_is_refused_by_spark(spark: SparkSession, condition: str) -> None:
    sql = f"SELECT id FROM t WHERE {condition}"
    assert refused_by_lint(sql) and refused_by_spark(
        spark, f"SELECT CASE WHEN id > 0 AND {condition} THEN 1 END FROM t"
    )


def test_types_of_a_cast_are_those_of_spark(spark: SparkSession) -> None:
    known = {
        name: refused_by_spark(spark, f"SELECT CAST(NULL AS {PARAMETERS.get(name, name)}) AS q")
        for name in cast_types.TYPES
        if name != "time"  # which has to be switched on in the session
    }
    assert not [name for name, refused in known.items() if refused]
    others = [*cast_types.SPARK_TYPES, *cast_types.WITH_LENGTH]
    assert [name for name in others if not refused_by_spark(spark, f"SELECT CAST(NULL AS {name}) AS q")] == []
