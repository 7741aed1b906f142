"""Milepost: a long-running session in one process, or `milepost run` in a new process per epoch.

Its table is our own Parquet one, or one of Delta or Iceberg, which is read at the end by their own libraries.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.systems.contract import PARALLELISM, Folders, NotAsked, Written, is_data, link_files, size_of
from bench.systems.far_store import FarStore
from bench.systems.milepost_tables import OWN, TableKind
from bench.systems.servers import Server
from bench.systems.static_tables import write_static
from bench.systems.topics import KafkaTopic, stage_nothing
from bench.workloads.workloads import AGGREGATES, BIDS, WINDOW_S, Query, Workload
from milepost_testkit.servers.spark_cluster import SparkCluster

_STATIC = {"auction": "int64", "seller": "int64", "category": "string"}


_FUNCTION = {
    "uid": "result",
    "kind": "process",
    "inputs": ["bids"],
    "function": "totals:Totals",
    "output_key": ["auction"],
}
_TOTALS = """\
import pyarrow as pa

NAMES = ["auction", "bids", "total", "highest"]


class Totals:
    state = {"bids": "int64", "total": "int64", "highest": "int64"}
    output = {"auction": "int64", **state}

    def on_batch(self, batch, state, ctx):
        ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        own = pa.table([batch["auction"], ones, batch["price"], batch["price"]], names=NAMES)
        every = pa.concat_tables([state.select(NAMES), own]).group_by("auction")
        new = every.aggregate([("bids", "sum"), ("total", "sum"), ("highest", "max")]).rename_columns(NAMES)
        return new, new
