"""Landed messages are decoded by the rules of JSON files, and each that cannot be is named by its offset."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from milepost.jobspec.job import MESSAGE_COLUMNS, KafkaSourceSpec
from milepost.language import arrow_schema
from milepost.sources.contract import (
    MAX_RAW_BYTES,
    PARTITION,
    TOMBSTONES,
    BadMessage,
    BadRecord,
    ObjectPart,
    SourceObject,
    whole_object,
)
from milepost.sources.dead_letter_rows import dead_letter_schema, dead_letters
from milepost.sources.formats import build_reader
from milepost.sources.landed.messages import MESSAGE_SCHEMA, partition_name
from milepost_testkit import wording
from milepost_testkit.jobs.landed_messages import Message, kafka_source, message_object, numbered
from milepost_testkit.stores.memory_store import MemoryStore

SCHEMA = {"n": "int32", "name": "string", "at": "timestamp[us, UTC]"}
T = "2013-01-01T10:00:00Z"
AT = datetime(2013, 1, 1, 10, tzinfo=UTC)
GOOD = {"n": 1, "name": "a", "at": T}


def landed(messages: list[Message], **keys: Any) -> tuple[MemoryStore, SourceObject]:
    store = MemoryStore("memory://")
    stat = store.put("1/a/00000-00000.parquet", message_object(messages, **keys))
    return store, SourceObject(stat.key, stat.etag, stat.size, 0)


def read(spec: KafkaSourceSpec, messages: list[Message]) -> pa.Table:
    store, obj = landed(messages)
    reader = pickle.loads(pickle.dumps(build_reader("clicks", spec)))
    return pa.Table.from_batches(
        rows_of(spec, reader.schema, reader.read_part(store, whole_object(obj))), reader.schema
    )


def salvaged(spec: KafkaSourceSpec, messages: list[Message]) -> tuple[pa.Table, list[BadMessage]]:
    store, obj = landed(messages)
    reader = build_reader("clicks", spec)
    items = [*reader.salvage_part(store, whole_object(obj))]
    batches = rows_of(spec, reader.schema, (item for item in items if not isinstance(item, BadRecord)))
    return pa.Table.from_batches(batches, reader.schema), [item for item in items if isinstance(item, BadMessage)]


def rows_of(spec: KafkaSourceSpec, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the batches without the partition, which they have if there is an event time."""
    rows = [batch.drop_columns([PARTITION]) if spec.event_time is not None else batch for batch in batches]
    assert all(batch.schema.equals(schema) and (batch.num_rows or batch.schema.metadata) for batch in rows)
    return rows


def test_the_columns_of_a_message_are_those_that_a_landing_stores() -> None:
    assert arrow_schema(MESSAGE_COLUMNS).equals(MESSAGE_SCHEMA)


def test_values_and_metadata_become_columns_in_the_order_of_the_spec() -> None:
    spec = kafka_source(
        SCHEMA,
        event_time="at",
        metadata={"sent": "timestamp", "k": "key", "raw": "key_bytes", "p": "partition", "o": "offset", "t": "topic"},
    )
    assert str(spec.columns["k"]) == "string"
    table = read(spec, [Message(json.dumps(GOOD).encode(), "ä".encode(), 3, 17, 1_700_000_000_123)])
    assert table.column_names == [*spec.columns]
    sent = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert table.to_pylist() == [
        {**GOOD, "at": AT, "sent": sent, "k": "ä", "raw": "ä".encode(), "p": 3, "o": 17, "t": "clicks"}
    ]


def test_headers_and_missing_metadata_are_read_as_they_were_landed() -> None:
    metadata = {"h": "headers", "sent": "timestamp", "type": "timestamp_type", "record": "sequence"}
    spec = kafka_source({"n": "int32"}, metadata=metadata)
    headers = (("trace", b"\xff"), ("trace", None))
    table = read(spec, [Message(b'{"n": 1}', headers=headers), Message(b'{"n": 2}', sent_ms=None)])
    assert table["h"].to_pylist() == [[{"name": "trace", "value": b"\xff"}, {"name": "trace", "value": None}], None]
    assert table["type"].to_pylist() == ["create", None]
    assert table["record"].to_pylist() == [1, 1]
    assert table["sent"].is_valid().to_pylist() == [True, False]


