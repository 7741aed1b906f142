"""Turn Kafka messages into record batches, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.sources.landed.messages import MESSAGE_SCHEMA

if TYPE_CHECKING:
    from confluent_kafka import Message

_TIMESTAMP_TYPES = pa.array([None, "create", "append"], pa.string())
_HEADERS = MESSAGE_SCHEMA.field("headers").type


def record_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return messages as rows, in the same order."""
    times = np.array([message.timestamp() for message in messages], dtype=np.int64).reshape(-1, 2)
    topics = pa.array([message.topic() for message in messages], pa.string())
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            _headers([message.headers() for message in messages]),
            topics,
            pa.array([message.partition() for message in messages], pa.int32()),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array(times[:, 1], pa.int64(), mask=times[:, 0] == 0).cast(pa.timestamp("ms", "UTC")),
            _TIMESTAMP_TYPES.take(pa.array(times[:, 0])),
        ],
        schema=MESSAGE_SCHEMA,
    )


def _headers(values: Sequence[Any]) -> pa.Array:
    if not any(values):
        return pa.nulls(len(values), _HEADERS)
    rows = [[{"name": name, "value": value} for name, value in row] if row else None for row in values]
    return pa.array(rows, _HEADERS)


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the size of each message's key, value and headers."""
    sizes = _lengths(batch.column("key")) + _lengths(batch.column("value"))
    headers = batch.column("headers")
    if headers.null_count == len(headers):
        return sizes
    parts = headers.flatten()
    part_sizes = _lengths(parts.field("name")) + _lengths(parts.field("value"))
    rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    return sizes + np.bincount(rows, weights=part_sizes, minlength=len(headers)).astype(np.int64)


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
