"""A job over Avro messages asks the registry when it lands them, and never again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobspec.load.load import load_job
from milepost.sources.landed import schema_registry
from milepost_testkit.jobs.avro_messages import avro, record_schema
from milepost_testkit.jobs.message_feed import MessageFeed
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.schema_registry import Registry
from milepost_testkit.servers.schema_registry import schema_registry as running
from milepost_testkit.specs.spec_edits import edit_spec

SPEC = """\
name: shop
storage: ../store
sources:
  orders:
    format: kafka
    bootstrap_servers: "broker:9092"
    topics: [orders]
    value: {format: avro, registry: {url: "${env:REGISTRY}", username: reader, password: "${env:REGISTRY_PASSWORD}"}}
    schema: {user: string, n: int64, amount: "decimal(10,2)"}
    bad_records: dead_letter
operators:
  - uid: totals
    kind: aggregate
    inputs: [orders]
    key: [user]
    aggregates: {rows: count(*), total: sum(n), amount: sum(amount)}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
  - {name: dead, input: orders.bad, format: parquet, path: ../lake/dead, mode: append}
checkpointing: {retained: {last: 50}}
"""
PASSWORD = "hush-75c1"
OLD = record_schema(user="string", n="int")
NEW = record_schema(
    user="string",
    n=["null", "long"],
    amount=["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
)


class Shop:
    """The job under `folder`, which lands from a feed, and what DuckDB has of the messages."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.feed = folder, MessageFeed(record_rows=5)
        (folder / "config").mkdir(parents=True)
        (folder / "config" / "shop.yaml").write_text(SPEC)
        self.expected = duckdb.connect()
        self.expected.execute("CREATE TABLE orders (user TEXT, n BIGINT, amount DECIMAL(10,2))")

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(str(self.folder / "config" / "shop.yaml")))

    def send(self, schema_id: int, schema: Any, user: str, n: int | None, **more: Any) -> None:
        self.feed.add([(avro(schema_id, schema, {"user": user, "n": n, **more}), user.encode(), len(user) % 2)])
        self.expected.execute("INSERT INTO orders VALUES (?, ?, ?)", [user, n, more.get("amount")])

    def land(self) -> None:
        assert not self.master.landings.land().failed

    def epoch(self) -> int | None:
        result = self.master.epochs.run(Session.cli(), SparklessRunner())
        return None if isinstance(result, NothingToDo) else int(result.checkpoint_id)

    def totals(self) -> list[dict[str, Any]]:
        return sorted(self.master.reports.read("totals").to_pylist(), key=lambda row: row["user"])

    def truth(self) -> list[dict[str, Any]]:
        values = "user, count(*) AS rows, CAST(sum(n) AS BIGINT) AS total, sum(amount) AS amount"
        query = f"SELECT {values} FROM orders GROUP BY user ORDER BY user"
        return self.expected.sql(query).to_arrow_table().to_pylist()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(schema_registry, "MAX_WAIT_S", 0.01)
    with running() as server:
        server.login = ("reader", PASSWORD)
        server.register(1, OLD, "orders-value", 1)
        monkeypatch.setenv("REGISTRY", server.url)
        monkeypatch.setenv("REGISTRY_PASSWORD", PASSWORD)
        yield server


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry) -> Shop:
    made = Shop(tmp_path / "job")
    monkeypatch.setattr("milepost.jobmaster.landing.open_sources.open_kafka_source", lambda *_, **__: made.feed)
    return made


def sold(shop: Shop, registry: Registry) -> dict[int, list[dict[str, Any]]]:
    """Land and process messages of two schemas. Returns the table after each epoch."""
    found = {}
    for n in range(7):
        shop.send(1, OLD, "ab"[: n % 2 + 1], n)
    shop.land()
    found[shop.epoch() or 0] = shop.truth()
    registry.register(2, NEW, "orders-value", 2)
    for n in range(4):
        shop.send(2, NEW, "ab"[: n % 2 + 1], n or None, amount=None if n == 2 else Decimal(n) / 4)
    shop.send(1, OLD, "a", 100)
    shop.feed.add([(None, b"a", 0), (b"{}", b"a", 0)])
    shop.land()
    found[shop.epoch() or 0] = shop.truth()
    assert found[max(found)] == shop.totals()
    return found


