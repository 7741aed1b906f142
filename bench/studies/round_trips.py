"""How many requests of an epoch wait for one another, on a store that answers after 0, 30 or 100 ms.

One process runs small epochs on Spark: two operators, two sinks, a gate, a checkpoint subsumed by each. The same
epoch once more as a scheduler runs it: each task in a process of its own. Two figures of requests *in line*: by the
proxy's clock, tasks of Spark included; and of the driver by what waits for what in it, whatever the machine was doing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from bench.machine import OthersMeter
from bench.rounds import Say
from bench.studies.old_job import ROWS, rows_of, spec_of
from milepost.storage.requests import class_of
from milepost_testkit.proxies.delaying_proxy import CONTINUE, Answered, DelayingProxy, line_of
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.stores.request_chain import RequestChain, longest_chain
from scripts.processes import PYTHON_PATH

DELAYS_MS = (0, 30, 100)
DRAWN_MS = 30
EPOCH_ROWS = 2_200
RETAINED = 3
WARMING = 4
"""Epochs before the measured ones: from the fourth on each subsumes one, and the log is compacted."""
TASKS = ("trigger", "run_epoch", "validate", "complete", "notify minutes", "notify totals", "subsume")
_ENDPOINT = "MILEPOST_BENCH_ENDPOINT"


@dataclass
class Steps:
    """Start of each step of an epoch by the proxy's clock, as the epoch reports them."""

    begun: list[tuple[float, str]] = field(default_factory=list)

    def __call__(self, step: str) -> None:
        self.begun.append((time.monotonic(), step.partition(":")[0]))

    def at(self, moment_s: float) -> str:
        """Return the step that was going on."""
        return next((step for begun_s, step in reversed(self.begun) if begun_s <= moment_s), "trigger")


def measure_round_trips(epochs: int, delays_ms: Sequence[int], folder: Path, say: Say) -> dict[str, Any]:
    """Measure so many epochs at each delay. Returns the record of the part.

    Raises: subprocess.CalledProcessError: a task in a process of its own failed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = Seaweed(folder / "server")
    server.start()
    try:
        os.environ |= server.environment() | {"MILEPOST_CACHE_DIR": str(folder / "cache")}
        others = OthersMeter()
        measured = {str(delay_ms): _at(delay_ms, epochs, folder, server, say) for delay_ms in delays_ms}
        return {"rows": EPOCH_ROWS, "delays": measured, "other_busy_cores": others.cores()}
    finally:
        server.stop(kill=True)


def _at(delay_ms: int, epochs: int, folder: Path, server: Seaweed, say: Say) -> dict[str, Any]:
    from milepost.api import JobMaster, load_job, spark_runner

    bucket = server.new_bucket()
    with DelayingProxy(server.port, delay_ms / 1000) as proxy:
        os.environ[_ENDPOINT] = proxy.endpoint_url
        spec = folder / f"trips{delay_ms}.yaml"
        spec.write_text(json.dumps(_spec(f"s3://{bucket}"), indent=1) + "\n", encoding="utf-8")
        master, runner = JobMaster(load_job(str(spec))), spark_runner()
        runs = []
        for number in range(WARMING + epochs):
            _land(server, bucket, number)
            runs.append(_epoch(master, runner, proxy))
            say(f"round trips: {delay_ms} ms, epoch {number}: {runs[-1]['in_line']} of {runs[-1]['requests']} in line")
        cold = _cold_tasks(WARMING + epochs, spec, server, bucket, proxy) if delay_ms == DRAWN_MS else None
    return {"epochs": runs[WARMING:], "tasks": cold}


def _epoch(master: Any, runner: Any, proxy: DelayingProxy) -> dict[str, Any]:
    """Run one epoch. Returns its figures, and all its requests."""
    from milepost.api import Session

    chain, steps, before = RequestChain(), Steps(), len(proxy.answered)
    with chain.recording():
        chain.clear()
        started_s = time.monotonic()

        def told(step: str) -> None:
            steps(step)
            chain(step.partition(":")[0])

        master.epochs.run(Session.cli(), runner, progress=told)
        wall_s = time.monotonic() - started_s
    asked = proxy.answered[before:]
    return {
        "wall_s": wall_s,
        **_figures(asked),
        "in_line_by_step": dict(Counter(steps.at(one.arrived_s) for one in line_of(asked))),
        "driver": dict(Counter(one.step for one in longest_chain(chain.requests))),
        "drawn": _drawn(asked, steps, started_s),
    }


def _figures(asked: Sequence[Answered]) -> dict[str, Any]:
    made = [one for one in asked if one.method != CONTINUE]
    classes = Counter(class_of(one.method, one.path).value for one in made)
    return {"requests": len(made), "in_line": len(line_of(asked)), "classes": dict(sorted(classes.items()))}


def _drawn(asked: Sequence[Answered], steps: Steps, started_s: float) -> list[dict[str, Any]]:
    """Return each request as it is drawn, by when it arrived; times in ms from the epoch's beginning."""
    line = set(line_of(asked))
    return [
        {
            "what": f"{_method(one)} {_key(one)}",
            "step": steps.at(one.arrived_s),
            "from_ms": round((one.arrived_s - started_s) * 1000),
            "to_ms": round((one.answered_s - started_s) * 1000),
            "in_line": one in line,
        }
        for one in sorted(asked, key=lambda one: one.arrived_s)
    ]


