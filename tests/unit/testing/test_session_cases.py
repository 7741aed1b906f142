"""`milepost test` tells sessions that late rows join, their changelog, and totals that are kept of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.spark.local.local_runner import LocalRunner
from milepost.testing.case_file import load_cases
from milepost.testing.case_run import run_case

pytestmark = pytest.mark.deep

SPEC = """\
name: visits
storage: s3://nobody/asks/for/it
sources:
  clicks: {format: csv, path: "s3://landing/clicks/*.csv", schema: {who: string, page: string, paid: float64, at: "timestamp[us, UTC]"}, event_time: at}
operators:
  - {uid: visits, kind: window, inputs: [clicks], key: [who], window: {session: {gap: 10m}}, allowed_lateness: 30m,
     aggregates: {pages: count(distinct page), paid: sum(paid)}}
  - {uid: totals, kind: aggregate, inputs: [visits], key: [who], aggregates: {visits: count(*), pages: sum(pages)}}
sinks:
  - {name: visits, input: visits, format: parquet, path: s3://lake/visits, mode: upsert}
  - {name: changes, input: visits, format: parquet, path: s3://lake/changes, mode: changelog}
  - {name: totals, input: totals, format: parquet, path: s3://lake/totals, mode: upsert}
spark: {parallelism: 2}
"""  # noqa: E501


def at(minute: int) -> str:
    return f"2026-01-01T08:{minute:02}:00Z"


def epoch(clicks: list[tuple[str, str, int]], visits: list[tuple[str, int, int, int, float]], **more: Any) -> Any:
    landing = [{"who": who, "page": page, "paid": 0.25, "at": at(minute)} for who, page, minute in clicks]
    shown = [
        {"who": who, "window_start": at(start), "window_end": at(end), "pages": pages, "paid": paid}
        for who, start, end, pages, paid in visits
    ]
    return {"epoch": {"clicks": landing}, "expect": {"tables": {"visits": shown, **more}}}


def test_a_case_tells_sessions_that_a_late_row_joins_and_what_is_kept_of_them(tmp_path: Path) -> None:
    """After the rollback it comes again, with another one by which the session of them all is not done."""
    (tmp_path / "visits.yaml").write_text(SPEC)
    two = [("ada", 0, 10, 1, 0.25), ("ada", 15, 25, 1, 0.25)]
    changes = [
        {"_op": "upsert", "who": "ada", "window_start": at(0), "pages": 1},
        {"_op": "upsert", "who": "ada", "window_start": at(15), "pages": 1},
        {"_op": "upsert", "who": "ada", "window_start": at(0), "pages": 2},
        {"_op": "delete", "who": "ada", "window_start": at(15), "pages": None},
    ]
    steps = [
        epoch([("ada", "home", 0), ("ada", "home", 15), ("ben", "home", 30)], two),
        epoch([("ada", "cart", 7)], [("ada", 0, 25, 2, 0.75)], changes=changes,
              totals=[{"who": "ada", "visits": 1, "pages": 2}]),
        {"rollback": 1, "expect": {"tables": {"totals": [{"who": "ada", "visits": 2, "pages": 2}]}}},
        epoch([("ada", "home", 24)], [], totals=[]),
    ]  # fmt: skip
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump({"milepost_test": 1, "job": "visits.yaml", "cases": {"it": steps}}))
    assert run_case(load_cases(file), "it", LocalRunner()).faults == ()
