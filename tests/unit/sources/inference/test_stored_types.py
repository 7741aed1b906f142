"""The types that are proposed for fields of JSON objects and columns of Parquet files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from milepost.sources.inference.json_types import JsonFields
from milepost.sources.inference.parquet_types import parquet_columns


def json_type(*values: str) -> str | None:
    fields = JsonFields()
    fields.add("\n".join(f'{{"a": {value}}}' for value in values), "a.jsonl")
    (column,) = fields.columns()
    return None if column.type is None else str(column.type)


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (("1", "null"), "int64"),
        (("9223372036854775808",), "decimal(38,0)"),
        (("1" + "0" * 38,), None),
        (("1", "0.5"), "float64"),
        (("0.1234567890123456",), "decimal(38,16)"),
        (("true", "1"), None),
        (('"2024-01-01"',), "date"),
        (('["2024-01-01"]',), "list<string>"),
        (("[]",), None),
        (("null",), None),
        (('{"b": 1, "B": 2, "c d": 3}',), "struct<b: int64>"),
    ],
)
def test_a_json_type_holds_every_value_without_loss(values: tuple[str, ...], type_: str | None) -> None:
    assert json_type(*values) == type_


def test_a_json_field_that_a_line_lacks_is_optional() -> None:
    fields = JsonFields()
    fields.add('{"a": 1}\n{"a": 2, "b": 3}\n', "a.jsonl")
    assert [(column.name, column.is_optional) for column in fields.columns()] == [("a", False), ("b", True)]


def parquet_type(*types: pa.DataType) -> str | None:
    (column,) = parquet_columns([pa.schema([("a", type_)]) for type_ in types])
    return None if column.type is None else str(column.type)


@pytest.mark.parametrize(
    ("types", "type_"),
    [
        ((pa.uint8(),), "int16"),
        ((pa.uint64(),), "int64"),
        ((pa.int8(), pa.int32()), "int32"),
        ((pa.float32(), pa.float64()), "float64"),
        ((pa.decimal128(10, 2), pa.decimal128(8, 4)), "decimal(12,4)"),
        ((pa.decimal128(38, 0), pa.decimal128(38, 38)), None),
        ((pa.int64(), pa.string()), None),
        ((pa.dictionary(pa.int8(), pa.string()),), "string"),
        ((pa.timestamp("ms", "UTC"),), "timestamp[us, UTC]"),
        ((pa.timestamp("ms"),), "timestamp[us]"),
        ((pa.time64("us"),), None),
        ((pa.struct([("x y", pa.int8())]),), None),
    ],
)
def test_a_type_holds_the_values_of_all_parquet_files(types: tuple[pa.DataType, ...], type_: str | None) -> None:
    assert parquet_type(*types) == type_


def test_a_parquet_column_that_a_file_lacks_is_optional_and_one_that_is_twice_in_a_file_has_no_type() -> None:
    columns = parquet_columns([pa.schema([("a", pa.int8()), ("b", pa.int8())]), pa.schema([("a", pa.int8())])])
    assert [(column.name, column.is_optional) for column in columns] == [("a", False), ("b", True)]
    (twice,) = parquet_columns([pa.schema([("a", pa.int8()), ("a", pa.int8())])])
    assert twice.type is None
