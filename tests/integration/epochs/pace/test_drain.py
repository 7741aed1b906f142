"""`milepost run --drain`: every open window and timer fires, across two levels, and the job finishes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from milepost.jobmaster import JobMaster
from milepost.jobspec.load.load import load_job
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.runners.planes import Plane

pytestmark = pytest.mark.deep

SPEC = """\
name: ends
storage: store
sources:
  visits:
    format: csv
    path: landing/*.csv
    schema: {who: string, spent: int64, at: "timestamp[us, UTC]"}
    event_time: at
    watermark_delay: 1h
    limits_per_epoch: {max_files: 1}
    settle: 0s
operators:
  - {uid: paid, kind: sql, inputs: [visits], sql: "SELECT who, spent, at FROM visits WHERE spent >= 0"}
  - {uid: once, kind: deduplicate, inputs: [paid], key: [who, spent, at], ttl: 1d}
  - {uid: hourly, kind: window, inputs: [once], key: [who], window: {tumbling: 1h},
     aggregates: {n: count(*), s: sum(spent)}}
  - {uid: left, kind: process, inputs: [once], key: [who], function: "ops:Left"}
sinks:
  - {name: hourly, input: hourly, format: parquet, path: lake/hourly, mode: append}
  - {name: left, input: left, format: parquet, path: lake/left, mode: append}
spark: {master: "local[2]", parallelism: 2}
"""
OPS = """
from datetime import timedelta

class Left:
    state = {"seen": "int64"}
    output = {"who": "string", "seen": "int64", "at": "timestamp[us, UTC]"}

    def on_rows(self, key, rows, state, ctx):
        state["seen"] = (state["seen"] or 0) + rows.num_rows
        ctx.set_timer(rows.column("at")[-1].as_py() + timedelta(hours=8))

    def on_timer(self, key, time, state, ctx):
        yield {"who": key, "seen": state["seen"], "at": time}
        state.clear()
"""
FILES = {
    "a.csv": "who,spent,at\nann,1,2026-01-01T00:10:00Z\nbob,2,2026-01-01T00:20:00Z\nann,1,2026-01-01T00:10:00Z\n",
    "b.csv": "who,spent,at\nann,5,2026-01-01T02:30:00Z\ncat,-1,2026-01-01T02:40:00Z\nbob,7,2026-01-01T02:50:00Z\n",
}


def test_a_drained_job_has_published_everything_and_holds_no_state(tmp_path: Path, plane: Plane) -> None:
    """DESIGN 4.3: the run ends with the watermark at plus infinity; each window and timer is emitted exactly once."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "ops.py").write_text(OPS)
    for name, text in FILES.items():
        (tmp_path / "landing" / name).write_text(text)
    spec = tmp_path / "ends.yaml"
    spec.write_text(SPEC)

    outcome = milepost("run", spec, "--drain")
    assert outcome.exit_code == 0, outcome.stderr
    assert len(outcome.stdout.splitlines()) == 3, "one epoch per file, then the last one"

    master = JobMaster(load_job(str(spec)))
    files, columns = f"{tmp_path}/landing/*.csv", "{'who': 'VARCHAR', 'spent': 'BIGINT', 'at': 'TIMESTAMP'}"
    once = f"(SELECT DISTINCT * FROM read_csv('{files}', columns={columns}) WHERE spent >= 0)"
    hours = f"SELECT who, date_trunc('hour', \"at\"), count(*), sum(spent)::BIGINT FROM {once} GROUP BY ALL"
    assert _rows(master.reports.read("hourly"), ["who", "window_start", "n", "s"]) == _sorted(
        duckdb.sql(hours).fetchall()
    )
    left = f'SELECT who, count(*), max("at") + INTERVAL 8 HOUR FROM {once} GROUP BY ALL'
    assert _rows(master.reports.read("left"), ["who", "seen", "at"]) == _sorted(duckdb.sql(left).fetchall())

    assert [master.reports.state(uid).num_rows for uid in ("once", "hourly", "left")] == [0, 0, 0]
    newest, before = master.reports.list_checkpoints(limit=2)
    assert (newest.watermark, newest.rows_in, newest.objects) == ("end", 0, 0)
    assert before.watermark == "2026-01-01T01:50:00+00:00"
    assert master.reports.status().job_status == "finished"
    again = milepost("run", spec)
    assert again.exit_code != 0 and "FINISHED" in again.stderr


def _rows(table: pa.Table, columns: list[str]) -> list[str]:
    return _sorted([tuple(row[name] for name in columns) for row in table.to_pylist()])


def _sorted(rows: list[tuple[object, ...]]) -> list[str]:
    """Return the rows as sorted texts. Time zones are dropped, because both sides are in UTC."""
    return sorted(
        repr(tuple(value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in row))
        for row in rows
    )
