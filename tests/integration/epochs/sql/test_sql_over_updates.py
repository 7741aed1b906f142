"""SQL between operators with updates and others that read them: tables are DuckDB's answer at each epoch."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.job.spec import SparkSpec
from milepost.jobspec.load.load import load_job
from milepost.spark.driver.engines.session import open_session
from milepost.spark.driver.runner import SparkEpochRunner
from milepost.spark.driver.sql_projection import collect
from milepost.spark.local.local_runner import LocalRunner
from milepost_testkit import wording
from milepost_testkit.jobs.reference_job import NAMED, TOTALS, tables_with_references
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane

SPEC = """\
name: parcels
storage: ../store
sources:
  scans: {format: json, path: ../landing/*.json, settle: 0s,
    schema: {id: string, depot: string, kg: "decimal(9,2)", n: int32}}
operators:
  - {uid: parcels, kind: aggregate, inputs: [scans], key: [id, depot],
     aggregates: {scans: count(*), kg: sum(kg), n: max(n)}}
  - {uid: heavy, kind: sql, inputs: [parcels], sql: "SELECT depot, id, kg, scans FROM parcels WHERE kg > 20"}
  - {uid: depots, kind: aggregate, inputs: [heavy], key: [depot], aggregates: {parcels: count(*), kg: sum(kg)}}
  - {uid: letters, kind: sql, inputs: [parcels],
     sql: "SELECT explode(split(upper(depot), '')) AS letter, scans FROM parcels"}
  - {uid: by_letter, kind: aggregate, inputs: [letters], key: [letter],
     aggregates: {parcels: count(*), scans: sum(scans)}}
  - {uid: both, kind: sql, inputs: [scans, heavy], sql: "SELECT CAST(n % 3 AS STRING) AS what, CAST(n AS BIGINT) AS many
     FROM scans UNION ALL SELECT depot, scans FROM heavy"}
  - {uid: most, kind: top, inputs: [both], key: [what], order_by: [{many: desc}], n: 2, rank: place}
sinks:
  - {name: heavy, input: heavy, format: parquet, path: ../lake/heavy, mode: upsert}
  - {name: depots, input: depots, format: delta, path: ../lake/depots, mode: upsert}
  - {name: by_letter, input: by_letter, format: parquet, path: ../lake/letters, mode: upsert}
  - {name: most, input: most, format: parquet, path: ../lake/most, mode: upsert}
checkpointing: {MORE}
spark: {master: "local[2]", parallelism: 2, buffer_size: 300}
"""

PARCELS = "SELECT id, depot, count(*) AS scans, sum(kg) AS kg, max(n) AS n FROM scans GROUP BY ALL"
HEAVY = f"SELECT depot, id, kg, scans FROM ({PARCELS}) WHERE kg > 20"
BOTH = f"""SELECT CAST(n % 3 AS VARCHAR) AS what, CAST(n AS BIGINT) AS many FROM scans
    UNION ALL SELECT depot, scans FROM ({HEAVY})"""
TABLES = {
    "heavy": HEAVY,
    "depots": f"SELECT depot, count(*) AS parcels, sum(kg) AS kg FROM ({HEAVY}) GROUP BY ALL",
    "by_letter": f"""SELECT letter, count(*) AS parcels, sum(scans) AS scans
        FROM (SELECT unnest(string_split(upper(depot), '')) AS letter, scans FROM ({PARCELS})) GROUP BY ALL""",
    "most": f"""SELECT what, many, row_number() OVER (PARTITION BY what ORDER BY many DESC NULLS LAST) AS place
        FROM ({BOTH}) QUALIFY place <= 2""",
}
ROW = pa.schema([("id", pa.string()), ("depot", pa.string()), ("kg", pa.decimal128(9, 2)), ("n", pa.int32())])


class Parcels:
    """The job in a folder, and all rows that it was given."""

    def __init__(self, folder: Path, checkpointing: str = "{}") -> None:
        self.folder, self.given = folder, ROW.empty_table()
        for name in ("config", "landing"):
            (folder / name).mkdir()
        self.configure(checkpointing)

    def configure(self, checkpointing: str) -> None:
        (self.folder / "config" / "parcels.yaml").write_text(SPEC.replace("{MORE}", checkpointing))

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(str(self.folder / "config" / "parcels.yaml")))

    def land(self, epoch: int) -> None:
        """Weights go up and down across the filter, so parcels come to a depot's heavy ones and leave them."""
        chance = random.Random(epoch)
        rows = [
            (chance.choice("abcdef"), chance.choice(["East", "", "see"]),
             f"{chance.randint(-30, 30)}.{chance.randint(10, 99)}", chance.choice([0, 1, 5, None]))
            for _ in range(40)
        ]  # fmt: skip
        lines = [
            f'{{"id": "{id_}", "depot": "{depot}", "kg": {kg}, "n": {"null" if n is None else n}}}'
            for id_, depot, kg, n in rows
        ]
        (self.folder / "landing" / f"{epoch}.json").write_text("\n".join(lines) + "\n")
        texts = pa.table(list(zip(*rows, strict=True)), names=ROW.names)
        self.given = pa.concat_tables([self.given, texts.cast(ROW)])

    def check(self) -> None:
        db = duckdb.connect()
        db.register("scans", self.given)
        for name, query in TABLES.items():
            shown = self.master.reports.read(name)
            assert shown.num_rows, name
            assert_same_rows(shown, db.sql(query).to_arrow_table().select(shown.schema.names).cast(shown.schema), name)


@pytest.fixture(scope="module")
def runner() -> SparkEpochRunner:
    return SparkEpochRunner()


@pytest.mark.deep
def test_tables_behind_it_are_duckdbs_answer_after_every_epoch(tmp_path: Path, plane: Plane) -> None:
    runner = plane()
    job = Parcels(tmp_path)
    for epoch in range(3):
        job.land(epoch)
        job.master.epochs.run(Session.cli(), runner)
        job.check()


def test_rows_in_flight_change_nothing_once_they_are_worked_off(tmp_path: Path, plane: Plane) -> None:
    runner = plane()
    job = Parcels(tmp_path, "{aligned_timeout: 1ms}")
    in_flight = 0
    for epoch in range(2):
        job.land(epoch)
        job.master.epochs.run(Session.cli(), runner)
        in_flight += job.master.reports.status().in_flight_bytes
    assert in_flight, "no row was left in flight: the test would prove nothing"
    job.configure("{}")
    job.master.epochs.run(Session.cli(), runner)
    job.check()


NOT_NULL = """\
name: sizes
storage: ../store
sources:
  seen: {format: csv, path: ../landing/*.csv, settle: 0s, schema: {id: string, v: int64}}
operators:
  - {uid: sums, kind: aggregate, inputs: [seen], key: [id], aggregates: {n: count(*), v: sum(v)}}
  - {uid: made, kind: sql, inputs: [sums], sql: "SELECT"}
  - {uid: largest, kind: top, inputs: [made], key: [parity], order_by: [{n: desc}, id], n: 100, rank: place}
sinks:
  - {name: largest, input: largest, format: parquet, path: ../lake/largest, mode: upsert}
spark: {master: "local[2]", parallelism: 2}
"""


def _expression(chance: random.Random, depth: int) -> str:
    """An expression of which Spark may say that it, or something within it, is never null."""
    inner = [_expression(chance, depth - 1) for _ in range(2)] if depth else []
    plain = ["1", "'x'", "v IS NULL", "coalesce(v, 0)", "v", "upper(id)", "DATE '2024-02-29'", "1.5BD"]
    nested = ["named_struct('a', {0}, 'b', {1})", "array({0})", "map('k', {0})", "struct(array({0}) AS a, {1} AS b)",
              "CASE WHEN n > 2 THEN {0} END", "transform(array(n, 3), x -> CASE WHEN x > 2 THEN {0} END)"]  # fmt: skip
    return chance.choice(nested).format(*inner) if depth else chance.choice(plain)


@pytest.mark.parametrize(
    ("seed", "columns"), [(0, 5), *(pytest.param(seed, 16, marks=pytest.mark.deep) for seed in range(3))]
)
def test_columns_that_are_never_null_are_filtered_on_spark_and_in_milepost_test(
    tmp_path: Path, runner: SparkEpochRunner, seed: int, columns: int
) -> None:
    """A row that WHERE drops has no values, although Spark says that the columns always have one."""
    chance = random.Random(seed)
    made = ", ".join(f"{_expression(chance, number % 4)} AS x{number}" for number in range(columns))
    sql = f"SELECT id, n, n % 2 AS parity, 1 AS `one`, v IS NULL AS b, {made} FROM sums WHERE n > 1"
    tables = []
    for number, one in enumerate((runner, LocalRunner())):
        folder = tmp_path / str(number)
        for name in ("config", "landing"):
            (folder / name).mkdir(parents=True)
        (folder / "config" / "sizes.yaml").write_text(NOT_NULL.replace('"SELECT"', f'"{sql}"'))
        master = JobMaster(load_job(str(folder / "config" / "sizes.yaml")))
        for epoch, rows in enumerate(("a,1\nb,\nb,\nc,3\n", "a,\nb,\nb,4\nd,\nd,\n")):
            (folder / "landing" / f"{epoch}.csv").write_text(f"id,v\n{rows}")
            master.epochs.run(Session.cli(), one)
        tables.append(master.reports.read("largest").drop_columns("place"))
    session = open_session("expected", SparkSpec(master="local[2]"))
    session.sql(
        "SELECT id, count(*) AS n, sum(v) AS v FROM VALUES ('a', 1), ('b', NULL), ('b', NULL), ('c', 3), ('a', NULL), "
        "('b', NULL), ('b', 4), ('d', NULL), ('d', NULL) AS rows (id, v) GROUP BY id"
    ).createOrReplaceTempView("sums")
    expected = collect(session.sql(sql))
    assert expected.num_rows == 3
    for table in tables:
        rows = expected.select(table.schema.names).cast(table.schema).sort_by("id")
        assert repr(table.sort_by("id").to_pylist()) == repr(rows.to_pylist()), sql


def test_references_to_settings_in_sql_are_text(tmp_path: Path, runner: SparkEpochRunner) -> None:
    """Spark would put its settings, and those of the machine, in their place: credentials among them."""
    local = 'master: "local[2]"'
    assert tables_with_references(tmp_path / "run", local, runner) == (NAMED, TOTALS)
    assert tables_with_references(tmp_path / "test", local, LocalRunner()) == (NAMED, TOTALS)


ANSWERS = """\
name: days
storage: ../store
sources:
  seen: {format: csv, path: ../landing/*.csv, settle: 0s, schema: {id: string, day: string}}
operators:
  - {uid: each, kind: aggregate, inputs: [seen], key: [id, day], aggregates: {n: count(*)}}
{SQL}sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
spark: {master: "local[2]", parallelism: 2, conf: {CONF}}
"""


BETWEEN = """\
  - {uid: days, kind: sql, inputs: [each], sql: "SELECT {VALUE} AS day, n FROM each"}
  - {uid: totals, kind: aggregate, inputs: [days], key: [day], aggregates: {n: sum(n)}}
"""
CONDITION = """\
  - {uid: totals, kind: aggregate, inputs: [each], key: [id],
     aggregates: {n: "sum(n) filter (where {VALUE} > {LEAST})"}}
"""
TEXT = "CAST(struct(day) AS STRING)", "'{'", "spark.sql.legacy.castComplexTypesToString.enabled: true"
DATE = "to_date(day, 'yyyy-MM-dd')", "DATE '2024-01-01'", "spark.sql.legacy.timeParserPolicy: LEGACY"
"""An expression, a value to compare it with, and a setting under which Spark answers otherwise. That of `DATE` fails on
most of the pinned rows, so that each is queried alone.
"""


@pytest.mark.parametrize(("sql", "made_by"), [(BETWEEN, "days"), (CONDITION, "totals")])
@pytest.mark.parametrize(
    "expression", [pytest.param(TEXT, id="text"), pytest.param(DATE, id="date", marks=pytest.mark.deep)]
)
def test_other_answers_of_spark_to_rows_of_state_are_refused(
    tmp_path: Path, runner: SparkEpochRunner, sql: str, made_by: str, expression: tuple[str, str, str]
) -> None:
    """A setting changes what Spark makes of a row; nothing of the epoch stays, and the old one goes on."""
    value, least, setting = expression
    sql = sql.replace("{VALUE}", value).replace("{LEAST}", least)
    for name in ("config", "landing"):
        (tmp_path / name).mkdir()

    def run(checkpoint: int, conf: str = "") -> dict[str, object]:
        (tmp_path / "config" / "days.yaml").write_text(ANSWERS.replace("{SQL}", sql).replace("CONF", conf))
        (tmp_path / "landing" / f"{checkpoint}.csv").write_text("id,day\na,2024-02-29\nb,2024-02-29\n")
        master = JobMaster(load_job(str(tmp_path / "config" / "days.yaml")))
        master.epochs.run(Session.cli(), runner)
        base = master.context.base_metadata(master.context.log.head().state, checkpoint)  # type: ignore[union-attr]
        assert base is not None
        return dict(base.signatures["operators"]["totals"])

    first = run(1)
    said = first[f"updates of {made_by}: answers of Spark"]
    assert isinstance(said, list) and [len(text) for text in said] == [16, 16]
    assert run(2) == first
    with wording.raises(InvalidRequest) as caught:
        run(3, setting)
    assert "totals" in caught.value.message and made_by in caught.value.message and "totals" in str(caught.value.hint)
    assert run(4) == first


@pytest.mark.deep
def test_a_sum_of_computed_floats_over_updates_continues_and_is_readable(tmp_path: Path, in_process: Plane) -> None:
    newest = "SELECT id, customer, amount FROM orders QUALIFY row_number() OVER (PARTITION BY id ORDER BY id DESC) = 1"
    query = "SELECT customer, sum(CAST(amount AS DOUBLE) * 2) AS twice FROM {} GROUP BY customer"
    sql = f"CREATE TEMPORARY VIEW n AS {newest};\nCREATE MATERIALIZED VIEW t AS {query.format('n')}"
    job, runner = SqlJob(tmp_path, sql), in_process()
    for _ in range(2):
        job.run(runner)
        shown = dict(zip(*job.master.reports.read("t").to_pydict().values(), strict=True))
        expected = dict(job.database.sql(query.format("orders")).fetchall())
        assert shown == pytest.approx(expected)
    state = job.master.reports.state_values("t__agg")
    (name,) = (one for one in state.column_names if one.startswith("sum_"))
    assert dict(zip(state["customer"].to_pylist(), state[name].to_pylist(), strict=True)) == shown
