"""Lookups among SQL and stateful operators equal DuckDB's join of the same files."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from milepost.jobmaster import CheckpointReport, JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane
from milepost_testkit.specs.examples import EXAMPLES
from milepost_testkit.specs.spec_edits import edit_spec

SPEC = """\
name: chain
storage: ../store
sources:
  rows:
    {format: parquet, path: ../landing/*.parquet, schema: {n: int64, k: string, x: int32, at: "timestamp[us, UTC]"},
     event_time: at, settle: 0s}
  names: {format: csv, path: ../names/*.csv, schema: {k: string, owner: int64, note: string}, static: true, settle: 0s}
  owners: {format: csv, path: ../owners/*.csv, schema: {id: int64, name: string}, static: true, settle: 0s}
operators:
  - {uid: clean, kind: sql, inputs: [rows], sql: "SELECT n, upper(k) AS key, x + 1 AS x, at FROM rows WHERE x <> 3"}
  - {uid: noted, kind: lookup, inputs: [clean, names], key: [{key: k}], how: left}
  - {uid: short, kind: sql, inputs: [noted],
     sql: "SELECT n, key, coalesce(owner, 0) AS owner, x, at FROM noted WHERE x > 1"}
  - {uid: owned, kind: lookup, inputs: [short, owners], key: [{owner: id}]}
  - {uid: raw, kind: lookup, inputs: [rows, names], key: [k], how: left}
  - {uid: both, kind: sql, inputs: [owned, raw],
     sql: "SELECT n, at, name FROM owned UNION ALL SELECT n, at, note FROM raw"}
  - {uid: hourly, kind: window, inputs: [owned], key: [name], window: {tumbling: 1h},
     aggregates: {n: count(*), owner: max(owner)}}
  - {uid: again, kind: sql, inputs: [hourly], sql: "SELECT window_start, n, owner + 0 AS owner FROM hourly"}
  - {uid: behind, kind: lookup, inputs: [again, owners], key: [{owner: id}], how: left}
sinks:
  - {name: noted, input: noted, format: parquet, path: ../lake/noted, mode: append}
  - {name: both, input: both, format: parquet, path: ../lake/both, mode: append}
  - {name: behind, input: behind, format: parquet, path: ../lake/behind, mode: append}
spark: {master: "local[2]", parallelism: 2}
"""
CLEAN = 'SELECT n, upper(k) AS key, x + 1 AS x, "at" FROM rows WHERE x <> 3'
NOTED = f"SELECT c.*, owner, note FROM ({CLEAN}) c LEFT JOIN names ON c.key = names.k"
OWNED = f"""SELECT s.*, name FROM (SELECT n, key, coalesce(owner, 0) AS owner, x, "at" FROM ({NOTED}) WHERE x > 1) s
    JOIN owners ON s.owner = id"""
HOURLY = f"""SELECT time_bucket(INTERVAL 1 HOUR, "at") AS window_start, count(*) AS n, max(owner) AS owner, name
    FROM ({OWNED}) GROUP BY ALL"""


def test_lookups_stand_before_behind_and_between_sql_at_each_level(tmp_path: Path, plane: Plane) -> None:
    for name in ("config", "landing", "names", "owners"):
        (tmp_path / name).mkdir()
    path = tmp_path / "config" / "chain.yaml"
    path.write_text(SPEC)
    (tmp_path / "names" / "a.csv").write_text("k,owner,note\nA,1,first\nB,2,second\na,2,small\n")
    (tmp_path / "owners" / "a.csv").write_text("id,name\n0,nobody\n1,ann\n2,bob\n")
    at = pa.array([number * 700_000_000 for number in range(300)]).cast(pa.timestamp("us", "UTC"))
    keys = [("a", "A", "b", "c", None)[number % 5] for number in range(300)]
    rows = pa.table({"n": range(300), "k": keys, "x": pa.array([n % 7 for n in range(300)], pa.int32()), "at": at})
    master, runner = JobMaster(load_job(str(path))), plane()
    for number, part in enumerate((rows.slice(0, 200), rows.slice(200))):
        for half in range(2):
            pq.write_table(part.slice(half * 50, 50 if not half else 300), tmp_path / f"landing/{number}{half}.parquet")
        assert isinstance(master.epochs.run(Session.cli(), runner), CheckpointReport)
    master.epochs.run(Session.cli(), runner, drain=True)
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("rows", rows)
    for name in ("names", "owners"):
        database.execute(f"CREATE TABLE {name} AS FROM read_csv('{tmp_path}/{name}/*.csv')")
    noted = database.sql(NOTED).to_arrow_table()
    assert_same_rows(master.reports.read("noted"), noted.cast(master.reports.read("noted").schema), "noted")
    raw = 'SELECT n, "at", note FROM rows LEFT JOIN names USING (k)'
    assert_same_rows(
        master.reports.read("both"),
        database.sql(f'SELECT n, "at", name FROM ({OWNED}) UNION ALL {raw}').to_arrow_table(),
        "both",
    )
    behind = f"SELECT window_start, n, owner, o.name FROM ({HOURLY}) h LEFT JOIN owners o ON owner = id"
    assert_same_rows(master.reports.read("behind"), database.sql(behind).to_arrow_table(), "behind")


def test_the_example_of_a_lookup_is_what_its_page_says(tmp_path: Path, plane: Plane) -> None:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES, folder)
    for file in (folder / "products").iterdir():
        file.touch()
    path = folder / "lookup.yaml"
    edit_spec(path, {"static: true": "static: true\n    settle: 0s"})
    edit_spec(path, {"event_time: ordered_at": "event_time: ordered_at\n    settle: 0s"})
    assert milepost("run", path).exit_code == 0
    rows = JobMaster(load_job(str(path))).reports.read("named").to_pylist()
    assert {row["order"]: (row["name"], row["maker"]) for row in rows} == {
        1: ("lamp", "Acme"), 2: ("chair (oak)", "Holz"), 3: (None, None), 4: ("lamp", "Acme")
    }  # fmt: skip
