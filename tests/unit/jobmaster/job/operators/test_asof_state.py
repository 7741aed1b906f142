"""A job with an as-of join: rolled back, replayed, renamed, changed and audited like any other."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.law.job import LawJob
from milepost_testkit.rows.tables import assert_same_rows
from tests.unit.jobmaster.job.operators.test_join_state import DOCUMENT, rows

ASOF = {"uid": "pairs", "kind": "asof", "inputs": ["a", "b"], "key": ["k"], "how": "left",
        "columns": {"w": "right.v", "then": "right.t"}}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> LawJob:
    """Two checkpoints: rows that wait, then what they get; at the end x of minute 20 waits."""
    job = LawJob.create(tmp_path / "job", deepcopy(DOCUMENT) | {"operators": [ASOF]})
    job.land("a", rows(("x", 1, 3), ("x", 1, 3), ("y", 2, 3), (None, 3, 4)))
    job.land("b", rows(("x", 7, 2), ("y", 8, 4)))
    job.run()
    job.land("a", rows(("x", 4, 20)))
    job.land("b", rows(("x", 9, 10), ("y", 5, 20)))
    job.set_parallelism(3)
    job.run()
    return job


def shown(job: LawJob) -> list[tuple[Any, ...]]:
    return sorted(((row["k"], row["v"], row["w"]) for row in job.master.reports.read("pairs").to_pylist()), key=repr)


def test_each_row_has_the_version_of_its_time(job: LawJob) -> None:
    """The last version of a key stays, and of those before it what may still be needed."""
    assert shown(job) == [("x", 1, 7), ("x", 1, 7), ("y", 2, None), (None, 3, None)]
    waiting = job.master.reports.state_values("pairs.left")
    assert [(row["k"], row["v"], row["rows"]) for row in waiting.to_pylist()] == [("x", 4, 1)]
    versions = job.master.reports.state_values("pairs.right").to_pylist()
    assert [(row["k"], row["v"]) for row in versions] == [("x", 9), ("y", 5)]
    job.check()


@pytest.mark.deep
def test_a_rollback_a_backfill_and_an_audit_take_it_along(job: LawJob) -> None:
    before = job.master.reports.read("pairs")
    job.rollback(1)
    assert sorted(row["v"] for row in job.master.reports.state("pairs.right").to_pylist()) == [7, 8]
    job.run()
    assert_same_rows(job.master.reports.read("pairs"), before)
    job.backfill(2, ranges_per_epoch=1)
    assert_same_rows(job.master.reports.read("pairs"), before)
    spec = job.folder / "config" / "law.yaml"
    for command in (("verify", "--deep"), ("fsck",), ("gc",)):
        told = milepost(command[0], spec, *command[1:])
        assert told.exit_code == 0, told.stderr


@pytest.mark.deep
def test_it_goes_on_under_another_name_and_with_other_rows(job: LawJob) -> None:
    """The choice of emitted rows changes no state."""
    job.document["operators"] = [ASOF | {"uid": "placed", "renamed_from": "pairs", "how": "inner"}]
    job.document["sinks"][0]["input"] = "placed"
    job.set_parallelism(2)
    job.land("a", rows(("z", 6, 21), ("x", 5, 30)))
    job.land("b", rows(("y", 1, 30)))
    job.run()
    assert shown(job)[:3] == [("x", 1, 7), ("x", 1, 7), ("x", 4, 9)] and ("z", 6, None) not in shown(job)
