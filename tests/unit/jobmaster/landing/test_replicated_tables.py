"""A table that Debezium replicates equals the table of the database after every epoch and after a rollback."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

from milepost.errors import SubtaskDeclined
from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.jobs.debezium_events import ROW_SCHEMA, base64_decimal, change
from milepost_testkit.jobs.message_feed import MessageFeed
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SPEC = """\
name: shop
storage: ../store
sources:
  orders:
    format: kafka
    bootstrap_servers: "broker:9092"
    topics: [shop.public.orders]
    value: {format: debezium}
    schema: {id: int64, status: string, amount: "decimal(10,2)", placed: "timestamp[us]"}
    metadata: {op: op, lsn: source.lsn, record: sequence, part: partition, at: offset}
    bad_records: BAD
operators:
  - uid: current
    kind: latest
    inputs: [orders]
    key: [id]
    sequence_by: [lsn, record, part, at]
    delete_when: "op = 'd'"
    columns: [id, status, amount, placed]
sinks:
  - {name: orders, input: current, format: parquet, path: ../lake/orders, mode: upsert}
DEAD
checkpointing: {retained: {last: 50}}
"""
DEAD = "  - {name: dead, input: orders.bad, format: parquet, path: ../lake/dead, mode: append}"
US = 1_700_000_000_000_000


class Database:
    """A table in DuckDB, and the events that Debezium sends of its changes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tables = duckdb.connect()
        self.tables.execute("CREATE TABLE orders (id BIGINT, status TEXT, amount DECIMAL(10,2), placed TIMESTAMP)")
        self.lsn = 1_000
        self.events: list[tuple[bytes | None, bytes, int]] = []

    def rows(self) -> list[dict[str, Any]]:
        return self.tables.sql("FROM orders ORDER BY id").to_arrow_table().to_pylist()

    def change(self) -> None:
        """Insert, update or delete a row, or change its key."""
        ids = [row["id"] for row in self.rows()]
        what = self.chance.choice(["insert", "insert", "update", "update", "delete", "rename"]) if ids else "insert"
        new = self.chance.choice([id_ for id_ in range(1, 40) if id_ not in ids])
        id_ = new if what == "insert" else self.chance.choice(ids)
        self.lsn += self.chance.randrange(1, 100)
        amount, micros = (
            self.chance.choice([None, self.chance.randrange(-(10**6), 10**6)]),
            self.chance.randrange(10**15),
        )
        values = [f"s{self.lsn}", None if amount is None else f"{amount / 100:.2f}", US + micros]
        if what == "insert":
            self.tables.execute("INSERT INTO orders VALUES (?, ?, ?, make_timestamp(?))", [id_, *values])
            self._send("c", id_, id_)
        elif what == "update":
            setters = "UPDATE orders SET status = ?, amount = ?, placed = make_timestamp(?) WHERE id = ?"
            self.tables.execute(setters, [*values, id_])
            self._send("u", id_, id_)
        elif what == "delete":
            self.tables.execute("DELETE FROM orders WHERE id = ?", [id_])
            self._delete(id_)
        else:
            self.tables.execute("UPDATE orders SET id = ? WHERE id = ?", [new, id_])
            self._delete(id_)
            self._send("c", new, new)

    def snapshot(self) -> None:
        """Send all rows, as a connector does at its start."""
        for row in self.rows():
            self._send("r", row["id"], row["id"])

    def restart(self) -> None:
        """Send the last events again, as a connector does that had not stored its position."""
        self.events += self.events[-self.chance.randrange(1, 12) :]

    def _send(self, op: str, id_: int, key: int) -> None:
        (row,) = (row for row in self.rows() if row["id"] == id_)
        encoded = {
            "id": row["id"],
            "status": row["status"],
            "amount": None if row["amount"] is None else base64_decimal(int(row["amount"] * 100)),
            "placed": _micros(row["placed"]),
        }
        self._append(change(op, encoded, lsn=self.lsn, fields=ROW_SCHEMA), key)

    def _delete(self, id_: int) -> None:
        before = {"id": id_, "status": None, "amount": None, "placed": None}
        self._append(change("d", None, before, lsn=self.lsn, fields=ROW_SCHEMA), id_)
        self._append(None, id_)

    def _append(self, value: bytes | None, id_: int) -> None:
        self.events.append((value, json.dumps({"id": id_}).encode(), id_ % 3))


