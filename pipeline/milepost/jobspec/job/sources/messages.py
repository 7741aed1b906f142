"""What a source of landed messages takes from them: decoded columns, and columns of the carrier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.language import ColumnType, parse_type

MESSAGE_COLUMNS: Mapping[str, ColumnType] = {
    "key": parse_type("binary"),
    "value": parse_type("binary"),
    "headers": parse_type("list<struct<name: string, value: binary>>"),
    "topic": parse_type("string"),
    "partition": parse_type("int32"),
    "offset": parse_type("int64"),
    "timestamp": parse_type("timestamp[ms, UTC]"),
    "timestamp_type": parse_type("string"),
}
"""Columns of a landed message."""


SEQUENCE = "sequence"
"""The number of the record of the log that has the message. With partition and offset it is a total order of a log."""


@dataclass(frozen=True, slots=True)
class CarriedColumn:
    """A column that is taken from the message itself, not from its decoded value.

    Attributes:
        field: column of the landed message, or `SEQUENCE`.
        type: of the source's column. A binary field may become a string.
    """

    field: str
    type: ColumnType


METADATA: Mapping[str, CarriedColumn] = {
    "key": CarriedColumn("key", parse_type("string")),
    "key_bytes": CarriedColumn("key", MESSAGE_COLUMNS["key"]),
    **{
        name: CarriedColumn(name, MESSAGE_COLUMNS[name])
        for name in ("headers", "topic", "partition", "offset", "timestamp", "timestamp_type")
    },
    SEQUENCE: CarriedColumn(SEQUENCE, parse_type("int64")),
}
"""Name in `metadata` -> what it takes from a message."""


CHANGE_METADATA: Mapping[str, ColumnType] = {
    "op": parse_type("string"),
    "ts_ms": parse_type("timestamp[ms, UTC]"),
    "source.ts_ms": parse_type("timestamp[ms, UTC]"),
    "source.snapshot": parse_type("string"),
    "source.db": parse_type("string"),
    "source.schema": parse_type("string"),
    "source.table": parse_type("string"),
    "source.lsn": parse_type("int64"),
    "source.file": parse_type("string"),
    "source.pos": parse_type("int64"),
    "source.gtid": parse_type("string"),
}
"""Name in `metadata`, which is the path in a Debezium change event -> type of the column."""


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """How columns are read from Debezium change events.

    Attributes:
        fields: column -> its path in the event, a name of `CHANGE_METADATA`.
        time_precision_mode, decimal_handling_mode: of the connector; None: only events with a schema can be read.
        placeholder: what the connector sends in place of a value that it does not have.
    """

    fields: Mapping[str, str]
    time_precision_mode: str | None
    decimal_handling_mode: str | None
    placeholder: str


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """How the rows of a source are made of landed messages.

    Attributes:
        order: all columns of a row, in order.
        decoded: columns that are read from the decoded value; {}: the value is not decoded.
        carried: columns that are taken from the message.
        changes: the value is a Debezium change event, read by these rules.
        registry_format: the value was written in this format with a schema of a registry. Without any of both, it is a
            JSON object.
    """

    order: tuple[str, ...]
    decoded: Mapping[str, ColumnType]
    carried: Mapping[str, CarriedColumn]
    changes: ChangeRules | None = None
    registry_format: str | None = None
