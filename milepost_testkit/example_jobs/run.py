"""`make examples`: the example jobs over generated data, each equal to DuckDB's answer all along."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from milepost.api import spark_runner
from milepost_testkit.example_jobs import clickstream, logs, orders, sensors
from milepost_testkit.example_jobs.example_job import ExampleJob, ExampleRun

JOBS: tuple[ExampleJob, ...] = (logs.JOB, orders.JOB, sensors.JOB, clickstream.JOB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of all epochs together")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--only", nargs="+", choices=[job.name for job in JOBS])
    chosen = parser.parse_args()
    runner = spark_runner()
    for job in JOBS:
        if chosen.only and job.name not in chosen.only:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="milepost-example-") as folder:
            run = ExampleRun(job, Path(folder), runner, -(-chosen.rows // chosen.epochs), chosen.seed)
            for done in run.live(chosen.epochs):
                print(f"{job.name}: {done}; every table is DuckDB's answer", flush=True)
        print(f"{job.name}: seed {chosen.seed}, {chosen.rows:,} rows in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
