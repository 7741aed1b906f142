"""Interleaved rounds: in each, every system runs the same epoch, one after another; the order turns with the round."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.equality import Answer, changed_keys
from bench.generate import write_epoch
from bench.machine import OthersMeter
from bench.processes import Worker
from bench.workloads import Workload

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How often.

    Attributes:
        warmups: epochs at the start that are not counted; the first fills the state.
        rounds: counted epochs.
    """

    warmups: int
    rounds: int

    @property
    def epochs(self) -> range:
        return range(self.warmups + self.rounds)


def input_of(workload: Workload, epochs: range, folder: Path, say: Say) -> list[Path]:
    """Write the epochs' files, each once for all systems; one that is there is kept."""
    paths = []
    for number in epochs:
        path = folder / workload.name / f"epoch-{number:05d}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            say(f"{workload.name}: writing epoch {number}")
            write_epoch(workload.shape, number, path)
        paths.append(path)
    return paths


def run_workload(workload: Workload, systems: Sequence[str], plan: Plan, folder: Path, say: Say) -> dict[str, Any]:
    """Measure a workload on several systems, and compare every answer before anything is returned.

    Args:
        folder: for inputs and the systems' own folders; what the systems left in it is deleted at the end.
    Returns: a JSON-compatible record: per system the epochs with wall_s, cpu_s and its own figures.
    Raises:
        WrongResult: a published table is not the answer. WorkerFailed: a system did not do what it was told.
    """
    inputs = input_of(workload, plan.epochs, folder / "input", say)
    scratch = folder / "systems"
    shutil.rmtree(scratch, ignore_errors=True)
    workers: dict[str, Worker] = {}
    records: dict[str, dict[str, Any]] = {}
    others = OthersMeter()
    try:
        for name in systems:
            say(f"{workload.name}: starting {name}")
            workers[name] = Worker(name, workload, scratch / name)
            answer = workers[name].tell("prepare")
            records[name] = {"versions": answer["versions"], "epochs": []}
            workers[name].pause()
        for number in plan.epochs:
            for name in _turned(list(systems), number):
                epoch = _one_epoch(workers[name], number, inputs[number])
                epoch["counted"] = number >= plan.warmups
                records[name]["epochs"].append(epoch)
                label = "" if epoch["counted"] else " (warm-up)"
                say(f"{workload.name}: epoch {number}{label}: {name} ended")
        own = _own_cpu_s() + sum(worker.cpu_s() for worker in workers.values())
        busy = others.cores(own)
        right = Answer(workload, inputs)
        for name, worker in workers.items():
            with worker.turn():
                sql = worker.tell("result")["sql"]
            right.check(name, sql)
            say(f"{workload.name}: {name} published the right {right.rows:,} rows")
    finally:
        for worker in workers.values():
            worker.end()
    shutil.rmtree(scratch, ignore_errors=True)
    return {
        "workload": workload.to_json(),
        "rows": right.rows,
        "changed_keys": changed_keys(workload, inputs),
        "input_bytes": [sum(file.stat().st_size for file in path.iterdir()) for path in inputs],
        "other_busy_cores": busy,
        "systems": records,
    }


def _one_epoch(worker: Worker, number: int, source: Path | None) -> dict[str, Any]:
    with worker.turn():
        before = worker.cpu_s()
        answer = worker.tell("epoch", number=number, input=str(source) if source is not None else None)
        cpu_s = worker.cpu_s() - before
        figures = worker.tell("figures", number=number)["figures"]
        memory = worker.memory_bytes()
    return {"number": number, "wall_s": answer["wall_s"], "cpu_s": cpu_s, "memory_bytes": memory, "figures": figures}


def _turned(names: list[str], number: int) -> list[str]:
    """Another one begins in each round, so that none is always the one after the slowest."""
    at = number % len(names)
    return names[at:] + names[:at]


def _own_cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system
