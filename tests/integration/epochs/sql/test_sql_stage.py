"""A SQL operator is Spark SQL itself, run inside the stage between host and tail (DESIGN 8.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from milepost.errors import InvalidRequest
from milepost.jobspec.job.spec import JobSpec, SparkSpec
from milepost.language.sql.nondeterminism import check_nondeterminism
from milepost.language.sql.row_wise import REFUSED_FUNCTIONS
from milepost.language.sql.spark_functions import BY_GROUP, ROW_WISE, SYNTAX
from milepost.language.sql.sql import sql_plan
from milepost.language.sql.sql_parse import SqlProblem
from milepost.language.types import ColumnType
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.protocol.exchange.barrier import SubtaskIdentity
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.spark.driver.engines.session import open_session
from milepost.spark.driver.sql_projection import (
    collect,
    decode_output,
    encode_output,
    infer_schema,
    project,
    wide_frame,
    wide_type,
)
from milepost.spark.task.outputs import SqlOutput, sql_outputs
from milepost.spark.task.row_steps.column_selection import column_selection
from milepost.spark.task.row_steps.sql_expression import column_of, level_sql
from milepost.spark.wire.task_output import Declined, Rows, RowsDone, TaskOutput
from milepost_testkit import profiles, wording
from milepost_testkit.specs.graphs import build_graph

TABLE = pa.table(
    {
        "name": pa.array(["a'b", None, "c`d", "zürich", ""]),
        "n": pa.array([1, None, -3, 7, 0], pa.int32()),
        "x": pa.array([0.5, float("nan"), None, -2.25, 1e300]),
        "t": pa.array([0, 1_357_000_000_000_000, None, -1, 86_400_000_000], pa.timestamp("us", "UTC")),
        "tags": pa.array([["p", "q"], [], None, ["r"], ["s"]], pa.list_(pa.string())),
        "pair": pa.array([{"a": 1}, None, {"a": None}, {"a": 4}, {"a": 5}], pa.struct([("a", pa.int64())])),
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
    "SELECT name, n AS number FROM src WHERE n > 0 UNION ALL SELECT upper(name) AS up, x AS `other one` FROM src",
    "SELECT n FROM src UNION ALL SELECT CAST(n AS BIGINT) + 1 FROM src UNION ALL SELECT 1.5 FROM src",
    "SELECT name, explode(tags) AS tag, n + 1 AS next FROM src WHERE n IS NOT NULL",
    "SELECT explode(transform(tags, e -> e || coalesce(name, '-'))) AS t, n, t AS at FROM src",
    "SELECT explode(array(n, NULL, 3)) AS item FROM src WHERE size(tags) > 0 UNION ALL SELECT x FROM src",
    """SELECT named_struct('a b', n, 'tags', tags) AS `p q`, t FROM src UNION ALL
    SELECT named_struct('a b', x, 'tags', array(name)) AS pair, to_date(t) AS day FROM src WHERE t IS NOT NULL""",
    """SELECT 1 AS `one`, n IS NULL AS b, named_struct('a', 1, 'b', struct('x' AS c, n)) AS s, array(struct(1)) AS l,
    map('k', named_struct('a', array(1))) AS m, CASE WHEN n > 0 THEN struct(1 AS a) END AS c FROM src WHERE n > -5""",
    """SELECT 1 AS `one`, struct(1 AS a, array(1) AS b) AS s, array(struct(1 AS a)) AS l FROM src WHERE n > 0 UNION ALL
    SELECT n AS `one`, struct(2 AS a, array(n) AS b) AS s, array(struct(n AS a)) AS l FROM src""",
    "SELECT explode(array(struct(1 AS a, array('x') AS b))) AS item, 'x' AS x FROM src WHERE n > 0",
]


MADE = {"made": ("n_made",)}


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
                        "pair": "struct<a: int64>",
                    },
                }
            },
            "operators": [{"uid": "made", "kind": "sql", "inputs": ["src"], "sql": sql}],
            "sinks": [{"name": "out", "input": "made", "format": "parquet", "path": "out", "mode": "append"}],
        }
    )


class Encode:
    """A host that emits the table, one decline, and the end of its rows."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        identity = SubtaskIdentity(CheckpointId(1), FencingToken(2), 0, 0)
        decline = Declined(identity.decline(CheckpointFailureReason.BAD_RECORD, "x"))
        items: list[TaskOutput] = [Rows("src", TABLE.slice(0, 3)), Rows("src", TABLE.slice(3)), RowsDone(), decline]
        yield from encode_output(items, {"src": TABLE.schema})