@pytest.mark.parametrize(
    "value",
    [
        b'{"n": 1, "name": "a"}',
        b'{\n  "n": 1,\r\n  "name": "a"\r}',
        b' \t\r\n{"n": 1, "name": "a"}\n\n',
        b'\xef\xbb\xbf{"n": 1, "name": "a"}',
        b'\xef\xbb\xbf\n{"n": 1,\n"name": "a"}',
        b'{"extra": {"deep": [1, {"n": 2}]}, "name": "a", "n": 1, "n2": "\\u0000"}',
    ],
)
def test_a_value_is_one_json_object_however_it_is_laid_out(value: bytes) -> None:
    around = b'{"n": 0, "name": "}\\n{"}'
    table = read(kafka_source({"n": "int32", "name": "string"}), numbered([around, value, around]))
    assert table["n"].to_pylist() == [0, 1, 0]
    assert table["name"].to_pylist() == ["}\n{", "a", "}\n{"]


def test_a_field_that_a_message_lacks_is_null() -> None:
    table = read(kafka_source(SCHEMA), numbered([b'{"n": 1}', b'{"name": null}', b"{}"]))
    assert table.to_pylist() == [
        {"n": 1, "name": None, "at": None},
        {"n": None, "name": None, "at": None},
        {"n": None, "name": None, "at": None},
    ]


def test_a_message_without_a_value_has_no_row_and_is_not_bad() -> None:
    spec = kafka_source({"n": "int32"}, event_time="sent", metadata={"sent": "timestamp"})
    messages = [Message(None, sent_ms=None), Message(b'{"n": 1}', offset=1), Message(None, offset=2)]
    assert read(spec, messages)["n"].to_pylist() == [1]
    assert salvaged(spec, messages)[1] == []
    assert read(spec, messages[:1]).num_rows == 0


@pytest.mark.parametrize(
    "values", [[None, None], [None, b"{}", None], [None, b"{broken", None], [None, b"1", b"{}", None]]
)
def test_messages_without_a_value_are_counted(values: list[bytes | None]) -> None:
    spec = kafka_source({"n": "int32"}, metadata={"record": "sequence"})
    store, obj = landed(numbered(values))
    reader = build_reader("clicks", spec)
    items = [*reader.salvage_part(store, whole_object(obj))]
    (batch,) = (item for item in items if not isinstance(item, BadRecord))
    assert (batch.schema.metadata, batch.num_rows) == ({TOMBSTONES: b"2"}, values.count(b"{}"))
    raw = build_reader("clicks", kafka_source({"payload": "binary"}, "raw"))
    assert [batch.schema.metadata for batch in raw.read_part(store, whole_object(obj))] == [None]


BAD = {
    "empty": b"",
    "blank": b" \n ",
    "no JSON": b"{broken",
    "array": b'[{"n": 1}]',
    "scalar": b"1",
    "null": b"null",
    "several": b'{"n": 1}{"n": 2}',
    "several lines": b'{"n": 1}\n{"n": 2}',
    "begin of an object": b'{"n": 1',
    "end of an object": b', "name": "x"}',
    "line end in a string": b'{"n": 1, "name": "a\nb"}',
    "NUL": b'{"n": 1}\x00}',
    "NUL in a string": b'{"name": "a\x00b"}',
    "type": json.dumps(GOOD | {"n": "x"}).encode(),
    "range": json.dumps(GOOD | {"n": 2**31}).encode(),
    "huge": b'{"n": ' + b"9" * 5_000 + b"}",
    "twice": b'{"n": 1, "n": 2}',
    "not a number": b'{"n": NaN}',
    "UTF-8": b'{"name": "\xff"}',
    "no event time": json.dumps(GOOD | {"at": None}).encode(),
    "no UTC offset": json.dumps(GOOD | {"at": T[:-1]}).encode(),
    "two marks": b'\xef\xbb\xbf\xef\xbb\xbf{"n": 1}',
}