def _method(one: Answered) -> str:
    return "LIST" if "list-type=" in one.path else one.method


def _key(one: Answered) -> str:
    """Return what a request is about, without the bucket, with long digests and zeros cut short."""
    parts = urlsplit(one.path)
    key = parse_qs(parts.query).get("prefix", [parts.path.partition("/")[2].partition("/")[2]])[0]
    return "/".join(_short(part) for part in key.split("/"))[-60:]


def _short(part: str) -> str:
    stem, dot, suffix = part.partition(".")
    name, dash, digest = stem.rpartition("-")
    if len(digest) >= 20:
        digest = digest.lstrip("t0") if digest.lstrip("t").isdigit() else digest[:6] + "…"
    return f"{name}{dash}{digest}{dot}{suffix}"


def _cold_tasks(number: int, spec: Path, server: Seaweed, bucket: str, proxy: DelayingProxy) -> dict[str, Any]:
    """Run one epoch as a scheduler does, each task in a new process; the sinks' one after the other."""
    _land(server, bucket, number)
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    figures: dict[str, Any] = {}
    handed_on: list[str] = []
    for task in TASKS:
        before = len(proxy.answered)
        words = [sys.executable, "-m", "bench.studies.cold_task", str(spec), f"scheduled-{number}", task, *handed_on]
        done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
        handed_on = handed_on or done.stdout.split()
        figures[task] = _figures(proxy.answered[before:])
    return figures


def _land(server: Seaweed, bucket: str, number: int) -> None:
    """Land the file of one epoch."""
    parts, body = -(-EPOCH_ROWS // ROWS), pa.BufferOutputStream()
    rows = pa.concat_tables([rows_of(number * parts + part) for part in range(parts)]).slice(0, EPOCH_ROWS)
    pq.write_table(rows, body)
    server.client.put_object(Bucket=bucket, Key=f"landing/{number:06d}.parquet", Body=body.getvalue().to_pybytes())


def _spec(root: str) -> dict[str, Any]:
    expected = {"type": "expect_column_values_to_not_be_null", "column": "k"}
    return spec_of("trips", root) | {
        "store": {"endpoint_url": f"${{env:{_ENDPOINT}}}", "region": "us-east-1"},
        "quality": [{"sink": "totals", "expectations": [expected]}],
        "checkpointing": {"retained": {"last": RETAINED}},
    }
