"""A table on a terminal, or as csv, json (one array of rows) or parquet."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from milepost.cli.terminal.output import Output
from milepost.protocol.records.errors import EnvironmentUnusable, InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN_ROWS = 1000


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return JSON-ready rows: times as ISO 8601, decimals as text, binary as base64."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, (datetime, date)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and value - value != 0:
        return None if value != value else str(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def write_stdout(table: pa.Table, format_: str) -> None:
    """Print a table. Raises InvalidRequest for parquet on a terminal."""
    if format_ == "table":
        _print_table(table)
        return
    if format_ == "parquet" and sys.stdout.isatty():
        raise InvalidRequest("parquet is not for a terminal. Nothing was written.", hint="Name a file with --output.")
    sys.stdout.flush()
    _write(table, format_, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def write_file(table: pa.Table, format_: str, file: Path) -> None:
    """Write a table to a new file; a failure leaves no file.

    Raises:
        InvalidRequest: the file exists, or the format is table.
        EnvironmentUnusable: the file cannot be written.
    """
    if format_ == "table":
        raise InvalidRequest("--format table is for a terminal; with --output use csv, json or parquet.")
    with new_file(file) as stream:
        _write(table, format_, stream)


@contextmanager
def new_file(file: Path) -> Iterator[BinaryIO]:
    """Yield what a new file is written to: it is there, as a whole, when the block ends without an error.

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


def _write(table: pa.Table, format_: str, stream: BinaryIO) -> None:
    if format_ == "csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(_flat(table), stream)
    elif format_ == "json":
        stream.write((json.dumps(as_rows(table), ensure_ascii=False) + "\n").encode())
    else:
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, stream)


def _flat(table: pa.Table) -> pa.Table:
    """Return the table with lists and structs as JSON text, which is what CSV can hold."""
    import pyarrow as pa

    for index, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [None if v is None else json.dumps(_plain(v), ensure_ascii=False) for v in table[index].to_pylist()]
            table = table.set_column(index, field.name, pa.array(texts, pa.string()))
    return table


def _print_table(table: pa.Table) -> None:
    output = Output()
    rows = as_rows(table.slice(0, _SHOWN_ROWS))
    output.table(table.column_names, [[row[name] for name in table.column_names] for row in rows])
    if table.num_rows > _SHOWN_ROWS:
        output.note(f"{_SHOWN_ROWS:,} of {table.num_rows:,} rows; --format csv, json or parquet gives all")
