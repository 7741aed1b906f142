"""Decode the messages of Postgres's plugin `pgoutput`, protocol version 1. Pure.

A transaction is a `Begin`, its changes and a `Commit`. Before the first change of a table, and again after its
definition has changed, a `Relation` describes its columns. Values are texts, as their types' output functions write
them::

    B  0/1AF7C70 xid 758
    R  16386 public.t (id integer, b text)
    I  16386 ("1", "a")
    C  0/1AF7C70, end 0/1AF7CA0
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

_EPOCH_US = 946_684_800_000_000
"""2000-01-01, from which Postgres counts microseconds."""


class Unchanged(Enum):
    """The type of `UNCHANGED`."""

    TOAST = "u"


UNCHANGED: Final = Unchanged.TOAST
"""Stands for a value that is stored out of line (TOAST) and was not changed, so Postgres does not send it."""

Value = bytes | None | Unchanged
"""A value as text in UTF-8; None is null."""

Values = tuple[Value, ...]


class BadMessage(Exception):
    """The bytes are no message of the protocol."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins.

    Attributes:
        lsn: where the transaction's commit record begins. time_us: when it was committed.
    """

    lsn: int
    time_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends.

    Attributes:
        lsn: as in its `Begin`. end: where its commit record ends.
    """

    lsn: int
    end: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation.

    Attributes:
        is_identity: whether it is part of the replica identity. type_oid: of its type.
    """

    name: str
    type_oid: int
    is_identity: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, as it was when the changes that follow were made.

    Attributes:
        identity: its REPLICA IDENTITY: d (default), i (index), f (full) or n (nothing).
    """

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """A row was inserted."""

    relation: int
    new: Values


@dataclass(frozen=True, slots=True)
class Update:
    """A row was updated.

    Attributes:
        old_kind: K: `old` has only the columns of the replica identity, and nulls for the others. O: it has all
            columns. "": it was not sent, since the identity did not change.
    """

    relation: int
    old_kind: str
    old: Values | None
    new: Values


@dataclass(frozen=True, slots=True)
class Delete:
    """A row was deleted. The other attributes: as in `Update`."""

    relation: int
    old_kind: str
    old: Values


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of tables were deleted."""

    relations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A message without a meaning for rows: a type's name, or the origin of a transaction.

    Attributes:
        kind: the first byte of the message.
    """

    kind: str


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Skipped


def decode(data: bytes) -> Message:
    """Return the message. Raises BadMessage."""
    reader = _Reader(data)
    try:
        message = _decode(reader)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise BadMessage(f"message of type {data[:1]!r} with {len(data)} bytes: {error}") from error
    if reader.at != len(data):
        raise BadMessage(f"message of type {data[:1]!r}: {len(data) - reader.at} bytes follow its end")
    return message


def lsn_text(lsn: int) -> str:
    """Return an LSN as Postgres writes it: 0/1AF7C70."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Return an LSN that Postgres wrote. Raises ValueError."""
    high, slash, low = text.partition("/")
    if not slash or len(high) > 8 or len(low) > 8:
        raise ValueError(f"expected an LSN such as 0/1AF7C70, got {text!r}")
    return int(high, 16) << 32 | int(low, 16)


class _Reader:
    """Reads fields of a message from its begin to its end."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, layout: struct.Struct) -> int:
        value: int = layout.unpack_from(self.data, self.at)[0]
        self.at += layout.size
        return value

    def char(self) -> str:
        value = chr(self.data[self.at])
        self.at += 1
        return value

    def text(self) -> str:
        end = self.data.index(0, self.at)
        value = self.data[self.at : end].decode()
        self.at = end + 1
        return value

    def values(self) -> Values:
        return tuple(self._values(self.number(_U16)))

    def _values(self, count: int) -> Iterator[Value]:
        for _ in range(count):
            kind = self.data[self.at]
            self.at += 1
            if kind == _TEXT:
                size = self.number(_U32)
                if self.at + size > len(self.data):
                    raise ValueError(f"a value of {size} bytes exceeds it")
                yield self.data[self.at : self.at + size]
                self.at += size
            elif kind == _NULL:
                yield None
            elif kind == _TOAST:
                yield UNCHANGED
            else:
                raise ValueError(f"there is no value of kind {chr(kind)!r}")


_U16, _U32, _U64, _I64 = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q"), struct.Struct(">q")
_TEXT, _NULL, _TOAST = b"tnu"


def _decode(reader: _Reader) -> Message:
    kind = reader.char()
    if kind == "I":
        relation = reader.number(_U32)
        _expect(reader.char(), "N")
        return Insert(relation, reader.values())
    if kind == "U":
        return _update(reader)
    if kind == "D":
        relation, old_kind = reader.number(_U32), _expect(reader.char(), "KO")
        return Delete(relation, old_kind, reader.values())
    if kind == "B":
        return Begin(reader.number(_U64), reader.number(_I64) + _EPOCH_US, reader.number(_U32))
    if kind == "C":
        _expect(reader.char(), "\0")
        return Commit(reader.number(_U64), reader.number(_U64), reader.number(_I64) + _EPOCH_US)
    if kind == "R":
        return _relation(reader)
    if kind == "T":
        count = reader.number(_U32)
        reader.char()  # CASCADE, RESTART IDENTITY
        return Truncate(tuple(reader.number(_U32) for _ in range(count)))
    if kind in ("Y", "O"):
        reader.at = len(reader.data)
        return Skipped(kind)
    raise ValueError("this version knows no such message")


def _update(reader: _Reader) -> Update:
    relation, kind = reader.number(_U32), _expect(reader.char(), "KON")
    if kind == "N":
        return Update(relation, "", None, reader.values())
    old = reader.values()
    _expect(reader.char(), "N")
    return Update(relation, kind, old, reader.values())


def _relation(reader: _Reader) -> Relation:
    oid, schema, table, identity = reader.number(_U32), reader.text(), reader.text(), _expect(reader.char(), "dnfi")
    columns = []
    for _ in range(reader.number(_U16)):
        is_identity, name, type_oid = bool(ord(reader.char()) & 1), reader.text(), reader.number(_U32)
        reader.number(_U32)  # type modifier, such as the length of a varchar
        columns.append(Column(name, type_oid, is_identity))
    return Relation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def _expect(actual: str, expected: str) -> str:
    if actual not in expected:
        raise ValueError(f"expected one of {list(expected)}, got {actual!r}")
    return actual
