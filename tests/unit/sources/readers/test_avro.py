"""Avro messages are decoded by the schema of their writer, which their object carries, and converted exactly."""

from __future__ import annotations

import pickle
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import EnvironmentUnusable
from milepost.jobspec.job import KafkaSourceSpec
from milepost.sources.contract import TOMBSTONES, BadMessage, BadRecord, SourceObject, whole_object
from milepost.sources.formats import build_reader
from milepost.sources.landed import RegistrySchema
from milepost.sources.landed.registry_schemas import schema_ids
from milepost_testkit import wording
from milepost_testkit.jobs.avro_messages import avro, header, record_schema, stored
from milepost_testkit.jobs.landed_messages import kafka_source, message_object, numbered
from milepost_testkit.stores.memory_store import MemoryStore

REGISTRY = {"url": "http://registry:8081"}


def avro_source(schema: dict[str, str], **keys: Any) -> KafkaSourceSpec:
    return kafka_source(schema, **{"value": {"format": "avro", "registry": REGISTRY}, **keys})


def salvaged(
    spec: KafkaSourceSpec, values: list[bytes | None], schemas: dict[int, RegistrySchema]
) -> tuple[list[dict[str, Any]], list[BadMessage]]:
    store = MemoryStore("memory://")
    stat = store.put("1/a/0.parquet", message_object(numbered(values), schemas=schemas))
    obj = SourceObject(stat.key, stat.etag, stat.size, 0)
    reader = pickle.loads(pickle.dumps(build_reader("clicks", spec)))
    items = [*reader.salvage_part(store, whole_object(obj))]
    batches = [item for item in items if not isinstance(item, BadRecord)]
    bad = [item for item in items if isinstance(item, BadMessage)]
    if bad:
        with pytest.raises(BadMessage) as refused:
            list(reader.read_part(store, whole_object(obj)))
        assert str(refused.value) == str(bad[0])
    else:
        assert sum(batch.num_rows for batch in reader.read_part(store, whole_object(obj))) == sum(
            batch.num_rows for batch in batches
        )
    rows = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches], reader.schema)
    return rows.to_pylist(), bad


def one(type_: str, avro_type: Any, value: Any) -> Any:
    """Return what a column has of one value, or why it has none."""
    schema = record_schema(c=avro_type)
    rows, bad = salvaged(avro_source({"c": type_}), [avro(7, schema, {"c": value})], {7: stored(schema)})
    if bad:
        assert (len(bad), bad[0].column, rows) == (1, "c", [])
        return bad[0].clause
    return rows[0]["c"]


