"""Months in minutes: ten thousand epochs of a small job, for each kind of table, and what of it grows.

The tasks of an epoch run in this process, one after another, so that what is measured is Milepost's own upkeep and not
Spark's. Landed files are taken away after a while, the state has a constant size, and garbage is collected as often as
an operator would: what still grows is the log, of which each transition leaves a tombstone.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import mean, median
from types import FrameType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import duckdb
import pyarrow.parquet as pq

from bench.rounds import Say
from bench.studies.old_job import LANDED, rows_of, spec_of
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.postgres_server import Database, PostgresServer
from milepost_testkit.stores.counted_stores import CountedStore, Requests

if TYPE_CHECKING:
    from milepost.api import JobMaster

FORMATS = ("parquet", "delta", "iceberg", "postgres")
CALLS_COUNTED = 20
"""Of one epoch in so many, the calls are counted."""
LOOKED = 100
"""After so many epochs what is stored is looked at, and the median epoch between two looks is a point."""
COLLECTED = 500
"""After so many epochs garbage is collected."""
RETAINED = 10
TIMEOUT = "10s"
"""Of a checkpoint: the grace period of garbage follows from it."""
WEEK_S = 20
"""An epoch takes a tenth of a second in place of an hour: a table's log keeps a week of it, and an hour is grace."""
_SHORTENED = {
    "milepost.protocol.retention.retention._GRACE_MARGIN_MS": 0,
    "milepost.jobspec.job.checkpointing_spec.Retained.reach_ms": WEEK_S * 1_000,
}
"""Times of the product that no spec shortens, and what they are here."""
_OPENERS = (
    "milepost.jobmaster.job.context.open_store",
    "milepost.jobmaster.job.input.next_input.open_store",
    "milepost.jobmaster.reports.jobs.open_store",
)
_LOGS = {"parquet": "*/_milepost/heads/*", "delta": "*/_delta_log/*", "iceberg": "*/metadata/*"}


def measure_months(epochs: int, formats: tuple[str, ...], folder: Path, say: Say) -> dict[str, Any]:
    """Run so many epochs for each format of tables. Returns the record by format."""
    shutil.rmtree(folder, ignore_errors=True)
    return {format_: _months_of(format_, epochs, folder / format_, say) for format_ in formats}


def _months_of(format_: str, epochs: int, folder: Path, say: Say) -> dict[str, Any]:
    started = time.perf_counter()
    points, collected = list[dict[str, Any]](), list[dict[str, Any]]()
    with small_job(format_, folder) as job:
        while job.landed < epochs:
            points.append(job.run(min(LOOKED, epochs - job.landed)) | job.stored())
            if job.landed % COLLECTED == 0:
                collected.append(job.collect())
            point = points[-1]
            cost = f"{point['wall_s']:.3f} s, {point['requests']:.0f} requests"
            say(f"months, {format_}: epoch {job.landed} of {epochs}; {cost}")
        job.check()
    shutil.rmtree(folder)
    return {"points": points, "collected": collected, "took_s": time.perf_counter() - started, "epochs": epochs}


