"""Readings joined as-of with a device table that changes: a twentieth of the rows are versions."""

from __future__ import annotations

from pathlib import Path

import duckdb

from milepost_testkit.example_jobs.example_job import ExampleJob, Lot, Tables

SENSORS = 500
"""Of which some are read before anything is known of them."""


def land(folder: Path, lot: Lot) -> None:
    """Write readings and versions of the same hour; a reading may come a minute out of order, and none is late."""
    read_at = f"make_timestamp(({lot.time_us('i')} - hash(i, 1) % 60_000_000)::BIGINT)"
    since = f"make_timestamp({lot.time_us('i')}::BIGINT)"
    sensor, as_text = f"hash(i, 2) % {SENSORS}", "'%Y-%m-%dT%H:%M:%S.%fZ'"
    readings = f"""SELECT {sensor} AS sensor, (hash(i, 3) % 4000) / 100 AS celsius, strftime({read_at}, {as_text}) AS at
        FROM {lot.numbers} WHERE i % 20 <> 0"""
    devices = f"""SELECT {sensor} AS sensor_id, 'room-' || (hash(i, 4) % 40) AS room,
            20 + hash(i, 6) % 16 AS limit_celsius, strftime({since}, {as_text}) AS since
        FROM {lot.numbers} WHERE i % 20 = 0"""
    for name, rows in (("readings", readings), ("devices", devices)):
        duckdb.sql(f"COPY ({rows}) TO '{folder / 'sensors' / name / lot.name}.csv' (FORMAT csv)")


def tables(connection: duckdb.DuckDBPyConnection, folder: Path, lots: list[Lot]) -> Tables:
    """Answer from the files: readings that the watermark of both is past, each with its sensor's newest version."""
    for name, types in (
        ("readings", "{'at': 'TIMESTAMPTZ', 'celsius': 'DOUBLE'}"),
        ("devices", "{'since': 'TIMESTAMPTZ', 'limit_celsius': 'DOUBLE'}"),
    ):
        files = [str(folder / "sensors" / name / f"{lot.name}.csv") for lot in lots]
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {name} AS FROM read_csv($files, types = {types})", {"files": files}
        )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE mark AS
        SELECT least((SELECT max("at") - INTERVAL 5 MINUTE FROM readings), (SELECT max(since) FROM devices))
            AS watermark"""
    )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE placed AS
        SELECT sensor, celsius, "at", room, limit_celsius, since
        FROM readings ASOF LEFT JOIN devices ON sensor = sensor_id AND "at" >= since
        WHERE "at" < (SELECT watermark FROM mark)"""
    )
    return {
        "placed": "FROM placed",
        "alerts": """SELECT room, window_start, window_start + INTERVAL 1 HOUR AS window_end, count(*) AS readings,
                max(celsius) AS warmest
            FROM (SELECT *, time_bucket(INTERVAL 1 HOUR, "at") AS window_start FROM placed), mark
            WHERE celsius > limit_celsius AND window_start + INTERVAL 1 HOUR <= watermark
            GROUP BY room, window_start""",
        "late_changes": None,
    }


JOB = ExampleJob("sensors", land, tables)
