"""Write messages of Postgres's plugin `pgoutput`, protocol version 1."""

from __future__ import annotations

import struct

from milepost.sources.landed.postgres.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    Unchanged,
    Update,
    Values,
)

_EPOCH_US = 946_684_800_000_000


def encode(message: Message) -> bytes:
    """Return the bytes of a message, by the documentation of the protocol."""
    if isinstance(message, Begin):
        return b"B" + struct.pack(">QqI", message.lsn, message.time_us - _EPOCH_US, message.xid)
    if isinstance(message, Commit):
        return b"C\0" + struct.pack(">QQq", message.lsn, message.end, message.time_us - _EPOCH_US)
    if isinstance(message, Relation):
        return _relation(message)
    if isinstance(message, Insert):
        return b"I" + struct.pack(">I", message.relation) + b"N" + _values(message.new)
    if isinstance(message, Update):
        old = b"" if message.old is None else message.old_kind.encode() + _values(message.old)
        return b"U" + struct.pack(">I", message.relation) + old + b"N" + _values(message.new)
    if isinstance(message, Delete):
        return b"D" + struct.pack(">I", message.relation) + message.old_kind.encode() + _values(message.old)
    if isinstance(message, Truncate):
        oids = b"".join(struct.pack(">I", oid) for oid in message.relations)
        return b"T" + struct.pack(">IB", len(message.relations), 0) + oids
    return message.kind.encode() + b"anything"


def _relation(message: Relation) -> bytes:
    columns = b"".join(
        struct.pack(">B", column.is_identity) + column.name.encode() + b"\0" + struct.pack(">Ii", column.type_oid, -1)
        for column in message.columns
    )
    names = message.schema.encode() + b"\0" + message.table.encode() + b"\0" + message.identity.encode()
    return b"R" + struct.pack(">I", message.oid) + names + struct.pack(">H", len(message.columns)) + columns


def _values(values: Values) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if isinstance(value, Unchanged):
            parts.append(b"u")
        elif value is None:
            parts.append(b"n")
        else:
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
    return b"".join(parts)