@contextmanager
def small_job(format_: str, folder: Path, *, shortened: bool = True) -> Iterator[SmallJob]:
    """A job with what it needs. Args: shortened: so are grace and what a table's log keeps, as its epochs are."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        database = None
        if format_ == "postgres":
            server = PostgresServer(folder / "server", autovacuum="on", autovacuum_naptime="1s")
            server.start()
            stack.callback(server.stop)
            database = server.new_database()
        environment = {
            "MILEPOST_CACHE_DIR": str(folder / "cache"),
            "MILEPOST_BENCH_DSN": database.dsn if database else "",
        }
        stack.enter_context(patch.dict(os.environ, environment))
        requests = Requests()
        if shortened:
            for name, milliseconds in _SHORTENED.items():
                stack.enter_context(patch(name, milliseconds))
        stack.enter_context(counted_openers(requests))
        yield SmallJob(format_, folder, requests, database)


@contextmanager
def counted_openers(requests: Requests) -> Iterator[None]:
    """Every store that a job master opens meanwhile is counted."""
    with ExitStack() as stack:
        for opener in _OPENERS:
            stack.enter_context(patch(opener, _counted(requests)))
        yield


def _counted(requests: Requests) -> Callable[[StoreConfig], ObjectStore]:
    return lambda config: CountedStore(open_store(config), requests)


@contextmanager
def counted_calls() -> Iterator[Iterator[int]]:
    """Calls of Python's and of C's functions meanwhile, by this thread and by those that begin. Yields a counter."""
    counter = count()

    def count_one(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            next(counter)

    threading.setprofile(count_one)
    sys.setprofile(count_one)
    try:
        yield counter
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class SmallJob:
    """A running aggregate and a window over 500 rows an epoch, and what they cost.

    Args:
        folder: of its landed files, tables and node; its last part is the job's name.
        database: where the tables are; None: in files below `folder`.
        storage: that other jobs may be in; None: one of its own, below `folder`.
    """

    def __init__(
        self,
        format_: str,
        folder: Path,
        requests: Requests,
        database: Database | None = None,
        storage: Path | None = None,
    ) -> None:
        self.landed = 0
        self._format, self._folder, self._requests, self._database = format_, folder, requests, database
        self._landing, self._archive = folder / "landing", folder / "archive"
        self._storage = storage or folder / "store"
        self._landing.mkdir(parents=True)
        self._archive.mkdir()
        self._file = folder / f"{folder.name}.yaml"
        self._file.write_text(json.dumps(self._spec(), indent=1) + "\n", encoding="utf-8")
        self.master = self.new_master()
        self._runner = SparklessRunner(opener=_counted(requests), node=str(folder / "node"))
        self._store = self._storage / folder.name

    def new_master(self) -> JobMaster:
        """Return a job master as a new process has it."""
        from milepost.api import JobMaster, load_job

        return JobMaster(load_job(str(self._file)))

    def run(self, epochs: int) -> dict[str, Any]:
        """Run so many epochs, each of a file of its own. Returns medians and means per epoch.

        Of some, the calls of functions are counted in place of their time: a figure that no other process changes.
        """
        from milepost.api import Session

        walls, cpus, requests = list[float](), list[float](), list[int]()
        calls, kinds = list[int](), Counter[str]()
        for number in range(epochs):
            self._land()
            self._requests.clear()
            if number % CALLS_COUNTED == 0:
                with counted_calls() as counted:
                    self.master.epochs.run(Session.cli(), self._runner)
                calls.append(next(counted))
            else:
                wall_s, cpu_s = time.perf_counter(), time.process_time()
                self.master.epochs.run(Session.cli(), self._runner)
                walls.append(time.perf_counter() - wall_s)
                cpus.append(time.process_time() - cpu_s)
            requests.append(len(self._requests.calls))
            kinds.update(operation for operation, _ in self._requests.asked)
            self._runner.plans.clear()
        return {
            "epoch": self.landed,
            "wall_s": median(walls),
            "cpu_s": median(cpus),
            "mean_cpu_s": mean(cpus),
            "calls": median(calls),
            "requests": median(requests),
            "mean_requests": mean(requests),
            "most_requests": max(requests),
            "kinds": {operation: number / epochs for operation, number in sorted(kinds.items())},
            "head_found_by": self._head_found_by(),
        }

    def _head_found_by(self) -> int:
        """Requests to the log by which a process that knows nothing of the job finds its head."""
        from milepost.api import JobMaster, load_job

        self._requests.clear()
        JobMaster(load_job(str(self._file))).reports.status()
        return sum(key.startswith("manifest/") for _, key in self._requests.asked)

    def stored(self) -> dict[str, int]:
        """Bytes and objects that there are now, by what they are for."""
        log = [entry.stat().st_size for entry in os.scandir(self._store / "manifest")]
        pattern = _LOGS.get(self._format)
        tables = [path.stat().st_size for path in (self._folder / "lake").glob(pattern)] if pattern else []
        catalog = self._folder / "catalog.db"
        return {
            "log_bytes": sum(log),
            "log_entries": len(log),
            "largest_entry": max(log),
            "table_log_bytes": sum(tables) + (catalog.stat().st_size if catalog.exists() else 0),
            "table_log_files": len(tables),
            "table_files": sum(1 for path in (self._folder / "lake").rglob("*") if path.is_file()),
            "job_objects": sum(1 for path in self._store.rglob("*") if path.is_file()),
            "cache_bytes": sum(path.stat().st_size for path in (self._folder / "node").rglob("*") if path.is_file()),
            "database_bytes": self._database_bytes(),
        }

    def collect(self) -> dict[str, Any]:
        """Collect garbage. Returns what that took, and how much of it there was."""
        started = time.perf_counter()
        found = self.master.collect_garbage()
        return {
            "epoch": self.landed,
            "wall_s": time.perf_counter() - started,
            "deleted": found.deleted_objects,
            "pruned": found.pruned_files,
        }

    def check(self) -> None:
        """Compare the running aggregate with DuckDB's over all files. Raises AssertionError."""
        query = "SELECT k, count(*) AS n, sum(price)::BIGINT AS total FROM read_parquet($files) GROUP BY k ORDER BY k"
        files = f"{self._archive}/*.parquet"
        expected = duckdb.sql(query, params={"files": files}).to_arrow_table().to_pylist()
        found = self.master.reports.read("totals").select(["k", "n", "total"]).sort_by("k").to_pylist()
        assert found == expected, f"the {self._format} table after {self.landed} epochs is not what DuckDB says"
        assert self.master.reports.fsck().exit_code == 0

    def _land(self) -> None:
        """Land the next file, whole, and take the oldest away."""
        name = f"{self.landed:06d}.parquet"
        pq.write_table(rows_of(self.landed), self._archive / name)
        os.link(self._archive / name, self._landing / name)
        (self._landing / f"{self.landed - LANDED:06d}.parquet").unlink(missing_ok=True)
        self.landed += 1

    def _database_bytes(self) -> int:
        if self._database is None:
            return 0
        return int(self._database.run("SELECT pg_database_size(current_database())")[0][0])

    def _spec(self) -> dict[str, Any]:
        spec = spec_of(self._folder.name, self._folder.as_uri()) | {"storage": self._storage.as_uri()}
        for sink in spec["sinks"]:
            sink["format"] = self._format
            if self._format == "iceberg":
                catalog = {"type": "sql", "uri": f"sqlite:///{self._folder}/catalog.db"}
                sink |= {"table": f"months.{sink['name']}", "catalog": catalog}
        if self._format == "postgres":  # which takes upserts alone
            sink = {"name": "totals", "input": "totals", "format": "postgres", "mode": "upsert"}
            spec["sinks"] = [sink | {"dsn": "${env:MILEPOST_BENCH_DSN}", "table": "public.totals"}]
            spec["operators"] = [one for one in spec["operators"] if one["uid"] == "totals"]
        spec["sources"]["bids"]["forget_after"] = "1m"
        return spec | {"checkpointing": {"retained": {"last": RETAINED}, "timeout": TIMEOUT}}
