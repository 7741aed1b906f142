"""Object formats for random jobs: Parquet, CSV dialects and JSON lines, also compressed."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_COMPRESSED: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": partial(gzip.compress, mtime=0),
    ".bz2": bz2.compress,
    ".zst": lambda body: bytes(pa.compress(body, "zstd", asbytes=True)),
}


FORMATS = ("parquet", "csv", "json")
"""Formats of the sources of random jobs. `random_format` and `object_body` have a case for each."""


def random_format(random: Random) -> dict[str, Any]:
    """Return a random format: its name, the suffix of object names, and options."""
    suffix = random.choice(list(_COMPRESSED))
    match random.choice(FORMATS):
        case "csv":
            options = {
                "delimiter": random.choice((",", ";", "|", "\t")),
                "quote_char": random.choice(('"', "'")),
                "newlines_in_values": False,
                "null_values": [""],
                "strings_can_be_null": True,
                "quoted_strings_can_be_null": False,
            }
            return {"format": "csv", "suffix": f".csv{suffix}", "options": options}
        case "json":
            return {"format": "json", "suffix": f".jsonl{suffix}"}
    return {"format": "parquet", "suffix": ".parquet"}


def storable(source: Mapping[str, Any], rows: pa.Table) -> pa.Table:
    """Return rows that a source's format can represent: JSON has no NaN."""
    if source["format"] != "json":
        return rows
    for place, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            column = rows[field.name]
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, field.type), column)
            rows = rows.set_column(place, field, column)
    return rows


def object_body(source: Mapping[str, Any], rows: pa.Table) -> bytes:
    """Return rows encoded as an object of a source."""
    path = source["path"]
    compress = next((_COMPRESSED[one] for one in _COMPRESSED if one and path.endswith(one)), bytes)
    match source["format"]:
        case "csv":
            return compress(_csv(rows, **source["options"]))
        case "json":
            lines = [json.dumps({name: _plain(value) for name, value in row.items()}) for row in rows.to_pylist()]
            return compress("".join(f"{line}\n" for line in lines).encode())
    body = io.BytesIO()
    pq.write_table(rows, body)
    return body.getvalue()


def _csv(rows: pa.Table, delimiter: str, quote_char: str, **_: Any) -> bytes:
    """Return CSV with quoted texts, so that an empty text differs from null."""

    def written(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return f"{quote_char}{value.replace(quote_char, 2 * quote_char)}{quote_char}"
        return str(_plain(value)).lower() if isinstance(value, bool) else str(_plain(value))

    lines = [rows.column_names, *(map(written, row.values()) for row in rows.to_pylist())]
    return "".join(f"{delimiter.join(line)}\n" for line in lines).encode()


def _plain(value: Any) -> Any:
    """Return a value in its text representation."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value) if isinstance(value, Decimal) else value
