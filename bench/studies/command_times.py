"""How long a person waits for a command: each in a new process, on a bucket whose every answer takes 20 ms.

One job of some dozens of epochs, two operators, two sinks. The S3 server and the delay before it are those of the
tests. What is timed is the whole process, from its start to its end, with the start of the interpreter in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.machine import OthersMeter
from bench.rounds import Say
from bench.studies.old_job import rows_of, spec_of
from milepost_testkit.proxies.delaying_proxy import DelayingProxy, longest_line
from milepost_testkit.servers.s3_servers import Seaweed
from scripts.processes import PYTHON_PATH

DELAY_MS = 20
READ_S, DRY_RUN_S, EMPTY_S = 0.5, 1.0, 1.0
_ENDPOINT = "MILEPOST_BENCH_ENDPOINT"
_JOB = "commands"


@dataclass(frozen=True)
class Command:
    """A command line, and what its median may be at most."""

    words: str
    bound_s: float = READ_S

    def line(self, spec: Path, head: int) -> list[str]:
        """The words, with those that stand for something replaced."""
        known = {"JOB": str(spec), "HEAD": str(head), "BEFORE": str(head - 1), "BACK": str(head - 3)}
        return [known.get(word, word) for word in self.words.split()]


COMMANDS = (
    Command("status JOB"),
    Command("list JOB"),
    Command("history JOB"),
    Command("jobs JOB"),
    Command("show JOB"),
    Command("show JOB BEFORE"),
    Command("read JOB totals --limit 10"),
    Command("read JOB minutes --limit 10"),
    Command("state JOB totals"),
    Command("plot JOB"),
    Command("verify JOB HEAD"),
    Command("lint JOB"),
    Command("savepoint list JOB"),
    Command("rollback JOB --to BACK --dry-run", DRY_RUN_S),
    Command("run JOB", EMPTY_S),
    Command("diff JOB BEFORE HEAD"),  # the last: its pins are entries of the log
)
"""Those that are long by nature are left out: `verify --deep`, `fsck`, and `read` of large tables."""


def measure_commands(epochs: int, rounds: int, folder: Path, say: Say) -> dict[str, Any]:
    """Make the job, then run every command so many times. Returns the record of the part.

    Raises: subprocess.CalledProcessError: a command failed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = Seaweed(folder / "server")
    server.start()
    try:
        return _measure(epochs, rounds, folder, server, say)
    finally:
        server.stop(kill=True)


def _measure(epochs: int, rounds: int, folder: Path, server: Seaweed, say: Say) -> dict[str, Any]:
    os.environ |= server.environment() | {"MILEPOST_CACHE_DIR": str(folder / "cache"), _ENDPOINT: server.endpoint_url}
    root = f"s3://{server.new_bucket()}"
    spec = folder / "commands.yaml"
    spec.write_text(json.dumps(_spec(root), indent=1) + "\n", encoding="utf-8")
    head = _grow(spec, epochs, server, root.removeprefix("s3://"), say)
    measured: dict[str, list[dict[str, Any]]] = {command.words: [] for command in COMMANDS}
    with DelayingProxy(server.port, DELAY_MS / 1000) as proxy:
        environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, _ENDPOINT: proxy.endpoint_url}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        others = OthersMeter()
        for turn in range(rounds + 1):  # the first is not counted: it compiles what it imports
            for command in COMMANDS:
                words = command.line(spec, head)
                one = _timed([sys.executable, "-m", "milepost", *words], proxy, environment)
                measured[command.words] += [one] if turn else []
            say(f"commands: round {turn} of {rounds}")
        busy = others.cores()
        bare = [_timed([sys.executable, "-c", "pass"], proxy, environment) for _ in range(rounds)]
    return {"epochs": epochs, "delay_ms": DELAY_MS, "other_busy_cores": busy, "python": bare, "commands": measured}


def summary_of(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The medians of each command."""
    return {
        words: {figure: median(one[figure] for one in measured) for figure in measured[0]}
        for words, measured in record["commands"].items()
    }


def render_commands(document: dict[str, Any]) -> str:
    """Return the report of one run."""
    record = document["commands"]
    python_s = median(one["wall_s"] for one in record["python"])
    lines = [
        "# What a command takes",
        "",
        f"A job of {record['epochs']} epochs, two operators and two sinks, on an S3 server of loopback that answers",
        f"each request after {record['delay_ms']} ms; every command {len(record['python'])} times, in a process of its",
        f"own, at commit {document['commit']}. Medians. An interpreter that does nothing takes {python_s:.2f} s of it.",
        "*In line* are the requests of which each waited for the one before. Other processes kept",
        f"{record['other_busy_cores']:.2f} cores busy.",
        "",
        "| command | wall s | target | | CPU s | requests | in line |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    summary = summary_of(record)
    for command in COMMANDS:
        found = summary[command.words]
        verdict = "met" if found["wall_s"] <= command.bound_s else "**missed**"
        lines.append(
            f"| `milepost {command.words}` | {found['wall_s']:.2f} | {command.bound_s:.1f} | {verdict} "
            f"| {found['cpu_s']:.2f} | {found['requests']:.0f} | {found['in_line']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def _timed(words: list[str], proxy: DelayingProxy, environment: dict[str, str]) -> dict[str, Any]:
    """Run one process. Returns its wall and CPU seconds, its requests, and how many of them stood in line."""
    before, used_s = len(proxy.answered), _cpu_s()
    started = time.perf_counter()
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall_s = time.perf_counter() - started
    asked = proxy.answered[before:]
    return {"wall_s": wall_s, "cpu_s": _cpu_s() - used_s, "requests": len(asked), "in_line": longest_line(asked)}


def _cpu_s() -> float:
    """CPU seconds of the children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _grow(spec: Path, epochs: int, server: Seaweed, bucket: str, say: Say) -> int:
    """Run the job's epochs in this process, without the delay. Returns the head."""
    from milepost.api import JobMaster, Session, load_job, spark_runner

    master, runner = JobMaster(load_job(str(spec))), spark_runner()
    for number in range(epochs):
        body = pa.BufferOutputStream()
        pq.write_table(rows_of(number), body)
        server.client.put_object(Bucket=bucket, Key=f"landing/{number:06d}.parquet", Body=body.getvalue().to_pybytes())
        master.epochs.run(Session.cli(), runner)
    say(f"commands: the job has {epochs} epochs")
    return int(master.reports.status().head or 0)


def _spec(root: str) -> dict[str, Any]:
    return spec_of(_JOB, root) | {"store": {"endpoint_url": f"${{env:{_ENDPOINT}}}", "region": "us-east-1"}}
