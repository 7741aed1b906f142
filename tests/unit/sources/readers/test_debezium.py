"""Debezium's change events become rows of the declared columns exactly, or dead letters that name the column."""

from __future__ import annotations

import base64
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.jobspec.job import KafkaSourceSpec
from milepost.sources.contract import (
    PARTITION,
    TOMBSTONES,
    BadMessage,
    BadObject,
    BadRecord,
    SourceObject,
    whole_object,
)
from milepost.sources.formats import build_reader
from milepost_testkit import wording
from milepost_testkit.jobs.debezium_events import ROW_SCHEMA, base64_decimal, change
from milepost_testkit.jobs.landed_messages import kafka_source, message_object, numbered
from milepost_testkit.stores.memory_store import MemoryStore


def local(*parts: int) -> datetime:
    """Return a time without a zone."""
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


SCHEMA = {
    "id": "int64",
    "status": "string",
    "amount": "decimal(10,2)",
    "placed": "timestamp[us]",
    "paid": "timestamp[us, UTC]",
    "due": "date",
}
ROW = {
    "id": 1,
    "status": "new ä",
    "amount": base64_decimal(-123456),
    "placed": 1_529_507_596_945_104,
    "paid": "2018-06-20T13:13:16.945104Z",
    "due": 17_702,
}
READ = {
    "id": 1,
    "status": "new ä",
    "amount": Decimal("-1234.56"),
    "placed": local(2018, 6, 20, 15, 13, 16, 945_104),
    "paid": datetime(2018, 6, 20, 13, 13, 16, 945_104, UTC),
    "due": date(2018, 6, 20),
}
MODES = {"time_precision_mode": "adaptive", "decimal_handling_mode": "precise"}


def debezium_source(schema: dict[str, str], modes: dict[str, str] | None = None, **keys: Any) -> KafkaSourceSpec:
    return kafka_source(schema, **{"value": {"format": "debezium", **(modes or {})}, **keys})


def salvaged(spec: KafkaSourceSpec, values: list[bytes | None]) -> tuple[list[dict[str, Any]], list[BadMessage]]:
    store = MemoryStore("memory://")
    stat = store.put("1/a/00000-00000.parquet", message_object(numbered(values)))
    obj = SourceObject(stat.key, stat.etag, stat.size, 0)
    reader = pickle.loads(pickle.dumps(build_reader("clicks", spec)))
    items = [*reader.salvage_part(store, whole_object(obj))]
    batches = [item for item in items if not isinstance(item, BadRecord)]
    if spec.event_time is not None:
        batches = [batch.drop_columns([PARTITION]) for batch in batches]
    bad = [item for item in items if isinstance(item, BadMessage)]
    if not bad:
        again = [*reader.read_part(store, whole_object(obj))]
        assert [batch.num_rows for batch in again] == [batch.num_rows for batch in batches]
    else:
        with pytest.raises(BadMessage) as refused:
            list(reader.read_part(store, whole_object(obj)))
        assert str(refused.value) == str(bad[0])
    return pa.Table.from_batches(batches, reader.schema).to_pylist(), bad


def one(type_: str, value: Any, connect: dict[str, Any] | None, modes: dict[str, str] | None = None) -> Any:
    """Return what a column has of one value, or why it has none."""
    fields = None if connect is None else [{"optional": True, "field": "c", **connect}]
    rows, bad = salvaged(debezium_source({"c": type_}, modes), [change("c", {"c": value}, fields=fields)])
    if bad:
        assert (len(bad), bad[0].column, rows) == (1, "c", [])
        return bad[0].clause
    return rows[0]["c"]


@pytest.mark.parametrize("fields", [ROW_SCHEMA, None], ids=["schema", "no schema"])
@pytest.mark.parametrize("op", ["c", "r", "u", "d"])
def test_a_row_is_that_after_a_change_or_before_a_delete(op: str, fields: Any) -> None:
    spec = debezium_source(SCHEMA, MODES, metadata={"op": "op", "o": "offset", "lsn": "source.lsn"})
    after, before = (None, ROW) if op == "d" else (ROW, None)
    assert salvaged(spec, [change(op, after, before, fields=fields, lsn=24023128)] * 2) == (
        [{**READ, "op": op, "o": offset, "lsn": 24_023_128} for offset in (0, 1)],
        [],
    )


