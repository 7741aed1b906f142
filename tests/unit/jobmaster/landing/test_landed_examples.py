"""Each format of a landed source has an example, and those that need no server are landed and processed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobspec.job.sources.landed_source import LandedSourceSpec
from milepost.jobspec.job.sources.source_kinds import SOURCE_KINDS
from milepost.jobspec.load.load import load_job
from milepost_testkit.jobs.postgres_landing import replicated
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.postgres_server import Database

EXAMPLES = REPOSITORY / "config" / "examples"
LANDED = {
    path: source.format
    for path in sorted(EXAMPLES.glob("*.yaml"))
    if path.name != "all_keys.yaml"
    for source in load_job(path).spec.sources.values()
    if isinstance(source, LandedSourceSpec)
}


def test_each_landed_format_has_an_example() -> None:
    formats = {name for name, kind in SOURCE_KINDS.items() if issubclass(kind, LandedSourceSpec)}
    assert formats - {"milepost"} <= set(LANDED.values()), "a chain of jobs has docs/how-to/chain-two-jobs.md"


def processed(tmp_path: Path, name: str) -> JobMaster:
    """Copy an example with its readers, land its source, and process all of it."""
    (tmp_path / "config" / "examples").mkdir(parents=True)
    for path in (EXAMPLES / name, EXAMPLES / "example_feeds.py"):
        shutil.copy(path, tmp_path / "config" / "examples")
    master = JobMaster(load_job(tmp_path / "config" / "examples" / name))
    report = master.landings.land()
    assert report.landed and not report.failed, report
    while not isinstance(master.epochs.run(Session.cli(), SparklessRunner()), NothingToDo):
        pass
    return master


def test_the_example_of_a_generator_processes_all_of_its_events(tmp_path: Path) -> None:
    prices = processed(tmp_path, "nexmark.yaml").reports.read("prices")
    assert sum(prices["bids"].to_pylist()) == 5000


def test_the_example_of_a_python_class_reads_appended_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = tmp_path / "readings.csv"
    monkeypatch.setenv("READINGS", str(readings))
    readings.write_text("a,20.5\nb,18.0\n")
    master = processed(tmp_path, "python_source.yaml")
    with readings.open("a") as file:
        file.write("a,21.5\n")
    assert not master.landings.land().failed
    master.epochs.run(Session.cli(), SparklessRunner())
    rows = master.reports.read("hottest").select(["sensor", "celsius", "readings"]).sort_by("sensor").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("a", 21.5, 2), ("b", 18.0, 1)]


@pytest.mark.long
def test_the_example_of_a_dlt_resource_shows_the_newest_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = tmp_path / "orders.json"
    monkeypatch.setenv("ORDERS", str(orders))
    listed = [{"id": 1, "version": 1, "total": 5.0}, {"id": 2, "version": 2, "total": 7.0}]
    orders.write_text(json.dumps([*listed, {"id": 1, "version": 3, "total": 6.0}]))
    rows = processed(tmp_path, "dlt_resource.yaml").reports.read("orders").sort_by("id").to_pylist()
    assert [(row["id"], row["total"]) for row in rows] == [(1, 6.0), (2, 7.0)]


@pytest.mark.deep
def test_the_example_of_a_postgres_table_is_the_table(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicated(
        database,
        "CREATE TABLE customers (id bigint PRIMARY KEY, name text)",
        "ALTER TABLE customers REPLICA IDENTITY FULL",
        "INSERT INTO customers VALUES (1, 'Ada'), (2, 'Barbara')",
        publication="milepost_customers",
        table="customers",
    )
    monkeypatch.setenv("SHOP_DSN", database.dsn)
    master = processed(tmp_path, "postgres_table.yaml")
    database.run("UPDATE customers SET name = 'Ada L.' WHERE id = 1")
    database.run("DELETE FROM customers WHERE id = 2")
    database.run("INSERT INTO customers VALUES (3, 'Grace')")
    assert not master.landings.land().failed
    master.epochs.run(Session.cli(), SparklessRunner())
    rows = master.reports.read("customers").select(["id", "name"]).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in rows] == database.run("SELECT id, name FROM customers ORDER BY id")
