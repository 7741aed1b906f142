"""A Spark Connect server for tests, started by the demo's own stack code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import psutil

from scripts.processes import PYTHON_PATH
from scripts.stack import SPARK, Stack


class ConnectServer:
    """A running server. Attributes: stack: it alone. modules: folder that its Python workers import from."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.modules = folder / "modules"
        self.modules.mkdir(parents=True)
        self.stack = Stack(
            folder / "stack",
            # This checkout's code, wherever the environment was made for.
            environ={"PYTHONPATH": os.pathsep.join((PYTHON_PATH, str(self.modules)))},
            # A job that nobody waits for ends because it was interrupted, or not at all.
            spark={"spark.connect.execute.manager.detachedTimeout": "1h", **settings},
            say=lambda text: None,
        )

    def start(self) -> None:
        self.stack.start_spark()
        self.stack.wait_for_spark()

    @property
    def remote(self) -> str:
        return self.stack.spark_url

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in addition to the address."""
        return {"SPARK_CONNECT_AUTHENTICATE_TOKEN": self.stack.spark_token, "PYTHONPATH": self._path}

    @property
    def _path(self) -> str:
        return self.stack.environ["PYTHONPATH"]

    @property
    def processes(self) -> list[psutil.Process]:
        """The server and all that it started."""
        root = self.stack.started[SPARK].process()
        assert root is not None, "the server is not running"
        return [root, *root.children(recursive=True)]


@contextmanager
def connect_server(folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[ConnectServer]:
    """A server while the block runs, with these settings of Spark over those of the demo's."""
    server = ConnectServer(folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.stack.stop()
