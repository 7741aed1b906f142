"""Rows as Arrow streams, which keep every type and value."""

from __future__ import annotations

import pyarrow as pa


def encode_stream(rows: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """Encode rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue()


def decode_stream(body: bytes | pa.Buffer) -> pa.Table:
    """Return the inverse of `encode_stream`. The rows refer to the memory of `body`."""
    with pa.ipc.open_stream(body) as reader:
        return reader.read_all()
