"""Columns of which only Spark knows the type go through every operator that keeps rows, epoch after epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost_testkit.specs.case_steps import Step, run_steps

pytestmark = pytest.mark.deep

SPEC = """\
name: shop
storage: s3://nobody/asks/for/it
sources:
  changes:
    {format: csv, path: "s3://landing/changes/*.csv", event_time: at,
     schema: {id: int64, lsn: int64, amount: int64, op: string, at: "timestamp[us, UTC]"}}
operators:
  - {uid: told, kind: sql, inputs: [changes], sql: "SELECT id, lsn, at, amount > 1 AS big, CAST(at AS DATE) AS day,
     upper(op) AS up, amount * 1.5D AS half FROM changes"}
  - {uid: current, kind: latest, inputs: [told], key: [id], sequence_by: [lsn], delete_when: "up = 'D'"}
  - {uid: large, kind: sql, inputs: [current], sql: "SELECT id, half FROM current WHERE big"}
  - {uid: firsts, kind: top, inputs: [told], key: [day], order_by: [{half: desc}], n: 1, rank: place}
  - {uid: pairs, kind: join, inputs: [told, told], key: [id], within: [1m, 1h],
     columns: {lsn2: right.lsn, at2: right.at, big2: right.big, day2: right.day, up2: right.up, half2: right.half}}
  - {uid: versions, kind: asof, inputs: [told, told], key: [id, day],
     columns: {lsn2: right.lsn, at2: right.at, big2: right.big, up2: right.up, half2: right.half}}
  - {uid: once, kind: deduplicate, inputs: [told], key: [up, day]}
  - {uid: halves, kind: aggregate, inputs: [told], key: [day], aggregates: {some: any(big), most: max(half)}}
sinks:
  - {name: large, input: large, format: parquet, path: s3://lake/large, mode: upsert}
  - {name: firsts, input: firsts, format: parquet, path: s3://lake/firsts, mode: upsert}
  - {name: pairs, input: pairs, format: parquet, path: s3://lake/pairs, mode: append}
  - {name: versions, input: versions, format: parquet, path: s3://lake/versions, mode: append}
  - {name: once, input: once, format: parquet, path: s3://lake/once, mode: append}
  - {name: halves, input: halves, format: parquet, path: s3://lake/halves, mode: upsert}
spark: {parallelism: 2}
"""


def epoch(*rows: tuple[int, int, int, str, int], **tables: list[dict[str, Any]]) -> Step:
    changes = [
        {"id": id_, "lsn": lsn, "amount": amount, "op": op, "at": f"2026-01-01T00:{minute:02}:00Z"}
        for id_, lsn, amount, op, minute in rows
    ]
    return {"epoch": {"changes": changes}, "expect": {"tables": tables}}


def test_a_job_of_computed_columns_goes_on_epoch_after_epoch(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SPEC)
    first = epoch((1, 1, 5, "i", 1), (2, 1, 1, "i", 2), large=[{"id": 1, "half": 7.5}], firsts=[{"id": 1, "place": 1}])
    second = epoch(
        (1, 2, 1, "d", 20),
        (2, 2, 9, "u", 21),
        large=[{"id": 2, "half": 13.5}],
        firsts=[{"id": 2, "half": 13.5, "place": 1}],
        pairs=[{"id": 1, "big": True, "big2": False, "up2": "D"}, {"id": 2, "big": False, "big2": True, "up2": "U"}],
        once=[{"up": "I"}, {"up": "D"}, {"up": "U"}],
        halves=[{"day": "2026-01-01", "some": True, "most": 13.5}],
    )
    assert run_steps(tmp_path / "shop.yaml", first, second).faults == ()
