"""The encoding of a table's file: Parquet, each column in the way that suits its values."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.spill.ordered_rows import joined_tables


def encode_parquet(tables: Iterable[pa.Table], held_bytes: int) -> tuple[int, bytes]:
    """Encode tables of one schema into one Parquet file, in row groups of about so many bytes; its rows and bytes.

    Only what has more than that goes through a file: Python's files are written under the interpreter's lock, which the
    encoding of state may hold meanwhile.
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
            del rows  # before the next ones come
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
        write_statistics=[field.name for field in schema if _has_safe_ends(field.type)],
    )


def _compressions(schema: pa.Schema, packed: Sequence[str]) -> str | dict[str, str]:
    """zstd, but Snappy for packed differences, in which zstd finds little for a quarter of the writing time.

    Parquet asks for the leaves of nested columns, so with one of those all columns are alike.
    """
    if any(pa.types.is_nested(field.type) or isinstance(field.type, pa.BaseExtensionType) for field in schema):
        return "zstd"
    return {field.name: "snappy" if field.name in packed else "zstd" for field in schema}


def _packs_as_differences(data_type: pa.DataType) -> bool:
    """Return whether a column of 32 or 64 bit whole numbers: smaller so than plain, and written much faster than with a
    dictionary, which columns of mostly distinct values outgrow."""
    return bool(
        data_type in (pa.int32(), pa.int64())
        or pa.types.is_date32(data_type)
        or (pa.types.is_timestamp(data_type) and data_type.unit != "s")
    )


def _has_safe_ends(data_type: pa.DataType) -> bool:
    """Return whether a footer says the ends of a column: of floats Arrow leaves NaN out, and DuckDB then its row."""
    return not (pa.types.is_floating(data_type) or pa.types.is_nested(data_type))


def _repeats(data_type: pa.DataType) -> bool:
    """Return whether a dictionary is tried: everything but numbers that are packed, floats and bools."""
    return not (_packs_as_differences(data_type) or pa.types.is_floating(data_type) or pa.types.is_boolean(data_type))