def test_columns_are_in_the_order_of_the_spec_and_metadata_is_of_the_event() -> None:
    paths = ["op", "ts_ms", "source.ts_ms", "source.snapshot", "source.db", "source.schema", "source.table"]
    metadata = {path.replace(".", "_"): path for path in [*paths, "source.lsn", "source.file", "source.pos"]}
    spec = debezium_source({"id": "int64"}, metadata={"o": "offset", **metadata, "p": "partition"})
    ((row,), _) = salvaged(spec, [change("r", {"id": 1}, lsn=7)])
    assert [*row] == [*spec.columns]
    assert row == {
        "id": 1,
        "o": 0,
        "op": "r",
        "ts_ms": datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC),
        "source_ts_ms": datetime(2023, 11, 14, 22, 13, 20, 7_000, UTC),
        "source_snapshot": "true",
        "source_db": "shop",
        "source_schema": "public",
        "source_table": "orders",
        "source_lsn": 7,
        "source_file": None,
        "source_pos": None,
        "p": 0,
    }


def test_the_time_of_the_change_may_be_the_event_time() -> None:
    spec = debezium_source({"id": "int64"}, metadata={"at": "source.ts_ms"}, event_time="at")
    good = change("c", {"id": 1}, lsn=0)
    rows, bad = salvaged(spec, [good, good.replace(b'"ts_ms":1700000000000', b'"ts_ms":null')])
    assert rows == [{"id": 1, "at": datetime(2023, 11, 14, 22, 13, 20, 0, UTC)}]
    assert [(message.column, message.clause) for message in bad] == [("at", "is null, but the event time is required")]


def test_a_tombstone_has_no_row_and_is_counted() -> None:
    spec = debezium_source({"id": "int64"})
    store = MemoryStore("memory://")
    stat = store.put("1/a/0.parquet", message_object(numbered([change("d", None, {"id": 1}), None, None])))
    (batch,) = build_reader("clicks", spec).read_part(
        store, whole_object(SourceObject(stat.key, stat.etag, stat.size, 0))
    )
    assert (batch.num_rows, batch.schema.metadata) == (1, {TOMBSTONES: b"2"})


CONNECT_TIMES = "org.apache.kafka.connect.data"
US = 1_529_507_596_945_104


@pytest.mark.parametrize(
    ("type_", "value", "connect", "read"),
    [
        ("timestamp[us]", US, "io.debezium.time.MicroTimestamp", local(2018, 6, 20, 15, 13, 16, 945_104)),
        ("timestamp[us, UTC]", US, "io.debezium.time.MicroTimestamp", datetime(2018, 6, 20, 15, 13, 16, 945_104, UTC)),
        ("timestamp[us]", -1, "io.debezium.time.MicroTimestamp", local(1969, 12, 31, 23, 59, 59, 999_999)),
        ("timestamp[ms]", US, "io.debezium.time.MicroTimestamp", "has more digits than a timestamp[ms] holds"),
        ("timestamp[us]", 1_500, "io.debezium.time.Timestamp", local(1970, 1, 1, 0, 0, 1, 500_000)),
        ("timestamp[s]", 2_000, f"{CONNECT_TIMES}.Timestamp", local(1970, 1, 1, 0, 0, 2)),
        ("timestamp[us]", 2_000, "io.debezium.time.NanoTimestamp", local(1970, 1, 1, 0, 0, 0, 2)),
        ("timestamp[us]", 2_001, "io.debezium.time.NanoTimestamp", "has more digits than a timestamp[us] holds"),
        (
            "timestamp[us]",
            9_223_372_036_825_200_000,
            "io.debezium.time.MicroTimestamp",
            "is outside the years 1 to 9999",
        ),
        (
            "timestamp[ns]",
            -62_135_596_800_000_000,
            "io.debezium.time.MicroTimestamp",
            "is outside the range of a timestamp[ns]",
        ),
        ("timestamp[us]", True, "io.debezium.time.MicroTimestamp", "is not of type timestamp[us]"),
        ("timestamp[us]", 5, None, "is a int64, which is no timestamp"),
        ("int64", US, "io.debezium.time.MicroTimestamp", US),
    ],
    ids=str,
)
def test_times_are_converted_exactly_by_the_name_of_their_type(
    type_: str, value: Any, connect: str | None, read: Any
) -> None:
    named = {} if connect is None else {"name": connect}
    assert one(type_, value, {"type": "int64", **named}) == read