@pytest.mark.deep
def test_epochs_and_rollbacks_read_the_schemas_of_the_log(shop: Shop, registry: Registry) -> None:
    found = sold(shop, registry)
    asked = len(registry.asked)
    registry.failure = 503
    for checkpoint in sorted(found):
        roll_back(shop.master, checkpoint)
        assert shop.totals() == found[checkpoint]
    roll_back(shop.master, 0)
    while shop.epoch() is not None:
        pass
    assert shop.totals() == shop.truth()
    assert [row["offset"] for row in shop.master.reports.read("dead").to_pylist()] == [6]
    assert len(registry.asked) == asked
    assert shop.master.reports.fsck().exit_code == 0


def test_a_registry_that_fails_stops_the_landing_which_appends_nothing(shop: Shop, registry: Registry) -> None:
    registry.failure = 500
    shop.send(1, OLD, "a", 1)
    (failed,) = shop.master.landings.land().failed
    assert (failed.error, failed.may_pass) == ("SourceUnreachable", True)
    registry.failure, registry.login = None, ("reader", "another")
    (failed,) = shop.master.landings.land().failed
    assert (failed.error, failed.may_pass) == ("EnvironmentUnusable", False)
    assert PASSWORD not in failed.message + failed.hint
    assert shop.epoch() is None
    registry.login = None
    shop.land()
    shop.epoch()
    assert shop.totals() == shop.truth()


@pytest.mark.deep
def test_a_savepoint_with_input_needs_no_registry_elsewhere(shop: Shop, registry: Registry, tmp_path: Path) -> None:
    sold(shop, registry)
    shop.send(2, NEW, "a", 5, amount=Decimal("7.01"))
    shop.land()
    shop.master.savepoints.create("saved", target=str(tmp_path / "savepoints"), with_input=True)
    registry.failure = 503
    shutil.rmtree(shop.folder / "store")
    shutil.rmtree(shop.folder / "lake")
    shop.master.restores.start(str(tmp_path / "savepoints" / "saved"))
    while shop.epoch() is not None:
        pass
    assert shop.totals() == shop.truth()


@pytest.mark.deep
def test_no_login_is_stored(shop: Shop, registry: Registry) -> None:
    sold(shop, registry)
    files = [path for path in shop.folder.rglob("*") if path.is_file()]
    assert files and not [path for path in files if PASSWORD.encode() in path.read_bytes()]


def test_a_registry_can_be_an_airflow_connection(
    shop: Shop, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = 'url: "${env:REGISTRY}", username: reader, password: "${env:REGISTRY_PASSWORD}"'
    (spec,) = (shop.folder / "config").glob("*.yaml")
    edit_spec(spec, {login: "conn_id: registry"})
    host, port = registry.url.removeprefix("http://").split(":")
    connection = {"conn_type": "http", "host": host, "port": port, "login": "reader", "password": PASSWORD}
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", json.dumps(connection))
    monkeypatch.delenv("REGISTRY")
    monkeypatch.delenv("REGISTRY_PASSWORD")
    shop.send(1, OLD, "a", 1)
    shop.land()
    assert shop.epoch() is not None
    assert shop.totals() == shop.truth()
    monkeypatch.delenv("AIRFLOW_CONN_REGISTRY")
    shop.send(1, OLD, "b", 1)
    (failed,) = shop.master.landings.land().failed
    assert (failed.error, "AIRFLOW_CONN_REGISTRY" in failed.message) == ("EnvironmentUnusable", True)
