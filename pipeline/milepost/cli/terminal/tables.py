"""Write a table to the terminal, or as csv, json (one array of rows) or parquet."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from milepost.cli.terminal.output import Output
from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.language.times import python_rows, python_values, zoned_text

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN_ROWS = 1000
_ROWS_AT_ONCE = 4096
_GROUP_BYTES = 32 << 20
_UNITS_OF_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_CSV_DAYS = (-12_687_428, 11_248_737)
"""The years -32767 to 32767, in days since 1970: Arrow's CSV has no others."""


class Rows(Protocol):
    """Rows of one schema, with the interface of `SpilledRows`."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def num_kept(self) -> int:
        """Number of rows."""

    def __iter__(self) -> Iterator[pa.Table]: ...

    def head(self, limit: int | None) -> Iterator[pa.Table]: ...


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def text_or_base64(value: bytes) -> str:
    """Return UTF-8 as text, and anything else as base64 with a mark, for people."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64:{_base64(value)}"


def as_rows(table: pa.Table, binary: Callable[[bytes], str] = _base64) -> list[dict[str, Any]]:
    """Return JSON-ready rows: times as ISO 8601, decimals as text, binary converted by `binary`."""
    return [{name: _plain(value, binary) for name, value in row.items()} for row in python_rows(table)]


def _plain(value: Any, binary: Callable[[bytes], str] = _base64) -> Any:
    if isinstance(value, (datetime, date)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return binary(value)
    if isinstance(value, float) and value - value != 0:
        return "NaN" if value != value else str(value)
    if isinstance(value, list):
        return [_plain(item, binary) for item in value]
    return {key: _plain(item, binary) for key, item in value.items()} if isinstance(value, dict) else value


def json_rows(tables: Iterable[pa.Table]) -> Iterator[str]:
    """Yield the JSON of each row. Converts a few rows at a time."""
    for table in _few_rows(tables):
        yield from (json.dumps(row, ensure_ascii=False) for row in as_rows(table))


def write_stdout(rows: Rows, format_: str) -> None:
    """Print rows. Raises InvalidRequest for parquet on a terminal."""
    if format_ == "table":
        _print_table(rows)
        return
    if format_ == "parquet" and sys.stdout.isatty():
        raise InvalidRequest("parquet is not for a terminal. Nothing was written.", hint="Name a file with --output.")
    sys.stdout.flush()
    _write(rows, format_, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def write_file(rows: Rows, format_: str, file: Path) -> None:
    """Write rows to a new file; a failure leaves no file.

    Raises:
        InvalidRequest: the file exists, or the format is table.
        EnvironmentUnusable: the file cannot be written.
    """
    if format_ == "table":
        raise InvalidRequest("--format table is for a terminal; with --output use csv, json or parquet.")
    with new_file(file) as stream:
        _write(rows, format_, stream)


@contextmanager
def new_file(file: Path) -> Iterator[BinaryIO]:
    """Yield the stream of a new file, which appears completely when the block ends without an error.

    Raises: InvalidRequest: the file exists. EnvironmentUnusable: it cannot be written.
    """
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        with partial.open("xb") as stream:
            yield stream
        os.link(partial, file)
    except FileExistsError:
        raise InvalidRequest(f"{file} already exists and was left as it is.", hint="Name another file.") from None
    except OSError as problem:
        raise EnvironmentUnusable(f"{file} cannot be written: {problem.strerror}. No file was left.") from None
    finally:
        partial.unlink(missing_ok=True)


def _write(rows: Rows, format_: str, stream: BinaryIO) -> None:
    if format_ == "csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(_flat(rows.schema.empty_table()), stream)
        for table in _few_rows(rows):
            pyarrow.csv.write_csv(_flat(table), stream, pyarrow.csv.WriteOptions(include_header=False))
    elif format_ == "json":
        between = "["
        for row in json_rows(rows):
            stream.write(f"{between}{row}".encode())
            between = ", "
        stream.write(b"[]\n" if between == "[" else b"]\n")
    else:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetWriter(stream, rows.schema) as parquet_writer:
            for table in _many_rows(rows):
                parquet_writer.write_table(table)


def _few_rows(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows in tables that are small enough to become Python objects."""
    for table in tables:
        yield from (table.slice(start, _ROWS_AT_ONCE) for start in range(0, table.num_rows, _ROWS_AT_ONCE))


def _many_rows(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows in tables that are large enough for a row group each."""
    import pyarrow as pa

    waiting, size = list[pa.Table](), 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size > _GROUP_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _flat(table: pa.Table) -> pa.Table:
    """Return the table with types that CSV does not support as text.

    Lists and structs become JSON, and binary becomes base64. Times with a year beyond 16 bits become text too, because
    Arrow's CSV writer wraps them or fails.
    """
    import pyarrow as pa

    for index, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            values = python_values(table[index])
            texts = [None if v is None else json.dumps(_plain(v), ensure_ascii=False) for v in values]
        elif pa.types.is_binary(field.type):
            texts = [_plain(value) for value in table[index].to_pylist()]
        elif _is_far(table[index]):
            texts = [_time(item) for item in table[index]]
        else:
            continue
        table = table.set_column(index, field.name, pa.array(texts, pa.string()))
    return table


def _is_far(column: pa.ChunkedArray) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date32(column.type):
        per_day, numbers = 1, column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        per_day, numbers = _UNITS_OF_A_DAY[column.type.unit], column.cast(pa.int64())
    else:
        return False
    ends = pc.min_max(numbers).as_py()
    first, last = _CSV_DAYS
    return ends["min"] is not None and (ends["min"] // per_day < first or ends["max"] // per_day > last)


def _time(item: pa.Scalar) -> str | None:
    """Return a time in the format of Arrow's CSV writer, for years that Arrow does not support."""
    return zoned_text(item).replace("T", " ") if item.is_valid else None


def _print_table(rows: Rows) -> None:
    output = Output()
    names = rows.schema.names
    shown = [row for table in rows.head(_SHOWN_ROWS) for row in as_rows(table, text_or_base64)]
    output.table(names, [[row[name] for name in names] for row in shown], breakable=True)
    if rows.num_kept > _SHOWN_ROWS:
        output.note(f"{_SHOWN_ROWS:,} of {rows.num_kept:,} rows; --format csv, json or parquet gives all")
