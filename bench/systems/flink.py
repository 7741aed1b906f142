"""PyFlink SQL: one long streaming job on Flink's own mini-cluster, a checkpoint per epoch.

What differs from the others, because of what Flink's package on PyPI holds: it has no Parquet format, so the same rows
are read from CSV and published as CSV. An epoch ends when a checkpoint that covers all of its rows is complete; that
checkpoint also publishes the files. Aggregates leave as an append-only changelog of updated rows (TO_CHANGELOG).
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bench.systems.contract import PARALLELISM, Folders, NotAsked, Volumes
from bench.systems.static_tables import write_static
from bench.systems.topics import KafkaTopic, jars, rows_of, stage_nothing
from bench.workloads.workloads import BIDS, WINDOW_S, Query, Workload

_TYPES = {
    "int32": "INT",
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "string": "STRING",
    "date": "DATE",
    "timestamp[us, UTC]": "TIMESTAMP(3)",
}
"""Types of columns in Flink's words; that of a decimal is its own."""
_STATIC = ("auction", "seller", "category")
_POLL_S = 0.01
_WITHIN_S = 1200.0


class Flink:
    """A streaming job with one of Flink's state backends: `hashmap`, or `rocksdb` with incremental checkpoints."""

    def __init__(self, backend: str, *, kafka: bool = False) -> None:
        """Args: kafka: whether rows come from a topic, as JSON."""
        self._backend, self._reads_kafka = backend, kafka
        self._rows: Counter[str] = Counter()

    def prepare(self, workload: Workload, folders: Folders) -> None:
        self._workload, self._folders = workload, folders
        os.environ["JVM_ARGS"] = f"-Xmx{workload.memory}"
        port = _free_port()
        self._url = f"http://127.0.0.1:{port}"
        folders.output.mkdir(parents=True)
        write_static(workload, folders, csv=True)
        self._written = Volumes(folders, folders.checkpoints, lambda path: not path.name.startswith((".", "_")))
        table = importlib.import_module("pyflink.table")
        environment = table.TableEnvironment.create(table.EnvironmentSettings.in_streaming_mode())
        settings = {
            "parallelism.default": str(PARALLELISM),
            "taskmanager.numberOfTaskSlots": str(PARALLELISM),
            "taskmanager.memory.managed.size": "1g",
            "rest.port": str(port),
            "rest.address": "127.0.0.1",
            "rest.bind-address": "127.0.0.1",
            "metrics.fetcher.update-interval": "20 ms",
            "state.backend.type": self._backend,
            "execution.checkpointing.incremental": "true" if self._backend == "rocksdb" else "false",
            "execution.checkpointing.dir": folders.checkpoints.as_uri(),
            "execution.checkpointing.interval": "365 d",  # each is asked for, when an epoch's rows have been read
            "execution.checkpointing.timeout": "10 min",
            "table.local-time-zone": "UTC",
            "pipeline.auto-watermark-interval": "20 ms",
            # Paused while others have their turn: a pause is no lost task manager.
            "heartbeat.timeout": "3600000",
            "heartbeat.interval": "600000",
            "pekko.ask.timeout": "1 h",
        }
        if workload.replaces or (workload.statement is not None and workload.statement.sql):
            settings |= {
                "table.exec.mini-batch.enabled": "true",
                "table.exec.mini-batch.allow-latency": "10 s",
                "table.exec.mini-batch.size": "1000000",
            }
        topic = KafkaTopic.of(folders) if self._reads_kafka else None
        if topic is not None:
            settings["pipeline.jars"] = ";".join(jar.as_uri() for jar in jars("flink-"))
        for key, value in settings.items():
            environment.get_config().set(key, value)
        for statement in _statements(workload, folders, topic):
            result = environment.execute_sql(statement)
        self._job = str(result.get_job_client().get_job_id())
        self._start()

    def stage(self, source: Path, target: Path) -> None:
        """Write an epoch's rows as CSV, of the columns that are read.

        Rows with event time are dealt out to as many files as there are readers: a reader's watermark follows its own
        files, and files that follow one another in time would have it run ahead of rows that are still to come.
        """
        if self._reads_kafka:
            self._rows[BIDS] += rows_of(source)
            return stage_nothing(target)
        target.mkdir()
        for stream, columns in self._workload.streams.items():
            files = sorted(source.glob(f"{stream}-*.parquet"))
            self._stage_stream(stream, [pq.read_table(file, columns=list(columns)) for file in files], target)

    def _stage_stream(self, stream: str, tables: list[pa.Table], target: Path) -> None:
        self._rows[stream] += sum(table.num_rows for table in tables)
        if self._workload.is_timed:
            whole = pa.concat_tables(tables)
            tables = [whole.take(np.arange(first, whole.num_rows, PARALLELISM)) for first in range(PARALLELISM)]
            newest = min(pc.max(table["event_time"].cast(pa.int64())).as_py() for table in tables)
            self._watermark_ms = newest // 1000 - self._workload.delay_ms
        options = pcsv.WriteOptions(include_header=False, quoting_style="none")
        for part, table in enumerate(tables):
            for at, field in enumerate(table.schema):
                if pa.types.is_timestamp(field.type):  # Flink's watermarks have no finer ones
                    milliseconds = table[field.name].cast(pa.timestamp("ms"), safe=False)
                    table = table.set_column(at, field.name, milliseconds)
            pcsv.write_csv(table, target / f"{stream}-{part:05d}.csv", options)

    def epoch(self, number: int) -> None:
        for stream, path in self._sources:
            rows = self._rows[stream]
            self._wait(lambda path=path, rows=rows: self._read_rows([path]) >= rows, f"reading {rows:,} {stream}")
        if self._workload.fires:
            self._wait(lambda: self._watermark() >= self._watermark_ms, f"the watermark {self._watermark_ms}")
        self._checkpoint()

    def figures(self, number: int) -> dict[str, Any]:
        return self._written.figures()

    def probe(self, name: str) -> dict[str, Any]:
        raise NotAsked(name)

    def result_sql(self) -> str:
        names = _published(self._workload)
        columns = ", ".join(f"'{name}': '{_duckdb_type(self._workload, name)}'" for name in names)
        rows = f"read_csv('{self._folders.output}/[!._]*', header = false, filename = true, columns = {{{columns}}})"
        wanted = ", ".join(self._workload.result_columns)
        if not self._workload.replaces:
            return f"SELECT {wanted} FROM {rows}"
        key = ", ".join(self._workload.key)
        if (statement := self._workload.statement) is not None and statement.is_limited:
            # A key may leave the ranking after it has entered with other values, so keys alone do not order changes.
            present = "sum(CASE op WHEN 'D' THEN -1 ELSE 1 END) > 0"
            return f"SELECT {wanted} FROM {rows} GROUP BY {wanted} HAVING {present}"
        if statement is not None:
            placed = f"SELECT *, row_number() OVER () AS place FROM {rows}"
            newest = f"row_number() OVER (PARTITION BY {key} ORDER BY {statement.order}) = 1"
            return f"SELECT {wanted} FROM (SELECT * FROM ({placed}) QUALIFY {newest}) WHERE op <> 'D'"
        # The count of a key only grows: its newest row is the one with the largest.
        return f"SELECT {wanted} FROM {rows} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY bids DESC) = 1"

    def versions(self) -> dict[str, str]:
        return {"apache-flink": importlib.import_module("pyflink.version").__version__}

    def close(self) -> None:
        self._ask(f"/jobs/{self._job}?mode=cancel", method="PATCH")

    # -- what Flink's REST answers -----------------------------------------------------------------------------------

    def _start(self) -> None:
        """Wait until the job runs, and learn the names of its source's metric and of the last vertex."""
        self._wait(self._runs, "the start of the job")
        vertices = self._ask(f"/jobs/{self._job}")["vertices"]
        paths = {
            vertex["name"]: f"/jobs/{self._job}/vertices/{vertex['id']}/subtasks/metrics"
            for vertex in vertices
            if vertex["name"].startswith("Source")
        }
        self._wait(lambda: None not in map(self._source_metric, paths.values()), "the metrics of the sources")
        sources = {name: f"{path}?get={self._source_metric(path)}&agg=sum" for name, path in paths.items()}
        static = self._workload.static
        once = [path for name, path in sources.items() if static and name.startswith(f"Source: {static}")]
        self._sources = [
            (stream, path)
            for name, path in sources.items()
            for stream in self._workload.streams
            if name.startswith(f"Source: {stream}[")
        ]
        self._wait(lambda: self._read_rows(once) >= self._workload.shape.keys * len(once), "reading what is static")
        self._last = f"/jobs/{self._job}/vertices/{vertices[-1]['id']}/watermarks"

    def _runs(self) -> bool:
        job = self._ask(f"/jobs/{self._job}")
        return job["state"] == "RUNNING" and all(vertex["status"] == "RUNNING" for vertex in job["vertices"])

    def _source_metric(self, path: str) -> str | None:
        names = [metric["id"] for metric in self._ask(path)]
        return next((name for name in names if name.startswith("Source__") and name.endswith("numRecordsOut")), None)

    def _read_rows(self, sources: Iterable[str]) -> int:
        """How many rows each of these sources has read, the slowest one."""
        return min((int(found[0]["sum"]) if (found := self._ask(one)) else 0 for one in sources), default=0)

    def _watermark(self) -> int:
        """The lowest that the subtasks of the last vertex have seen; before the first one a large negative number."""
        return min((int(found["value"]) for found in self._ask(self._last)), default=-(2**63))

    def _checkpoint(self) -> None:
        """Have Flink make a checkpoint, and wait until it is complete."""
        asked = self._ask(f"/jobs/{self._job}/checkpoints", {"checkpointType": "CONFIGURED"}, method="POST")
        path = f"/jobs/{self._job}/checkpoints/{asked['request-id']}"
        self._wait(lambda: self._ask(path)["status"]["id"] == "COMPLETED", "a checkpoint")
        cause = self._ask(path)["operation"].get("failureCause")
        if cause is not None:
            raise RuntimeError(f"Flink's checkpoint failed: {cause}")

    def _wait(self, over: Callable[[], bool], what: str) -> None:
        """Ask again and again. Raises TimeoutError."""
        deadline = time.monotonic() + _WITHIN_S
        while not over():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Flink: {what} is not over after {_WITHIN_S:.0f} s")
            time.sleep(_POLL_S)

    def _ask(self, path: str, body: object = None, method: str = "GET") -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=_WITHIN_S) as reply:
            return json.loads(reply.read() or b"{}")