def _micros(time: Any) -> int:
    return int(duckdb.execute("SELECT epoch_us(?::TIMESTAMP)", [time]).fetchall()[0][0])


class Shop:
    """The job under `folder`, which lands from a feed."""

    def __init__(self, folder: Path, bad: str = "fail") -> None:
        self.folder, self.feed = folder, MessageFeed(record_rows=7)
        (folder / "config").mkdir()
        spec = SPEC.replace("BAD", bad).replace("DEAD", DEAD if bad == "dead_letter" else "")
        (folder / "config" / "shop.yaml").write_text(spec)

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(str(self.folder / "config" / "shop.yaml")))

    def land(self) -> None:
        assert not self.master.landings.land().failed

    def epoch(self) -> int | None:
        result = self.master.epochs.run(Session.cli(), SparklessRunner())
        return None if isinstance(result, NothingToDo) else int(result.checkpoint_id)

    def table(self, name: str = "orders") -> list[dict[str, Any]]:
        return self.master.reports.read(name).to_pylist()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Shop:
    made = Shop(tmp_path, getattr(request, "param", "fail"))
    monkeypatch.setattr("milepost.jobmaster.landing.open_sources.open_kafka_source", lambda *_, **__: made.feed)
    return made


@pytest.mark.deep
def test_a_replicated_table_equals_the_database_after_every_epoch_and_every_rollback(shop: Shop, seed: int) -> None:
    database = Database(seed)
    while not database.rows() or database.lsn < 1_500:
        database.change()
    database.events.clear()  # before the connector began
    database.snapshot()
    expected: dict[int, list[dict[str, Any]]] = {}
    for step in range(4):
        shop.feed.add(database.events)
        database.events.clear()
        shop.land()
        checkpoint = shop.epoch()
        assert checkpoint is not None
        expected[checkpoint] = database.rows()
        assert sorted(shop.table(), key=lambda row: row["id"]) == expected[checkpoint]
        for _ in range(15):
            database.change()
        if step == 2:
            database.restart()
    for checkpoint in sorted(expected, reverse=True)[1:]:
        roll_back(shop.master, checkpoint)
        assert sorted(shop.table(), key=lambda row: row["id"]) == expected[checkpoint]
    shop.epoch()
    assert sorted(shop.table(), key=lambda row: row["id"]) == expected[max(expected)], "read again from the log"


@pytest.mark.parametrize("shop", ["dead_letter"], indirect=True)
def test_a_truncate_fails_the_epoch_even_with_dead_letters(shop: Shop) -> None:
    shop.feed.add([(change("c", {"id": 1}, fields=ROW_SCHEMA), b"1", 0)])
    shop.land()
    shop.epoch()
    shop.feed.add([(b"{broken", b"1", 0), (change("t", lsn=200, fields=ROW_SCHEMA), None, 0)])
    shop.land()
    with wording.raises(SubtaskDeclined):
        shop.epoch()
    assert [row["id"] for row in shop.table()] == [1]


@pytest.mark.parametrize("shop", ["dead_letter"], indirect=True)
def test_an_update_without_an_unchanged_value_is_a_dead_letter_that_names_the_column(shop: Shop) -> None:
    placeholder = "__debezium_unavailable_value"
    shop.feed.add([(change("c", {"id": 1, "status": "long"}, fields=ROW_SCHEMA, lsn=1), b"1", 0)])
    shop.feed.add([(change("u", {"id": 1, "status": placeholder}, fields=ROW_SCHEMA, lsn=2), b"1", 0)])
    shop.land()
    shop.epoch()
    assert [(row["id"], row["status"]) for row in shop.table()] == [(1, "long")]
    assert [(row["column"], row["offset"]) for row in shop.table("dead")] == [("status", 1)]
