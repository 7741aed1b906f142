"""Encode a table's file as Parquet, with an encoding and a compression per column type."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.spill import joined_tables


def encode_parquet(tables: Iterable[pa.Table], held_bytes: int) -> tuple[int, bytes]:
    """Encode tables of one schema into one Parquet file. Return its number of rows and its bytes.

    Args:
        held_bytes: approximate size of a row group. Only a larger file is written through a temporary file, because
            Python writes files under the GIL, which the encoding of state may hold concurrently.
    """
    written, memory = 0, pa.BufferOutputStream()
    with ExitStack() as opened:
        writer: pq.ParquetWriter | None = None
        scratch: IO[bytes] | None = None
        for joined in joined_tables(tables, held_bytes):
            rows = joined.replace_schema_metadata(None)
            del joined
            if writer is None:
                if rows.nbytes > held_bytes:
                    scratch = opened.enter_context(tempfile.SpooledTemporaryFile(max_size=held_bytes))
                sink = memory if scratch is None else pa.PythonFile(scratch, mode="w")
                writer = opened.enter_context(_writer(sink, rows.schema))
            writer.write_table(rows)
            written += rows.num_rows
            del rows  # free the memory before the next rows are read
        if writer is not None:
            writer.close()
        if scratch is not None:
            scratch.seek(0)
            return written, scratch.read()
    return written, memory.getvalue().to_pybytes()


def _writer(sink: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    packed = [field.name for field in schema if _packs_as_differences(field.type)]
    return pq.ParquetWriter(
        sink,
        schema,
        compression=_compressions(schema, packed),
        use_dictionary=[field.name for field in schema if _repeats(field.type)],
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        write_statistics=[field.name for field in schema if _has_safe_bounds(field.type)],
    )


def _compressions(schema: pa.Schema, packed: Sequence[str]) -> str | dict[str, str]:
    """Return zstd, but Snappy for delta-packed columns, in which zstd saves little and takes a quarter of the time.

    Parquet expects leaf names for nested columns, so a schema with a nested column uses zstd throughout.
    """
    if any(pa.types.is_nested(field.type) or isinstance(field.type, pa.BaseExtensionType) for field in schema):
        return "zstd"
    return {field.name: "snappy" if field.name in packed else "zstd" for field in schema}


def _packs_as_differences(data_type: pa.DataType) -> bool:
    """Return whether a column is delta-packed: integers of 32 or 64 bits.

    They get smaller than plain, and are written much faster than with a dictionary, which distinct values outgrow.
    """
    return bool(
        data_type in (pa.int32(), pa.int64())
        or pa.types.is_date32(data_type)
        or (pa.types.is_timestamp(data_type) and data_type.unit != "s")
    )


def _has_safe_bounds(data_type: pa.DataType) -> bool:
    """Return whether the footer has bounds of a column. Arrow ignores NaN there, and DuckDB would skip its rows."""
    return not (pa.types.is_floating(data_type) or pa.types.is_nested(data_type))


def _repeats(data_type: pa.DataType) -> bool:
    """Return whether a dictionary is used: for all types but delta-packed numbers, floats and booleans."""
    return not (_packs_as_differences(data_type) or pa.types.is_floating(data_type) or pa.types.is_boolean(data_type))
