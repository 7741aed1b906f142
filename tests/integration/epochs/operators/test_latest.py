"""A change feed as a table: `latest` with deletes, SQL over updates, and rows in flight, equal to DuckDB."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane

pytestmark = pytest.mark.deep

SPEC = """\
name: orders
storage: ../store
sources:
  web: {format: csv, path: ../landing/web/*.csv, settle: 0s, schema: {id: string, op: string, n: int32, lsn: int64}}
  shop: {format: csv, path: ../landing/shop/*.csv, settle: 0s, schema: {id: string, op: string, n: int32, lsn: int64}}
operators:
  - {uid: feed, kind: sql, inputs: [web, shop], sql: "SELECT * FROM web UNION ALL SELECT * FROM shop"}
  - {uid: current, kind: latest, inputs: [feed], key: [id], sequence_by: [lsn], columns: [id, n],
     delete_when: "op = 'D' -- what the feed writes"}
  - {uid: large, kind: sql, inputs: [current], sql: "SELECT 100 / n AS share, id AS `order` FROM current
     WHERE n > 4"}
  - {uid: names, kind: sql, inputs: [large], sql: "SELECT `order`, upper(`order`) AS name FROM large"}
  - {uid: totals, kind: aggregate, inputs: [feed], key: [op], aggregates: {rows: count(*), low: min(n)}}
  - {uid: some, kind: sql, inputs: [totals], sql: "SELECT op, rows, 1 / low AS part FROM totals WHERE low <> 0"}
sinks:
  - {name: current, input: current, format: parquet, path: ../lake/current, mode: upsert}
  - {name: large, input: large, format: delta, path: ../lake/large, mode: upsert}
  - {name: names, input: names, format: parquet, path: ../lake/names, mode: upsert}
  - {name: log, input: names, format: parquet, path: ../lake/log, mode: changelog}
  - {name: some, input: some, format: parquet, path: ../lake/some, mode: upsert}
checkpointing: {MORE}
spark: {master: "local[2]", parallelism: 2, buffer_size: 300}
"""

CURRENT = """SELECT id, n FROM (SELECT * FROM feed QUALIFY row_number() OVER
    (PARTITION BY id ORDER BY lsn DESC NULLS LAST, op = 'D' DESC, n DESC NULLS LAST) = 1) WHERE op <> 'D'"""
LARGE = f'SELECT 100 / n AS share, id AS "order" FROM ({CURRENT}) WHERE n > 4'
TABLES = {
    "current": CURRENT,
    "large": LARGE,
    "names": f'SELECT "order", upper("order") AS name FROM ({LARGE})',
    "some": """SELECT op, rows, 1 / low AS part FROM (SELECT op, count(*) AS rows, min(n) AS low FROM feed GROUP BY op)
        WHERE low <> 0""",
}


class Orders:
    """The job in a folder, and all rows that it was given."""

    def __init__(self, folder: Path, checkpointing: str) -> None:
        self.folder, self.given = folder, pa.table({"id": [], "op": [], "n": [], "lsn": []})
        (folder / "config").mkdir()
        self.configure(checkpointing)

    def configure(self, checkpointing: str) -> None:
        (self.folder / "config" / "orders.yaml").write_text(SPEC.replace("{MORE}", checkpointing))

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(str(self.folder / "config" / "orders.yaml")))

    def land(self, epoch: int) -> None:
        """Keys come and go within and between epochs; deletes and old rows come in any order, n is 0 and null too."""
        schema = pa.schema([("id", pa.string()), ("op", pa.string()), ("n", pa.int32()), ("lsn", pa.int64())])
        for source in ("web", "shop"):
            chance = random.Random(f"{source}/{epoch}")
            rows = [
                (chance.choice("abcdefgh"), chance.choice("IUUD"), chance.choice([0, 3, 5, 9, None]),
                 epoch * 10 + chance.randint(-20, 20))
                for _ in range(40)
            ]  # fmt: skip
            table = pa.table(list(zip(*rows, strict=True)), schema=schema)
            self.given = pa.concat_tables([self.given.cast(schema), table])
            folder = self.folder / "landing" / source
            folder.mkdir(parents=True, exist_ok=True)
            lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
            (folder / f"{epoch}.csv").write_text("\n".join(["id,op,n,lsn", *lines]) + "\n")

    def check(self) -> None:
        """Each table is DuckDB's answer over all rows so far."""
        db = duckdb.connect()
        db.register("feed", self.given)
        for name, query in TABLES.items():
            shown = self.master.reports.read(name)
            assert_same_rows(shown, pa.table(db.sql(query).arrow().read_all()).cast(shown.schema), name)


def test_tables_are_duckdbs_answer_after_every_epoch(tmp_path: Path, plane: Plane) -> None:
    runner = plane()
    job = Orders(tmp_path, "{}")
    for epoch in range(3):
        job.land(epoch)
        job.master.epochs.run(Session.cli(), runner)
        job.check()
    log = job.master.reports.read("log")
    deletes = log.filter(pc.equal(log.column("_op"), "delete"))
    assert deletes.num_rows and deletes.column("name").null_count == deletes.num_rows
    assert not deletes.column("order").null_count


def test_rows_in_flight_change_nothing_once_they_are_worked_off(tmp_path: Path, plane: Plane) -> None:
    runner = plane()
    job = Orders(tmp_path, "{aligned_timeout: 1ms}")
    in_flight = 0
    for epoch in range(2):
        job.land(epoch)
        job.master.epochs.run(Session.cli(), runner)
        in_flight += job.master.reports.status().in_flight_bytes
    assert in_flight, "no row was left in flight: the test would prove nothing"
    job.configure("{}")
    job.master.epochs.run(Session.cli(), runner)
    job.check()
