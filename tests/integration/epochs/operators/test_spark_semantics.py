"""Results of operators that must be Spark's own: sessions, and sums of floats over updates."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from milepost.jobspec.job.spec import SparkSpec
from milepost.language.aggregates import parse_aggregate
from milepost.operators.aggregate.over_updates import AggregateOverUpdates
from milepost.operators.base.two_inputs import SIDES
from milepost.operators.build import build_operator
from milepost.operators.contract import OperatorInput
from milepost.operators.join.condition import Comparison
from milepost.operators.join.join_over_updates import JoinOverUpdates, JoinRules
from milepost.operators.window.spec import WindowOperator
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.spark.driver.engines.session import open_session
from milepost.storage.local.store import LocalStore
from milepost_testkit.tasks.operators.subtasks import OperatorRun
from milepost_testkit.tasks.operators.two_inputs import TwoInputRun

pytestmark = pytest.mark.deep

MINUTE_US = 60_000_000
WEIGHT = pa.field(WEIGHT_COLUMN, pa.int64())


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return open_session("semantics", SparkSpec(master="local[2]"))


def test_sessions_with_a_microsecond_more_are_those_of_session_window(tmp_path: Path, spark: SparkSession) -> None:
    """Rows a microsecond less, exactly, and a microsecond more than the gap apart."""
    draw = random.Random(7)
    rows: list[tuple[str, int]] = []
    for key in "abcdefgh":
        moment = 0
        for _ in range(40):
            moment += draw.choice([0, MINUTE_US, *(10 * MINUTE_US + by for by in (-1, 0, 0, 1))])
            rows.append((key, moment))
    draw.shuffle(rows)
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC"))])
    table = pa.table([[k for k, _ in rows], pa.array([t for _, t in rows]).cast(schema.field("t").type)], schema)
    spec = WindowOperator.model_validate(
        {"uid": "win", "kind": "window", "inputs": ["in"], "key": ["k"],
         "window": {"session": {"gap": "600000001us"}}, "aggregates": {"n": "count(*)"}}
    )  # fmt: skip
    run = OperatorRun(build_operator(spec, [OperatorInput(schema, "t")]), LocalStore(StoreConfig(f"file://{tmp_path}")))
    run.epoch(table.slice(0, 150))
    out = run.epoch(table.slice(150), None, 2**63 - 1, parallelism=2).rows
    bounds = [out[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end")]
    found = Counter(
        zip(out["k"].to_pylist(), bounds[0], [end - 1 for end in bounds[1]], out["n"].to_pylist(), strict=True)
    )
    spark.createDataFrame(rows, "k string, us bigint").selectExpr(
        "k", "timestamp_micros(us) AS t"
    ).createOrReplaceTempView("e")
    expected = spark.sql(
        "SELECT k, unix_micros(w.start), unix_micros(w.end), n FROM "
        "(SELECT k, session_window(t, '10 minutes') AS w, count(*) AS n "
        "FROM e GROUP BY k, session_window(t, '10 minutes'))"
    ).collect()
    assert found == Counter(tuple(row) for row in expected) and len(expected) > 40


def test_sums_of_floats_over_updates_are_those_of_spark(tmp_path: Path, spark: SparkSession) -> None:
    """NaN and infinities as Spark sums them. Finite sums are exact here, and Spark's up to its rounding."""
    schema = pa.schema([("k", pa.string()), ("x", pa.float64()), WEIGHT])
    calls = {"total": "sum(x)", "mean": "avg(x)", "variance": "var(x)"}
    parsed = {name: parse_aggregate(text) for name, text in calls.items()}
    operator = AggregateOverUpdates("sums", ("k",), parsed, OperatorInput(schema, None))
    run = OperatorRun(operator, LocalStore(StoreConfig(f"file://{tmp_path}")))
    nan, inf = math.nan, math.inf
    values = {"a": [nan, 1.0], "b": [inf, -1.0], "c": [inf, -inf], "d": [-inf, 2.0], "e": [0.5, None, -2.25],
              "f": [None], "g": [nan, -inf], "h": [-0.0], "i": [1.5]}  # fmt: skip
    gone = [("i", nan), ("e", inf), ("h", -inf)]
    remaining = [(key, x) for key, many in values.items() for x in many]
    added = [(key, x, 1) for key, x in [*remaining, *gone]]
    retracted = [(key, x, -1) for key, x in gone]
    first = run.epoch(pa.table([*map(list, zip(*added, strict=True))], schema=schema)).rows
    then = run.epoch(pa.table([*map(list, zip(*retracted, strict=True))], schema=schema), parallelism=2).rows
    found = {row["k"]: row for row in [*first.to_pylist(), *then.to_pylist()]}
    spark.createDataFrame(remaining, "k string, x double").createOrReplaceTempView("x")
    expected = spark.sql(
        "SELECT k, sum(x) AS total, avg(x) AS mean, var_samp(x) AS variance FROM x GROUP BY k"
    ).collect()
    assert len(expected) == len(found) == 9
    for row in expected:
        assert [found[row["k"]][name] for name in calls] == pytest.approx([row[name] for name in calls], nan_ok=True), (
            row["k"]
        )


@pytest.mark.parametrize("how", ["right", "full"])
def test_keys_and_comparisons_of_a_join_are_those_of_spark(tmp_path: Path, spark: SparkSession, how: str) -> None:
    """Nulls, NaN and both zeros in keys and conditions."""
    left = pa.schema([("k", pa.float64()), ("v", pa.float64()), ("a", pa.int64())])
    right = pa.schema([("k", pa.float64()), ("w", pa.float64()), ("b", pa.int64())])
    values = [None, 0.0, -0.0, math.nan, 1.5]
    rows = [(k, v, at) for at, (k, v) in enumerate((k, v) for k in values for v in values)]
    condition = (Comparison("v", "<=", "w"),)
    inputs = [OperatorInput(schema.append(WEIGHT), None) for schema in (left, right)]
    run = TwoInputRun(JoinOverUpdates("joined", JoinRules([("k", "k")], how, condition, {}), inputs), tmp_path)
    sides = [
        pa.table([*map(list, zip(*((*row, 1) for row in rows[side::2]), strict=True))], schema=inputs[side].schema)
        for side in range(len(SIDES))
    ]
    run.epoch([(0, sides[0])], parallelism=2)
    found = Counter[tuple[str, ...]]()
    for changes in (run.changes, (run.epoch([(1, sides[1])], parallelism=3), run.changes)[1]):
        for table in changes:
            for row in table.to_pylist():
                found[tuple(repr(row[name]) for name in ("k", "v", "a", "w", "b"))] += row[WEIGHT_COLUMN]
    for name, schema, some in (
        ("l", "k double, v double, a bigint", rows[::2]),
        ("r", "k double, w double, b bigint", rows[1::2]),
    ):
        spark.createDataFrame(some, schema).createOrReplaceTempView(name)
    # Spark shows the zero of each side as it is. A key here has one zero.
    expected = spark.sql(
        f"SELECT coalesce(l.k, r.k) + 0.0D, l.v, l.a, r.w, r.b FROM l {how} JOIN r ON l.k = r.k AND l.v <= r.w"
    ).collect()
    assert Counter({row: n for row, n in found.items() if n}) == Counter(tuple(map(repr, row)) for row in expected)
