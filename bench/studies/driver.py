"""A driver of one gigabyte: epochs, a savepoint, a diff and a rollback over a table and a state of so many keys.

The tasks run on a cluster's workers, which are outside of the limit, with an S3 server between. Every command is a
process of its own; in one that runs an epoch the limit holds its Python and its JVM together. At the end DuckDB,
outside of the limit too, holds the table against all the rows that landed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from bench.machine import OthersMeter
from bench.rounds import Say
from bench.studies.limited import Used, memory_group, run_limited
from bench.workloads.generate import bids
from bench.workloads.shapes import Shape
from bench.workloads.workloads import AGGREGATES
from milepost_testkit.jobs.connected_job import lake_connection
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.servers.spark_cluster import SparkCluster, spark_cluster
from scripts.processes import PYTHON_PATH

LIMIT_MB = 1_024
CHANGED_ROWS = 1_000_000
CATCH_UP = "run JOB --until-caught-up"
ACTS: tuple[tuple[int, str], ...] = (
    (1, CATCH_UP),
    (2, CATCH_UP),
    (0, "savepoint create JOB --name kept"),
    (0, "diff JOB 2 3"),
    (0, "rollback JOB --to 2 --yes"),
    (8, CATCH_UP),
    (0, "verify JOB --deep"),
    (0, "fsck JOB"),
    (0, "gc JOB"),
    (0, "read JOB result --format parquet --output DIR/table.parquet"),
)
"""Of how many epochs the rows land before it, and what is typed. What a rollback took back is read again."""
_WORKER = {"spark.executor.pyspark.memory": "2g", "spark.executor.cores": "1"}
_DRIVER = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_EXPECTATIONS = (
    {"type": "expect_column_values_to_not_be_null", "column": "auction"},
    {"type": "expect_column_values_to_be_unique", "column": "auction"},
    {"type": "expect_column_values_to_be_between", "column": "bids", "min_value": 1},
    {"type": "expect_column_mean_to_be_between", "column": "highest", "min_value": 1, "max_value": 10_000_000},
)
_ROWS_PER_STEP = 1_000_000
_FILES = 4


def measure_driver(keys: int, folder: Path, say: Say) -> dict[str, Any]:
    """Do all acts, one after another. Returns the record.

    Raises: RuntimeError: a command failed, or was ended for its memory. AssertionError: the table is not DuckDB's.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with _places(folder) as (bucket, cluster), memory_group(LIMIT_MB) as group:
        server, name = bucket
        (folder / "driver.yaml").write_text(json.dumps(_spec(name, cluster), indent=1) + "\n", encoding="utf-8")
        environment = {**os.environ, **lake_connection(server), "PYTHONPATH": PYTHON_PATH, "TMPDIR": str(folder)}
        shape, landed, acts = Shape(keys=keys, rows=CHANGED_ROWS), 0, list[dict[str, Any]]()
        others = OthersMeter()
        for epochs, words in ACTS:
            for epoch in range(landed, landed + epochs):
                _land(shape, epoch, folder / "landed", server, name)
            landed += epochs
            line = [str(folder / "driver.yaml") if word == "JOB" else word for word in words.split()]
            line = [word.replace("DIR/", f"{folder}/") for word in line]
            log = folder / "printed.txt"
            used = run_limited([sys.executable, "-m", "milepost", *line], LIMIT_MB, group, log, environment)
            acts.append({"words": words, "landed": epochs} | asdict(used))
            say(f"driver: {used.peak_mb:5.0f} MB {used.by_name_mb} {used.wall_s:7.1f} s {used.cpu_s:6.1f} s  {words}")
            _require_success(words, used, log)
        busy = others.cores()
        _check(folder)
    record = {"keys": keys, "held_by_kernel": group is not None, "other_busy_cores": busy, "acts": acts}
    shutil.rmtree(folder)
    return record


@contextmanager
def _places(folder: Path) -> Iterator[tuple[tuple[Seaweed, str], SparkCluster]]:
    """An S3 server with a bucket, and a cluster."""
    server = Seaweed(folder / "s3", volume_mb=1_024)
    server.start()
    try:
        with spark_cluster(folder / "cluster") as cluster:
            yield (server, server.new_bucket()), cluster
    finally:
        server.stop()


def _land(shape: Shape, epoch: int, folder: Path, server: Seaweed, bucket: str) -> None:
    """Write an epoch's rows to files, whole, and put them into the bucket."""
    folder.mkdir(exist_ok=True)
    total = shape.rows_of(epoch)
    for part in range(_FILES):
        file = folder / f"{epoch:03d}-{part}.parquet"
        first, end = total * part // _FILES, total * (part + 1) // _FILES
        with pq.ParquetWriter(file, bids(shape, epoch, 0, 0).select(["auction", "price"]).schema) as writer:
            for at in range(first, end, _ROWS_PER_STEP):
                writer.write_table(bids(shape, epoch, at, min(_ROWS_PER_STEP, end - at)).select(["auction", "price"]))
        server.client.upload_file(str(file), bucket, f"landing/{file.name}")