def _statements(workload: Workload, folders: Folders, topic: KafkaTopic | None) -> list[str]:
    """The source, the query as a view, the sink, and the job. Args: topic: of the source; None: it is files."""
    versioned = workload.query is Query.ASOF  # whose key is a primary one
    not_null = " NOT NULL" if versioned else ""
    sources = []
    for stream, names in workload.streams.items():
        columns = [f"{name} {_type(workload, name)}{not_null}" for name in names]
        if workload.is_timed:
            columns.append(f"WATERMARK FOR event_time AS event_time - INTERVAL '{workload.delay_ms / 1000}' SECOND")
        files = f"'connector' = 'filesystem', 'path' = '{folders.landing.as_uri()}', 'format' = 'csv'"
        files += ", 'csv.null-literal' = ''" if stream != BIDS else ""
        files += f", 'source.path.regex-pattern' = '.*/{stream}-[^/]*', 'source.monitor-interval' = '50 ms'"
        watched = files if topic is None else _of_topic(topic)
        sources.append(f"CREATE TABLE {stream} ({', '.join(columns)}) WITH ({watched})")
    key = ", ".join(workload.key)
    figures = "count(*) AS bids, sum(price) AS total, max(price) AS highest"
    published = ", ".join(f"{name} {_type(workload, name)}" for name in _published(workload))
    sink = (
        f"CREATE TABLE published ({published}) WITH "
        f"('connector' = 'filesystem', 'path' = '{folders.output.as_uri()}', 'format' = 'csv')"
    )
    if (statement := workload.statement) is not None:
        sources += [_static(workload, folders)] if statement.static else []
        if not statement.key:
            return [*sources, *statement.views, sink, f"INSERT INTO published {statement.flink}"]
        view = f"CREATE VIEW found AS {statement.flink}"
        return [*sources, *statement.views, view, sink, _changelog_of("found", workload)]
    if workload.query is Query.AGGREGATE:
        view = f"CREATE VIEW totals AS SELECT {key}, {figures} FROM bids GROUP BY {key}"
        return [*sources, view, sink, _changelog_of("totals", workload)]
    if workload.query is Query.WINDOW:
        windows = f"TUMBLE(TABLE bids, DESCRIPTOR(event_time), INTERVAL '{WINDOW_S}' SECOND)"
        rows = f"SELECT {key}, window_start, window_end, {figures} FROM TABLE({windows})"
        return [*sources, sink, f"INSERT INTO published {rows} GROUP BY {key}, window_start, window_end"]
    first = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY arrival) AS place FROM ({_ARRIVAL})"
    rows = f"SELECT {', '.join(workload.columns)} FROM ({first}) WHERE place = 1"
    return [*sources, sink, f"INSERT INTO published {rows}"]


