"""Branches for older versions of PySpark: a supported version needs each of them, and both sides do the same."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from pyspark.sql import SparkSession

from milepost.extras import EXTRAS, SUPPORTED, supported_range
from milepost.jobspec.job.spec import SparkSpec
from milepost.sources.landed import read_limits
from milepost.spark.driver import compat
from milepost.spark.driver.engines.session import open_session
from scripts.spark.spark_versions import OLDER, version_of
from tests.unit.test_dependencies import PROJECT

DIFFERENCES = {
    f"{module.__name__}.{name}": bound
    for module in (compat, read_limits)
    for name, bound in vars(module).items()
    if re.fullmatch("[A-Z_]+", name) and isinstance(bound, tuple)
}
"""Declaration of a difference -> first version without it."""


def test_every_branch_for_an_older_version_is_needed_by_a_supported_one() -> None:
    """After the lower bound is raised, this names the branches to delete."""
    first = tuple(map(int, SUPPORTED["pyspark"][0].split(".")))
    assert len(DIFFERENCES) == 5
    assert {name: bound for name, bound in DIFFERENCES.items() if bound <= first} == {}


def test_milepost_refuses_the_versions_that_pip_would_not_install() -> None:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    declared = {
        requirement.name: requirement.specifier
        for requirement in map(Requirement, (*extras["spark"], *extras["airflow"]))
    }
    assert {name: str(declared[name]) for name in SUPPORTED} == {
        name: ",".join(sorted(supported_range(name).split(","))) for name in SUPPORTED
    }
    assert SUPPORTED.keys() <= {name for libraries in EXTRAS.values() for name in libraries.values()}


def test_every_older_minor_version_has_an_environment_for_tests() -> None:
    import pyspark

    pinned = [Version(version_of(minor)) for minor in OLDER]
    minors = [(version.major, version.minor) for version in [*pinned, Version(pyspark.__version__)]]
    first = tuple(map(int, SUPPORTED["pyspark"][0].split(".")))
    assert minors == [(first[0], first[1] + number) for number in range(len(minors))]


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
