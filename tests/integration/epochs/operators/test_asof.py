"""The example of an as-of join: readings have the room of their time, and alerts are of its limit."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane
from milepost_testkit.specs.examples import EXAMPLES

pytestmark = pytest.mark.deep

PLACED = """
SELECT r.*, d.room, d.limit_celsius, d.since FROM readings r ASOF LEFT JOIN devices d
ON r.sensor = d.sensor_id AND d.since <= r."at"
"""
ALERTS = f"""
SELECT room, time_bucket(INTERVAL 1 HOUR, "at") AS window_start, window_start + INTERVAL 1 HOUR AS window_end,
    count(*) AS readings, max(celsius) AS warmest
FROM ({PLACED}) WHERE celsius > limit_celsius GROUP BY ALL
"""


def test_the_example_of_an_as_of_join_is_what_duckdb_finds(tmp_path: Path, plane: Plane) -> None:
    """Readings before their rooms are known, in a separate epoch; then the job ends, and its windows are emitted."""
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES, folder)
    path = folder / "sensors.yaml"
    text = path.read_text().replace("watermark_delay: 5m", "watermark_delay: 5m\n    settle: 0s")
    path.write_text(text.replace("idle_timeout: 1h", "settle: 0s"))
    held_back = tmp_path / "devices.csv"
    devices = folder / "sensors" / "devices" / "2026-03-01.csv"
    shutil.move(devices, held_back)
    master, runner = JobMaster(load_job(str(path))), plane()
    master.epochs.run(Session.cli(), runner)
    assert not master.reports.read("placed").num_rows and master.reports.state("placed.left").num_rows
    shutil.copy(held_back, devices)
    master.epochs.run(Session.cli(), runner)
    assert master.reports.read("placed").num_rows and master.reports.state("placed.right").num_rows
    assert milepost("run", path, "--drain").exit_code == 0
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, file, times in (
        ("readings", folder / "sensors" / "readings" / "2026-03-01.csv", {"at": "TIMESTAMPTZ", "celsius": "DOUBLE"}),
        ("devices", held_back, {"since": "TIMESTAMPTZ", "limit_celsius": "DOUBLE"}),
    ):
        database.register(f"{name}_read", database.read_csv(str(file), dtype=times).to_arrow_table())
        database.execute(f"CREATE TABLE {name} AS FROM {name}_read")
    for name, query in (("placed", PLACED), ("alerts", ALERTS)):
        expected = database.sql(query).to_arrow_table()
        assert expected.num_rows
        assert_same_rows(master.reports.read(name), expected, name)
    assert not master.reports.read("late_changes").num_rows and not master.reports.state("placed.left").num_rows
    assert milepost("verify", path, "--deep").exit_code == 0