@pytest.mark.parametrize(
    ("type_", "value", "read"),
    [
        ("timestamp[us, UTC]", "2018-06-20T13:13:16Z", datetime(2018, 6, 20, 13, 13, 16, 0, UTC)),
        ("timestamp[us, UTC]", "2018-06-20T15:13:16.5+02:00", datetime(2018, 6, 20, 13, 13, 16, 500_000, UTC)),
        ("timestamp[us, UTC]", "2018-06-20T13:13:16.9451041Z", "has more digits than a timestamp[us, UTC] holds"),
        ("timestamp[us, UTC]", "2018-06-20T13:13:16.945104000Z", datetime(2018, 6, 20, 13, 13, 16, 945_104, UTC)),
        (
            "timestamp[us]",
            "2018-06-20T13:13:16Z",
            "is not of type timestamp[us]: it has a UTC offset, as in a timestamp[us, UTC]",
        ),
        ("timestamp[us, UTC]", "2018-02-30T13:13:16Z", "is not of type timestamp[us, UTC]"),
        ("timestamp[us, UTC]", "infinity", "is not of type timestamp[us, UTC]"),
        ("timestamp[us, UTC]", "+292278994-08-16T23:00:00Z", "is not of type timestamp[us, UTC]"),
        ("string", "2018-06-20T13:13:16Z", "2018-06-20T13:13:16Z"),
    ],
    ids=str,
)
def test_a_zoned_timestamp_is_converted_exactly(type_: str, value: str, read: Any) -> None:
    assert one(type_, value, {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}) == read


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "3"}}
ANY_SCALE = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
NO_SCALE = {"type": "bytes", "name": DECIMAL["name"]}


@pytest.mark.parametrize(
    ("type_", "value", "connect", "read"),
    [
        ("decimal(10,3)", base64_decimal(12_345), DECIMAL, Decimal("12.345")),
        ("decimal(10,2)", base64_decimal(12_340), DECIMAL, Decimal("12.34")),
        ("decimal(10,2)", base64_decimal(12_345), DECIMAL, "has more digits than a decimal(10,2) holds"),
        ("decimal(4,3)", base64_decimal(12_345), DECIMAL, "is not of type decimal(4,3)"),
        ("decimal(38,3)", base64_decimal(10**37 + 1), DECIMAL, Decimal(f"{10**37 + 1}E-3")),
        ("decimal(38,0)", base64_decimal(-(10**40)), DECIMAL, Decimal(-(10**37))),
        ("decimal(10,2)", "", DECIMAL, Decimal(0)),
        ("decimal(10,2)", "%%", DECIMAL, "is not base64"),
        ("decimal(10,2)", "AQ==", {"type": "bytes"}, "is a bytes, which is no decimal"),
        ("decimal(10,2)", "AQ==", NO_SCALE, "is a decimal whose schema has no `scale`"),
        ("decimal(10,2)", {"scale": 1, "value": "fQ=="}, ANY_SCALE, Decimal("12.50")),
        ("decimal(10,2)", {"value": "fQ=="}, ANY_SCALE, "is not of type decimal(10,2)"),
        ("decimal(10,2)", "12.5", {"type": "string"}, Decimal("12.50")),
        ("decimal(10,2)", "NaN", {"type": "string"}, "is not of type decimal(10,2)"),
        ("decimal(10,2)", "1_0", {"type": "string"}, "is not of type decimal(10,2)"),
        ("decimal(10,2)", "0.00", {"type": "string"}, Decimal(0)),
        ("decimal(10,2)", "0.001", {"type": "string"}, "has more digits than a decimal(10,2) holds"),
        ("decimal(10,2)", "1e3", {"type": "string"}, Decimal(1000)),
        ("decimal(10,2)", "1e999", {"type": "string"}, "is not of type decimal(10,2)"),
        ("decimal(10,2)", 0.1, {"type": "double"}, Decimal("0.10")),
        ("decimal(10,2)", 7, {"type": "int32"}, Decimal(7)),
        (
            "string",
            base64_decimal(5),
            DECIMAL,
            "is a bytes org.apache.kafka.connect.data.Decimal, which is not read as string",
        ),
    ],
    ids=str,
)
def test_decimals_are_converted_exactly_or_not_at_all(type_: str, value: Any, connect: Any, read: Any) -> None:
    assert one(type_, value, connect) == read


