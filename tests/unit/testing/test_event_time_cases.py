"""`milepost test` of event times that are dates, numbers and texts: rows of a case are as the objects have them."""

from __future__ import annotations

from pathlib import Path

from milepost.jobspec.load.load import load_job
from milepost.spark.local.local_runner import LocalRunner
from milepost.testing.case_file import load_cases
from milepost.testing.case_run import run_case

SPEC = """\
name: shipped
storage: s3://nobody/asks/for/it
sources:
  items: {format: parquet, path: "s3://landing/items/*.parquet", schema: {order: int64, day: date}, event_time: day}
  orders: {format: json, path: "s3://landing/orders/*.json", schema: {id: int64, ts: int64}, event_time: {column: ts, unit: ms}}
  notes: {format: csv, path: "s3://landing/notes/*.csv", schema: {id: int64, at: string}, bad_records: dead_letter,
    event_time: {column: at, format: "dd.MM.yyyy HH:mm", timezone: Europe/Berlin}}
operators:
  - {uid: shipped, kind: join, inputs: [orders, items], key: [{id: order}], within: [0s, 3d]}
  - {uid: daily, kind: window, inputs: [items], key: [order], window: {tumbling: 1d}, aggregates: {items: count(*)}}
  - {uid: last, kind: latest, inputs: [notes], key: [id], sequence_by: [at]}
sinks:
  - {name: shipped, input: shipped, format: parquet, path: s3://lake/shipped, mode: append}
  - {name: daily, input: daily, format: parquet, path: s3://lake/daily, mode: append}
  - {name: last, input: last, format: parquet, path: s3://lake/last, mode: upsert}
  - {name: unreadable, input: notes.bad, format: parquet, path: s3://lake/unreadable, mode: append}
spark: {parallelism: 2}
"""  # noqa: E501

CASES = """\
milepost_test: 1
job: shipped.yaml
cases:
  it:
    - epoch:
        items: [{order: 1, day: 2026-01-03}, {order: 2, day: 2026-01-03}, {order: 1, day: 2026-01-05}]
        orders: [{id: 1, ts: 1767434700000}, {id: 2, ts: 1767312000000}]
        notes: [{id: 1, at: "03.07.2026 12:00"}, {id: 1, at: "29.06.2026 12:00"}, {id: 2, at: "31.06.2026 12:00"}]
      expect:
        tables:
          shipped:
            - {id: 1, ts: "2026-01-03T10:05:00Z", day: "2026-01-05T00:00:00Z"}
            - {id: 2, ts: "2026-01-02T00:00:00Z", day: "2026-01-03T00:00:00Z"}
          daily:
            - {order: 1, window_start: "2026-01-03T00:00:00Z", window_end: "2026-01-04T00:00:00Z", items: 1}
            - {order: 2, window_start: "2026-01-03T00:00:00Z", window_end: "2026-01-04T00:00:00Z", items: 1}
          last: [{id: 1, at: "2026-07-03T10:00:00Z"}]
          unreadable:
            - {line: 4, column: at, value: "31.06.2026 12:00", reason: "is not a time of the format 'dd.MM.yyyy HH:mm'"}
    - epoch: {items: [{order: 9, day: 2026-01-03}]}
      expect:
        tables:
          daily.late: [{order: 9, day: "2026-01-03T00:00:00Z"}]
"""


def test_windows_joins_watermarks_and_lint_see_a_timestamp(tmp_path: Path) -> None:
    (tmp_path / "shipped.yaml").write_text(SPEC)
    graph = load_job(tmp_path / "shipped.yaml").graph()
    types = {
        name: str(graph.nodes[name].columns[column])
        for name, column in (("items", "day"), ("shipped", "ts"), ("shipped", "day"), ("last", "at"))
    }
    assert set(types.values()) == {"timestamp[us, UTC]"}
    (tmp_path / "case.yaml").write_text(CASES)
    assert run_case(load_cases(tmp_path / "case.yaml"), "it", LocalRunner()).faults == ()
