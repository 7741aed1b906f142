"""What crosses the exchange and what state holds where rows only come: no weight, no old value, no column more.

A job without updates pays nothing for those that have them: who changes one of these lists has measured what it costs.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from milepost.jobmaster import Session
from milepost.spark.task.planning.levels import plan_levels
from milepost.spark.wire.exchange import EXCHANGE_SCHEMA
from milepost.state.buffers.buffers import Buffer
from milepost.state.buffers.channel_state import encode_channel_state
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner, no_sql

SPEC = """\
name: job
storage: ../store
sources:
  rows: {format: csv, path: ../landing/*.csv, settle: 0s, event_time: at,
         schema: {k: int64, v: int32, note: string, at: "timestamp[us, UTC]"}}
operators:
  - {uid: once, kind: deduplicate, inputs: [rows], key: [k, at], ttl: 1d}
  - {uid: totals, kind: aggregate, inputs: [once], key: [k], aggregates: {n: count(*), s: sum(v)}}
  - {uid: hourly, kind: window, inputs: [once], key: [k], window: {tumbling: 1h}, aggregates: {m: max(v)}}
  - {uid: daily, kind: window, inputs: [hourly], key: [k], window: {tumbling: 1d}, aggregates: {m: max(m)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
  - {name: daily, input: daily, format: parquet, path: ../lake/daily, mode: append}
"""


def test_the_exchange_and_channel_state_have_no_column_more() -> None:
    assert EXCHANGE_SCHEMA.names == [
        "subtask", "channel", "sequence", "operator", "producer", "kind", "lateness_us", "oldest_us", "payload",
    ]  # fmt: skip
    buffer = Buffer("once", "rows", None, None, b"")
    file = encode_channel_state({"once": [buffer]}, directory="d/", key_groups=range(4), signatures={"once": "made so"})
    assert file is not None
    names = ["operator", "producer", "sequence", "lateness_us", "oldest_us", "narrowed_payload"]
    assert pa.ipc.open_file(file.body).schema.names == names


def test_columns_sent_and_stored_on_append_paths_and_up_to_an_upsert_sink(tmp_path: Path) -> None:
    job, runner = SparklessJob.create(tmp_path), SparklessRunner()
    (tmp_path / "config" / "small.yaml").write_text(SPEC)
    job.land("a.csv", "k,v,note,at\n1,2,x,2026-01-01T01:10:00Z\n")
    job.master.epochs.run(Session.cli(), runner)
    (plan,) = runner.plans
    epoch = plan_levels(plan, 2, no_sql)
    sent = {(edge.producer, edge.operator): edge.columns for level in epoch.levels for edge in level.output.edges}
    assert sent == {
        ("rows", "once"): ("k", "v", "note", "at"),
        ("once", "totals"): ("k", "v"),
        ("once", "hourly"): ("k", "v", "at"),
        ("hourly", "daily"): ("k", "window_end", "m"),
    }
    kept = {
        uid: {name: table.schema.names for name, table in one.tables.items()} for uid, one in epoch.operators.items()
    }
    assert kept == {
        "once": {"": ["k", "at", "__expires"]},
        "totals": {"": ["k", "count(*)", "count(v)", "sum(v).low", "sum(v).high"]},
        "hourly": {"": ["k", "window_start", "max(v)", "__timer", "__expires"]},
        "daily": {"": ["k", "window_start", "max(m)", "__timer", "__expires"]},
    }
    assert {uid: one.output_schema.names for uid, one in epoch.operators.items()} == {
        "once": ["k", "v", "note", "at"],
        "totals": ["k", "n", "s"],
        "hourly": ["k", "window_start", "window_end", "m"],
        "daily": ["k", "window_start", "window_end", "m"],
    }
