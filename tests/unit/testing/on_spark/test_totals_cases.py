"""`milepost test` tells totals over nothing, over rows, and behind SQL that drops their row."""

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
  clicks: {format: csv, path: "s3://landing/clicks/*.csv", schema: {page: string}}
  others: {format: csv, path: "s3://landing/others/*.csv", schema: {page: string}}
operators:
  - {uid: views, kind: aggregate, inputs: [clicks], key: [page], aggregates: {views: count(*)}}
  - {uid: totals, kind: aggregate, inputs: [views], key: [], aggregates: {pages: count(*), views: sum(views)}}
  - {uid: few, kind: sql, inputs: [totals], sql: "SELECT views, pages + 1 AS next FROM totals WHERE pages < 3"}
sinks:
  - {name: totals, input: totals, format: iceberg, table: lake.totals, path: s3://lake/t, mode: upsert, catalog: {type: rest, uri: "http://nobody"}}
  - {name: few, input: few, format: parquet, path: s3://lake/few, mode: upsert}
  - {name: others, input: others, format: parquet, path: s3://lake/others, mode: append}
spark: {parallelism: 2}
"""  # noqa: E501


def epoch(pages: str, total: tuple[int, int | None], few: list[tuple[int | None, int]]) -> dict[str, Any]:
    landing = {"clicks": [{"page": page} for page in pages]} if pages else {"others": [{"page": "x"}]}
    tables = {
        "totals": [{"pages": total[0], "views": total[1]}],
        "few": [{"views": views, "next": number} for views, number in few],
    }
    return {"epoch": landing, "expect": {"tables": tables}}


def test_a_case_tells_totals_over_nothing_over_rows_and_behind_sql(tmp_path: Path) -> None:
    (tmp_path / "visits.yaml").write_text(SPEC)
    steps = [
        epoch("", (0, None), [(None, 1)]),
        epoch("aab", (2, 3), [(3, 3)]),
        epoch("cb", (3, 5), []),
        {"rollback": 2, "expect": {"tables": {"few": [{"views": 3, "next": 3}]}}},
        epoch("b", (3, 6), []),
    ]
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump({"milepost_test": 1, "job": "visits.yaml", "cases": {"it": steps}}))
    assert run_case(load_cases(file), "it", LocalRunner()).faults == ()
