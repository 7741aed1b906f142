"""How a job grows old: thousands of small epochs in one process, what each costs and leaves, what works at the end.

Two operators, two sinks, 500 rows per epoch. Landed files are taken away after a while, as somebody would in a bucket,
so that a listing does not grow; the state has a constant size. What still grows is Milepost's own: that is asked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from bench.rounds import Say

ROWS = 500
KEYS = 100
RETAINED = 10
LANDED = 100
"""How many of the newest landed files stay in the folder that the job lists."""
EARLY, LATE = (100, 600), 500
"""The epochs that are compared: from the one to the other, and the last so many."""
COMPARABLE = EARLY[1] + LATE
"""Fewer epochs than that tell nothing of age."""
_START_US = 1_357_000_000_000_000
_MINUTE_US = 60_000_000
_ENTRIES_READ = 16
_KINDS = {
    "log": re.compile(r"manifest/.*"),
    "metadata": re.compile(r"chk-\d+/t\d+/_metadata"),
    "input records": re.compile(r"inputs/.*"),
    "state": re.compile(r"chk-\d+/t\d+/(?:state|consumed|channel)/.*"),
    "measurements": re.compile(r"chk-\d+/t\d+/(?:metrics/.*|_heartbeat)"),
}


def rows_of(number: int) -> pa.Table:
    """The rows of one epoch: its minute of event time; keys are spread evenly."""
    first = number * ROWS
    return pa.table(
        {
            "k": pa.array([(first + row) * 7919 % KEYS for row in range(ROWS)], pa.int64()),
            "price": pa.array([(first + row) * 31 % 1_000 for row in range(ROWS)], pa.int64()),
            "at": pa.array(
                [_START_US + number * _MINUTE_US + row * (_MINUTE_US // ROWS) for row in range(ROWS)],
                pa.timestamp("us", "UTC"),
            ),
        }
    )


class OldJob:
    """The job in a folder, and what its epochs cost."""

    def __init__(self, folder: Path) -> None:
        from milepost.api import JobMaster, load_job, spark_runner

        self.folder, self.landing, self.archive = folder, folder / "landing", folder / "archive"
        self.landing.mkdir(parents=True)
        self.archive.mkdir()
        os.environ["MILEPOST_CACHE_DIR"] = str(folder / "cache")
        self.spec = folder / "old.yaml"
        self.spec.write_text(json.dumps(spec_of("old", folder.as_uri()), indent=1) + "\n", encoding="utf-8")
        self.master, self.runner = JobMaster(load_job(str(self.spec))), spark_runner()
        self.store = folder / "store" / "old"
        self.landed = self._version = 0

    def land(self) -> None:
        """Land the next file, whole, and take the oldest away."""
        name = f"{self.landed:06d}.parquet"
        pq.write_table(rows_of(self.landed), self.archive / name)
        os.link(self.archive / name, self.folder / name)
        (self.folder / name).rename(self.landing / name)
        (self.landing / f"{self.landed - LANDED:06d}.parquet").unlink(missing_ok=True)
        self.landed += 1

    def epoch(self) -> dict[str, Any]:
        """Run one epoch. Returns its wall seconds, and the bytes of log and metadata that it wrote."""
        from milepost.api import Session, to_json

        self.land()
        started = time.perf_counter()
        document = to_json(self.master.epochs.run(Session.cli(), self.runner))
        wall_s = time.perf_counter() - started
        return {"checkpoint_id": document["checkpoint_id"], "wall_s": wall_s, **self._written(document)}

    def _written(self, document: dict[str, Any]) -> dict[str, int]:
        entries = sorted(os.scandir(self.store / "manifest"), key=lambda entry: entry.name)[:_ENTRIES_READ]
        versions = {10**19 - int(entry.name.partition(".")[0]): entry.stat().st_size for entry in entries}
        new = {version: size for version, size in versions.items() if version > self._version}
        self._version = max(versions)
        here = self.store / f"chk-{document['checkpoint_id']:020d}" / f"t{document['leader']['token']:020d}"
        return {
            "entries": len(new),
            "largest_entry": max(new.values()),
            "log_bytes": sum(new.values()),
            "metadata_bytes": (here / "_metadata").stat().st_size,
        }

    def stored(self) -> dict[str, int]:
        """Bytes of the job's store by kind; what is garbage, and waits for its grace period, is a kind of its own."""
        from milepost.jobmaster.retention.fsck import classify_objects
        from milepost.jobmaster.retention.reachability import walk_job
        from milepost.protocol.retention.reach import ObjectStatus

        kinds: Counter[str] = Counter()
        for item in classify_objects(walk_job(self.master.context)):
            if item.sink is None:
                waits = item.status in (ObjectStatus.LISTED, ObjectStatus.UNREACHABLE)
                kinds["garbage"] += item.stat.size * waits
                kinds[_kind(item.stat.key)] += item.stat.size * (not waits)
        return dict(sorted(kinds.items()))

    def check(self, files: int) -> None:
        """Compare the running aggregate with DuckDB's, over the first files. Raises AssertionError."""
        names = [str(self.archive / f"{number:06d}.parquet") for number in range(files)]
        query = "SELECT k, count(*) AS n, sum(price)::BIGINT AS total FROM read_parquet($names) GROUP BY k ORDER BY k"
        expected = duckdb.sql(query, params={"names": names}).to_arrow_table().to_pylist()
        found = self.master.reports.read("totals").select(["k", "n", "total"]).sort_by("k").to_pylist()
        assert found == expected, f"the table after {files} epochs is not what DuckDB says"


_twins: list[OldJob] = []
"""In the process of the young twin: its one job."""


def _open_twin(folder: Path) -> None:
    _twins.append(OldJob(folder))


