"""An epoch that needs more memory than its Spark workers may have: its state is worked on in parts."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.jobmaster import CheckpointDetails, JobMaster
from milepost.jobspec.load.load import load_job
from milepost_testkit.commands.milepost_cli import milepost, milepost_process
from milepost_testkit.rows.tables import assert_same_rows

pytestmark = pytest.mark.deep

KEYS = 600_000
SPEC = """\
name: limited
storage: ../store
sources:
  rows:
    format: parquet
    path: ../landing/*.parquet
    settle: 0s
    schema: {k: int64, v: int64}
    limits_per_epoch: {max_files: 1}
operators:
  - {uid: totals, kind: aggregate, inputs: [rows], key: [k], aggregates: {n: count(*), s: sum(v), m: max(v)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
spark: {master: "local[2]", parallelism: 1, conf: {spark.executor.pyspark.memory: 384m}}
"""


def write_spec(folder: Path) -> Path:
    spec = folder / "config" / "limited.yaml"
    spec.parent.mkdir(exist_ok=True)
    spec.write_text(SPEC)
    return spec


def land(folder: Path, number: int, keys: np.ndarray) -> pa.Table:
    rows = pa.table({"k": keys, "v": np.random.default_rng(number).integers(-(10**9), 10**9, len(keys))})
    (folder / "landing").mkdir(exist_ok=True)
    pq.write_table(rows, folder / "landing" / f"{number}.parquet")
    return rows


def test_state_beyond_the_memory_of_a_worker_is_worked_on_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600,000 keys in one subtask, which has 32 MiB for them in addition to the interpreter and the libraries."""
    chance = np.random.default_rng(7)
    rows = [land(tmp_path, 0, chance.permutation(KEYS)), land(tmp_path, 1, chance.integers(0, KEYS, 100_000))]
    spec = write_spec(tmp_path)
    ran = milepost_process("run", spec, "--epochs", "2")
    assert ran.exit_code == 0, ran.stderr
    master = JobMaster(load_job(spec))
    with duckdb.connect() as connection:
        connection.register("inputs", pa.concat_tables(rows))
        right = connection.sql(
            "SELECT k, count(*) AS n, sum(v)::BIGINT AS s, max(v) AS m FROM inputs GROUP BY k"
        ).to_arrow_table()
    assert_same_rows(master.reports.read("totals"), right, "totals")
    of_first = len([*(tmp_path / "store" / "limited").glob("chk-*1/t*/state/totals/*")])
    report = master.reports.show(1)
    assert isinstance(report, CheckpointDetails)
    (subtask,) = report.operators["totals"].subtasks
    assert subtask.slices == of_first > 1, "each slice of the first epoch wrote its state, and its report says so"
    monkeypatch.setenv("COLUMNS", "200")
    shown = milepost("show", spec, "1", "--tasks")
    assert "slices" in shown.stdout, shown.stdout
