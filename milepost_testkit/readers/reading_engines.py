"""Engines that read tables which they had no part in writing: processes of environments of their own.

`reading_engines` is a session fixture; a conftest imports it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost_testkit.processes.processes import LOOPBACK, REPOSITORY
from milepost_testkit.servers.s3_servers import S3Server
from scripts.spark import spark_readers

ENGINES = ("duckdb", "polars")
"""What needs PyPI only."""

SPARK = "spark"

SPARK_IS_NOT_TO_BE_HAD = not spark_readers.jars_are_there() and spark_readers.UNREACHED.reason() is not None
"""Maven Central gave `make test-all` no answer: its last line says so."""

EVERY_ENGINE = (*ENGINES, *([] if SPARK_IS_NOT_TO_BE_HAD else [pytest.param(SPARK, marks=pytest.mark.deep)]))
"""For `parametrize`."""

Where = tuple[str, str, str]
"""Column, operator, value as text: a filter that an engine may skip files by."""


@dataclass(frozen=True)
class CatalogTable:
    """A table in Iceberg as the clients of a catalog know it, which is a SQLite file.

    Attributes:
        file: the catalog. name: `namespace.table`. catalog: what the catalog calls itself in its rows.
    """

    file: str
    name: str
    catalog: str = "milepost"


def all_engines() -> tuple[str, ...]:
    """Return what a test of the deep tests reads a table by."""
    return ENGINES if SPARK_IS_NOT_TO_BE_HAD else (*ENGINES, SPARK)


class ReadingEngines:
    """The processes, each started on first use; any number of threads may use them."""

    def __init__(self) -> None:
        self._others = _Process()
        self._spark = _Process()

    def read(
        self,
        engine: str,
        location: str | Path | CatalogTable,
        *,
        table_format: str = "delta",
        where: Where | None = None,
        server: S3Server | None = None,
    ) -> pa.Table:
        """Return the rows that an engine sees, in whatever order.

        Args:
            engine: one of `ENGINES`, or `SPARK`, which reads no server. location: a folder, an `s3://` URL on the
                server, a metadata file, or a table of a catalog.
        Raises: AssertionError: the engine could not read it.
        """
        s3 = None
        if server is not None:
            s3 = {
                "endpoint_url": server.endpoint_url,
                "access_key": server.access_key,
                "secret_key": server.secret_key,
            }
        place = asdict(location) if isinstance(location, CatalogTable) else str(location)
        request = {"engine": engine, "format": table_format, "location": place, "where": where, "s3": s3}
        return self._answer(self._others if engine in ENGINES else self._spark, request)

    def run_on_spark(self, statement: str, catalog: CatalogTable | None = None) -> None:
        """Run a statement of SQL on Spark, as another writer of a table does; `catalog` is `milepost` in it."""
        place = asdict(catalog) if catalog is not None else None
        self._answer(self._spark, {"engine": SPARK, "sql": statement, "location": place})

    def stop(self) -> None:
        """End the processes."""
        for process in (self._others, self._spark):
            process.stop()

    def _answer(self, process: _Process, request: Mapping[str, Any]) -> pa.Table:
        answer = process.ask(request)
        assert "error" not in answer, f"{request['engine']}: {answer['error']}"
        return pa.ipc.open_stream(base64.b64decode(answer["rows"])).read_all()


class _Process:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._process is None:
                self._process = _on_spark() if request["engine"] == SPARK else _others()
            process = self._process
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, f"the reading process ended with {process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _others() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [REPOSITORY / ".venv-readers" / "bin" / "python", Path(__file__).with_name("reading_process.py")],
        env={"PATH": os.environ["PATH"], "TZ": "UTC", "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _on_spark() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [spark_readers.interpreter(), Path(__file__).with_name("spark_reading_process.py")],
        env=spark_readers.environ(), cwd=tempfile.mkdtemp(prefix="milepost-spark-readers-"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


@pytest.fixture(scope="session")
def reading_engines() -> Iterator[ReadingEngines]:
    """The running processes."""
    engines = ReadingEngines()
    try:
        yield engines
    finally:
        engines.stop()