class Collect:
    """A tail that hands its input to the driver, batch by batch, as it got it."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"body": [sink.getvalue().to_pybytes()]})


def _items(staged: DataFrame, schema: pa.Schema, columns: Mapping[str, tuple[str, ...]] = MADE) -> list[TaskOutput]:
    bodies = [bytes(row.body) for row in staged.mapInArrow(Collect(), "body binary").collect()]
    batches = [batch for body in bodies for batch in pa.ipc.open_stream(body)]
    return list(decode_output(batches, {"made": schema}, columns))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_the_stage_gives_what_spark_sql_gives_for_the_same_statement(spark: SparkSession, sql: str) -> None:
    spec = _spec(sql)
    (output,) = sql_outputs(build_graph(spec))
    schema = infer_schema(spark, spec, output, {"src": TABLE.schema})
    wide = spark.range(0, 1, 1, 1).mapInArrow(Encode(), wide_type({"src": TABLE.schema}))
    made = level_sql(spec, [output], {"src": ("n_src",)}, {"src": TABLE.schema, "made": schema})
    items = _items(project(wide, made.expressions, {"made": made.columns["made"]}), schema, made.columns)
    rows = [item for item in items if isinstance(item, Rows)]
    spark.createDataFrame(TABLE).createOrReplaceTempView("src")
    expected = collect(spark.sql(sql))
    assert isinstance(items[-2], RowsDone) and isinstance(items[-1], Declined)
    actual = pa.concat_tables([item.rows for item in rows]) if rows else schema.empty_table()
    assert sorted(map(repr, actual.to_pylist())) == sorted(map(repr, expected.cast(schema).to_pylist()))
    assert actual.schema.names == expected.schema.names
    if "UNION" not in sql:
        assert repr(actual.to_pylist()) == repr(expected.cast(schema).to_pylist())


def test_an_explode_multiplies_the_rows_of_its_operator_alone(spark: SparkSession) -> None:
    """What else reads the input, in the same stage, gets each of its rows once; what reads the explode, all of them."""
    value = _spec("SELECT name, explode(tags) AS tag FROM src").model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    texts = {
        "again": "SELECT upper(tag) AS t FROM made WHERE tag <> 'q'",
        "pairs": "SELECT explode(array(tag, name)) AS t FROM made",
    }
    behind = [{"uid": uid, "kind": "sql", "inputs": ["made"], "sql": text} for uid, text in texts.items()]
    spec = JobSpec.model_validate({**value, "operators": [*value["operators"], *behind]})
    graph = build_graph(spec)
    schemas = {"src": TABLE.schema}
    outputs = [*sql_outputs(graph)]
    for output in outputs:
        schemas[output.name] = infer_schema(
            spark, spec, output, {name: schemas[name] for name in output.inputs.values()}
        )
    wide = spark.range(0, 1, 1, 1).mapInArrow(Encode(), wide_type({"src": TABLE.schema}))
    sql = level_sql(spec, outputs, {"src": ("n_src",)}, schemas)
    staged = project(wide, sql.expressions, sql.columns)
    bodies = [bytes(row.body) for row in staged.mapInArrow(Collect(), "body binary").collect()]
    batches = [batch for body in bodies for batch in pa.ipc.open_stream(body)]
    items = list(decode_output(batches, schemas, sql.columns))
    assert [type(item) for item in items[-2:]] == [RowsDone, Declined]
    rows = {uid: pa.concat_tables([item.rows for item in items if isinstance(item, Rows) and item.node == uid])
            for uid in schemas}  # fmt: skip
    assert repr(rows["src"].to_pylist()) == repr(TABLE.to_pylist())
    made = [(row["name"], tag) for row in TABLE.to_pylist() for tag in row["tags"] or ()]
    assert [(row["name"], row["tag"]) for row in rows["made"].to_pylist()] == made
    assert rows["again"].column("t").to_pylist() == [tag.upper() for _, tag in made if tag != "q"]
    assert rows["pairs"].column("t").to_pylist() == [one for name, tag in made for one in (tag, name)]


def test_a_text_that_would_become_another_type_in_a_union_is_refused(spark: SparkSession) -> None:
    """It may be no number, or a time that depends on when the epoch runs: `now`."""
    spec = _spec("SELECT t AS at FROM src UNION ALL SELECT 'now' AS at FROM src")
    with wording.raises(InvalidRequest):
        infer_schema(spark, spec, *sql_outputs(build_graph(spec)), {"src": TABLE.schema})


def test_rows_of_a_union_come_by_the_row_that_they_are_of_then_by_select(spark: SparkSession) -> None:
    """So their order is that of the rows that were read, wherever Spark cuts its batches (I12)."""
    spec = _spec("SELECT name, 1 AS part FROM src UNION ALL SELECT name, 2 AS part FROM src WHERE n IS NOT NULL")
    (output,) = sql_outputs(build_graph(spec))
    schema = infer_schema(spark, spec, output, {"src": TABLE.schema})
    wide = spark.range(0, 1, 1, 1).mapInArrow(Encode(), wide_type({"src": TABLE.schema}))
    made = level_sql(spec, [output], {"src": ("n_src",)}, {"src": TABLE.schema, "made": schema})
    items = _items(project(wide, made.expressions, {"made": made.columns["made"]}), schema, made.columns)
    rows = pa.concat_tables([item.rows for item in items if isinstance(item, Rows)]).to_pylist()
    expected = [
        (row["name"], part) for row in TABLE.to_pylist() for part in (1, 2) if part == 1 or row["n"] is not None
    ]
    assert [(row["name"], row["part"]) for row in rows] == expected


def test_a_row_that_the_filter_drops_is_never_evaluated(spark: SparkSession) -> None:
    """ANSI mode would fail on 1/0 and on the bad cast: the filter guards them, as in any SQL engine's WHERE."""
    spec = _spec("SELECT 10 / n AS share, CAST(name AS INT) AS bad FROM src WHERE n > 100 AND n <> 0")
    (output,) = sql_outputs(build_graph(spec))
    wide = spark.range(0, 1, 1, 1).mapInArrow(Encode(), wide_type({"src": TABLE.schema}))
    schema = infer_schema(spark, spec, output, {"src": TABLE.schema})
    made = level_sql(spec, [output], {"src": ("n_src",)}, {"src": TABLE.schema, "made": schema})
    items = _items(project(wide, made.expressions, {"made": ("n_made",)}), schema)
    assert len(items) == 2 and not [item for item in items if isinstance(item, Rows)]