"""


def write_spec(
    workload: Workload,
    folders: Folders,
    *,
    spark: dict[str, Any],
    retained: int,
    table: TableKind = OWN,
    function: bool = False,
    plain: bool = False,
    far: FarStore | None = None,
    topic: KafkaTopic | None = None,
) -> Path:
    """Write the job of a workload, and return its file.

    Args:
        spark: of the spec. retained: checkpoints. table: what the sink is. function: whether a class aggregates.
        plain: whether the sink takes the bids as they are. far: where state and table are, if not in its folders.
        topic: where rows come from, if not from its folder.
    """
    operators = [_FUNCTION | {"key": list(workload.key)}] if function else [] if plain else _operators(workload)
    spec: dict[str, Any] = {
        "name": "bench",
        "storage": folders.checkpoints.as_uri(),
        "sources": _sources(workload, folders, topic) | ({} if plain else _static(workload, folders)),
        "operators": operators,
        "spark": spark,
        "checkpointing": {"retained": {"last": retained}},
    }
    if workload.statement is not None and workload.statement.sql:
        (folders.work / "bench.sql").write_text(workload.statement.sql, encoding="utf-8")
        spec |= {"sql": "bench.sql", "tables": {"format": "parquet", "path": f"{folders.output.as_uri()}/{{name}}"}}
    else:
        spec["sinks"] = [{"name": "result", "input": "bids" if plain else "result", **table.sink(workload, folders)}]
    if far is not None:
        spec["storage"], spec["sinks"][0]["path"] = (f"{far.place(folders, 's3')}/{name}" for name in ("jobs", "table"))
        spec["store"] = {"endpoint_url": far.endpoint_url, "region": "us-east-1"}
    (folders.work / "totals.py").write_text(_TOTALS, encoding="utf-8")
    file = folders.work / "bench.yaml"
    file.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
    return file


def _sources(workload: Workload, folders: Folders, topic: KafkaTopic | None) -> dict[str, Any]:
    """Return the sources of the streams that a workload reads. Args: topic: where rows come from; None: files."""
    sources: dict[str, Any] = {}
    for stream, columns in workload.streams.items():
        source: dict[str, Any] = {"schema": {name: workload.types[name] for name in columns}}
        if topic is None:  # what is in the folder is whole
            path = f"{folders.landing.as_uri()}/**/{stream}-*.parquet"
            source |= {"format": "parquet", "path": path, "settle": "0s"}
        else:
            source |= {"format": "kafka", "bootstrap_servers": topic.servers, "topics": [topic.name]}
            source["value"] = {"format": "json"}
        if workload.is_timed:
            source |= {"event_time": "event_time", "watermark_delay": f"{workload.delay_ms}ms"}
        elif stream != BIDS and "event_time" in columns:  # as in the example
            source["event_time"] = "event_time"
        sources[stream] = source
    return sources


def _static(workload: Workload, folders: Folders) -> dict[str, Any]:
    if not workload.static:
        return {}
    path = f"{folders.static(workload.static).as_uri()}/*.parquet"
    return {workload.static: {"format": "parquet", "path": path, "schema": _STATIC, "static": True, "settle": "0s"}}


def _operators(workload: Workload) -> list[dict[str, Any]]:
    if workload.statement is not None:
        return list(workload.statement.operators)
    operator: dict[str, Any] = {
        "uid": "result",
        "kind": workload.query.value,
        "inputs": ["bids"],
        "key": list(workload.key),
    }
    if workload.query is not Query.DEDUPLICATE:
        operator["aggregates"] = AGGREGATES
    if workload.query is Query.WINDOW:
        operator |= {"window": {"tumbling": f"{WINDOW_S}s"}, "allowed_lateness": "0s"}
    return [operator]


class Milepost:
    """Epochs through the JobMaster; with `fresh` each is a new process of the command line, on a server if `served`."""

    def __init__(
        self,
        *,
        fresh: bool = False,
        served: bool = False,
        parallelism: str = str(PARALLELISM),
        retained: str = "10",
        worker_memory_mb: str = "",
        table: TableKind = OWN,
        function: bool = False,
        plain: bool = False,
        far: bool = False,
        executors: str = "",
        kafka: bool = False,
    ) -> None:
        """Take what a system's name can carry, and the kind of its table.

        Args:
            function: whether a user's class does what the operator would. plain: whether nothing is looked up.
            worker_memory_mb: limit of each Python worker's address space; empty = none.
            far: whether state and table are in the far store. executors: of one core each, of a cluster; empty: the
                tasks run in this process's Spark.
            kafka: whether rows come from a topic, which an epoch lands first; not with `fresh`.
        """
        self._reads_kafka = kafka
        self._table, self._function, self._plain = table, function, plain
        self._fresh, self._served = fresh, served
        self._server: Server | None = None
        self._is_far, self._executors = far, executors
        self._cluster: SparkCluster | None = None
        self._parallelism, self._retained = int(parallelism), int(retained)
        # Spark divides it by `spark.executor.cores`, which a local master leaves at 1.
        self._conf = {"spark.executor.pyspark.memory": f"{worker_memory_mb}m"} if worker_memory_mb else {}
        self._document: dict[str, Any] = {}

    def prepare(self, workload: Workload, folders: Folders) -> None:
        self._workload, self._folders = workload, folders
        self._cache = folders.work.with_name(f"{folders.work.name}-cache")
        os.environ["MILEPOST_CACHE_DIR"] = str(self._cache)
        spark: dict[str, Any] = {"parallelism": self._parallelism, "conf": self._conf}
        if self._served:
            self._server = Server(folders.work / "server", None)
            spark["remote"] = self._server.address
        elif self._executors:
            self._cluster = SparkCluster(folders.work.with_name("cluster"))
            self._cluster.start()
            cores = {"spark.executor.cores": "1", "spark.cores.max": self._executors}
            spark |= {"master": self._cluster.url, "conf": self._cluster.conf(cores)}
        else:
            spark["master"] = f"local[{PARALLELISM}]"
        write_static(workload, folders)
        far = FarStore.of(folders) if self._is_far else None
        os.environ |= far.environment() if far is not None else {}
        self._spec = write_spec(
            workload,
            folders,
            spark=spark,
            retained=self._retained,
            table=self._table,
            function=self._function,
            plain=self._plain,
            far=far,
            topic=KafkaTopic.of(folders) if self._reads_kafka else None,
        )
        self._output = Written(folders.output, lambda path: path.suffix == ".parquet")
        self._all = Written(
            folders.work, lambda path: folders.output in path.parents or folders.checkpoints in path.parents
        )
        self._log = Written(folders.output, lambda path: not is_data(path))
        if self._fresh:
            return
        from milepost.api import JobMaster, load_job, spark_runner

        self._master = JobMaster(load_job(str(self._spec)))
        self._runner = spark_runner()

    def stage(self, source: Path, target: Path) -> None:
        if self._reads_kafka:
            stage_nothing(target)
        else:
            link_files(source, target)

    def epoch(self, number: int) -> None:
        if self._fresh:
            self._document = self._command("run", "--json")
            return
        from milepost.api import Session, to_json

        self._landing_s = self._land() if self._reads_kafka else 0.0
        self._document = to_json(self._master.epochs.run(Session.cli(), self._runner))

    def _land(self) -> float:
        """Land what the topic has. Returns the seconds that it took."""
        started = time.perf_counter()
        report = self._master.landings.land()
        if report.failed:
            raise RuntimeError(report.failed[0].message)
        return time.perf_counter() - started

    def figures(self, number: int) -> dict[str, Any]:
        document = self._document
        if "checkpoint_id" not in document:
            return {"status": document["status"]}
        written = {
            "output_bytes": self._output.new_bytes(),
            "all_bytes": self._all.new_bytes(),
            "kept_bytes": size_of(self._folders.output),
            **self._log.figures("log"),
        }
        operators = document["operators"].values()
        slices = [subtask["slices"] or 1 for operator in operators for subtask in operator["subtasks"]]
        return {
            "state_bytes": document["checkpointed_bytes"],
            "slices": max(slices, default=1),
            "runs": sum(operator["runs"] or 0 for operator in operators),
            **({} if self._is_far else written),
            "duration_ms": document["duration_ms"],
            "sync_ms": document["sync_ms"],
            "async_ms": document["async_ms"],
            "phases": document.get("phases"),
            **({"landing_s": self._landing_s} if self._reads_kafka else {}),
        }

    def probe(self, name: str) -> dict[str, Any]:
        if name == "empty":
            return self._empty_epoch()
        if name == "drop cache":
            shutil.rmtree(self._cache, ignore_errors=True)
            return {}
        if name == "decode":
            return self._decode_state()
        raise NotAsked(name)

    def _empty_epoch(self) -> dict[str, Any]:
        """Run an epoch without new input; count what it asks of the stores, and the Spark jobs that it starts."""
        from pyspark import SparkContext

        from bench.systems.counting import counted_requests
        from milepost.api import Session

        scheduler = SparkContext._active_spark_context._jsc.sc().dagScheduler()
        jobs = scheduler.numTotalJobs()
        started = time.perf_counter()
        with counted_requests() as requests:
            result = self._master.epochs.run(Session.cli(), self._runner)
        wall_s = time.perf_counter() - started
        return {
            "status": result.status,
            "wall_s": wall_s,
            "requests": dict(requests),
            "spark_jobs": scheduler.numTotalJobs() - jobs,
        }

    def _decode_state(self) -> dict[str, Any]:
        """Read and decode with pyarrow alone the files that the head's state consists of."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from milepost.api import JobMaster, load_job

        context = JobMaster(load_job(str(self._spec))).context  # below the surface: which files hold the state
        checkpoint = context.head().state.checkpoint(self._document["checkpoint_id"])
        if checkpoint is None:
            raise RuntimeError(f"checkpoint {self._document['checkpoint_id']} is not retained")
        metadata = context.metadata(checkpoint)
        keys = {run.key: run.size for op in metadata.operators.values() for h in op.handles for run in h.runs}
        started = time.perf_counter()
        rows = sum(pq.read_table(pa.BufferReader(context.store.get(key))).num_rows for key in keys)
        return {"wall_s": time.perf_counter() - started, "bytes": sum(keys.values()), "files": len(keys), "rows": rows}

    def result_sql(self) -> str:
        if self._table is not OWN:
            return self._table.result_sql(self._workload, self._folders)
        file = self._folders.work / "published.parquet"
        file.unlink(missing_ok=True)
        table = self._workload.statement.table if self._workload.statement is not None else "result"
        self._command("read", table, "--format", "parquet", "--output", str(file))
        published = f"read_parquet('{file}')"
        if self._plain:  # what it left out is looked up now, to be compared
            published += f" JOIN '{self._folders.static(self._workload.static)}/*.parquet' USING (auction)"
        return f"SELECT {', '.join(self._workload.result_columns)} FROM {published}"

    def versions(self) -> dict[str, str]:
        import pyarrow
        import pyspark

        import milepost

        own = {"milepost": milepost.__version__, "pyspark": pyspark.__version__, "pyarrow": pyarrow.__version__}
        return own | self._table.versions()

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
        if not self._fresh:
            from pyspark import SparkContext

            if SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()
        if self._cluster is not None:
            self._cluster.stop()

    def _command(self, name: str, *words: str) -> dict[str, Any]:
        """Run `milepost NAME bench.yaml …`; return its document's data, {} when it prints none."""
        command = [sys.executable, "-m", "milepost", name, str(self._spec), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(
                f"milepost {name} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return json.loads(done.stdout)["data"] if "--json" in words else {}
