"""Where a job of these tests runs its epochs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost_testkit.runners.planes import in_process, plane
from milepost_testkit.servers.connect_server import ConnectServer, connect_server

__all__ = ["in_process", "plane"]


@pytest.fixture(scope="session")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """One Spark Connect server with the settings of the demo. A test that stops it starts it again."""
    with connect_server(tmp_path_factory.mktemp("connect")) as server:
        yield server
