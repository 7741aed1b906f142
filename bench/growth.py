"""Experiments on Milepost alone: many checkpoints in a row, and a large state with and without the node's cache."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from bench.machine import OthersMeter
from bench.rounds import Field, Plan, Say, input_of
from bench.workloads.equality import changed_keys
from bench.workloads.workloads import Workload


def follow_checkpoints(workload: Workload, system: str, epochs: int, folder: Path, say: Say) -> dict[str, Any]:
    """Run many epochs of one system, one after another, and keep the cost of each.

    Raises: WrongResult, WorkerFailed.
    """
    inputs = input_of(workload, range(epochs), folder / "input", say)
    measured = []
    with Field(workload, [system], folder / "systems", say) as field:
        others = OthersMeter()
        for number, source in enumerate(inputs):
            measured.append({**field.epoch(system, number, source), "counted": True})
            if number % 10 == 9:
                say(f"{workload.name}: epoch {number} of {epochs} ended")
        busy = others.cores()
        rows = field.check(inputs)
    shutil.rmtree(folder / "systems", ignore_errors=True)
    return {
        "workload": workload.to_json(),
        "rows": rows,
        "changed_keys": changed_keys(workload, inputs),
        "other_busy_cores": busy,
        "systems": {system: {"versions": field.versions[system], "epochs": measured}},
    }


def large_state(
    workload: Workload, small: Workload, warmups: int, rounds: int, folder: Path, say: Say
) -> dict[str, Any]:
    """Measure the cost per epoch of a large state: with the node's cache, against a small state, and without a cache.

    Returns: per round the wall seconds `small_s` and `warm_s` of an epoch on the small and on the large state, then
        `decode`, what pyarrow alone needs for the files of that large state, and `cold_s`, of an epoch that restores
        them.
    Raises: WrongResult, WorkerFailed.
    """
    system = "milepost"
    plan = Plan(warmups, 2 * rounds)
    inputs = input_of(workload, plan.epochs, folder / "input", say)
    small_inputs = input_of(small, range(warmups + rounds), folder / "input", say)
    systems = folder / "systems"
    measured: list[dict[str, Any]] = []
    others = OthersMeter()
    with (
        Field(workload, [system], systems / "large", say) as field,
        Field(small, [system], systems / "small", say) as less,
    ):
        for number in range(warmups):
            less.epoch(system, number, small_inputs[number])
            field.epoch(system, number, inputs[number])
        for at in range(rounds):
            number = warmups + 2 * at
            little = less.epoch(system, warmups + at, small_inputs[warmups + at])
            warm = field.epoch(system, number, inputs[number])
            decode = field.probe(system, "decode")
            field.probe(system, "drop cache")
            cold = field.epoch(system, number + 1, inputs[number + 1])
            figures = {"small_s": little["wall_s"], "warm_s": warm["wall_s"], "cold_s": cold["wall_s"]}
            measured.append({**figures, "decode": decode, "cold": cold})
            say(f"{workload.name}: restored in round {at}")
        busy = others.cores()
        less.check(small_inputs)
        field.check(inputs)
    shutil.rmtree(systems, ignore_errors=True)
    return {
        "workload": workload.to_json(),
        "small": small.to_json(),
        "rounds": measured,
        "other_busy_cores": busy,
    }
