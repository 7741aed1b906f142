"""Engines that read tables which they had no part in writing: one process of an environment of their own.

`reading_engines` is a session fixture; a conftest imports it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.harness.servers.processes import LOOPBACK, REPOSITORY
from tests.harness.servers.s3_servers import S3Server

ENGINES = ("duckdb", "polars")

Where = tuple[str, str, str]
"""Column, operator, value as text: a filter that an engine may skip files by."""


class ReadingEngines:
    """The process, and what it is asked."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [REPOSITORY / ".venv-readers" / "bin" / "python", Path(__file__).with_name("reading_process.py")],
            env={"PATH": os.environ["PATH"], "TZ": "UTC", "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def read(
        self,
        engine: str,
        location: str | Path,
        *,
        table_format: str = "delta",
        where: Where | None = None,
        server: S3Server | None = None,
    ) -> pa.Table:
        """Return the rows that an engine sees, in whatever order.

        Args:
            engine: one of `ENGINES`. location: a folder, or an `s3://` URL on the server.
        Raises: AssertionError: the engine could not read it.
        """
        s3 = None
        if server is not None:
            s3 = {
                "endpoint_url": server.endpoint_url,
                "access_key": server.access_key,
                "secret_key": server.secret_key,
            }
        answer = self._ask(
            {"engine": engine, "format": table_format, "location": str(location), "where": where, "s3": s3}
        )
        assert "error" not in answer, f"{engine}: {answer['error']}"
        return pa.ipc.open_stream(base64.b64decode(answer["rows"])).read_all()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the reading process ended with {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer


@pytest.fixture(scope="session")
def reading_engines() -> Iterator[ReadingEngines]:
    """The running process."""
    engines = ReadingEngines()
    try:
        yield engines
    finally:
        engines.stop()