_NUMBER = st.recursive(
    st.sampled_from(
        ["n", "N", "src.n", "`n`", "pair.n", "PAIR.N", "src.pair.n", "ints[0]", "pairs[0].n", "7", "size(tags)"]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("({0[0]} + {0[1]})".format),
        st.tuples(inner, inner).map("nvl({0[0]}, {0[1]})".format),
        st.tuples(inner, inner).map("CASE WHEN {0[0]} > 1 THEN {0[1]} END".format),
        inner.map("array({0}, n)[0]".format),
        inner.map("named_struct('n', {0}, 'ints', ints).n".format),
        inner.map("struct({0} AS n, N AS m).m".format),
        inner.map("aggregate(ints, {0}, (acc, e) -> ACC + e + n)".format),
        inner.map("element_at(transform(ints, E -> e + {0}), 1)".format),
        inner.map("size(filter(pairs, p -> P.n >= {0} OR p.ints[0] = n))".format),
        inner.map("CAST(timestampdiff(DAY, date '2013-01-01', date_add(date '2013-01-01', {0})) AS INT)".format),
    ),
    max_leaves=4,
)
_VALUE = st.one_of(
    _NUMBER,
    st.tuples(_NUMBER, st.sampled_from(["N", "src.Name", "pair"])).map("to_json(struct({0[0]} AS a, {0[1]}))".format),
    st.tuples(_NUMBER, _NUMBER).map("transform(ints, x -> transform(array({0[0]}), y -> X * y + {0[1]}))".format),
    _NUMBER.map("map_filter(map('n', n, 'k', {0}), (k, v) -> K = 'n' OR V = n)".format),
    st.sampled_from(["pairs.n", "(n, Name)", "pair", "src.pair", "upper(NAME) || name", "name LIKE ANY ('a%', 'z%')"]),
)
NESTED = pa.table(
    {
        "name": ["a'b", None, "zürich"],
        "n": pa.array([1, 2, -3], pa.int32()),
        "ints": pa.array([[1, 2], [3], [5, None]], pa.list_(pa.int32())),
        "tags": pa.array([["p", "q"], [], ["r"]], pa.list_(pa.string())),
        "pair": pa.array([{"n": 10, "ints": [4]}] * 3, pa.struct({"n": pa.int32(), "ints": pa.list_(pa.int32())})),
        "pairs": pa.array(
            [[{"n": 20, "ints": [6]}]] * 3, pa.list_(pa.struct({"n": pa.int32(), "ints": pa.list_(pa.int32())}))
        ),
    }
)


