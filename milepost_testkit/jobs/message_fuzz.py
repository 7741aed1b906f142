"""Landed messages broken at random, and read as `reader_fuzz` reads broken objects.

`make fuzz SEED=7 OBJECTS=20000`; `python -m milepost_testkit.jobs.message_fuzz --seed 7 --first 4711 --objects 1`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from milepost.sources.landed import RegistrySchema
from milepost_testkit.jobs.avro_messages import avro, record_schema, stored
from milepost_testkit.jobs.debezium_events import ROW_SCHEMA, base64_decimal, change
from milepost_testkit.jobs.landed_messages import message_object, numbered
from milepost_testkit.jobs.protobuf_messages import add_fields, message_class, proto_file, protobuf, stored_file
from milepost_testkit.tasks.faults.reader_fuzz import Broken, main, mutated

MODULE = "milepost_testkit.jobs.message_fuzz"
COLUMNS = {
    "id": "int64",
    "status": "string",
    "amount": "decimal(10,2)",
    "placed": "timestamp[us]",
    "paid": "timestamp[us, UTC]",
    "due": "date",
}
AVRO = record_schema(
    id="long",
    status=["null", "string"],
    amount={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    placed={"type": "long", "logicalType": "local-timestamp-micros"},
    paid={"type": "long", "logicalType": "timestamp-millis"},
    due={"type": "int", "logicalType": "date"},
    tags={"type": "array", "items": "string"},
)
FILE = proto_file("orders.proto", "google/protobuf/timestamp.proto")
_ORDER = FILE.message_type.add(name="Order")
add_fields(_ORDER, id="int64", status="optional string", amount="sint64", paid=".google.protobuf.Timestamp")
add_fields(_ORDER, tags="repeated string", again="repeated .shop.Order")
ORDER = message_class([FILE], "shop.Order")
SCHEMAS: dict[str, RegistrySchema] = {"avro": stored(AVRO), "protobuf": stored_file(FILE)}
MODES = {"time_precision_mode": "adaptive", "decimal_handling_mode": "precise"}


def json_value(chance: random.Random) -> bytes:
    row = {"id": chance.randrange(2**63), "status": chance.choice([None, "ä", "x" * 40]), "amount": "12.34"}
    return json.dumps(
        row | {"placed": "2013-01-01T10:00:00", "paid": "2013-01-01T10:00:00Z", "due": "2013-01-01"}
    ).encode()


def debezium_value(chance: random.Random) -> bytes:
    row = {
        "id": chance.randrange(2**63),
        "status": chance.choice([None, "ä", "__debezium_unavailable_value"]),
        "amount": base64_decimal(chance.randrange(-(10**10), 10**10)),
        "placed": chance.randrange(10**15),
        "paid": "2018-06-20T13:13:16.945104Z",
        "due": chance.randrange(20_000),
    }
    op = chance.choice("crud" * 5 + "t")
    fields = chance.choice([None, ROW_SCHEMA])
    return change(op, None if op == "d" else row, row if op == "d" else None, lsn=chance.randrange(100), fields=fields)


def avro_value(chance: random.Random) -> bytes:
    record = {
        "id": chance.randrange(2**63),
        "status": chance.choice([None, "ä"]),
        "amount": Decimal(chance.randrange(10**6)) / 100,
        "placed": chance.randrange(10**15),
        "paid": datetime(2013, 1, 1, tzinfo=UTC),
        "due": date(2013, 1, 1),
        "tags": ["a"] * chance.randrange(4),
    }
    return avro(1, AVRO, record)


def protobuf_value(chance: random.Random) -> bytes:
    order = ORDER(id=chance.randrange(2**63), amount=chance.randrange(10**6), tags=["a"] * chance.randrange(3))
    if chance.random() < 0.5:
        order.status = "ä"
        order.paid.seconds = chance.randrange(10**9)
        order.again.add(id=1)
    return protobuf(1, order)


VALUES: dict[str, Callable[[random.Random], bytes]] = {
    "json": json_value,
    "debezium": debezium_value,
    "avro": avro_value,
    "protobuf": protobuf_value,
}


def broken_messages(seed: int, number: int) -> Broken:
    """Return object `number` of a seed: formats in turn; most have a few broken values, some a broken schema."""
    chance = random.Random(f"messages/{seed}/{number}")
    format_ = [*VALUES][number % len(VALUES)]
    make, share = VALUES[format_], chance.choice([0, 0.1, 0.5])
    values: list[bytes | None] = []
    for _ in range(1 + chance.randrange(30)):
        value = make(chance)
        values.append(
            None if chance.random() < 0.05 else mutated(value, chance, make) if chance.random() < share else value
        )
    schemas = {1: SCHEMAS[format_]} if format_ in SCHEMAS else {}
    if schemas and chance.random() < 0.2:
        text = mutated(schemas[1].schema.encode(), chance, make).decode("utf-8", "replace")
        schemas = {1: replace(schemas[1], schema=text)}
    value: dict[str, Any] = {"format": format_, **(chance.choice([{}, MODES]) if format_ == "debezium" else {})}
    if format_ in SCHEMAS:
        value["registry"] = {"url": "http://registry"}
    columns = dict(chance.sample([*COLUMNS.items()], 1 + chance.randrange(len(COLUMNS))))
    if format_ in SCHEMAS and chance.random() < 0.5:
        columns["tags"] = "list<string>"
    spec = {"format": "kafka", "bootstrap_servers": "b:1", "topics": ["clicks"], "value": value, "schema": columns}
    spec["metadata"] = {"at": "offset", **({"op": "op"} if format_ == "debezium" else {})}
    if chance.random() < 0.3 and "paid" in columns:
        spec["event_time"] = "paid"
    return Broken("messages.parquet", message_object(numbered(values), schemas=schemas), spec)


if __name__ == "__main__":
    sys.exit(main(broken_messages, MODULE))
