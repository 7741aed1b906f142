"""A row is traced through SQL operators that read each other, also with UNION ALL and explode."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milepost.errors import NotFound
from milepost.jobmaster import CheckpointReport, RowOrigin
from milepost_testkit.jobs.sparkless.traced_job import SPEC, TracedJob

_VALID = next(line for line in SPEC.splitlines(keepends=True) if "uid: valid" in line)
_READ = '{uid: read, kind: sql, inputs: [orders], sql: "SELECT * FROM orders"}'
_HALF = '{uid: half, kind: sql, inputs: [read], sql: "SELECT id, k, v, t FROM read WHERE id < 3"}'
_REST = '{uid: rest, kind: sql, inputs: [read], sql: "SELECT id, k, v, t FROM read WHERE id >= 3"}'
_BOTH = """{uid: valid, kind: sql, inputs: [half, rest], sql: "SELECT id, k, v, t FROM half WHERE v >= 0
     UNION ALL SELECT id, k, v, t FROM rest WHERE v >= 0"}"""

CHAINS = {
    "two": [_READ, '{uid: valid, kind: sql, inputs: [read], sql: "SELECT id, k, v, t FROM read WHERE v >= 0"}'],
    "three": [
        _READ,
        '{uid: named, kind: sql, inputs: [read], sql: "SELECT id, k AS name, v, t FROM read"}',
        '{uid: valid, kind: sql, inputs: [named], sql: "SELECT id, name AS k, v, t FROM named WHERE v >= 0"}',
    ],
    "union": [
        _READ,
        _HALF,
        _REST,
        _BOTH,
    ],
    "explode": [
        _READ,
        '{uid: many, kind: sql, inputs: [read], sql: "SELECT id, k, t, explode(array(v)) AS v FROM read"}',
        '{uid: valid, kind: sql, inputs: [many], sql: "SELECT id, k, v, t FROM many WHERE v >= 0"}',
    ],
}
"""Chain -> operators in the place of `valid`, with the same rows."""


@pytest.fixture(params=CHAINS)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> TracedJob:
    job = TracedJob.create(tmp_path / "job", {_VALID: "".join(f"  - {one}\n" for one in CHAINS[request.param])})
    rows = ("1,a,5,2026-01-01T10:00:00Z", "2,b,7,2026-01-01T10:10:00Z", "3,a,-1,2026-01-01T10:20:00Z")
    job.land("orders", "1.csv", "id,k,v,t", *rows)
    job.land("payments", "1.csv", "k,paid,at", "a,50,2026-01-01T10:05:00Z")
    job.run()
    job.land("orders", "2.csv", "id,k,v,t", "4,a,6,2026-01-01T13:00:00Z", "5,a,1,2026-01-01T08:00:00Z")
    job.land("payments", "2.csv", "k,paid,at", "a,60,2026-01-01T13:05:00Z")
    while isinstance(job.run(), CheckpointReport):
        pass
    return job


def _listed(origin: RowOrigin) -> list[tuple[str, int | None]]:
    return [(place.object, place.line) for item in origin.inputs if item.source == "orders" for place in item.places]


@pytest.mark.deep
def test_the_input_is_found_behind_the_chain(job: TracedJob) -> None:
    origin = job.origin("totals", {"k": "a"})
    assert origin.is_proven, origin.problem
    assert _listed(origin) == [("1.csv", 2), ("2.csv", 2), ("2.csv", 3)]
    assert all(step.rows for step in origin.steps if step.uid in ("valid", "read", "orders")), origin.steps
    assert _listed(job.origin("paid", {"id": 1})) == [("1.csv", 2)]


@pytest.mark.long
def test_a_late_row_is_named_with_its_place_behind_the_chain(job: TracedJob) -> None:
    late = "1 row was late at operator hourly: 2.csv, line 3, read by checkpoint 2."
    with pytest.raises(NotFound, match=re.escape(late)):
        job.origin("hourly", {"k": "a", "window_start": "2026-01-01T08:00:00Z"})