def _require_success(words: str, used: Used, log: Path) -> None:
    if used.ended_by or used.code:
        why = f"ended by {used.ended_by} at {used.peak_mb:.0f} MB" if used.ended_by else f"ended with {used.code}"
        raise RuntimeError(f"milepost {words}: {why}: {log.read_text(encoding='utf-8', errors='replace')[-4_000:]}")


def _check(folder: Path) -> None:
    """Compare the table with DuckDB's answer over all that landed. Raises AssertionError."""
    figures = ", ".join(f"({text})::BIGINT AS {name}" for name, text in AGGREGATES.items())
    names = ("auction", *AGGREGATES)
    query = f"""
        WITH wanted AS (SELECT auction, {figures} FROM read_parquet('{folder}/landed/*.parquet') GROUP BY auction),
             found AS (SELECT {", ".join(names)} FROM read_parquet('{folder}/table.parquet'))
        SELECT count(*), count(*) FILTER ({" AND ".join(f"wanted.{name} = found.{name}" for name in names)})
        FROM wanted FULL JOIN found ON wanted.auction = found.auction"""
    connection = duckdb.connect()
    connection.sql(f"SET memory_limit = '2GB'; SET temp_directory = '{folder}/duckdb'")
    every, same = connection.sql(query).fetchall()[0]
    assert every == same, f"{every - same} of {every} keys differ from what DuckDB says"


def _spec(bucket: str, cluster: SparkCluster) -> dict[str, Any]:
    sink = {"name": "result", "input": "result", "format": "parquet", "path": f"s3://{bucket}/lake", "mode": "upsert"}
    source = {
        "format": "parquet",
        "path": f"s3://{bucket}/landing/*.parquet",
        "schema": {"auction": "int64", "price": "int64"},
        "settle": "0s",
        "limits_per_epoch": {"max_files": _FILES},
    }
    return {
        "name": "driver",
        "storage": f"s3://{bucket}/milepost",
        "store": {"conn_id": "lake"},
        "sources": {"bids": source},
        "operators": [
            {"uid": "result", "kind": "aggregate", "inputs": ["bids"], "key": ["auction"], "aggregates": AGGREGATES}
        ],
        "sinks": [sink],
        "checkpointing": {"timeout": "2h"},
        "quality": [{"sink": "result", "expectations": _EXPECTATIONS}],
        "spark": {"master": cluster.url, "parallelism": 2, "conf": cluster.conf(_WORKER | _DRIVER)},
    }


def render_driver(document: dict[str, Any]) -> str:
    """Return the report of what was measured, by number of keys."""
    records = [document["driver"][keys] for keys in sorted(document["driver"], key=int)]
    lines = [
        "# A driver of one gigabyte",
        "",
        f"A running aggregate of so many keys, its table in Parquet and a gate on it of {len(_EXPECTATIONS)}",
        "expectations (one of them that no key comes twice), in a bucket; Spark is a standalone cluster, whose",
        f"workers are outside of the limit. Every command is a process of its own that may hold {LIMIT_MB:,} MB,",
        "with all that it starts: where it runs epochs, its Python and its JVM together. The first epoch has each",
        "key once, each later one a million rows of keys drawn at random. At the end DuckDB holds the table against",
        "all rows that landed. Peaks are the most that was held at once, as proportional shares, looked at ten times",
        "a second; a part's peak need not be at the same moment. Seconds are of CPU, of the driver alone.",
        "",
        "| | command | " + " | ".join(f"{record['keys'] / 1e6:g} M keys" for record in records) + " |",
        "|---|---|" + "---:|" * len(records),
    ]
    for number, (epochs, words) in enumerate(ACTS):
        cells = [_cell(record["acts"][number]) for record in records]
        after = f"{epochs} epoch{'s' * (epochs > 1)} landed" if epochs else ""
        lines.append(f"| {after} | `milepost {words}` | {' | '.join(cells)} |")
    lines += [""] + [
        f"* {record['keys']:,} keys: at commit {record['commit']}; "
        + (
            "the kernel held the limit as well"
            if record["held_by_kernel"]
            else "the limit was watched, not held by the kernel"
        )
        + f"; other processes kept {record['other_busy_cores']:.2f} cores busy."
        for record in records
    ]
    return "\n".join(lines) + "\n"


def _cell(act: dict[str, Any]) -> str:
    parts = [f"{name} {size:.0f}" for name, size in act["by_name_mb"].items() if name in ("python", "java")]
    shares = f" ({', '.join(parts)})" if len(parts) > 1 else ""
    return f"{act['peak_mb']:,.0f} MB{shares}, {act['cpu_s']:.0f} s"
