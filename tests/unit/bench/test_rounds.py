"""Real workers, started, paused and measured: with the limit alone, which needs no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bench.processes import WorkerFailed
from bench.rounds import Field, Plan, run_workload
from bench.workloads.equality import WrongResult
from bench.workloads.shapes import Shape
from bench.workloads.workloads import WORKLOADS, Workload
from milepost_testkit import wording

SHAPE = Shape(keys=2_000, rows=5_000, files=2)


def silent(_: str) -> None:
    """Say nothing."""


@pytest.mark.deep
def test_two_systems_run_the_same_epochs_in_turns_and_are_compared(tmp_path: Path) -> None:
    workload = replace(WORKLOADS["keyed-10k"], shape=SHAPE)
    said: list[str] = []
    record = run_workload(workload, ["limit-numpy", "limit-duckdb"], Plan(1, 2), tmp_path, said.append)
    turns = [one.split(": ")[-1].split(" ")[0] for one in said if one.endswith("ended")]
    numpy, duckdb = "limit-numpy", "limit-duckdb"
    assert turns == [numpy, duckdb, duckdb, numpy, numpy, duckdb]
    assert record["rows"] == SHAPE.keys and record["changed_keys"][0] == SHAPE.keys
    for system in record["systems"].values():
        assert [epoch["counted"] for epoch in system["epochs"]] == [False, True, True]
        assert all(epoch["wall_s"] > 0 and epoch["cpu_s"] >= 0 for epoch in system["epochs"])
        assert all(epoch["figures"]["state_bytes"] > 0 for epoch in system["epochs"])
    assert Workload.from_json(record["workload"]) == workload
    assert not (tmp_path / "systems").exists()


@pytest.mark.deep
def test_what_lands_before_a_system_joins_is_left_to_it_and_missed_when_it_does_not_look(tmp_path: Path) -> None:
    """The limit reads the newest epoch alone; here it joins at the second one."""
    workload = replace(WORKLOADS["keyed-10k"], shape=SHAPE)
    plan = Plan(2, 1, joins={"limit-duckdb": 1})
    said: list[str] = []
    with pytest.raises(WrongResult, match=r"limit-duckdb, workload keyed-10k: expected 2,000 rows"):
        run_workload(workload, ["limit-numpy", "limit-duckdb"], plan, tmp_path, said.append)
    landed = tmp_path / "systems" / "limit-duckdb" / "work" / "landing" / "epoch-00000"
    assert len(list(landed.iterdir())) == SHAPE.files
    assert [one for one in said if "limit-duckdb ended" in one] == [
        "keyed-10k: epoch 1 (warm-up): limit-duckdb ended",
        "keyed-10k: epoch 2: limit-duckdb ended",
    ]


def test_every_system_has_joined_before_an_epoch_counts() -> None:
    Plan(3, 2, joins={"limit-numpy": 3})
    with wording.raises(ValueError):
        Plan(2, 2, joins={"limit-numpy": 3})


@pytest.mark.deep
def test_a_system_that_cannot_do_its_part_is_named_and_its_process_ended(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(WorkerFailed, match=r"limit-numpy: prepare failed"):
        with Field(WORKLOADS["window"], ["limit-numpy"], tmp_path, silent):
            pytest.fail("it must not be prepared")
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