def _twin_epochs(count: int) -> list[float]:
    return [_twins[0].epoch()["wall_s"] for _ in range(count)]


def grow_old(epochs: int, folder: Path, say: Say) -> dict[str, Any]:
    """Run so many epochs in this process, then what a person asks of the job. Returns the record of the part.

    A machine is not as fast at the end as it was at the beginning. So the last epochs take turns with those of a young
    twin, in a process of its own, that is as old as the job was in its early ones.
    """
    shutil.rmtree(folder, ignore_errors=True)
    young = OldJob(folder / "young")
    for _ in range(2 * RETAINED):
        young.epoch()
    acts = {"young": _acts(young, 1)}
    job, measured, twin_s = OldJob(folder / "old"), list[dict[str, Any]](), list[float]()
    started = time.perf_counter()
    with ProcessPoolExecutor(1, get_context("spawn"), _open_twin, (folder / "twin",)) as twin:
        for number in range(epochs):
            if epochs >= COMPARABLE and number >= epochs - LATE:
                twin_s += twin.submit(_twin_epochs, 1 if twin_s else EARLY[0] + 1).result()[-1:]
            measured.append(job.epoch())
            if number % 100 == 99:
                wall = median(one["wall_s"] for one in measured[-100:])
                beside = f"; of its twin {median(twin_s[-100:]):.3f} s" if twin_s else ""
                say(f"old job: epoch {number + 1} of {epochs}; median of the last hundred {wall:.3f} s{beside}")
    took_s = time.perf_counter() - started
    job.check(epochs)
    record = {
        "epochs": measured,
        "twin_s": twin_s,
        "took_s": took_s,
        "stored": job.stored(),
        "reads_s": {name: _timed(read) for name, read in _reads(job).items()},
        "acts_s": acts | {"old": _acts(job, measured[0]["checkpoint_id"])},
    }
    say("old job: " + json.dumps(summary_of(record)))
    return record


def summary_of(record: dict[str, Any]) -> dict[str, Any]:
    """What the targets ask of a record; None for what fewer epochs do not tell."""
    epochs, stored = record["epochs"], record["stored"]
    walls = [one["wall_s"] for one in epochs]
    early, twin = walls[EARLY[0] : EARLY[1]], record["twin_s"]
    late_s = median(walls[-LATE:])
    kept = stored.get("log", 0) + stored.get("metadata", 0)
    return {
        "epochs": len(epochs),
        "early_s": median(early) if early else None,
        "twin_s": median(twin) if twin else None,
        "late_s": late_s,
        "grown": late_s / median(twin) if twin else None,
        "grown_since_early": late_s / median(early) if twin else None,
        "written_bytes_per_epoch": sum(one["log_bytes"] + one["metadata_bytes"] for one in epochs) / len(epochs),
        "kept_bytes_per_epoch": kept / len(epochs),
        "largest_entry": max(one["largest_entry"] for one in epochs),
        "slowest_read_s": max(record["reads_s"].values()),
    }


def spec_of(name: str, root: str) -> dict[str, Any]:
    """The job below a location: what lands in `landing`, its store, and its tables in `lake`."""

    def sink(name: str, mode: str) -> dict[str, str]:
        return {"name": name, "input": name, "format": "parquet", "path": f"{root}/lake/{name}", "mode": mode}

    aggregates = {"n": "count(*)", "total": "sum(price)"}
    return {
        "name": name,
        "storage": f"{root}/store",
        "sources": {
            "bids": {
                "format": "parquet",
                "path": f"{root}/landing/*.parquet",
                "schema": {"k": "int64", "price": "int64", "at": "timestamp[us, UTC]"},
                "event_time": "at",
                "watermark_delay": "1m",
                "settle": "0s",
            }
        },
        "operators": [
            {"uid": "totals", "kind": "aggregate", "inputs": ["bids"], "key": ["k"], "aggregates": aggregates},
            {
                "uid": "minutes",
                "kind": "window",
                "inputs": ["bids"],
                "key": ["k"],
                "window": {"tumbling": "1m"},
                "aggregates": aggregates,
                "allowed_lateness": "0s",
            },
        ],
        "sinks": [sink("totals", "upsert"), sink("minutes", "append")],
        "spark": {"master": "local[2]", "parallelism": 2},
        "checkpointing": {"retained": {"last": RETAINED}},
    }


def _kind(key: str) -> str:
    return next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(key)), "other")


def _reads(job: OldJob) -> dict[str, Callable[[], object]]:
    first, master = 1, job.master
    return {
        "list": lambda: master.reports.list_checkpoints(limit=51),
        "history": lambda: master.reports.history(51),
        "show of the first": lambda: master.reports.show(first),
        "status": master.reports.status,
    }


def _acts(job: OldJob, first: int) -> dict[str, float]:
    """Seconds of what a person does to a job, each checked: fsck, a rollback, an epoch, a backfill, fsck again."""
    from milepost.api import Session
    from milepost_testkit.jobs.backfills import back_fill
    from milepost_testkit.jobs.rollbacks import roll_back

    def sound() -> None:
        assert job.master.reports.fsck().exit_code == 0

    head = job.master.reports.status().head
    spent = {"show of the first": _timed(lambda: job.master.reports.show(first)), "fsck": _timed(sound)}
    files = job.landed
    spent["rollback by three"] = _timed(lambda: roll_back(job.master, head - 3))
    job.check(files - 3)
    for _ in range(3):
        job.master.epochs.run(Session.cli(), job.runner)
    job.check(files)
    base = [one.checkpoint_id for one in job.master.reports.list_checkpoints("completed") if one.live][3]
    spent["backfill of three"] = _timed(lambda: back_fill(job.master, job.runner, from_checkpoint=base))
    job.check(files)
    spent["fsck afterwards"] = _timed(sound)
    return spent


def _timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started
