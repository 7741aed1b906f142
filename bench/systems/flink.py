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
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bench.systems.contract import PARALLELISM, Folders, NotAsked, Written
from bench.workloads import DELAY_S, WINDOW_S, Query, Workload

_TYPES = {
    "auction": "BIGINT",
    "bidder": "BIGINT",
    "price": "BIGINT",
    "channel": "STRING",
    "url": "STRING",
    "event_time": "TIMESTAMP(6)",
    "window_start": "TIMESTAMP(3)",
    "window_end": "TIMESTAMP(3)",
    "bids": "BIGINT",
    "total": "BIGINT",
    "highest": "BIGINT",
}
_POLL_S = 0.01
_EPOCH_S = 300.0


class Flink:
    """A streaming job with one of Flink's state backends: `hashmap`, or `rocksdb` with incremental checkpoints."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._rows = 0

    def prepare(self, workload: Workload, folders: Folders) -> None:
        self._workload, self._folders = workload, folders
        os.environ["JVM_ARGS"] = f"-Xmx{workload.memory}"
        port = _free_port()
        self._url = f"http://127.0.0.1:{port}"
        folders.output.mkdir(parents=True)
        self._state = Written(folders.checkpoints, lambda path: True)
        self._output = Written(folders.output, lambda path: not path.name.startswith((".", "_")))
        self._all = Written(folders.work, folders.is_kept)
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
            "table.exec.source.idle-timeout": "0 ms",
            # Paused while others have their turn: a pause is no lost task manager.
            "heartbeat.timeout": "3600000",
            "heartbeat.interval": "600000",
            "pekko.ask.timeout": "1 h",
        }
        if workload.query is Query.AGGREGATE:
            settings |= {
                "table.exec.mini-batch.enabled": "true",
                "table.exec.mini-batch.allow-latency": "10 s",
                "table.exec.mini-batch.size": "1000000",
            }
        for key, value in settings.items():
            environment.get_config().set(key, value)
        for statement in _statements(workload, folders):
            result = environment.execute_sql(statement)
        self._job = str(result.get_job_client().get_job_id())
        self._source = self._wait_for_source()

    def stage(self, source: Path, target: Path) -> None:
        """Write an epoch's rows as CSV, of the columns that are read."""
        target.mkdir()
        for file in sorted(source.iterdir()):
            table = pq.read_table(file, columns=list(self._workload.columns))
            self._rows += table.num_rows
            if "event_time" in table.column_names:
                at = table.column_names.index("event_time")
                table = table.set_column(at, "event_time", table["event_time"].cast(pa.timestamp("us")))
            options = pcsv.WriteOptions(include_header=False, quoting_style="none")
            pcsv.write_csv(table, target / f"{file.stem}.csv", options)

    def epoch(self, number: int) -> None:
        started = time.monotonic()
        deadline = started + _EPOCH_S
        while self._read_rows() < self._rows:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"Flink has read {self._read_rows():,} of {self._rows:,} rows after {_EPOCH_S:.0f} s"
                )
            time.sleep(_POLL_S)
        self._read_ms = round((time.monotonic() - started) * 1000)
        self._checkpoint()

    def figures(self, number: int) -> dict[str, Any]:
        return {
            "state_bytes": self._state.new_bytes(),
            "output_bytes": self._output.new_bytes(),
            "all_bytes": self._all.new_bytes(),
            "read_ms": self._read_ms,
        }

    def probe(self, name: str) -> dict[str, Any]:
        raise NotAsked(name)

    def result_sql(self) -> str:
        self._checkpoint()  # publishes what the watermark closed after the last epoch's checkpoint
        names = _published(self._workload)
        columns = ", ".join(f"'{name}': '{_duckdb_type(name)}'" for name in names)
        rows = f"read_csv('{self._folders.output}/[!._]*', header = false, columns = {{{columns}}})"
        wanted = ", ".join(self._workload.result_columns)
        if self._workload.query is not Query.AGGREGATE:
            return f"SELECT {wanted} FROM {rows}"
        key = ", ".join(self._workload.key)
        # The count of a key only grows: its newest row is the one with the largest.
        return f"SELECT {wanted} FROM {rows} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY bids DESC) = 1"

    def versions(self) -> dict[str, str]:
        return {"apache-flink": importlib.import_module("pyflink.version").__version__}

    def close(self) -> None:
        self._ask(f"/jobs/{self._job}?mode=cancel", method="PATCH")

    # -- what Flink's REST answers -----------------------------------------------------------------------------------

    def _wait_for_source(self) -> str:
        """Return the path of the source's metrics once the job runs."""
        deadline = time.monotonic() + _EPOCH_S
        while time.monotonic() < deadline:
            job = self._ask(f"/jobs/{self._job}")
            if job["state"] == "RUNNING" and all(vertex["status"] == "RUNNING" for vertex in job["vertices"]):
                path = f"/jobs/{self._job}/vertices/{job['vertices'][0]['id']}/subtasks/metrics"
                names = [metric["id"] for metric in self._ask(path)]
                sources = [name for name in names if name.startswith("Source__") and name.endswith("numRecordsOut")]
                if sources:
                    return f"{path}?get={sources[0]}&agg=sum"
            time.sleep(0.1)
        raise TimeoutError(f"Flink's job does not run after {_EPOCH_S:.0f} s")

    def _read_rows(self) -> int:
        found = self._ask(self._source)
        return int(found[0]["sum"]) if found else 0

    def _checkpoint(self) -> None:
        """Have Flink make a checkpoint, and wait until it is complete."""
        asked = self._ask(f"/jobs/{self._job}/checkpoints", {"checkpointType": "CONFIGURED"}, method="POST")
        deadline = time.monotonic() + _EPOCH_S
        while time.monotonic() < deadline:
            answer = self._ask(f"/jobs/{self._job}/checkpoints/{asked['request-id']}")
            if answer["status"]["id"] == "COMPLETED":
                if "failureCause" in answer["operation"]:
                    raise RuntimeError(f"Flink's checkpoint failed: {answer['operation']['failureCause']}")
                return
            time.sleep(_POLL_S)
        raise TimeoutError(f"Flink's checkpoint is not complete after {_EPOCH_S:.0f} s")

    def _ask(self, path: str, body: object = None, method: str = "GET") -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read() or b"{}")


