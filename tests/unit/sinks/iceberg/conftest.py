"""The places of tables that these tests have."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.formats.iceberg_lake import IcebergLake, lake_in_glue, lake_on_disk, lake_on_server
from milepost_testkit.servers.s3_servers import SeaweedTables


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    """A place on disk, where nothing is yet."""
    return lake_on_disk(tmp_path)


@pytest.fixture(params=["disk", "server", pytest.param("glue", marks=pytest.mark.deep)])
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergLake:
    """A place on disk with SQLite as its catalog, on a server with a REST catalog, and in a bucket with AWS Glue."""
    if request.param == "disk":
        return lake_on_disk(tmp_path)
    if request.param == "glue":
        return lake_in_glue(request.getfixturevalue("ministack"))
    server: SeaweedTables = request.getfixturevalue("seaweed_tables")
    return lake_on_server(server)
