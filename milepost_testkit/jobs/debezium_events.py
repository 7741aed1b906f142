"""Change events as Debezium's Postgres connector and Kafka Connect's JSON converter write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

ROW_SCHEMA: list[dict[str, Any]] = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "status"},
    {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "field": "amount",
    },
    {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "version": 1, "field": "placed"},
    {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "version": 1, "field": "paid"},
    {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1, "field": "due"},
]
"""Schema of the rows of the table `orders`: what Kafka Connect says of each column."""


def base64_decimal(unscaled: int) -> str:
    """Return a decimal as Kafka Connect sends it: the unscaled number, big-endian, in the fewest bytes."""
    size = max(1, (unscaled + (unscaled < 0)).bit_length() // 8 + 1)
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def change(
    op: str,
    after: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    *,
    lsn: int = 100,
    fields: Sequence[Mapping[str, Any]] | None = None,
    **event: Any,
) -> bytes:
    """Return one event.

    Args:
        fields: schema of the rows, such as `ROW_SCHEMA`, with which the event has its schema; None: it has none.
        event: further fields of the event.
    """
    source = {
        "version": "3.6.1.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1_700_000_000_000 + lsn,
        "snapshot": "true" if op == "r" else "false",
        "db": "shop",
        "schema": "public",
        "table": "orders",
        "txId": 556,
        "lsn": lsn,
        "xmin": None,
    }
    payload = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_500, **event}
    if fields is None:
        return _text(payload)
    rows = [
        {"type": "struct", "fields": [*fields], "optional": True, "name": "shop.public.orders.Value", "field": name}
        for name in ("before", "after")
    ]
    schema = {"type": "struct", "fields": rows, "optional": False, "name": "shop.public.orders.Envelope", "version": 2}
    return _text({"schema": schema, "payload": payload})


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
