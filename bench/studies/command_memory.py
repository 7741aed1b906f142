"""What memory a command takes over a state and a table of millions of keys: each in a process of its own.

One job: a running aggregate of every key, its table of the latest rows in Parquet. A first epoch holds each key once,
two more change keys drawn at random. What is measured is the highest resident memory that the kernel has counted of the
process, and its wall time, from its start to its end. Commands run on what the ones before them left.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.machine import OthersMeter
from bench.rounds import Say
from bench.workloads.generate import write_epoch
from bench.workloads.shapes import Shape
from bench.workloads.workloads import AGGREGATES
from scripts.processes import PYTHON_PATH

EPOCHS = 3
CHANGED_ROWS = 1_000_000
WORKER_MEMORY = "3g"
"""Of each of the two Python workers of an epoch: 50 M keys do not fit, and are worked on in slices."""

BOUND_MB = 400
"""What a command may take beyond one that reads no data, at any number of keys."""
BARE = "status JOB"
_JOB, _BOOTED, _RESTORED = "keys", "booted", "restored"


@dataclass(frozen=True, slots=True)
class Command:
    """A command line; words that stand for something are replaced."""

    words: str

    def line(self, folder: Path) -> list[str]:
        """The words as they are typed."""
        names = {"JOB": _JOB, "BOOTED": _BOOTED, "RESTORED": _RESTORED}
        known = {word: str(folder / f"{name}.yaml") for word, name in names.items()}
        return [known.get(word, word.replace("DIR/", f"{folder}/")) for word in self.words.split()]


COMMANDS = (
    Command(BARE),
    Command("read JOB result --limit 10"),
    Command("read JOB result --format parquet --output DIR/table.parquet"),
    Command("state JOB result --format parquet --output DIR/values.parquet"),
    Command("state JOB result --stored --format parquet --output DIR/stored.parquet"),
    Command("diff JOB 2 3"),
    Command("diff JOB 0 3 --sink result --format parquet --output DIR/changes.parquet"),
    Command("verify JOB --deep"),
    Command("savepoint create JOB --name kept --target DIR/saved"),
    Command("start RESTORED --from DIR/saved/kept"),
    Command("bootstrap BOOTED result=DIR/stored.parquet"),
    Command("rollback JOB --to 2 --dry-run"),
    Command("rollback JOB --to 2 --yes"),
    Command("fsck JOB"),
    Command("gc JOB"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one command took."""

    peak_mb: float
    wall_s: float


def measure_memory(keys: int, folder: Path, say: Say) -> dict[str, Any]:
    """Make the job, then run every command once. Returns the record.

    Raises: RuntimeError: a command failed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in (_JOB, _BOOTED, _RESTORED):
        (folder / f"{name}.yaml").write_text(json.dumps(_spec(name, folder), indent=1) + "\n", encoding="utf-8")
    os.environ["MILEPOST_CACHE_DIR"] = str(folder / "cache")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # Spark ends with it
        pool.submit(_grow, keys, folder).result()
    say(f"command memory: the job has {EPOCHS} epochs over {keys:,} keys")
    others = OthersMeter()
    measured: dict[str, dict[str, float]] = {}
    for command in COMMANDS:
        one = _run(command.line(folder), folder / "errors.txt")
        measured[command.words] = asdict(one)
        say(f"command memory: {one.peak_mb:7.0f} MB {one.wall_s:7.1f} s  {command.words}")
    record = {"keys": keys, "other_busy_cores": others.cores(), "commands": measured}
    shutil.rmtree(folder)
    return record


def render_memory(document: dict[str, Any]) -> str:
    """Return the report of what was measured, by number of keys."""
    before, after = document["before"], document["command_memory"]
    every = sorted(before.keys() | after.keys(), key=int)
    sides = [(before.get(keys), ", before") for keys in every], [(after.get(keys), "") for keys in every]
    columns = [(record, note) for pair in zip(*sides, strict=True) for record, note in pair if record is not None]
    lines = [
        "# The memory of a command",
        "",
        "A running aggregate of so many keys, its table in Parquet, three epochs; every command once, in a process of",
        "its own: the highest resident memory of that process, and its wall time. **Bold** is what takes more than",
        f"{BOUND_MB} MB beyond `milepost {BARE}`, which reads no data: no number of keys should.",
        "",
        "| command | " + " | ".join(f"{record['keys'] / 1_000_000:g} M keys{note}" for record, note in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for command in COMMANDS:
        cells = " | ".join(_cell(record["commands"], command.words) for record, _ in columns)
        lines.append(f"| `milepost {command.words}` | {cells} |")
    lines += [""] + [
        f"* {record['keys']:,} keys{note}: at commit {record['commit']}; other processes kept "
        f"{record['other_busy_cores']:.2f} cores busy."
        for record, note in columns
    ]
    return "\n".join(lines) + "\n"


def _cell(commands: dict[str, dict[str, float]], words: str) -> str:
    one = commands[words]
    shown = f"{one['peak_mb']:,.0f} MB, {one['wall_s']:.1f} s"
    return f"**{shown}**" if one["peak_mb"] - commands[BARE]["peak_mb"] > BOUND_MB else shown


_MEASURE = """\
import json, os, sys, time
started = time.perf_counter()
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
status, used = os.wait4(pid, 0)[1:]
wall_s = time.perf_counter() - started
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), used.ru_maxrss, wall_s], file)
"""
"""A process inherits the highest memory of the one that starts it: this one has next to none."""


def _run(words: list[str], errors: Path) -> Measured:
    """Run one command. Raises RuntimeError: it failed."""
    told = errors.with_name("measured.json")
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    milepost = [sys.executable, "-m", "milepost", *words]
    with errors.open("wb") as stream:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _MEASURE, str(told), *milepost],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=stream,
        )
    code, peak_kb, wall_s = json.loads(told.read_text(encoding="utf-8"))
    if code:
        raise RuntimeError(f"milepost {' '.join(words)} ended with {code}: {errors.read_text(encoding='utf-8')}")
    return Measured(peak_kb / 1024, wall_s)


def _grow(keys: int, folder: Path) -> None:
    """Run the job's epochs, in a process that ends with them."""
    from milepost.api import JobMaster, Session, load_job, spark_runner

    shape = Shape(keys=keys, rows=CHANGED_ROWS)
    master, runner = JobMaster(load_job(str(folder / f"{_JOB}.yaml"))), spark_runner()
    for number in range(EPOCHS):
        landed = folder / "landing" / f"epoch-{number}"
        write_epoch(shape, number, landed)
        master.epochs.run(Session.cli(), runner)
        shutil.rmtree(landed)


def _spec(name: str, folder: Path) -> dict[str, Any]:
    return {
        "name": name,
        "storage": (folder / "store").as_uri(),
        "sources": {
            "bids": {
                "format": "parquet",
                "path": f"{(folder / 'landing').as_uri()}/**/*.parquet",
                "schema": {"auction": "int64", "price": "int64"},
                "settle": "0s",
            }
        },
        "operators": [
            {"uid": "result", "kind": "aggregate", "inputs": ["bids"], "key": ["auction"], "aggregates": AGGREGATES}
        ],
        "sinks": [
            {
                "name": "result",
                "input": "result",
                "format": "parquet",
                "path": f"{(folder / 'lake').as_uri()}/{name}",
                "mode": "upsert",
            }
        ],
        "spark": {"master": "local[2]", "parallelism": 2, "conf": {"spark.executor.pyspark.memory": WORKER_MEMORY}},
    }
