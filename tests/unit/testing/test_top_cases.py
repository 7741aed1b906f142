"""`milepost test` tells the ranks behind an aggregate, epoch after epoch, and after a step back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost_testkit.specs.case_steps import run_steps

SPEC = """\
name: visits
storage: s3://nobody/asks/for/it
sources:
  clicks: {format: csv, path: "s3://landing/clicks/*.csv", schema: {page: string}}
operators:
  - {uid: views, kind: aggregate, inputs: [clicks], key: [page], aggregates: {views: count(*)}}
  - {uid: first, kind: top, inputs: [views], key: [views], order_by: [page], n: 2, rank: place}
sinks:
  - {name: first, input: first, format: parquet, path: s3://lake/first, mode: upsert}
spark: {parallelism: 2}
"""


def ranks(*rows: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [{"page": page, "views": views, "place": place} for page, views, place in rows]


def epoch(pages: str, *rows: tuple[str, int, int]) -> dict[str, Any]:
    given = {"clicks": [{"page": page} for page in pages]}
    return {"epoch": given, "expect": {"tables": {"first": ranks(*rows)}}}


def test_a_case_distinguishes_ranks_that_are_new_moved_and_ended(tmp_path: Path) -> None:
    (tmp_path / "visits.yaml").write_text(SPEC)
    steps = [
        epoch("abc", ("a", 1, 1), ("b", 1, 2)),
        epoch("b", ("a", 1, 1), ("c", 1, 2), ("b", 2, 1)),
        {"rollback": 1, "expect": {"tables": {"first": ranks(("a", 1, 1), ("b", 1, 2))}}},
        {"spec": {"parallelism: 2": "parallelism: 3"}},
        epoch("a", ("c", 1, 1), ("a", 2, 1), ("b", 2, 2)),
    ]
    assert run_steps(tmp_path / "visits.yaml", *steps).faults == ()
