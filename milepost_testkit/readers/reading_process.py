"""The process that reads tables: it runs in the readers' environment, which has neither Milepost nor the tests.

A request is one line of JSON, and so is the answer: `{"rows": base64 of an Arrow IPC stream}` or `{"error": text}`.
Extensions of DuckDB are loaded from their wheels; none is ever looked for on a network.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import polars as pl
import pyarrow as pa

LOADED = ("avro", "httpfs", "delta", "iceberg")
SCANS = {"delta": "delta_scan", "iceberg": "iceberg_scan"}


def connected() -> duckdb.DuckDBPyConnection:
    """Return a connection that has the extensions, and that asks no network for others."""
    offline = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    connection = duckdb.connect(config=offline)
    for name in LOADED:
        found = find_spec(f"duckdb_extension_{name}")
        assert found is not None and found.origin is not None, name
        file = Path(found.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        connection.execute(f"LOAD '{file}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def by_duckdb(connection: duckdb.DuckDBPyConnection, request: dict[str, Any]) -> pa.Table:
    s3 = request["s3"]
    if s3 is not None:
        connection.execute(
            f"CREATE OR REPLACE SECRET store (TYPE s3, KEY_ID '{s3['access_key']}', SECRET '{s3['secret_key']}', "
            f"ENDPOINT '{s3['endpoint_url'].removeprefix('http://')}', REGION 'us-east-1', "
            "URL_STYLE 'path', USE_SSL false)"
        )
    text = f"SELECT * FROM {SCANS[request['format']]}('{place_of(request)}')"
    if request["where"] is not None:
        column, operator, value = request["where"]
        text += f" WHERE \"{column}\" {operator} '{value}'"
    return connection.execute(text).to_arrow_table()


def by_polars(request: dict[str, Any]) -> pa.Table:
    s3, options = request["s3"], None
    if s3 is not None:
        options = {
            "aws_access_key_id": s3["access_key"],
            "aws_secret_access_key": s3["secret_key"],
            "aws_endpoint_url": s3["endpoint_url"],
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }
    scan = {"delta": pl.scan_delta, "iceberg": pl.scan_iceberg}[request["format"]]
    frame = scan(place_of(request), storage_options=options)
    if request["where"] is not None:
        column, operator, value = request["where"]
        wanted = pl.lit(as_value(value, frame.collect_schema()[column]))
        compare = {"=": "eq", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "<>": "ne"}[operator]
        frame = frame.filter(getattr(pl.col(column), compare)(wanted))
    return frame.collect().to_arrow()


def place_of(request: dict[str, Any]) -> str:
    """Return where an engine finds the table: one of a catalog by the metadata that its row in SQLite names."""
    location = request["location"]
    if isinstance(location, str):
        return location
    namespace, _, name = location["name"].rpartition(".")
    with closing(sqlite3.connect(f"file:{quote(location['file'])}?mode=ro", uri=True)) as catalog:
        (found,) = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables "
            "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
            (location["catalog"], namespace, name),
        ).fetchone()
    return str(found)


def as_value(text: str, kind: pl.DataType) -> Any:
    """Return the value that a text means in a column of a type."""
    if kind.is_integer():
        return int(text)
    if kind.is_float():
        return float(text)
    if kind == pl.Date:
        return date.fromisoformat(text)
    if isinstance(kind, pl.Datetime):
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if kind.time_zone else moment
    return text


def encoded(rows: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def main() -> None:
    connection = connected()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            rows = by_duckdb(connection, request) if request["engine"] == "duckdb" else by_polars(request)
            answer = {"rows": encoded(rows)}
        except Exception as error:  # noqa: BLE001 - whatever an engine raises is told to the test that asked
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