@pytest.mark.parametrize(
    ("type_", "value", "connect", "read"),
    [
        ("bool", True, {"type": "boolean"}, True),
        ("bool", 1, {"type": "boolean"}, "is not of type bool"),
        ("int16", 40_000, {"type": "int32"}, "is not of type int16"),
        ("int64", 2**63, {"type": "int64"}, "is not of type int64"),
        ("int64", 1.0, {"type": "double"}, "is a double, which is not read as int64"),
        ("float64", "NaN", {"type": "double"}, None),
        ("float64", 5, {"type": "int32"}, 5.0),
        ("float64", 2**53 + 1, {"type": "int64"}, "has more digits than a float64 holds"),
        ("float32", 1e300, {"type": "double"}, "is outside the range of a float32"),
        ("binary", base64.b64encode(b"\x00\xff").decode(), {"type": "bytes"}, b"\x00\xff"),
        ("binary", "deadbeef", {"type": "string"}, "is a string, not bytes: declare the column as string"),
        ("string", 5, {"type": "int32"}, "is a int32, which is not read as string"),
        ("string", "\ud800", {"type": "string"}, "is not valid UTF-8"),
        ("date", 17_702, {"type": "int32", "name": "io.debezium.time.Date"}, date(2018, 6, 20)),
        ("date", 17_702, {"type": "int32"}, "is a int32, which is no date"),
        ("date", 2**31 - 1, {"type": "int32", "name": "io.debezium.time.Date"}, "is outside the years 1 to 9999"),
        ("date", "2018-06-20Z", {"type": "string", "name": "io.debezium.time.IsoDate"}, date(2018, 6, 20)),
        ("list<int32>", [1, None], {"type": "array", "items": {"type": "int32"}}, [1, None]),
        ("list<int32>", ["a"], {"type": "array", "items": {"type": "int32"}}, "is not of type int32"),
        ("list<int32>", {"a": 1}, {"type": "map"}, "is not of type list<int32>"),
        (
            "struct<x: float64, at: timestamp[ms]>",
            {"x": 0.5, "at": 1, "more": []},
            {
                "type": "struct",
                "fields": [
                    {"type": "double", "field": "x"},
                    {"type": "int64", "name": "io.debezium.time.Timestamp", "field": "at"},
                ],
            },
            {"x": 0.5, "at": local(1970, 1, 1, 0, 0, 0, 1_000)},
        ),
    ],
    ids=str,
)
def test_a_value_is_of_its_declared_type_or_bad(type_: str, value: Any, connect: Any, read: Any) -> None:
    found = one(type_, value, connect) if value != "\ud800" else one_escaped(type_, connect)
    assert found != found if read is None else found == read


def one_escaped(type_: str, connect: dict[str, Any]) -> Any:
    fields = [{"optional": True, "field": "c", **connect}]
    value = change("c", {"c": "X"}, fields=fields).replace(b'"X"', rb'"\ud800"')
    (_, (bad,)) = salvaged(debezium_source({"c": type_}), [value])
    return bad.clause


@pytest.mark.parametrize(
    ("type_", "value", "modes", "read"),
    [
        ("timestamp[us]", 1_500, {}, "is a number: set `time_precision_mode`"),
        ("timestamp[us]", 1_500, {"time_precision_mode": "adaptive"}, local(1970, 1, 1, 0, 0, 0, 1_500)),
        ("timestamp[ms]", 1_500, {"time_precision_mode": "adaptive"}, local(1970, 1, 1, 0, 0, 1, 500_000)),
        ("timestamp[us]", 1_500, {"time_precision_mode": "connect"}, local(1970, 1, 1, 0, 0, 1, 500_000)),
        ("timestamp[us]", 1_500, {"time_precision_mode": "nanoseconds"}, "has more digits than a timestamp[us] holds"),
        ("timestamp[us, UTC]", "1970-01-01T00:00:00Z", {}, datetime(1970, 1, 1, tzinfo=UTC)),
        ("date", 1, {}, date(1970, 1, 2)),
        ("decimal(10,2)", "BNI=", {}, "is a text: set `decimal_handling_mode`"),
        ("decimal(10,2)", "BNI=", {"decimal_handling_mode": "precise"}, Decimal("12.34")),
        ("decimal(10,2)", "1234", {"decimal_handling_mode": "string"}, Decimal(1234)),
        ("decimal(10,2)", 12.34, {}, Decimal("12.34")),
        ("decimal(10,2)", {"scale": 2, "value": "BNI="}, {}, Decimal("12.34")),
        ("binary", "AP8=", {}, b"\x00\xff"),
    ],
    ids=str,
)
def test_without_a_schema_the_modes_of_the_connector_say_how_a_value_is_encoded(
    type_: str, value: Any, modes: dict[str, str], read: Any
) -> None:
    assert one(type_, value, None, modes) == read


