"""The places of tables that these tests have."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.formats.iceberg_lake import IcebergLake, lake_on_disk, lake_on_server
from milepost_testkit.servers.s3_servers import SeaweedTables


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    """A place on disk, where nothing is yet."""
    return lake_on_disk(tmp_path)


@pytest.fixture(params=["disk", "server"])
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergLake:
    """A place on disk with SQLite as its catalog, and one on a server with a REST catalog."""
    if request.param == "disk":
        return lake_on_disk(tmp_path)
    server: SeaweedTables = request.getfixturevalue("seaweed_tables")
    return lake_on_server(server)
