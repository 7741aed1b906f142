"""Protobuf messages are decoded by the schema that their object carries, and converted exactly."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from milepost.jobspec.job import KafkaSourceSpec
from milepost.sources.contract import BadMessage, BadRecord, SourceObject, whole_object
from milepost.sources.formats import build_reader
from milepost.sources.landed import RegistrySchema
from milepost_testkit import wording
from milepost_testkit.jobs.avro_messages import header
from milepost_testkit.jobs.landed_messages import kafka_source, message_object, numbered
from milepost_testkit.jobs.protobuf_messages import add_fields, message_class, proto_file, protobuf, stored_file
from milepost_testkit.stores.memory_store import MemoryStore

REGISTRY = {"url": "http://registry:8081"}
TIMESTAMP, WRAPPERS = "google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"


def protobuf_source(schema: dict[str, str], **keys: Any) -> KafkaSourceSpec:
    return kafka_source(schema, **{"value": {"format": "protobuf", "registry": REGISTRY}, **keys})


def salvaged(
    spec: KafkaSourceSpec, values: list[bytes | None], schemas: dict[int, RegistrySchema]
) -> tuple[list[dict[str, Any]], list[BadMessage]]:
    store = MemoryStore("memory://")
    stat = store.put("1/a/0.parquet", message_object(numbered(values), schemas=schemas))
    obj = SourceObject(stat.key, stat.etag, stat.size, 0)
    reader = pickle.loads(pickle.dumps(build_reader("clicks", spec)))
    items = [*reader.salvage_part(store, whole_object(obj))]
    batches = [item.replace_schema_metadata(None) for item in items if not isinstance(item, BadRecord)]
    return pa.Table.from_batches(batches, reader.schema).to_pylist(), [
        item for item in items if isinstance(item, BadMessage)
    ]


def file_with(**fields: str) -> FileDescriptorProto:
    """Return a file with the messages Order, and Place inside of it, and the enum Kind."""
    file = proto_file("orders.proto", TIMESTAMP, WRAPPERS)
    order = file.message_type.add(name="Order")
    place = order.nested_type.add(name="Place")
    add_fields(place, city="string", size="optional int32")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="OLD", number=3)
    add_fields(order, **fields)
    decimal = file.message_type.add(name="Later")
    add_fields(decimal, n="int64")
    return file


def one(type_: str, field: str, value: Any) -> Any:
    """Return what a column has of one value, or why it has none."""
    file = file_with(c=field)
    message = message_class([file], "shop.Order")()
    if isinstance(value, list):
        message.c.extend(value)
    elif callable(value):
        value(message.c)
    elif value is not None:
        message.c = value
    rows, bad = salvaged(protobuf_source({"c": type_}), [protobuf(7, message)], {7: stored_file(file)})
    if bad:
        assert (len(bad), bad[0].column, rows) == (1, "c", [])
        return bad[0].clause
    return rows[0]["c"]


def set_time(message: Any) -> None:
    message.seconds, message.nanos = 1_529_500_396, 945_104_000


def set_infinite(message: Any) -> None:
    message.seconds = 2**62


def set_size(message: Any) -> None:
    message.size = 0


def set_value(message: Any) -> None:
    message.value = 5


TIME, PLACE = ".google.protobuf.Timestamp", ".shop.Order.Place"
OTHER = "in the schema, which is not read as"


@pytest.mark.long
@pytest.mark.parametrize(
    ("type_", "field", "value", "read"),
    [
        ("bool", "bool", True, True),
        ("int32", "int32", -5, -5),
        ("int64", "uint64", 2**63, "is not of type int64"),
        ("int64", "sint64", -(2**63), -(2**63)),
        ("int64", "fixed32", 2**32 - 1, 2**32 - 1),
        ("int64", "int64", None, 0),
        ("int64", "optional int64", None, None),
        ("int64", "optional int64", 0, 0),
        ("decimal(10,2)", "int64", 7, Decimal(7)),
        ("float64", "float", 0.5, 0.5),
        ("float64", "int64", 2**53 + 1, "has more digits than a float64 holds"),
        ("string", "string", "ä", "ä"),
        ("binary", "bytes", b"\xff", b"\xff"),
        ("string", "bytes", b"x", f"is bytes {OTHER} string"),
        ("int32", "string", "5", f"is string {OTHER} int32"),
        ("string", ".shop.Kind", 3, "OLD"),
        ("string", ".shop.Kind", None, "NEW"),
        ("string", ".shop.Kind", 9, "is a number that the enum of the schema does not name"),
        ("int32", ".shop.Kind", 9, 9),
        ("list<string>", "repeated string", ["a", "b"], ["a", "b"]),
        ("list<string>", "repeated string", [], []),
        ("string", "repeated string", ["a"], "is repeated in the schema, which is not read as string"),
        ("list<string>", "string", "a", f"is string {OTHER} list<string>"),
        ("timestamp[us, UTC]", TIME, set_time, datetime(2018, 6, 20, 13, 13, 16, 945_104, UTC)),
        ("timestamp[ms, UTC]", TIME, set_time, "has more digits than a timestamp[ms, UTC] holds"),
        ("timestamp[us, UTC]", TIME, set_infinite, "is outside the years 1 to 9999"),
        ("timestamp[us, UTC]", TIME, None, None),
        ("timestamp[us]", TIME, set_time, f"is google.protobuf.Timestamp {OTHER} timestamp[us]"),
        ("timestamp[us, UTC]", "int64", 5, f"is int {OTHER} timestamp[us, UTC]"),
        ("int64", ".google.protobuf.Int64Value", set_value, 5),
        ("int64", ".google.protobuf.Int64Value", None, None),
        ("struct<size: int64, city: string, no: bool>", PLACE, set_size, {"size": 0, "city": "", "no": None}),
        ("struct<size: int64>", PLACE, None, None),
        ("string", PLACE, set_size, f"is shop.Order.Place {OTHER} string"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_value_is_converted_exactly_or_bad(type_: str, field: str, value: Any, read: Any) -> None:
    assert one(type_, field, value) == read


def test_a_decimal_of_confluent_is_a_decimal() -> None:
    decimal = proto_file("confluent/type/decimal.proto", package="confluent.type")
    add_fields(decimal.message_type.add(name="Decimal"), value="bytes", precision="uint32", scale="int32")
    file = proto_file("orders.proto", decimal.name)
    add_fields(file.message_type.add(name="Order"), amount=".confluent.type.Decimal", more="repeated .shop.Order")
    message = message_class([decimal, file], "shop.Order")()
    message.amount.value, message.amount.scale = (-1_234).to_bytes(2, "big", signed=True), 2
    message.more.add()
    found = {1: stored_file(file, decimal)}
    schema = {"amount": "decimal(10,2)", "more": "list<struct<amount: decimal(10,2)>>"}
    rows, bad = salvaged(protobuf_source(schema), [protobuf(1, message)], found)
    assert (rows, bad) == ([{"amount": Decimal("-12.34"), "more": [{"amount": None}]}], [])


@pytest.mark.parametrize(
    ("name", "indexes", "row"),
    [
        ("shop.Order", b"\0", {"n": 5, "city": None}),
        ("shop.Order", b"\x02\x00", {"n": 5, "city": None}),
        ("shop.Later", b"\x02\x02", {"n": 5, "city": None}),
        ("shop.Order.Place", b"\x04\x00\x00", {"n": None, "city": "x"}),
    ],
)
def test_a_value_says_which_message_of_its_schema_it_is(name: str, indexes: bytes, row: dict[str, Any]) -> None:
    file = file_with(n="int64")
    message = message_class([file], name)(**{"city": "x"} if name.endswith("Place") else {"n": 5})
    rows, bad = salvaged(
        protobuf_source({"n": "int64", "city": "string"}), [protobuf(1, message, indexes)], {1: stored_file(file)}
    )
    assert (rows, bad) == ([row], [])


FILE = file_with(n="int64", name="string")
ORDER = message_class([FILE], "shop.Order")(n=1, name="ab")
GOOD = protobuf(1, ORDER)
MISSING = proto_file("orders.proto", "elsewhere.proto")
SCHEMAS = {
    1: stored_file(FILE),
    2: RegistrySchema("PROTOBUF", 'syntax = "proto3";'),
    3: RegistrySchema("PROTOBUF", "AAAA"),
    4: stored_file(MISSING),
    5: RegistrySchema("AVRO", '"string"'),
}
BAD = {
    "empty": b"",
    "JSON": b'{"n": 1}',
    "header only": header(1),
    "unknown schema": header(9) + GOOD[5:],
    "text of a file": header(2) + GOOD[5:],
    "no file": header(3) + GOOD[5:],
    "missing import": header(4) + GOOD[5:],
    "other kind": header(5) + GOOD[5:],
    "unknown message": header(1) + b"\x02\x08" + GOOD[6:],
    "negative index": header(1) + b"\x02\x01" + GOOD[6:],
    "too many indexes": header(1) + b"\xfe\xff\x03" + GOOD[6:],
    "endless index": header(1) + b"\xff" * 20,
    "cut": GOOD[:-1],
    "wrong type": header(1) + b"\0\x08",
    "UTF-8": GOOD[:-2] + b"\xff\xff",
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_a_message_that_cannot_be_decoded_is_named_and_all_others_are_read(value: bytes) -> None:
    rows, bad = salvaged(protobuf_source({"n": "int32", "name": "string"}), [GOOD, value, None, GOOD], SCHEMAS)
    assert (rows, [message.offset for message in bad]) == ([{"n": 1, "name": "ab"}] * 2, [1])
    wording.matches("bad_messages", [bad[0].clause])
