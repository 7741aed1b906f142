"""`milepost test` tells the least count and how many there are, and the values behind them, as they are replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost_testkit.specs.case_steps import run_steps

pytestmark = pytest.mark.deep

SPEC = """\
name: visits
storage: s3://nobody/asks/for/it
sources:
  clicks: {format: csv, path: "s3://landing/clicks/*.csv", schema: {page: string, site: string}}
operators:
  - {uid: views, kind: aggregate, inputs: [clicks], key: [page, site], aggregates: {views: count(*)}}
  - {uid: sites, kind: aggregate, inputs: [views], key: [site],
     aggregates: {least: min(views), kinds: count(distinct views), most_seen: "arg_max(page, views)"}}
sinks:
  - {name: sites, input: sites, format: parquet, path: s3://lake/sites, mode: upsert}
spark: {parallelism: 2}
"""


def site(least: int, kinds: int, most_seen: str) -> dict[str, Any]:
    return {"site": "s", "least": least, "kinds": kinds, "most_seen": most_seen}


def epoch(pages: str, shown: dict[str, Any], values: dict[int, int]) -> dict[str, Any]:
    kept = [{"site": "s", "value": views, "rows": pages} for views, pages in values.items()]
    return {
        "epoch": {"clicks": [{"page": page, "site": "s"} for page in pages]},
        "expect": {"tables": {"sites": [shown]}, "state": {"sites.values(views)": kept}},
    }


def test_a_case_tells_what_is_left_of_values_that_are_replaced(tmp_path: Path) -> None:
    # After the step back the rows of the third epoch come once more, with those of the last one.
    (tmp_path / "visits.yaml").write_text(SPEC)
    steps = [
        epoch("abc", site(1, 1, "c"), {1: 3}),
        epoch("ab", site(1, 2, "b"), {2: 2, 1: 1}),
        epoch("cc", site(2, 2, "c"), {2: 2, 3: 1}),
        {"rollback": 2, "expect": {"tables": {"sites": [site(1, 2, "b")]}}},
        {"spec": {"parallelism: 2": "parallelism: 3"}},
        epoch("c", site(2, 2, "c"), {2: 2, 4: 1}),
    ]
    assert run_steps(tmp_path / "visits.yaml", *steps).faults == ()