@pytest.mark.deep
@profiles.examples(share=0.12)
@given(st.lists(_VALUE, min_size=6, max_size=12), st.one_of(st.none(), _NUMBER))
def test_a_select_means_what_it_means_to_spark(spark: SparkSession, items: list[str], condition: str | None) -> None:
    """Names that fields, variables and columns share, in any case, and in every spelling."""
    where = "" if condition is None else f" WHERE {condition} IS NOT NULL"
    sql = "SELECT " + ", ".join(f"{item} AS x{number}" for number, item in enumerate(items)) + f" FROM src{where}"
    spark.createDataFrame(NESTED).createOrReplaceTempView("src")
    expected = spark.sql(sql).toArrow().to_pylist()
    plan = sql_plan(sql, "src", NESTED.column_names, qualify="n_src")
    rows = spark.sql(f"SELECT struct({', '.join(f'`{name}`' for name in NESTED.column_names)}) AS n_src FROM src")
    kept = rows if plan.filter_sql is None else rows.where(plan.filter_sql)
    actual = kept.selectExpr(*(f"{text} AS `{name}`" for name, text in plan.columns)).toArrow().to_pylist()
    assert repr(actual) == repr(expected)


def test_every_function_of_spark_is_judged(spark: SparkSession) -> None:
    """Fails when Spark's registry grows: a new function is allowed or refused by us, not by chance."""
    jvm: Any = spark._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis
    known = {}
    for functions in (registry.FunctionRegistry, registry.TableFunctionRegistry):
        names = functions.functionSet().iterator()
        while names.hasNext():
            name = names.next()
            known[name.funcName()] = functions.builtin().lookupFunction(name).get()
    callable_ = {name for name in known if name[0].isalpha()}
    assert callable_ - ROW_WISE - REFUSED_FUNCTIONS.keys() == set(), "new in Spark: allow or refuse each"
    assert ROW_WISE & REFUSED_FUNCTIONS.keys() == set()
    assert ROW_WISE - SYNTAX - callable_ == set(), "gone from Spark"
    shown = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    assert {name for name in shown if name[0].isalpha()} - callable_ <= {"case"}
    groups = {name: group for group, names in BY_GROUP.items() for name in names}
    assert {name: known[name].getGroup() for name in groups} == groups


def test_no_allowed_function_is_an_aggregate_or_not_deterministic_to_spark(spark: SparkSession) -> None:
    """By the classes of the registry: its groups do not tell (`vector_sum` is an aggregate of the group of vectors)."""
    jvm: Any = spark._jvm
    of_rows = ("aggregate.AggregateFunction", "Nondeterministic", "Generator", "WindowFunction", "Unevaluable")
    load = jvm.org.apache.spark.util.Utils.classForName
    refused = [load(f"org.apache.spark.sql.catalyst.expressions.{name}", False, False) for name in of_rows]
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry
    names = registry.functionSet().iterator()
    wrong = []
    while names.hasNext():
        name = names.next()
        made_by = load(registry.builtin().lookupFunction(name).get().getClassName(), False, False)
        if name.funcName() in ROW_WISE and any(kind.isAssignableFrom(made_by) for kind in refused):
            wrong.append(name.funcName())
    assert wrong == []


