"""Experiments on Milepost alone: many checkpoints in a row, and restoring state without the node's cache."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from bench.equality import changed_keys
from bench.machine import OthersMeter
from bench.rounds import Field, Plan, Say, input_of
from bench.workloads import Workload


def follow_checkpoints(workload: Workload, system: str, epochs: int, folder: Path, say: Say) -> dict[str, Any]:
    """Run many epochs of one system, one after another, and keep the cost of each.

    Raises: WrongResult, WorkerFailed.
    """
    inputs = input_of(workload, range(epochs), folder / "input", say)
    measured = []
    with Field(workload, [system], folder / "systems", say) as field:
        others = OthersMeter(field.cpu_s())
        for number, source in enumerate(inputs):
            measured.append({**field.epoch(system, number, source), "counted": True})
            if number % 10 == 9:
                say(f"{workload.name}: epoch {number} of {epochs} ended")
        busy = others.cores(field.cpu_s())
        rows = field.check(inputs)
    shutil.rmtree(folder / "systems", ignore_errors=True)
    return {
        "workload": workload.to_json(),
        "rows": rows,
        "changed_keys": changed_keys(workload, inputs),
        "other_busy_cores": busy,
        "systems": {system: {"versions": field.versions[system], "epochs": measured}},
    }


def restore(workload: Workload, rounds: int, folder: Path, say: Say) -> dict[str, Any]:
    """Measure what an epoch costs more when the node's cache is gone, beside decoding the same files with pyarrow.

    Returns: per round `warm_s` and `cold_s`, the wall seconds of two epochs, and `decode`, what pyarrow alone needs for
        the files of the state that the second of them restored.
    Raises: WrongResult, WorkerFailed.
    """
    warmups = 3
    plan = Plan(warmups, 2 * rounds)
    inputs = input_of(workload, plan.epochs, folder / "input", say)
    measured: list[dict[str, Any]] = []
    with Field(workload, ["milepost"], folder / "systems", say) as field:
        others = OthersMeter(field.cpu_s())
        for number in range(warmups):
            field.epoch("milepost", number, inputs[number])
        for at in range(rounds):
            number = warmups + 2 * at
            warm = field.epoch("milepost", number, inputs[number])
            decode = field.probe("milepost", "decode")
            field.probe("milepost", "drop cache")
            cold = field.epoch("milepost", number + 1, inputs[number + 1])
            measured.append({"warm_s": warm["wall_s"], "cold_s": cold["wall_s"], "decode": decode, "cold": cold})
            say(f"{workload.name}: restored in round {at}")
        busy = others.cores(field.cpu_s())
        field.check(inputs)
    shutil.rmtree(folder / "systems", ignore_errors=True)
    return {"workload": workload.to_json(), "rounds": measured, "other_busy_cores": busy}
