"""What is new behind updates begins with all rows that are there: tables of SQL, and of what SQL feeds."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.long

SPEC = """\
name: parcels
storage: ../store
sources:
  scans: {format: csv, path: ../landing/*.csv, settle: 0s, schema: {id: string, depot: string, kg: int64}}
operators:
  - {uid: parcels, kind: aggregate, inputs: [scans], key: [id, depot], aggregates: {scans: count(*), kg: sum(kg)}}
  - {uid: heavy, kind: sql, inputs: [parcels], sql: "SELECT depot, id AS parcel, kg FROM parcels WHERE kg > 5"}
  - {uid: double, kind: sql, inputs: [heavy], sql: "SELECT depot, parcel, kg * 2 AS kg FROM heavy"}
  - {uid: depots, kind: aggregate, inputs: [heavy], key: [depot], aggregates: {parcels: count(*), kg: sum(kg)}}
  - {uid: best, kind: top, inputs: [parcels], key: [depot], order_by: [{kg: desc}], n: 2}
MORE
sinks:
  - {name: parcels, input: parcels, format: parquet, path: ../lake/parcels, mode: upsert}
"""
SINK = "  - {{name: {0}, input: {0}, format: {1}, path: ../lake/{0}, mode: upsert}}\n"
PARCELS = "SELECT id, depot, count(*) AS scans, sum(kg)::BIGINT AS kg FROM scans GROUP BY ALL"
HEAVY = f"SELECT depot, id AS parcel, kg FROM ({PARCELS}) WHERE kg > 5"
LATER = """\
  - {uid: again, kind: aggregate, inputs: [heavy], key: [depot], aggregates: {parcels: count(*), kg: sum(kg)}}
  - {uid: counts, kind: top, inputs: [parcels], key: [depot], order_by: [{kg: desc}], n: 1, rank: place}
  - {uid: rows, kind: sql, inputs: [double, scans],
     sql: "SELECT depot, kg FROM double UNION ALL SELECT depot, kg FROM scans WHERE kg < 0"}
  - {uid: sums, kind: aggregate, inputs: [rows], key: [depot], aggregates: {kg: sum(kg)}}
  - {uid: few, kind: aggregate, inputs: [best], key: [depot], aggregates: {kg: sum(kg), most: max(kg)}}
  - {uid: all, kind: aggregate, inputs: [again], key: [parcels], aggregates: {depots: count(*)}}
"""
DEPOTS = f"SELECT depot, count(*) AS parcels, sum(kg)::BIGINT AS kg FROM ({HEAVY}) GROUP BY ALL"
TABLES = {
    "parcels": PARCELS,
    "heavy": HEAVY,
    "double": f"SELECT depot, parcel, kg * 2 AS kg FROM ({HEAVY})",
    "depots": DEPOTS,
    "again": DEPOTS,
    "counts": f"""SELECT *, row_number() OVER (PARTITION BY depot ORDER BY kg DESC, id)::INTEGER AS place
        FROM ({PARCELS}) QUALIFY place = 1""",
    "sums": f"""SELECT depot, sum(kg)::BIGINT AS kg FROM (SELECT depot, kg * 2 AS kg FROM ({HEAVY})
        UNION ALL SELECT depot, kg FROM later WHERE kg < 0) GROUP BY ALL""",
    "few": f"""SELECT depot, sum(kg)::BIGINT AS kg, max(kg) AS most FROM (SELECT * FROM ({PARCELS})
        QUALIFY row_number() OVER (PARTITION BY depot ORDER BY kg DESC) <= 2) GROUP BY ALL""",
    "all": f"SELECT parcels, count(*) AS depots FROM ({DEPOTS}) GROUP BY ALL",
}


class Parcels:
    """The job in a folder, and all rows that it was given."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given, self.seen = folder, pa.table({"id": [], "depot": [], "kg": []}), 0
        for name in ("config", "landing"):
            (folder / name).mkdir()
        self.configure()

    def configure(self, sinks: str = "", more: str = "") -> None:
        text = SPEC.replace("MORE\n", more) + sinks
        (self.folder / "config" / "parcels.yaml").write_text(text)

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(str(self.folder / "config" / "parcels.yaml")))

    def epoch(self, *rows: tuple[str, str, int]) -> None:
        schema = pa.schema([("id", pa.string()), ("depot", pa.string()), ("kg", pa.int64())])
        table = pa.table(list(zip(*rows, strict=True)), schema=schema)
        self.given = pa.concat_tables([self.given.cast(schema), table])
        lines = [",".join(map(str, row)) for row in rows]
        number = len(list((self.folder / "landing").iterdir()))
        (self.folder / "landing" / f"{number}.csv").write_text("\n".join(["id,depot,kg", *lines]) + "\n")
        self.master.epochs.run(Session.cli(), SparklessRunner(sql=True))

    def check(self, *names: str) -> None:
        db = duckdb.connect()
        db.register("scans", self.given)
        db.register("later", self.given.slice(self.seen))
        for name in names:
            shown = self.master.reports.read(name)
            expected = db.sql(TABLES[name]).to_arrow_table().select(shown.schema.names).cast(shown.schema)
            assert shown.num_rows and assert_same_rows(shown, expected, name) is None


@pytest.fixture
def job(tmp_path: Path) -> Parcels:
    job = Parcels(tmp_path)
    job.epoch(("a", "east", 9), ("b", "east", 2), ("c", "west", 7))
    job.epoch(("a", "east", -5), ("d", "west", 8), ("b", "east", 6))
    return job


@pytest.mark.parametrize("format_", ["parquet", pytest.param("delta", marks=pytest.mark.deep)])
def test_a_new_table_of_sql_over_updates_shows_every_key_after_its_first_epoch(job: Parcels, format_: str) -> None:
    """Of keys that the epoch does not change too, through one SELECT or two; not those that WHERE drops."""
    sinks = SINK.format("heavy", format_) + SINK.format("double", format_)
    job.configure(sinks)
    job.epoch(("a", "east", 1), ("e", "east", 1))
    job.check("parcels", "heavy", "double")
    job.epoch(("e", "east", 9), ("c", "west", -9))
    job.check("parcels", "heavy", "double")


@pytest.mark.deep
def test_a_new_table_of_an_aggregate_over_updates_shows_every_key_after_its_first_epoch(job: Parcels) -> None:
    job.configure(SINK.format("depots", "parquet"))
    job.epoch(("a", "east", 1))
    job.check("depots")
    job.epoch(("c", "west", -9), ("a", "east", 1))
    job.check("depots")


@pytest.mark.deep
def test_the_report_says_that_a_new_table_of_sql_gets_every_key(job: Parcels) -> None:
    job.configure(SINK.format("heavy", "parquet"))
    told = {row["uid"]: row["detail"] for row in job.master.reports.compatibility()}
    wording.matches("compatibility", told["sink heavy"])


def test_an_operator_that_is_new_behind_updates_begins_with_all_rows_that_are_there(job: Parcels) -> None:
    """Otherwise it would get retractions of rows that it never got. Rows that stay are emitted from now on."""
    names = ("again", "counts", "sums", "few", "all")
    job.configure("".join(SINK.format(name, "parquet") for name in names), LATER)
    told = {row["uid"]: row["detail"] for row in job.master.reports.compatibility()}
    wording.matches("compatibility", [told["again"], told["all"]])
    job.seen = len(job.given)
    for rows in ([("a", "east", -5), ("e", "east", 1)], [("c", "west", -9), ("e", "east", 9)], [("d", "west", 1)]):
        job.epoch(*rows)
        job.check(*names)
