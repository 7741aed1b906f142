"""One large object is read by all tasks of its source, and the tables are those that DuckDB makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from milepost.jobmaster import CheckpointReport, JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost.sources.kernel.streams import MAX_WHOLE_READ_BYTES
from milepost_testkit.runners.planes import Plane

pytestmark = pytest.mark.deep

SPEC = """\
name: large
storage: ../store
sources:
  rows: {FORMAT, path: "../landing/*", settle: 0s, schema: {k: int64, v: int64}}
operators:
  - {uid: sums, kind: aggregate, inputs: [rows], key: [k], aggregates: {n: count(*), v: sum(v)}}
sinks:
  - {name: table, input: sums, format: parquet, path: ../lake/table, mode: upsert}
spark: {master: "local[2]", parallelism: 2}
"""
KEYS = 1_000


def parquet(path: Path, table: pa.Table) -> str:
    pq.write_table(table, path.with_suffix(".parquet"), row_group_size=400_000, compression="none")
    return f"read_parquet('{path}.parquet')"


def json_lines(path: Path, table: pa.Table) -> str:
    pairs = zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True)
    path.with_suffix(".json").write_text("".join(f'{{"k": {k}, "v": {v}}}\n' for k, v in pairs))
    return f"read_json('{path}.json', columns = {{k: 'BIGINT', v: 'BIGINT'}})"


def csv(path: Path, table: pa.Table) -> str:
    pacsv.write_csv(table, path.with_suffix(".csv"))
    return f"read_csv('{path}.csv', header = true)"


@pytest.mark.parametrize(
    ("format_", "rows", "write"),
    [
        ("format: parquet", 4_000_000, parquet),
        ("format: json", 1_100_000, json_lines),
        ("format: csv, options: {newlines_in_values: false}", 2_000_000, csv),
    ],
    ids=["parquet", "json", "csv"],
)
def test_one_large_object_is_read_by_two_tasks_and_gives_what_duckdb_makes_of_it(
    tmp_path: Path, plane: Plane, format_: str, rows: int, write: Callable[[Path, pa.Table], str]
) -> None:
    chance = np.random.default_rng(7)
    table = pa.table({"k": chance.integers(0, KEYS, rows), "v": chance.integers(-(2**50), 2**50, rows)})
    for folder in ("config", "landing"):
        (tmp_path / folder).mkdir()
    relation = write(tmp_path / "landing" / "all", table)
    (file,) = (tmp_path / "landing").iterdir()
    assert file.stat().st_size > MAX_WHOLE_READ_BYTES
    (tmp_path / "config" / "large.yaml").write_text(SPEC.replace("FORMAT", format_))
    master = JobMaster(load_job(tmp_path / "config" / "large.yaml"))
    report = master.epochs.run(Session.cli(), plane())
    assert isinstance(report, CheckpointReport) and report.status == "completed"

    read = master.reports.show(report.checkpoint_id).sources["rows"]
    assert (read.rows, read.objects) == (rows, 1)
    shares = [one.rows_in for one in read.subtasks]
    assert len(shares) == 2 and sum(shares) == rows
    assert min(shares) > rows * 0.4, "either has its half"
    query = f"SELECT k, count(*) AS n, sum(v)::BIGINT AS v FROM {relation} GROUP BY k ORDER BY k"
    assert master.reports.read("table").sort_by("k").equals(duckdb.sql(query).to_arrow_table())