@pytest.mark.parametrize(
    "expression", ["CAST(h AS TIMESTAMP)", "to_timestamp(h)", "timestamp '12:30'", "from_json(j, 'a timestamp').a"]
)
def test_spark_reads_a_time_of_day_as_today(spark: SparkSession, expression: str) -> None:
    """Why such SQL is refused; when Spark stops doing so, the refusal can go."""
    columns = {"h": ColumnType("string"), "j": ColumnType("string")}
    with pytest.raises(SqlProblem):
        check_nondeterminism(f"SELECT {expression} AS x FROM src", "src", columns)
    times = """SELECT '12:30:00' AS h, '{"a": "12:30:00"}' AS j"""
    spark.sql(times).createOrReplaceTempView("times")
    row = spark.sql(f"SELECT {expression} > timestamp '2026-01-01' AS by_clock FROM times").head()
    assert row is not None and row.by_clock


DELETED = TABLE.append_column(DELETED_COLUMN, [[False, True, True, False, True]])
WEIGHTED = TABLE.append_column(WEIGHT_COLUMN, [[1, -1, 2, -3, 1]])


@pytest.mark.parametrize("where", ["", "WHERE n > 0 OR name = ''"])
@pytest.mark.parametrize(
    ("output", "rows"),
    [
        pytest.param("made", TABLE, id="appended rows"),
        pytest.param("made", DELETED, id="updates with deletes"),
        pytest.param("made.whole", DELETED, id="all rows of updates"),
        pytest.param("made.retract", WEIGHTED, id="rows with weights"),
        pytest.param("made.fill", TABLE, id="rows without weights to rows with weights"),
    ],
)
def test_python_selects_what_spark_would_select(spark: SparkSession, output: str, rows: pa.Table, where: str) -> None:
    spec = _spec(f"SELECT x AS y, tags, name AS id, T AS at, n, n AS again, pair FROM src {where}")
    (appended,) = sql_outputs(build_graph(spec))
    deletes = DELETED_COLUMN in rows.column_names
    one = SqlOutput(output, replace(appended.node, key=("id",) if deletes else (), deletes=deletes), {"src": "src"})
    schemas = {"src": rows.schema, output: infer_schema(spark, spec, one, {"src": rows.schema})}
    selection = column_selection(spec, one, schemas)
    assert selection is not None
    sql = level_sql(spec, [one], {"src": (column_of("src"),)}, schemas)
    batches = pa.Table.from_batches(encode_output([Rows("src", rows)], {"src": rows.schema}))
    wide = wide_frame(spark, batches, {"src": rows.schema})
    made = collect(project(wide, sql.expressions, {output: sql.columns[output]})).to_batches()
    by_spark = pa.concat_tables(
        item.rows for item in decode_output(made, {output: schemas[output]}, sql.columns) if isinstance(item, Rows)
    )
    by_python = selection.select(rows)
    assert by_python.schema == by_spark.schema
    assert repr(by_python.to_pylist()) == repr(by_spark.to_pylist())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n FROM src WHERE n + 0 > 0",
        "SELECT n + 0 AS n FROM src",
        "SELECT n, 1 AS one FROM src",
        "SELECT CAST(n AS INT) AS n FROM src",
        "SELECT explode(tags) AS tag FROM src",
        "SELECT n FROM src UNION ALL SELECT n FROM src",
    ],
)
def test_python_computes_no_value(spark: SparkSession, sql: str) -> None:
    spec = _spec(sql)
    (output,) = sql_outputs(build_graph(spec))
    schema = infer_schema(spark, spec, output, {"src": TABLE.schema})
    assert column_selection(spec, output, {"src": TABLE.schema, "made": schema}) is None