def _of_topic(topic: KafkaTopic) -> str:
    return (
        f"'connector' = 'kafka', 'topic' = '{topic.name}', 'properties.bootstrap.servers' = '{topic.servers}', "
        "'scan.startup.mode' = 'earliest-offset', 'format' = 'json'"
    )


def _static(workload: Workload, folders: Folders) -> str:
    columns = ", ".join(f"{name} {_type(workload, name)}" for name in _STATIC)
    files = f"'connector' = 'filesystem', 'path' = '{folders.static(workload.static).as_uri()}', 'format' = 'csv'"
    return f"CREATE TABLE {workload.static} ({columns}) WITH ({files})"


def _changelog_of(view: str, workload: Workload) -> str:
    """The job that publishes each change of a view as a row."""
    limited = workload.statement is not None and workload.statement.is_limited
    deletes = "DELETE, UPDATE_BEFORE" if limited else "DELETE"
    changes = f"TO_CHANGELOG(input => TABLE {view}, op_mapping => MAP['INSERT, UPDATE_AFTER', 'U', '{deletes}', 'D'])"
    return f"INSERT INTO published SELECT {', '.join(_published(workload))} FROM {changes}"


_ARRIVAL = "SELECT *, PROCTIME() AS arrival FROM bids"


def _published(workload: Workload) -> tuple[str, ...]:
    if workload.query is Query.DEDUPLICATE:
        return workload.columns
    if workload.query is Query.AGGREGATE:
        return (*workload.key, "bids", "total", "highest", "op")
    if workload.replaces:
        extra = ("event_time",) if workload.query is Query.LATEST else ()
        return (*workload.result_columns, *extra, "op")
    return workload.result_columns


def _type(workload: Workload, name: str) -> str:
    """Return a column's type in Flink's words. What Flink adds is text."""
    of_spec = workload.types.get(name, "string")
    return _TYPES.get(of_spec, of_spec.upper())


def _duckdb_type(workload: Workload, name: str) -> str:
    type_ = _type(workload, name)
    return {"STRING": "VARCHAR", "TIMESTAMP(3)": "TIMESTAMP"}.get(type_, type_)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
