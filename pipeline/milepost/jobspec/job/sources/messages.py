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


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """How the rows of a source are made of landed messages.

    Attributes:
        decoded: columns of the decoded value, a JSON object; {}: the value is not decoded.
        carried: columns that are taken from the message. They follow the decoded ones.
    """

    decoded: Mapping[str, ColumnType]
    carried: Mapping[str, CarriedColumn]
