"""A hundred thousand input objects of a kilobyte, in a bucket thirty milliseconds away: an epoch takes all of them.

Every run is a process of its own. After the large epoch come one without anything new, which lists all objects and
knows each of them, and one with a hundred more.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from bench.machine import OthersMeter
from bench.rounds import Say
from bench.studies.limited import run_limited
from milepost_testkit.proxies.delaying_proxy import Answered, DelayingProxy, longest_line
from milepost_testkit.servers.s3_servers import Seaweed
from scripts.processes import PYTHON_PATH

MORE = 100
DELAY_MS = 30
_ROWS = 70
"""Of each object, which is about a kilobyte of CSV."""
_ENDPOINT = "MILEPOST_BENCH_ENDPOINT"
_WITHOUT_LIMIT_MB = 1 << 20
_PUT_BY, _AT_ONCE = 10, 500


def measure_small_objects(objects: int, folder: Path, say: Say) -> dict[str, Any]:
    """Put the objects, then run. Returns the record. Raises RuntimeError: a run failed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = Seaweed(folder / "server", volume_mb=1_024)
    server.start()
    try:
        bucket = server.new_bucket()
        spec = folder / "many.yaml"
        spec.write_text(json.dumps(_spec(bucket), indent=1) + "\n", encoding="utf-8")
        runs = list[dict[str, Any]]()
        others = OthersMeter()
        with DelayingProxy(server.port, DELAY_MS / 1000) as proxy:
            for says, first, end in (("all", 0, objects), ("none", 0, 0), (f"{MORE} more", objects, objects + MORE)):
                _put(server, bucket, range(first, end))
                runs.append({"takes": says} | _run(spec, server, proxy, folder))
                say(f"small objects: {runs[-1]}")
        return {"objects": objects, "runs": runs, "other_busy_cores": others.cores()}
    finally:
        server.stop(kill=True)
        shutil.rmtree(folder)


def _put(server: Seaweed, bucket: str, numbers: range) -> None:
    def put(some: range) -> None:
        for number in some:
            server.client.put_object(Bucket=bucket, Key=f"landing/{number:06d}.csv", Body=_body(number))

    with ThreadPoolExecutor(_PUT_BY) as pool:
        list(pool.map(put, (numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE))))


def _body(number: int) -> bytes:
    rows = range(number * _ROWS, (number + 1) * _ROWS)
    table = pa.table({"k": [row * 7919 % 10_000 for row in rows], "price": [row * 31 % 1_000_000 for row in rows]})
    body = pa.BufferOutputStream()
    pa_csv.write_csv(table, body)
    return body.getvalue().to_pybytes()


def _run(spec: Path, server: Seaweed, proxy: DelayingProxy, folder: Path) -> dict[str, Any]:
    """Run `milepost run` once; return its resource usage and its requests to the bucket."""
    environment = os.environ | server.environment() | {"PYTHONPATH": PYTHON_PATH, _ENDPOINT: proxy.endpoint_url}
    environment |= {"MILEPOST_CACHE_DIR": str(folder / "cache")}
    before, log = len(proxy.answered), folder / "printed.txt"
    line = [sys.executable, "-m", "milepost", "run", str(spec), "--json"]
    used = run_limited(line, _WITHOUT_LIMIT_MB, None, log, environment)
    if used.code:
        raise RuntimeError(f"milepost run ended with {used.code}: {log.read_text(encoding='utf-8')[-4_000:]}")
    asked = proxy.answered[before:]
    kinds = Counter(_kind(one) for one in asked)
    listed = [one for one in asked if _kind(one) == "list landing"]
    return {
        "wall_s": used.wall_s,
        "cpu_s": used.cpu_s,
        "driver_mb": used.first_mb,
        "requests": dict(kinds),
        "in_line": longest_line([one for one in asked if _kind(one) != "get landing"]),
        "listing_s": listed[-1].answered_s - listed[0].arrived_s if listed else 0.0,
    }


def _kind(one: Answered) -> str:
    landing = "landing%2F" in one.path or "landing/" in one.path
    if one.method == "GET" and "list-type=2" in one.path:
        return "list landing" if landing else "list"
    return f"{one.method.lower()} landing" if landing else one.method.lower()


def _spec(bucket: str) -> dict[str, Any]:
    source = {
        "format": "csv",
        "path": f"s3://{bucket}/landing/*.csv",
        "schema": {"k": "int64", "price": "int64"},
        "settle": "0s",
    }
    aggregates = {"n": "count(*)", "total": "sum(price)"}
    sink = {"name": "totals", "input": "totals", "format": "parquet", "path": f"s3://{bucket}/lake", "mode": "upsert"}
    return {
        "name": "many",
        "storage": f"s3://{bucket}/milepost",
        "store": {"endpoint_url": f"${{env:{_ENDPOINT}}}", "region": "us-east-1"},
        "sources": {"rows": source},
        "operators": [
            {"uid": "totals", "kind": "aggregate", "inputs": ["rows"], "key": ["k"], "aggregates": aggregates}
        ],
        "sinks": [sink],
        "spark": {"master": "local[2]", "parallelism": 2},
    }