@pytest.mark.long
@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_a_message_that_cannot_be_decoded_is_named_and_all_others_are_read(value: bytes) -> None:
    spec = kafka_source(SCHEMA, event_time="at")
    good = json.dumps(GOOD).encode()
    messages = numbered([good, value, good, b'{"n": 1}{"n": 2}', good], first=40, partition=2)
    table, bad = salvaged(spec, messages)
    assert (table["n"].to_pylist(), [one.offset for one in bad]) == ([1, 1, 1], [41, 43])
    assert bad[0].raw == value[:MAX_RAW_BYTES]
    wording.matches("bad_messages", [bad[0].clause])
    with pytest.raises(BadMessage) as refused:
        read(spec, messages)
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == ("clicks", 2, 41)
    assert refused.value.location == ("topic clicks, partition 2, offset 41", None)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.location, again.raw) == (
        str(refused.value),
        refused.value.location,
        value[:MAX_RAW_BYTES],
    )


def test_the_parts_of_one_value_never_complete_those_of_another() -> None:
    """Joined, these three messages are three objects."""
    values = [b'{"n": 1', b', "name": "x"}', b'{"n": 2}{"n": 3}']
    table, bad = salvaged(kafka_source(SCHEMA), numbered(values))
    assert (table.num_rows, [one.offset for one in bad]) == (0, [0, 1, 2])


def test_several_objects_in_a_message_are_not_several_rows() -> None:
    table, bad = salvaged(kafka_source({"n": "int32"}), numbered([b'{"n": 1}{"n": 2}']))
    assert (table.num_rows, [one.clause for one in bad]) == (0, ["contains several JSON values"])


def test_a_nul_does_not_end_the_batch() -> None:
    """There are as many objects before the NUL as there are messages."""
    values = [b'{"n": 1}{"n": 2}', b'{"n": 3}\x00}', b'{"n": 4}']
    table, bad = salvaged(kafka_source({"n": "int32"}), numbered(values))
    assert (table["n"].to_pylist(), [one.offset for one in bad]) == ([4], [0, 1])


def test_a_long_message_is_decoded() -> None:
    text = "x" * 3_000_000
    table = read(kafka_source({"name": "string"}), numbered([b"{}", json.dumps({"name": text}).encode()]))
    assert table["name"].to_pylist() == [None, text]


@pytest.mark.parametrize("bad", [{4_500}, {0, 1, 70, 2_000, 3_999, 4_000, 5_000, 5_999}])
def test_bad_messages_are_found_in_large_batches(bad: set[int]) -> None:
    empty = {3, 1_999, 4_001, 5_998}
    values = [b"{broken" if n in bad else None if n in empty else json.dumps({"n": n}).encode() for n in range(6_000)]
    store, obj = landed(numbered(values), row_group=6_000)
    reader = build_reader("clicks", kafka_source({"n": "int32"}, metadata={"o": "offset"}))
    read: list[int] = []
    tombstones = 0
    for item in reader.salvage_part(store, whole_object(obj)):
        if isinstance(item, BadMessage):
            assert item.offset in bad
            bad_before = item.offset
            continue
        assert item["n"].to_pylist() == item["o"].to_pylist()
        read += item["n"].to_pylist()
        tombstones += int((item.schema.metadata or {}).get(TOMBSTONES, 0))
    assert (read, tombstones) == ([n for n in range(6_000) if n not in bad | empty], 4)
    assert bad_before == max(bad)
    with pytest.raises(BadMessage) as refused:
        list(reader.read_part(store, whole_object(obj)))
    assert refused.value.offset == min(bad)


def test_a_key_that_is_no_text_is_bad_unless_its_bytes_are_taken() -> None:
    messages = [Message(b"{}", b"\xff", offset=5), Message(b"{}", b"k", offset=6), Message(b"{}", offset=7)]
    table, bad = salvaged(kafka_source({"n": "int32"}, metadata={"k": "key"}), messages)
    assert table["k"].to_pylist() == ["k", None]
    assert [(one.offset, one.column, one.clause, one.raw) for one in bad] == [(5, "k", "is not valid UTF-8", b"{}")]
    spec = kafka_source({"n": "int32"}, metadata={"k": "key_bytes"})
    assert read(spec, messages)["k"].to_pylist() == [b"\xff", b"k", None]


def test_a_message_without_a_time_is_bad_if_that_is_the_event_time() -> None:
    spec = kafka_source({"n": "int32"}, event_time="sent", metadata={"sent": "timestamp"})
    table, bad = salvaged(spec, [Message(b'{"n": 1}'), Message(b'{"n": 2}', sent_ms=None, offset=1)])
    assert table["n"].to_pylist() == [1]
    assert [(one.offset, one.column, one.value) for one in bad] == [(1, "sent", None)]
    assert bad[0].clause == "is null, but the event time is required"


