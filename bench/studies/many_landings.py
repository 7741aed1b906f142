"""A log of ten thousand landings: what a landing, an epoch and `status` cost as it grows. No Spark and no broker."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from bench.machine import OthersMeter
from bench.rounds import Say
from bench.systems.contract import size_of
from bench.systems.counting import counted_requests
from milepost_testkit.runners.sparkless_runner import SparklessRunner

LANDINGS = 10_000
POINTS = 10
"""Points of the log's growth: each is a tenth of the landings."""
PER_EPOCH = 50
"""Landings after which an epoch runs."""
ROWS = 100
"""Per landing."""

_SPEC = {
    "name": "landings",
    "sources": {
        "bids": {"format": "nexmark", "events": "bid", "land": {"max_rows": ROWS}},
    },
    "operators": [
        {"uid": "totals", "kind": "aggregate", "inputs": ["bids"], "key": ["channel"], "aggregates": {"n": "count(*)"}}
    ],
}


def many_landings(landings: int, folder: Path, say: Say) -> dict[str, Any]:
    """Land so often, with an epoch after every fiftieth time, and compare the result. Returns the record."""
    from milepost.api import JobMaster, Session, load_job

    folder = folder / "landings"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sink = {"name": "totals", "input": "totals", "format": "parquet", "path": f"{folder}/lake", "mode": "upsert"}
    file = folder / "landings.yaml"
    file.write_text(json.dumps(_SPEC | {"storage": f"{folder}/store", "sinks": [sink]}), encoding="utf-8")
    others, points = OthersMeter(), list[dict[str, Any]]()
    with patch.dict(os.environ, {"MILEPOST_CACHE_DIR": str(folder / "cache")}):
        master, runner = JobMaster(load_job(str(file))), SparklessRunner()
        for point in range(POINTS):
            landed, epochs, statuses = list[float](), list[float](), list[float]()
            with counted_requests() as requests:
                counts = []
                for number in range(landings // POINTS):
                    before = requests.total()
                    landed.append(_timed(master.landings.land))
                    counts.append(requests.total() - before)
                    if number % PER_EPOCH == PER_EPOCH - 1:
                        statuses.append(_timed(master.reports.status))
                        epochs.append(_timed(lambda: master.epochs.run(Session.cli(), runner)))
            points.append(
                {
                    "landings": (point + 1) * (landings // POINTS),
                    "landing_ms": median(landed),
                    "landing_requests": median(counts),
                    "epoch_ms": median(epochs),
                    "status_ms": median(statuses),
                    "stored_bytes": size_of(folder / "store" / "landings" / "landed"),
                }
            )
            say(f"log: {points[-1]['landings']:,} landings; {points[-1]['landing_ms']:.1f} ms each")
        walks = {
            "fsck_ms": _timed(master.reports.fsck),
            "gc_ms": _timed(master.collect_garbage),
        }
        counted = sum(row["n"] for row in master.reports.read("totals").to_pylist())
    if counted != landings * ROWS:
        raise RuntimeError(f"log: expected {landings * ROWS:,} rows in the table, got {counted:,}")
    busy = others.cores()
    shutil.rmtree(folder)
    return {"points": points, "other_busy_cores": busy, "systems": {}, **walks}


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1_000