def _statements(workload: Workload, folders: Folders) -> list[str]:
    """The source, the query as a view, the sink, and the job."""
    columns = [f"{name} {_TYPES[name]}" for name in workload.columns]
    if workload.query is Query.WINDOW:
        columns.append(f"WATERMARK FOR event_time AS event_time - INTERVAL '{DELAY_S}' SECOND")
    files = f"'connector' = 'filesystem', 'path' = '{folders.landing.as_uri()}', 'format' = 'csv'"
    source = f"CREATE TABLE bids ({', '.join(columns)}) WITH ({files}, 'source.monitor-interval' = '50 ms')"
    key = ", ".join(workload.key)
    figures = "count(*) AS bids, sum(price) AS total, max(price) AS highest"
    published = ", ".join(f"{name} {_TYPES.get(name, 'STRING')}" for name in _published(workload))
    sink = (
        f"CREATE TABLE published ({published}) WITH "
        f"('connector' = 'filesystem', 'path' = '{folders.output.as_uri()}', 'format' = 'csv')"
    )
    if workload.query is Query.AGGREGATE:
        view = f"CREATE VIEW totals AS SELECT {key}, {figures} FROM bids GROUP BY {key}"
        changes = "TO_CHANGELOG(input => TABLE totals, op_mapping => MAP['INSERT, UPDATE_AFTER', 'U', 'DELETE', 'D'])"
        job = f"INSERT INTO published SELECT {', '.join(_published(workload))} FROM {changes}"
        return [source, view, sink, job]
    if workload.query is Query.WINDOW:
        windows = f"TUMBLE(TABLE bids, DESCRIPTOR(event_time), INTERVAL '{WINDOW_S}' SECOND)"
        rows = f"SELECT {key}, window_start, window_end, {figures} FROM TABLE({windows})"
        return [source, sink, f"INSERT INTO published {rows} GROUP BY {key}, window_start, window_end"]
    first = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY arrival) AS place FROM ({_ARRIVAL})"
    return [source, sink, f"INSERT INTO published SELECT {', '.join(workload.columns)} FROM ({first}) WHERE place = 1"]


_ARRIVAL = "SELECT *, PROCTIME() AS arrival FROM bids"


def _published(workload: Workload) -> tuple[str, ...]:
    if workload.query is Query.DEDUPLICATE:
        return workload.columns
    if workload.query is Query.AGGREGATE:
        return (*workload.key, "bids", "total", "highest", "op")
    return workload.result_columns


def _duckdb_type(name: str) -> str:
    return {"STRING": "VARCHAR", "BIGINT": "BIGINT"}.get(_TYPES.get(name, "STRING"), "TIMESTAMP")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
