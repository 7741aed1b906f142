"""Encode rows of figures as Parquet. Decode and merge objects, which are not trusted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.json import ParseOptions, ReadOptions, read_json

from milepost.arrow import int64_array
from milepost.errors import StateCorrupt
from milepost.jobmaster.figures.row import Row

FORMAT = "milepost.figures/1"

MAX_OBJECT_BYTES = 32 << 20
"""Size beyond which an object is not read. A day of 1,440 epochs of a job with 15 nodes has 0.8 MB."""

MAX_ROWS_BYTES = 256 << 20
"""Size in memory beyond which an object is not read: Parquet may repeat one long text in a few bytes."""

_ROWS_AT_ONCE = 256


def _by_name(**columns: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), pa.struct(list(columns.items())))


_INT, _TEXT = pa.int64(), pa.string()
_MS, _US = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")

SCHEMA = pa.schema(
    [
        *((name, _INT) for name in ("checkpoint_id", "epoch")),
        ("timeline", _TEXT),
        *((name, _INT) for name in ("parent", "token", "version")),
        *((name, _TEXT) for name in ("status", "reason")),
        ("refused_by", pa.list_(_TEXT)),
        *((name, _MS) for name in ("trigger_time", "end_time")),
        ("duration_ms", _INT),
        ("phases", pa.map_(_TEXT, _INT)),
        *((name, _INT) for name in ("rows_in", "rows_out", "late_rows", "dropped_rows", "bad_records", "objects")),
        *((name, _INT) for name in ("written_bytes", "checkpointed_bytes", "state_bytes", "in_flight_bytes")),
        ("watermark", _US),
        ("lag_ms", _INT),
        ("quality", _TEXT),
        (
            "requests",
            pa.struct([(name, _INT) for name in ("puts", "gets", "deletes", "sent_bytes", "received_bytes")]),
        ),
        ("task_ms", _INT),
        *((name, _TEXT) for name in ("run_id", "code_hash", "spec_hash")),
        ("sources", _by_name(rows=_INT, objects=_INT, bad_records=_INT, newest_event=_US)),
        (
            "operators",
            _by_name(rows_in=_INT, rows_out=_INT, late_rows=_INT, dropped_rows=_INT, busy_ms=_INT, state_bytes=_INT),
        ),
        *((name, _INT) for name in ("judged_rows", "rejected_rows", "quarantined_rows")),
        ("sinks", _by_name(rows=_INT, bytes=_INT, table_rows=_INT, rules=_INT, rules_met=_INT)),
    ]
)
"""Columns of version 1. Later columns may be added: a reader fills those that an older object lacks with nulls."""

_IDENTITY = ("checkpoint_id", "timeline", "token", "status")


def _json_type(type_: pa.DataType) -> pa.DataType:
    """Return the type as which a value is read from JSON: times are numbers, and maps lists of entries."""
    if pa.types.is_timestamp(type_):
        return _INT
    if pa.types.is_map(type_):
        return pa.list_(pa.struct([("key", type_.key_type), ("value", _json_type(type_.item_type))]))
    return pa.struct([(field.name, _json_type(field.type)) for field in type_]) if pa.types.is_struct(type_) else type_


_JSON_SCHEMA = pa.schema([(field.name, _json_type(field.type)) for field in SCHEMA])
_MAPS = frozenset(field.name for field in SCHEMA if pa.types.is_map(field.type))


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Return rows as a table. Raises StateCorrupt: a value does not have the type of its column.

    They are read from JSON, because `pa.Table.from_pylist` imports pandas, see `milepost.arrow`. So does `empty_table`.
    """
    if not rows:
        return pa.Table.from_batches([], SCHEMA)
    try:
        text = b"".join(_json_line(row) for row in rows)
        table = read_json(
            pa.BufferReader(text),
            ReadOptions(use_threads=False, block_size=len(text) + 1),  # a row must not be longer than a block
            ParseOptions(explicit_schema=_JSON_SCHEMA, unexpected_field_behavior="ignore"),
        )
        columns = [_from_json(table.column(field.name).combine_chunks(), field.type) for field in SCHEMA]
        return pa.Table.from_arrays(columns, schema=SCHEMA)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        checkpoints = ", ".join(str(row["checkpoint_id"]) for row in rows)
        raise StateCorrupt(f"checkpoints {checkpoints} record an invalid figure: {error}") from error