def test_an_event_time_may_be_read_from_a_key() -> None:
    spec = kafka_source({"n": "int32"}, event_time={"column": "day", "format": "yyyy-MM-dd"}, metadata={"day": "key"})
    messages = [Message(b"{}", b"2013-01-01"), Message(b"{}", b"soon", offset=1), Message(b"{}", b"\xff", offset=2)]
    table, bad = salvaged(spec, messages)
    assert table["day"].to_pylist() == [datetime(2013, 1, 1, tzinfo=UTC)]
    assert [(one.offset, one.column, one.value) for one in bad] == [(1, "day", "soon"), (2, "day", "\ufffd")]


@pytest.mark.parametrize(("type_", "texts"), [("binary", [b"\xff\n", None, b""]), ("string", ["a\n", None, ""])])
def test_a_raw_value_is_taken_as_it_is(type_: str, texts: list[Any]) -> None:
    values = [text.encode() if isinstance(text, str) else text for text in texts]
    table = read(kafka_source({"payload": type_}, "raw", metadata={"o": "offset"}), numbered(values))
    assert table.to_pylist() == [{"payload": text, "o": at} for at, text in enumerate(texts)]


def test_a_raw_text_that_is_not_utf_8_is_bad() -> None:
    _, bad = salvaged(kafka_source({"payload": "string"}, "raw"), numbered([b"a", b"\xff"]))
    assert [(one.offset, one.column, one.raw) for one in bad] == [(1, "payload", b"\xff")]


def test_values_may_be_left_out() -> None:
    table = read(kafka_source({}, "raw", metadata={"o": "offset"}), numbered([b"x", None]))
    assert table.to_pylist() == [{"o": 0}, {"o": 1}]


def test_a_dead_letter_has_topic_partition_and_offset() -> None:
    spec = kafka_source(SCHEMA, bad_records="dead_letter")
    _, bad = salvaged(spec, numbered([b"{broken"], first=9, partition=1))
    assert dead_letters(bad, dead_letter_schema(spec)).to_pylist() == [
        {
            "object": "1/a/00000-00000.parquet",
            "line": None,
            "column": None,
            "value": "{broken",
            "reason": "is not JSON",
            "raw": b"{broken",
            "topic": "clicks",
            "partition": 1,
            "offset": 9,
        }
    ]


def test_parts_of_an_object_have_each_message_once_and_in_order() -> None:
    messages = numbered([json.dumps({"n": n}).encode() for n in range(5_000)])
    store, obj = landed(messages, row_group=250)
    reader = build_reader("clicks", kafka_source({"n": "int32"}, metadata={"o": "offset"}))
    cuts = [0, obj.size // 5, obj.size // 3, obj.size // 3 + 1, obj.size]
    offsets: list[int] = []
    for start, stop in pairwise(cuts):
        for batch in reader.read_part(store, ObjectPart(obj, start, stop)):
            assert batch["n"].to_pylist() == batch["o"].to_pylist()
            offsets += batch["o"].to_pylist()
    assert offsets == [*range(5_000)]


@pytest.mark.deep
def test_messages_that_compress_a_thousandfold_are_read() -> None:
    value = json.dumps({"name": "x" * 20_000}).encode()
    messages = numbered([value] * 5_000)
    store, obj = landed(messages, row_group=5_000)
    assert obj.size * 1_000 < len(value) * 5_000
    reader = build_reader("clicks", kafka_source({"name": "string"}))
    assert sum(batch.num_rows for batch in reader.read_part(store, whole_object(obj))) == 5_000


def test_rows_with_an_event_time_name_their_partition() -> None:
    """The watermark waits for partitions that are behind."""
    messages = [Message(b"{}", partition=1), Message(None, partition=2), Message(b"{}", partition=10, topic="views")]
    store, obj = landed(messages)
    spec = kafka_source({"n": "int32"}, event_time="sent", metadata={"sent": "timestamp"})
    (batch,) = build_reader("clicks", spec).read_part(store, whole_object(obj))
    assert batch[PARTITION].to_pylist() == [partition_name("clicks", 1), partition_name("views", 10)]
