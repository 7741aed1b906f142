"""Turn Kafka messages into record batches, column by column."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.sources.landed.kafka.positions import Partition, ReadMessage
from milepost.sources.landed.messages import MESSAGE_SCHEMA

if TYPE_CHECKING:
    from confluent_kafka import Message

_TIMESTAMP_TYPES = pa.array([None, "create", "append"], pa.string())
_HEADERS = MESSAGE_SCHEMA.field("headers").type


class UnreadableHeader(Exception):
    """The name of a header is not UTF-8; `args` is the offset of its message."""


def record_batch(partition: Partition, messages: Sequence[Message]) -> pa.RecordBatch:
    """Return messages of one partition as rows, in the same order.

    Raises UnreadableHeader.

    Most of the time of a landing is spent here. `map` over a method calls it without executing Python code.
    """
    from confluent_kafka import Message

    count = len(messages)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    times = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count).reshape(-1, 2)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            _headers(_read_headers(messages)),
            pa.repeat(pa.scalar(partition.topic, pa.string()), count),
            pa.repeat(pa.scalar(partition.number, pa.int32()), count),
            pa.array(offsets),
            pa.array(times[:, 1], pa.int64(), mask=times[:, 0] == 0).cast(pa.timestamp("ms", "UTC")),
            _TIMESTAMP_TYPES.take(pa.array(times[:, 0])),
        ],
        schema=MESSAGE_SCHEMA,
    )


def _read_headers(messages: Sequence[Message]) -> list[Any]:
    """Return the headers of each message. Raises UnreadableHeader."""
    from confluent_kafka import Message

    values: list[Any] = []
    try:
        values.extend(map(Message.headers, messages))  # on an error, has those before it
    except (UnicodeDecodeError, SystemError) as error:  # the client may replace the first by the second
        # Its headers must not be read again: a second call returns a dangling pointer.
        raise UnreadableHeader(messages[len(values)].offset()) from error
    return values


def _headers(values: Sequence[Any]) -> pa.Array:
    if not any(values):
        return pa.nulls(len(values), _HEADERS)
    rows = [[{"name": name, "value": value} for name, value in row] if row else None for row in values]
    return pa.array(rows, _HEADERS)


def read_message(batch: pa.RecordBatch, row: int) -> ReadMessage:
    """Return the part of a message that a position stores."""
    key, value, offset, time = (batch.column(name)[row] for name in ("key", "value", "offset", "timestamp"))
    return ReadMessage(offset.as_py(), zlib.crc32(repr((key.as_py(), value.as_py(), time.value)).encode()))


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
