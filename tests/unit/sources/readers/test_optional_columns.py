"""`optional_columns`: an object that lacks one has null in all its rows, for every reader, and however it is cut."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.sources.contract import BadObject, BadRecord, ObjectPart, whole_object
from milepost.sources.formats import build_reader
from milepost_testkit import wording
from milepost_testkit.jobs.landing import Landing, source

SCHEMA = {"n": "int64", "note": "string", "price": "decimal(10,2)", "day": "date"}
OPTIONAL = ["note", "price", "day"]
ROWS = [{"n": number} for number in range(300)]
FORMATS = {
    "csv": ("csv", {}),
    "csv by line": ("csv", {"options": {"newlines_in_values": False}}),
    "json": ("json", {}),
    "parquet": ("parquet", {}),
}


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path)


def body(format_: str, rows: list[dict[str, Any]]) -> bytes:
    if format_ == "json":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    if format_ == "parquet":
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=40)
        return sink.getvalue()
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    return "\n".join(lines).encode() + b"\n"


def read_both_ways(landing: Landing, format_: str, content: bytes, **keys: Any) -> pa.Table:
    """The rows of an object as a whole are the same, whether or not bad records are separated."""
    reader = build_reader("s", source(format_, keys.pop("schema", SCHEMA), **keys))
    obj = landing.put("a", content)
    read = pa.Table.from_batches(reader.read_part(landing.store, whole_object(obj)), reader.schema)
    kept = [one for one in reader.salvage_part(landing.store, whole_object(obj)) if not isinstance(one, BadRecord)]
    assert pa.Table.from_batches(kept, reader.schema).equals(read)
    if format_ != "csv" or keys["options"]:
        parts = [ObjectPart(obj, 0, obj.size // 3), ObjectPart(obj, obj.size // 3, obj.size)]
        of_parts = [batch for part in parts for batch in reader.read_part(landing.store, part)]
        assert pa.Table.from_batches(of_parts, reader.schema).equals(read)
    return read


@pytest.mark.parametrize("name", FORMATS)
def test_an_object_that_lacks_optional_columns_has_null_in_them(landing: Landing, name: str) -> None:
    format_, keys = FORMATS[name]
    table = read_both_ways(landing, format_, body(format_, ROWS), optional_columns=OPTIONAL, **{"options": {}} | keys)
    assert table["n"].to_pylist() == [row["n"] for row in ROWS]
    assert [str(field.type) for field in table.schema] == ["int64", "string", "decimal128(10, 2)", "date32[day]"]
    assert all(table[column].null_count == len(ROWS) for column in OPTIONAL)


@pytest.mark.parametrize("name", FORMATS)
def test_an_object_with_its_optional_columns_is_read_as_usual(landing: Landing, name: str) -> None:
    format_, keys = FORMATS[name]
    keys = {"options": {}} | keys
    rows = [row | {"note": f"note {row['n']}"} for row in ROWS]
    table = read_both_ways(landing, format_, body(format_, rows), optional_columns=OPTIONAL, **keys)
    assert table.select(["n", "note"]).to_pylist() == rows


@pytest.mark.parametrize("name", FORMATS)
def test_an_object_may_lack_all_columns_if_all_are_optional(landing: Landing, name: str) -> None:
    format_, keys = FORMATS[name]
    rows = [{"other": number} for number in range(300)]
    keys = {"options": {}} | keys
    table = read_both_ways(landing, format_, body(format_, rows), optional_columns=list(SCHEMA), **keys)
    assert table.num_rows == 300 and all(table[column].null_count == 300 for column in SCHEMA)


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_a_missing_required_column_is_reported_with_the_columns_of_the_object(landing: Landing, format_: str) -> None:
    with wording.raises(BadObject):
        landing.read(source(format_, SCHEMA, optional_columns=OPTIONAL), "a", body(format_, [{"m": 1, "note": "x"}]))


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_an_object_without_any_declared_column_is_reported_as_such(landing: Landing, format_: str) -> None:
    """It has another delimiter, no header, or is of another feed: what may be missing is not what is wrong."""
    with wording.raises(BadObject):
        landing.read(source(format_, SCHEMA, optional_columns=OPTIONAL), "a", body(format_, [{"m": 1}]))


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_a_missing_event_time_is_not_suggested_as_optional(landing: Landing, format_: str) -> None:
    """`lint` refuses that: it is never null. A JSON record without one is a bad record by itself."""
    spec = source(format_, {"n": "int64", "at": "timestamp[us, UTC]"}, event_time="at")
    with wording.raises(BadRecord) as raised:
        landing.read(spec, "a", body(format_, [{"n": 1}]))
    assert "optional" not in str(raised.value)


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_bad_records_of_an_object_that_lacks_a_column_name_their_own_column(landing: Landing, format_: str) -> None:
    reader = build_reader("s", source(format_, {"note": "string", "n": "int8"}, optional_columns=["note"]))
    obj = landing.put("a", body(format_, [{"n": 1}, {"n": 400}, {"n": 3}]))
    found = list(reader.salvage_part(landing.store, whole_object(obj)))
    (bad,) = (one for one in found if isinstance(one, BadRecord))
    assert (bad.column, bad.value) == ("n", "400")
    assert [row["n"] for one in found if isinstance(one, pa.RecordBatch) for row in one.to_pylist()] == [1, 3]
    with wording.raises(BadRecord):
        list(reader.read_part(landing.store, whole_object(obj)))