TEXT = "__debezium_unavailable_value"
IN_BASE64 = base64.b64encode(TEXT.encode()).decode()


@pytest.mark.parametrize(
    ("type_", "placeholder"),
    [
        ("string", TEXT),
        ("binary", IN_BASE64),
        ("list<string>", [TEXT]),
        ("list<binary>", [IN_BASE64]),
        ("list<int64>", list(TEXT.encode())),
    ],
)
def test_an_unchanged_value_that_the_event_lacks_is_named_and_never_null(type_: str, placeholder: Any) -> None:
    spec = debezium_source({"id": "int64", "c": type_})
    missing = change("u", {"id": 1, "c": placeholder})
    only_key = change("u", {"id": 1, "c": placeholder}, {"id": 2, "c": None})
    twice = change("u", {"id": 1, "c": placeholder}, {"id": 1, "c": placeholder})
    rows, bad = salvaged(spec, [missing, only_key, twice, change("d", None, {"id": 1, "c": placeholder})])
    assert (rows, [message.offset for message in bad]) == ([{"id": 1, "c": None}], [0, 1, 2])
    assert {(message.column, message.clause) for message in bad} == {
        ("c", "is unchanged, and the event does not have its value: set REPLICA IDENTITY FULL")
    }


def test_an_unchanged_value_is_taken_from_before_if_it_is_there() -> None:
    spec = debezium_source({"id": "int64", "c": "string"})
    assert salvaged(spec, [change("u", {"id": 1, "c": TEXT}, {"id": 1, "c": "long"})]) == ([{"id": 1, "c": "long"}], [])


def test_a_placeholder_of_another_text_is_declared() -> None:
    modes = {"unavailable_value_placeholder": "n/a"}
    (_, (bad,)) = salvaged(debezium_source({"c": "string"}, modes), [change("u", {"c": "n/a"})])
    assert bad.column == "c"
    assert salvaged(debezium_source({"c": "string"}, modes), [change("u", {"c": TEXT})])[0] == [{"c": TEXT}]


def test_a_column_that_the_table_got_later_is_null_before() -> None:
    spec = debezium_source({"id": "int64", "more": "string"})
    fields = [{"type": "int64", "field": "id"}]
    later = [*fields, {"type": "string", "field": "more"}]
    values = [change("c", {"id": 1}, fields=fields), change("c", {"id": 2, "more": "x"}, fields=later)]
    values += [values[0], change("c", {"id": 3}), values[1]]
    rows, _ = salvaged(spec, values)
    assert [(row["id"], row["more"]) for row in rows] == [(1, None), (2, "x"), (1, None), (3, None), (2, "x")]


def test_the_schema_of_one_message_is_not_used_for_another() -> None:
    """Both begin alike: a decimal of scale 2, then of scale 3."""
    spec = debezium_source({"c": "decimal(10,3)"})
    schemas = [[{**DECIMAL, "field": "c", "parameters": {"scale": scale}}] for scale in ("2", "3", "2")]
    rows, _ = salvaged(spec, [change("c", {"c": base64_decimal(12_345)}, fields=fields) for fields in schemas])
    assert [row["c"] for row in rows] == [Decimal("123.45"), Decimal("12.345"), Decimal("123.45")]


@pytest.mark.parametrize("indent", [1, None])
def test_an_event_is_read_however_it_is_laid_out(indent: int | None) -> None:
    events = [change("c", {"id": n}, fields=ROW_SCHEMA) for n in range(3)]
    values: list[bytes | None] = [
        b"\xef\xbb\xbf" + json.dumps(json.loads(event), indent=indent).encode() for event in events
    ]
    swapped = {key: json.loads(events[0])[key] for key in ("payload", "schema")}
    rows, _ = salvaged(debezium_source({"id": "int64"}), [*values, json.dumps(swapped).encode(), events[1] + b" \n"])
    assert [row["id"] for row in rows] == [0, 1, 2, 0, 1]