def _json_line(row: Row) -> bytes:
    given = {name: row[name] for name in _MAPS if row.get(name) is not None}
    maps = {name: [{"key": key, "value": value} for key, value in pairs] for name, pairs in given.items()}
    return json.dumps(row | maps).encode() + b"\n"


def _from_json(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return values of `_json_type(type_)` as values of `type_`. A map has the layout of a list of its entries."""
    if pa.types.is_map(type_):
        entries = [values.values.field("key"), _from_json(values.values.field("value"), type_.item_type)]
        children = [pa.StructArray.from_arrays(entries, fields=[type_.key_field, type_.item_field])]
        return pa.Array.from_buffers(type_, len(values), values.buffers()[:2], children=children)
    if pa.types.is_struct(type_):
        fields = [_from_json(values.field(field.name), field.type) for field in type_]
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=values.is_null())
    return values.cast(type_)


def encode_rows(table: pa.Table) -> bytes:
    """Return the rows as Parquet."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd", write_statistics=False, store_schema=False) as file:
        file.write_table(table)
        file.add_key_value_metadata({"format": FORMAT})
    return bytes(sink.getvalue())


def decode_rows(body: bytes, key: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of an object. Raises StateCorrupt: unreadable.

    Args:
        columns: those to read, which include the identity of rows; None: all, including columns of a later version.
    """
    try:
        with pq.ParquetFile(pa.BufferReader(body), pre_buffer=False) as file:
            written_as = (file.metadata.metadata or {}).get(b"format", b"").decode()
            if written_as != FORMAT:
                raise _unreadable(key, f"its format is {written_as!r}, expected {FORMAT!r}")
            table = _bounded(file, key, columns)
        table.validate(full=True)
        return _with_all_columns(table, key, columns)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise _unreadable(key, str(error)) from error


def _with_all_columns(table: pa.Table, key: str, columns: Sequence[str] | None) -> pa.Table:
    stored = dict(zip(table.column_names, table.schema.types, strict=True))
    if len(stored) < table.num_columns:
        raise _unreadable(key, "a column occurs twice")
    for field in SCHEMA:
        if columns is not None and field.name not in columns:
            continue
        if field.name not in stored:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        elif stored[field.name] != field.type:
            raise _unreadable(key, f"column {field.name!r} is {stored[field.name]}")
    missing = [name for name in (*_IDENTITY, "version", "parent") if table.column(name).null_count]
    if missing:
        raise _unreadable(key, f"column {missing[0]!r} has a null")
    return table


def _bounded(file: pq.ParquetFile, key: str, columns: Sequence[str] | None) -> pa.Table:
    """Read the rows in small batches, to refuse a file that is too large in memory."""
    batches, size = list[pa.RecordBatch](), 0
    for batch in file.iter_batches(_ROWS_AT_ONCE, columns=None if columns is None else list(columns)):
        batches.append(batch)
        size += batch.nbytes
        if size > MAX_ROWS_BYTES:
            raise _unreadable(key, f"its rows have more than {MAX_ROWS_BYTES} bytes")
    return pa.Table.from_batches(batches, None if batches and columns is not None else file.schema_arrow)


def _unreadable(key: str, problem: str) -> StateCorrupt:
    return StateCorrupt(
        f"object {key} with figures of past epochs cannot be read: {problem}. The figures of its epochs are not shown; "
        "no checkpoint depends on it.",
        hint="restore it from a copy of the store, or delete it",
        key=key,
    )


def union(tables: Iterable[pa.Table]) -> pa.Table:
    """Return each row of decoded tables once, in the order of completion. Of equal identities, the first row counts.

    Example: tables with checkpoints 1, 2 and 2, 3 give 1, 2, 3, with the row of the first table for 2.
    """
    every = [pa.Table.from_batches([], SCHEMA), *tables]
    try:
        joined = pa.concat_tables(every, promote_options="default")
    except (pa.ArrowException, KeyError):  # columns that are not ours contradict each other
        joined = pa.concat_tables(table.select(SCHEMA.names) for table in every)
    identities = zip(*(joined.column(name).to_pylist() for name in _IDENTITY), strict=True)
    first: dict[tuple[object, ...], int] = {}
    for position, identity in enumerate(identities):
        first.setdefault(identity, position)
    versions = joined.column("version").to_pylist()
    return joined.take(int64_array(sorted(first.values(), key=lambda position: versions[position])))
