"""Columns of the messages that a landing stores, undecoded."""

import pyarrow as pa

MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("timestamp_type", pa.string()),
    ]
)
"""One Kafka message per row, ordered by topic, partition and offset.

`key` and `value` are null if the message has none; `headers` is null without headers, and a header's value may be null.
`timestamp_type` is create (set by the producer) or append (by the broker); both are null if the message has no time.
"""


def partition_name(topic: str, partition: int) -> str:
    """Return the name of a partition in `behind`. The watermark waits for the partitions that are named there."""
    return f"{topic}/{partition}"