GOOD = change("c", {"id": 1}, fields=ROW_SCHEMA)
BAD = {
    "empty": b"",
    "no JSON": b"{broken",
    "scalar": b"1",
    "null": b"null",
    "UTF-8": b'{"op": "\xff"}',
    "deep": b'{"op":' + b"[" * 100_000,
    "huge number": b'{"op": "c", "after": {"id": ' + b"9" * 5_000 + b"}}",
    "half": GOOD[:-5],
    "more": GOOD + b"}",
    "other keys": GOOD[:-1] + b',"x":1}1',
    "flattened": b'{"id": 1, "__deleted": "false"}',
    "schema only": b'{"schema": {}, "payload": null}',
    "unknown op": change("m", {"id": 1}),
    "op of another type": GOOD.replace(b'"op":"c"', b'"op":["c"]'),
    "no after": change("u", None, {"id": 1}),
    "no before": change("d", {"id": 1}),
    "after is a text": GOOD.replace(b'"after":{"id":1}', b'"after":"{}"'),
    "schema is a list": b'{"schema": [], "payload": {"op": "c", "after": {"id": "x"}}}',
    "fields are no list": b'{"schema": {"fields": {"a": 1}}, "payload": {"op": "c", "after": {"id": 1}}}',
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_a_message_that_is_no_change_event_is_named_and_all_others_are_read(value: bytes) -> None:
    rows, bad = salvaged(debezium_source({"id": "int64"}), [GOOD, value, GOOD])
    assert (rows, [message.offset for message in bad]) == ([{"id": 1}] * 2, [1])
    wording.matches("bad_messages", [f"{bad[0].column}: {bad[0].clause}"])


@pytest.mark.parametrize("dead", [b"{broken", None])
def test_a_truncate_stops_the_reader_and_is_no_dead_letter(dead: bytes | None) -> None:
    spec = debezium_source({"id": "int64"})
    store = MemoryStore("memory://")
    messages = numbered([GOOD, dead, change("t"), GOOD, change("t")])
    stat = store.put("1/a/0.parquet", message_object(messages))
    part = whole_object(SourceObject(stat.key, stat.etag, stat.size, 0))
    reader = build_reader("clicks", spec)
    with pytest.raises(BadObject) as refused:
        list(reader.salvage_part(store, part))
    assert isinstance(refused.value, BadMessage) and refused.value.offset == 2
    wording.matches("bad_messages", [refused.value.clause])
    with pytest.raises(BadMessage):
        list(reader.read_part(store, part))


GOLDEN = json.loads((Path(__file__).parent / "golden" / "debezium_postgres.json").read_text(encoding="utf-8"))
"""What Debezium 3.6.1 sent of a table in Postgres 18: by the connector's modes, the schema of a row, and the events."""
GOLDEN_SCHEMA = {
    "id": "int64",
    "status": "string",
    "amount": "decimal(10,2)",
    "free": "decimal(20,5)",
    "money": "decimal(10,2)",
    "placed": "timestamp[us]",
    "placed_ms": "timestamp[ms]",
    "paid": "timestamp[us, UTC]",
    "due": "date",
    "tags": "list<string>",
    "ints": "list<int32>",
    "doc": "string",
    "u": "string",
    "ok": "bool",
    "r": "float32",
    "d": "float64",
    "s": "int16",
    "note": "string",
}
GOLDEN_ROW = {
    "id": 1,
    "status": "new ä",
    "amount": Decimal("12.34"),
    "free": Decimal("1.5"),
    "money": Decimal("7.5"),
    "placed": local(2018, 6, 20, 15, 13, 16, 945_104),
    "placed_ms": local(2018, 6, 20, 15, 13, 16, 945_000),
    "paid": datetime(2018, 6, 20, 13, 13, 16, 945_104, UTC),
    "due": date(2018, 6, 20),
    "tags": ["a", "b"],
    "ints": [1, 2],
    "doc": '{"a": [1]}',
    "u": "6b8b4567-327b-43c6-a43c-986966334873",
    "ok": True,
    "r": pytest.approx(0.1),
    "d": 0.1,
    "s": 5,
    "note": "xxxxxxxxxx",
}


def golden(modes: str, *, schema: bool) -> list[bytes | None]:
    """Return the messages, as Kafka Connect's JSON converter writes them."""
    kept = GOLDEN[modes]
    rows = [{"type": "struct", "fields": kept["row"], "optional": True, "field": name} for name in ("before", "after")]
    around = {"type": "struct", "fields": rows, "optional": False, "name": "shop.public.orders.Envelope", "version": 2}
    return [
        None
        if event is None
        else json.dumps({"schema": around, "payload": event} if schema else event, separators=(",", ":")).encode()
        for event in kept["events"]
    ]


@pytest.mark.parametrize(
    ("modes", "schema", "settings"),
    [
        ("adaptive, precise", True, {}),
        ("adaptive, precise", False, {"time_precision_mode": "adaptive", "decimal_handling_mode": "precise"}),
        ("isostring, string", True, {}),
        ("isostring, string", False, {"time_precision_mode": "isostring", "decimal_handling_mode": "string"}),
        ("nanoseconds, double", True, {}),
        ("nanoseconds, double", False, {"time_precision_mode": "nanoseconds", "decimal_handling_mode": "double"}),
    ],
)
def test_a_snapshot_row_of_debezium_is_read_in_each_of_its_modes(
    modes: str, schema: bool, settings: dict[str, str]
) -> None:
    exact = {key: type_ for key, type_ in GOLDEN_SCHEMA.items() if key != "free"}
    if (modes, schema) != ("adaptive, precise", False):
        exact["free"] = GOLDEN_SCHEMA["free"]
    rows, bad = salvaged(debezium_source(exact, settings), golden(modes, schema=schema)[:3])
    assert rows[0] == {name: GOLDEN_ROW[name] for name in exact}
    assert [(message.offset, message.column) for message in bad] == [(1, "placed")], "infinity"
    assert (rows[1]["id"], rows[1]["paid"], rows[1]["placed"]) == (
        3,
        datetime(1, 1, 1, tzinfo=UTC),
        local(1969, 12, 31, 23, 59, 59, 999_999),
    )


@pytest.mark.parametrize("type_", ["timestamp[s]", "timestamp[us]", "timestamp[ns]"])
@pytest.mark.parametrize("modes", GOLDEN)
def test_infinity_of_postgres_is_never_a_time(modes: str, type_: str) -> None:
    _, bad = salvaged(debezium_source({"placed": type_}), golden(modes, schema=True)[1:2])
    assert [message.column for message in bad] == ["placed"]
    _, bad = salvaged(debezium_source({"due": "date"}), golden(modes, schema=True)[1:2])
    assert [message.column for message in bad] == ["due"]


@pytest.mark.parametrize("schema", [True, False])
def test_the_changes_of_debezium_are_read_or_named(schema: bool) -> None:
    """In order: changes of rows 3 and 1, of a key, and deletes under both replica identities; last, a TRUNCATE."""
    columns = ["id", "status", "tags", "ints", "doc", "note"]
    spec = debezium_source({name: GOLDEN_SCHEMA[name] for name in columns} | {"data": "binary"}, metadata={"op": "op"})
    rows, bad = salvaged(spec, golden("adaptive, precise", schema=schema)[:-1])
    assert [(row["op"], row["id"], row["status"]) for row in rows] == [
        ("r", 1, "new ä"),
        ("r", 2, "old"),
        ("c", 3, "new"),
        ("u", 1, "new ä"),
        ("d", 2, None),
        ("c", 30, "old"),
        ("d", 30, None),
        ("u", 3, "closed"),
        ("d", 3, "closed"),
    ]
    assert [(message.offset, message.column) for message in bad] == [(4, "note"), (5, "tags")]
    assert rows[3]["tags"] == ["tag"] * 400 and rows[3]["data"] == b"\xab" * 2_200
    assert rows[7]["note"] == "n" * 2_100, "under REPLICA IDENTITY FULL"
    for name in ("ints", "doc", "data"):
        _, bad = salvaged(
            debezium_source({"id": "int64", name: {**GOLDEN_SCHEMA, "data": "binary"}[name]}),
            golden("adaptive, precise", schema=schema)[:-1],
        )
        assert [(message.offset, message.column) for message in bad] == [(5, name)]
    _, bad = salvaged(debezium_source({"id": "int64"}), golden("adaptive, precise", schema=schema)[:-1])
    assert bad == []