def logical(type_: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": logical_type, **more}


def local(*parts: int) -> datetime:
    """Return a time without a zone."""
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


AT = datetime(2018, 6, 20, 13, 13, 16, 945_104, UTC)
AT_US = 1_529_500_396_945_104
FIXED = {"type": "fixed", "name": "F", "size": 4}
NANOS, MICROS, MILLIS = (logical("long", f"timestamp-{unit}") for unit in ("nanos", "micros", "millis"))
MAP = {"type": "map", "values": "int"}
UUID = "6b8b4567-327b-43c6-a43c-986966334873"
OTHER = "in the schema, which is not read as"


@pytest.mark.parametrize(
    ("type_", "avro_type", "value", "read"),
    [
        ("bool", "boolean", True, True),
        ("int32", "int", -5, -5),
        ("int16", "int", 40_000, "is not of type int16"),
        ("int64", "long", 2**63 - 1, 2**63 - 1),
        ("int32", "string", "5", f"is a string {OTHER} int32"),
        ("float64", "double", 0.1, 0.1),
        ("float64", "long", 2**53 + 1, "has more digits than a float64 holds"),
        ("float32", "float", 0.5, 0.5),
        ("string", "string", "ä", "ä"),
        ("string", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ("string", {"type": "string", "avro.java.string": "String"}, "x", "x"),
        ("string", logical("string", "uuid"), UUID, UUID),
        ("string", "bytes", b"x", f"is a bytes {OTHER} string"),
        ("binary", "bytes", b"\x00\xff", b"\x00\xff"),
        ("binary", FIXED, b"abcd", b"abcd"),
        ("binary", logical("bytes", "decimal", precision=4), Decimal(5), f"is a bytes (decimal) {OTHER} binary"),
        ("date", logical("int", "date"), date(2018, 6, 20), date(2018, 6, 20)),
        ("date", "int", 5, f"is a int {OTHER} date"),
        ("timestamp[us, UTC]", MICROS, AT, AT),
        ("timestamp[ms, UTC]", MICROS, AT, "has more digits than a timestamp[ms, UTC] holds"),
        ("timestamp[us, UTC]", MILLIS, AT_US // 1_000, AT.replace(microsecond=945_000)),
        ("timestamp[us, UTC]", NANOS, AT_US * 1_000, AT),
        ("timestamp[us, UTC]", NANOS, AT_US * 1_000 + 1, "has more digits than a timestamp[us, UTC] holds"),
        ("timestamp[us, UTC]", MILLIS, 2**62, "is outside the years 1 to 9999"),
        ("timestamp[us]", MICROS, AT, "is a timestamp-micros, which is a timestamp[us, UTC]"),
        ("timestamp[us]", logical("long", "local-timestamp-micros"), AT_US, local(2018, 6, 20, 13, 13, 16, 945_104)),
        ("timestamp[us, UTC]", "long", 5, f"is a long {OTHER} timestamp[us, UTC]"),
        ("int64", MICROS, AT, AT_US),
        ("decimal(10,2)", logical("bytes", "decimal", precision=10, scale=2), Decimal("-12.34"), Decimal("-12.34")),
        (
            "decimal(10,2)",
            logical("bytes", "decimal", precision=9, scale=3),
            Decimal("1.234"),
            "has more digits than a decimal(10,2) holds",
        ),
        ("decimal(9,3)", FIXED | logical("fixed", "decimal", precision=8, scale=2), Decimal("1.50"), Decimal("1.5")),
        ("decimal(10,2)", "int", 7, Decimal(7)),
        ("decimal(10,2)", "bytes", b"x", f"is a bytes {OTHER} decimal(10,2)"),
        ("int64", ["null", "long"], None, None),
        ("int64", ["null", "long"], 5, 5),
        ("string", ["null", "long", "string"], "x", "x"),
        ("string", ["null", "long", "string"], 5, f"is a long {OTHER} string"),
        ("int64", ["int", "long"], 5, "is of a union with several types of this kind, and it is not known which"),
        ("list<int32>", {"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
        ("list<int32>", MAP, {"a": 1}, f"is a map {OTHER} list<int32>"),
        ("struct<a: int32>", MAP, {"a": 1}, f"is a map {OTHER} struct<a: int32>"),
    ],
    ids=str,
)
def test_a_value_is_converted_exactly_or_bad(type_: str, avro_type: Any, value: Any, read: Any) -> None:
    assert one(type_, avro_type, value) == read


def test_records_in_records_are_structs_and_missing_fields_are_null() -> None:
    inner = record_schema("Place", city="string", at=["null", logical("long", "timestamp-millis")])
    schema = record_schema(place=inner, again="shop.Place", more="int")
    place = {"city": "x", "at": datetime(1970, 1, 1, tzinfo=UTC)}
    value = avro(1, schema, {"place": place, "again": {"city": "y", "at": None}, "more": 1})
    type_ = "struct<city: string, at: timestamp[ms, UTC], none: int32>"
    rows, _ = salvaged(
        avro_source({"again": type_, "none": "string", "place": type_}, metadata={"o": "offset"}),
        [value],
        {1: stored(schema)},
    )
    assert rows == [
        {
            "again": {"city": "y", "at": None, "none": None},
            "none": None,
            "place": {"city": "x", "at": datetime(1970, 1, 1, tzinfo=UTC), "none": None},
            "o": 0,
        }
    ]


def test_messages_of_several_schemas_are_each_read_by_their_own() -> None:
    old, new = record_schema(n="int"), record_schema(m="string", n="long")
    values = [avro(1, old, {"n": 1}), avro(2, new, {"n": 2, "m": "x"}), None, avro(1, old, {"n": 3})]
    rows, bad = salvaged(avro_source({"n": "int64", "m": "string"}), values, {1: stored(old), 2: stored(new)})
    assert rows == [{"n": 1, "m": None}, {"n": 2, "m": "x"}, {"n": 3, "m": None}]
    assert bad == []


def test_a_schema_may_refer_to_others() -> None:
    place, country = record_schema("Place", country="shop.Country"), record_schema("Country", code="string")
    schema = record_schema(place="shop.Place")
    whole = record_schema(place=record_schema("Place", country=country))
    value = avro(1, whole, {"place": {"country": {"code": "DE"}}})
    found = stored(schema, ("shop.Country", country), ("shop.Place", place))
    rows, _ = salvaged(avro_source({"place": "struct<country: struct<code: string>>"}), [value], {1: found})
    assert rows == [{"place": {"country": {"code": "DE"}}}]


def test_a_message_without_a_value_has_no_row_and_is_counted() -> None:
    store = MemoryStore("memory://")
    schema = record_schema(n="int")
    messages = numbered([None, avro(1, schema, {"n": 1}), None])
    stat = store.put("1/a/0.parquet", message_object(messages, schemas={1: stored(schema)}))
    part = whole_object(SourceObject(stat.key, stat.etag, stat.size, 0))
    (batch,) = build_reader("clicks", avro_source({"n": "int32"})).read_part(store, part)
    assert (batch.num_rows, batch.schema.metadata) == (1, {TOMBSTONES: b"2"})


ORDER = record_schema(n="int", name="string")
GOOD = avro(1, ORDER, {"n": 1, "name": "ab"})
SCHEMAS = {
    1: stored(ORDER),
    2: stored({"type": "string"}),
    3: RegistrySchema("AVRO", "{broken"),
    4: stored({"type": "record", "name": "R", "fields": [{"name": "x", "type": "Unknown"}]}),
    5: stored(ORDER, kind="PROTOBUF"),
    6: RegistrySchema("AVRO", "[" * 100_000),
}
BAD = {
    "empty": b"",
    "short": b"\0\0\0\0",
    "JSON": b'{"n": 1}',
    "other magic byte": b"\1" + GOOD[1:],
    "unknown schema": header(9) + GOOD[5:],
    "no record": header(2) + b"\x02a",
    "broken schema": header(3) + GOOD[5:],
    "unknown type": header(4) + GOOD[5:],
    "other kind": header(5) + GOOD[5:],
    "deep schema": header(6) + GOOD[5:],
    "header only": header(1),
    "cut": GOOD[:-1],
    "longer": GOOD + b"\0",
    "UTF-8": GOOD[:-2] + b"\xff\xff",
    "negative length": header(1) + b"\x02\x03ab",
    "huge length": header(1) + b"\x02" + b"\xfe" * 8 + b"\x01ab",
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_a_message_that_cannot_be_decoded_is_named_and_all_others_are_read(value: bytes) -> None:
    rows, bad = salvaged(avro_source({"n": "int32", "name": "string"}), [GOOD, value, GOOD], SCHEMAS)
    assert (rows, [message.offset for message in bad]) == ([{"n": 1, "name": "ab"}] * 2, [1])
    wording.matches("bad_messages", [bad[0].clause])


@pytest.mark.parametrize(
    ("values", "ids"),
    [
        ([], []),
        ([None, b"", b"\0\0\0\0", b"\1\0\0\0\7"], []),
        ([header(7), header(7) + b"x", header(2**32 - 1), header(256), None], [7, 256, 2**32 - 1]),
    ],
)
def test_the_ids_of_a_batch_are_those_that_its_values_begin_with(values: list[Any], ids: list[int]) -> None:
    assert schema_ids(pa.array(values, pa.binary())) == ids
    assert schema_ids(pa.array([b"\0\0\0\0\1", *values, b"\0\0\0\0\2"], pa.binary())[1:-1]) == ids


def test_a_reader_without_the_libraries_of_its_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with wording.raises(EnvironmentUnusable):
        build_reader("clicks", avro_source({"n": "int32"}))
