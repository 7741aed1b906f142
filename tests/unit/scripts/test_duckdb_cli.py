"""DuckDB's own program answers for the demo and on the pages, and asks no network."""

from __future__ import annotations

import os
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from milepost_testkit.servers.s3_servers import S3Server
from scripts import duckdb_cli

ROWS = pa.table({"carrier": ["UA", "B6"], "mean": [1.5, 2.0]})


def test_the_rows_of_one_statement_are_returned_and_nothing_of_the_setup() -> None:
    asked = duckdb_cli.query(
        "FROM t ORDER BY i", setup="CREATE TABLE t AS SELECT range i FROM range(2);", environ=os.environ
    )
    assert asked == [{"i": 0}, {"i": 1}]
    assert duckdb_cli.query("SELECT 1 WHERE false", environ=os.environ) == []


def test_what_duckdb_says_is_what_went_wrong() -> None:
    with pytest.raises(duckdb_cli.DuckDBError, match="nothing_like_it"):
        duckdb_cli.query("FROM nothing_like_it", environ=os.environ)


def test_an_extension_that_is_installed_in_a_home_is_loaded_by_itself(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "table", ROWS)
    environ = os.environ | {"HOME": str(tmp_path / "home")}
    duckdb_cli.install_extensions(tmp_path / "home", environ)
    assert duckdb_cli.query(f"FROM delta_scan('{tmp_path}/table')", environ=environ) == ROWS.to_pylist()


def test_a_table_in_a_bucket_is_read_by_the_credentials_of_an_environment(seaweed: S3Server) -> None:
    table = f"s3://{seaweed.new_bucket()}/table"
    environ = os.environ | seaweed.environment()
    options = seaweed.environment() | {"AWS_ENDPOINT_URL": seaweed.endpoint_url, "AWS_ALLOW_HTTP": "true"}
    deltalake.write_deltalake(table, ROWS, storage_options=options)
    setup = duckdb_cli.loading(("httpfs", "delta")) + duckdb_cli.s3_secret(seaweed.endpoint_url, environ)
    assert duckdb_cli.query(f"FROM delta_scan('{table}')", setup=setup, environ=environ) == ROWS.to_pylist()
