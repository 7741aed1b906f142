"""Convert Arrow types to Postgres types, and refuse columns and rows that a table cannot hold."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.sinks.formats.postgres.postgres_sizes import (
    MAX_KEY_BYTES,
    MAX_ROW_BYTES,
    POINTER_BYTES,
    key_bytes,
    longest_row_bytes,
    table_row_bytes,
)
from milepost.sinks.formats.refusals import Refusal, column_refused

MARK = "_milepost"
"""The column with the number of the move that wrote the row; null for a foreign row."""

_MAX_NAME_BYTES = 63
_MAX_COLUMNS = 1599
_MAX_KEY_COLUMNS = 32
_FEWER_COLUMNS = "select fewer columns in an operator of `kind: sql`, or write them to several sinks"
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", MARK})
_SIMPLE = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "integer",
    pa.uint32(): "bigint",
    pa.uint64(): "numeric(20,0)",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.date32(): "date",
}
_UNITS = {"ms": 1_000, "us": 1_000_000}
"""Timestamp units, with the number per second. Nanoseconds would be truncated, and Parquet has no seconds."""

_EPOCH = datetime.date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = ((end - _EPOCH).days for end in (datetime.date.min, datetime.date.max))


def column_type(data_type: pa.DataType) -> str | None:
    """Return the lossless Postgres type, as `format_type` writes it; None if there is none."""
    if data_type in _SIMPLE:
        return _SIMPLE[data_type]
    if pa.types.is_decimal(data_type) and 0 <= data_type.scale <= data_type.precision:
        return f"numeric({data_type.precision},{data_type.scale})"
    if pa.types.is_timestamp(data_type) and data_type.unit in _UNITS:
        return "timestamp without time zone" if data_type.tz is None else "timestamp with time zone"
    return None


def required_type(data_type: pa.DataType) -> str:
    """Return the Postgres type. Precondition: `check_columns` passed."""
    name = column_type(data_type)
    assert name is not None, "columns are checked first"
    return name


def check_columns(sink: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
    """Refuse columns that no Postgres table can hold. Raises InvalidRequest, naming the column."""
    for field in schema:
        refusal = _column_refusal(field) or (_key_refusal(field.type) if field.name in key else None)
        if refusal is not None:
            raise column_refused(sink, field.name, refusal)
    if len(key) > _MAX_KEY_COLUMNS:
        raise InvalidRequest(
            f"sink {sink}: its key has {len(key)} columns; Postgres allows {_MAX_KEY_COLUMNS}. Nothing was published.",
            hint="use a digest of them as the key, computed in an operator of `kind: sql`",
            sink=sink,
        )
    width = table_row_bytes(_types(schema), POINTER_BYTES)
    if len(schema) > _MAX_COLUMNS or width > MAX_ROW_BYTES:
        raise InvalidRequest(
            f"sink {sink}: {len(schema)} columns, of at least {width} bytes per row; Postgres allows {_MAX_COLUMNS} "
            f"columns and {MAX_ROW_BYTES} bytes. Nothing was published.",
            hint=_FEWER_COLUMNS,
        )


def check_rows(sink: str, rows: pa.Table, key: tuple[str, ...]) -> None:
    """Refuse rows that a Postgres table cannot hold. Raises InvalidRequest, naming the column but no value."""
    for field in rows.schema:
        column = rows.column(field.name)
        if field.name in key and column.null_count:
            reason = f"is part of the key and null in {column.null_count} rows; a primary key cannot be null"
            hint = f"use WHERE {field.name} IS NOT NULL, or coalesce({field.name}, …), in an operator of `kind: sql`"
            raise column_refused(sink, field.name, Refusal(reason, hint))
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            count = pc.sum(pc.match_substring(column, "\0")).as_py()
            if count:
                reason = f"has a NUL character in {count} rows; Postgres cannot store it in text"
                hint = f"use replace({field.name}, '\\0', '') in an operator of `kind: sql`, or the type binary"
                raise column_refused(sink, field.name, Refusal(reason, hint))
        if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type):
            _check_times(sink, field, column)
    types = _types(rows.schema)
    if (longest := key_bytes(rows, types, key)) > MAX_KEY_BYTES:
        raise InvalidRequest(
            f"sink {sink}: the key of a row ({', '.join(key)}) takes {longest} bytes in an index; Postgres allows "
            f"{MAX_KEY_BYTES}. Nothing was published.",
            hint="use a digest of it as the key, computed in an operator of `kind: sql`",
            sink=sink,
        )
    if (longest := longest_row_bytes(rows, types)) > MAX_ROW_BYTES:
        raise InvalidRequest(
            f"sink {sink}: a row takes {longest} bytes in a page; Postgres allows {MAX_ROW_BYTES}. "
            "Nothing was published.",
            hint=_FEWER_COLUMNS,
            sink=sink,
        )


def _check_times(sink: str, field: pa.Field, column: pa.ChunkedArray) -> None:
    if column.null_count == len(column):
        return
    plain = column.cast(pa.timestamp("s" if pa.types.is_date(field.type) else field.type.unit))
    ends = pc.min_max(plain.cast(pa.int64())).as_py()
    per_second = {"s": 1, **_UNITS}[plain.type.unit]
    per_day = per_second * 86_400
    if ends["min"] // per_day < _FIRST_DAY or ends["max"] // per_day > _LAST_DAY:
        reason = "has times before the year 1 or after 9999, which are not available in this version"
        raise column_refused(sink, field.name, Refusal(reason, "filter such rows out in an operator of `kind: sql`"))


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: required_type(field.type) for field in schema}


def _column_refusal(field: pa.Field) -> Refusal | None:
    if field.name.lower() in _SYSTEM_COLUMNS:
        return Refusal("has a name that Postgres or Milepost reserves", "rename it")
    if "\0" in field.name or len(field.name.encode()) > _MAX_NAME_BYTES:
        return Refusal(f"has a name of more than {_MAX_NAME_BYTES} bytes, or one that contains NUL", "rename it")
    if column_type(field.type) is not None:
        return None
    if pa.types.is_nested(field.type):
        return Refusal(
            f"has the type {field.type}; nested types are not available in this version for `format: postgres`",
            "select its parts as separate columns, or as text, in an operator of `kind: sql`",
        )
    if pa.types.is_timestamp(field.type):
        return Refusal(
            f"has the type {field.type}; Postgres stores times in microseconds, files also in milliseconds",
            "declare it as timestamp[us]",
        )
    return Refusal(
        f"has the type {field.type}, which no type of Postgres holds without loss", "cast it to another type"
    )


def _key_refusal(data_type: pa.DataType) -> Refusal | None:
    if pa.types.is_floating(data_type):
        return Refusal(
            f"is part of the key and has the type {data_type}; 0.0 and -0.0 are one key in Postgres",
            "cast it to a decimal",
        )
    return None
