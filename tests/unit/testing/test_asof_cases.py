"""`milepost test` runs as-of joins and outer joins, with their late rows and their state."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.spark.local.local_runner import LocalRunner
from milepost.testing.case_file import load_cases
from milepost.testing.case_run import run_case

pytestmark = pytest.mark.deep

SPEC = """\
name: placed
storage: s3://nobody/asks/for/it
sources:
  readings:
    {format: csv, path: "s3://landing/readings/*.csv", event_time: t,
     schema: {sensor: int64, v: int64, t: "timestamp[us, UTC]"}}
  devices:
    {format: csv, path: "s3://landing/devices/*.csv", event_time: since,
     schema: {sensor: int64, room: string, since: "timestamp[us, UTC]"}}
operators:
  - {uid: placed, kind: asof, inputs: [readings, devices], key: [sensor], how: left}
  - {uid: silent, kind: join, inputs: [devices, readings], key: [sensor], within: [0s, 5m], how: anti}
sinks:
  - {name: placed, input: placed, format: parquet, path: s3://lake/placed, mode: append}
  - {name: silent, input: silent, format: parquet, path: s3://lake/silent, mode: append}
  - {name: late, input: placed.late.devices, format: parquet, path: s3://lake/late, mode: append}
spark: {parallelism: 2}
"""
CASE = """\
milepost_test: 1
job: placed.yaml
cases:
  a reading gets the room of its time:
    - epoch:
        readings: [{sensor: 1, v: 10, t: "2026-01-01T00:01:00Z"}, {sensor: 1, v: 11, t: "2026-01-01T00:09:00Z"}]
        devices:
          - {sensor: 1, room: attic, since: "2026-01-01T00:00:00Z"}
          - {sensor: 2, room: attic, since: "2026-01-01T00:02:00Z"}
          - {sensor: 1, room: hall, since: "2026-01-01T00:09:00Z"}
      expect:
        tables:
          placed: [{sensor: 1, v: 10, t: "2026-01-01T00:01:00Z", room: attic, since: "2026-01-01T00:00:00Z"}]
          silent: [{sensor: 2, room: attic, since: "2026-01-01T00:02:00Z"}]
    - epoch:
        readings: [{sensor: 1, v: 12, t: "2026-01-01T00:20:00Z"}]
        devices:
          - {sensor: 1, room: cellar, since: "2026-01-01T00:08:00Z"}
          - {sensor: 2, room: hall, since: "2026-01-01T00:20:00Z"}
      expect:
        tables:
          placed:
            - {sensor: 1, v: 10, t: "2026-01-01T00:01:00Z", room: attic, since: "2026-01-01T00:00:00Z"}
            - {sensor: 1, v: 11, t: "2026-01-01T00:09:00Z", room: hall, since: "2026-01-01T00:09:00Z"}
          late: [{sensor: 1, room: cellar, since: "2026-01-01T00:08:00Z"}]
"""


def test_rows_and_late_versions_are_as_a_case_expects_them(tmp_path: Path) -> None:
    (tmp_path / "placed.yaml").write_text(SPEC)
    (tmp_path / "case.yaml").write_text(CASE)
    cases = load_cases(tmp_path / "case.yaml")
    assert run_case(cases, "a reading gets the room of its time", LocalRunner()).faults == ()
