"""Interleaved rounds: in each, every system runs the same epoch, one after another; the order turns with the round."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench.machine import OthersMeter
from bench.processes import Worker
from bench.workloads.equality import Answer, changed_keys
from bench.workloads.feeds import write_epochs
from bench.workloads.workloads import BIDS, Workload

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How often.

    Attributes:
        warmups: epochs at the start that are not counted; the first fills the state.
        rounds: counted epochs.
        joins: a system's first epoch, when that is a later one than the others'; it reads all that has landed by then.

    Raises: ValueError: a system would join after the first counted epoch, which has to be one of all systems.
    """

    warmups: int
    rounds: int
    joins: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        late = [name for name, first in self.joins.items() if first > self.warmups]
        if late:
            raise ValueError(f"{', '.join(late)}: expected to join by epoch {self.warmups}, the first that counts")

    @property
    def epochs(self) -> range:
        return range(self.warmups + self.rounds)


def input_of(workload: Workload, epochs: range, folder: Path, say: Say) -> list[Path]:
    """Write the epochs' files, each once for all systems; one that is there is kept."""
    kinds = "".join(f"-{stream}" for stream in workload.streams if stream != BIDS)
    paths = {number: folder / f"{workload.shape.name}{kinds}" / f"epoch-{number:05d}" for number in epochs}
    missing = {number: path for number, path in paths.items() if not path.exists()}
    write_epochs(
        workload.shape, workload.streams, missing, lambda number: say(f"{workload.name}: writing epoch {number}")
    )
    return list(paths.values())


class Field:
    """The systems of one workload, started and paused; ended with the context."""

    def __init__(self, workload: Workload, systems: Sequence[str], folder: Path, say: Say) -> None:
        """Args: folder: for the systems' own folders; what an earlier field left there is deleted."""
        shutil.rmtree(folder, ignore_errors=True)
        self.workers: dict[str, Worker] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self._workload, self._systems, self._folder, self._say = workload, systems, folder, say

    def __enter__(self) -> Self:
        try:
            for name in self._systems:
                self._say(f"{self._workload.name}: starting {name}")
                self.workers[name] = Worker(name, self._workload, self._folder / name.replace(":", "-"))
            with ThreadPoolExecutor() as threads:
                self.versions = dict(zip(self.workers, threads.map(_prepare, self.workers.values()), strict=True))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor() as threads:
            list(threads.map(Worker.end, self.workers.values()))

    def epoch(self, name: str, number: int, source: Path) -> dict[str, Any]:
        """Have one system run one epoch in its turn. Returns wall_s, cpu_s, memory_bytes and its own figures."""
        worker = self.workers[name]
        with worker.turn():
            before = worker.cpu_s()
            with worker.watched():
                wall_s = worker.tell("epoch", number=number, input=str(source))["wall_s"]
            cpu_s = worker.cpu_s() - before
            figures = worker.tell("figures", number=number)["figures"]
            memory = worker.memory()
        return {"number": number, "wall_s": wall_s, "cpu_s": cpu_s, **memory, "figures": figures}

    def land(self, name: str, number: int, source: Path) -> None:
        """Give one system the files of an epoch, and leave them for its next one."""
        worker = self.workers[name]
        with worker.turn():
            worker.tell("land", number=number, input=str(source))

    def probe(self, name: str, question: str) -> dict[str, Any]:
        """Ask one system what only it can answer."""
        with self.workers[name].turn():
            answer: dict[str, Any] = self.workers[name].tell("probe", name=question)["probe"]
        return answer

    def check(self, inputs: Sequence[Path]) -> int:
        """Compare every published table with the answer; return its number of rows. Raises WrongResult."""
        right = Answer(self._workload, inputs)
        for name, worker in self.workers.items():
            with worker.turn():
                sql = worker.tell("result")["sql"]
            right.check(name, sql)
            self._say(f"{self._workload.name}: {name} published the right {right.rows:,} rows")
        return right.rows


def run_workload(
    workload: Workload,
    systems: Sequence[str],
    plan: Plan,
    folder: Path,
    say: Say,
    *,
    probes: Sequence[str] = (),
    land: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    """Measure a workload on several systems, and compare every answer before anything is returned.

    Args:
        folder: for inputs and the systems' own folders; the latter are deleted at the end.
        probes: questions to `milepost` after the rounds.
        land: brings an epoch's rows to where all systems read them, while all are paused; None: each is given files.
    Returns: a JSON-compatible record: per system the epochs with wall_s, cpu_s and its own figures.
    Raises:
        WrongResult: a published table is not the answer. WorkerFailed: a system did not carry out a command.
    """
    inputs = input_of(workload, plan.epochs, folder / "input", say)
    scratch = folder / "systems"
    epochs: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
    others = OthersMeter()
    with Field(workload, systems, scratch, say) as measured:
        for number in plan.epochs:
            counted = number >= plan.warmups
            if land is not None:
                land(inputs[number])
            for name in _turned(list(systems), number):
                if number < plan.joins.get(name, 0):
                    measured.land(name, number, inputs[number])
                    continue
                epochs[name].append({**measured.epoch(name, number, inputs[number]), "counted": counted})
                say(f"{workload.name}: epoch {number}{'' if counted else ' (warm-up)'}: {name} ended")
        busy = others.cores()
        rows = measured.check(inputs)
        answers = {question: measured.probe("milepost", question) for question in probes}
    shutil.rmtree(scratch, ignore_errors=True)
    return {
        "workload": workload.to_json(),
        "rows": rows,
        "changed_keys": changed_keys(workload, inputs),
        "input_bytes": [sum(file.stat().st_size for file in path.iterdir()) for path in inputs],
        "other_busy_cores": busy,
        "probes": answers,
        "systems": {name: {"versions": measured.versions[name], "epochs": epochs[name]} for name in systems},
    }


def _prepare(worker: Worker) -> dict[str, str]:
    """Have a system start what stays up, and pause it. Returns its versions."""
    versions: dict[str, str] = worker.tell("prepare")["versions"]
    worker.pause()
    return versions


def _turned(names: list[str], number: int) -> list[str]:
    """Another one begins in each round, so that none is always the one after the slowest."""
    at = number % len(names)
    return names[at:] + names[:at]
