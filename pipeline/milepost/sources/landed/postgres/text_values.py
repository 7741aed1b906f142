"""Convert the texts of Postgres's values to Arrow columns, without loss.

The texts are those of a session with `DateStyle = ISO`, `TimeZone = UTC`, `bytea_output = hex` and shortest floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import ColumnType, to_arrow

_INTEGERS = ("int8", "int16", "int32", "int64")

_KINDS: dict[int, tuple[str, tuple[str, ...]]] = {
    16: ("boolean", ("bool",)),
    17: ("bytea", ("binary",)),
    20: ("bigint", _INTEGERS),
    21: ("smallint", _INTEGERS),
    23: ("integer", _INTEGERS),
    26: ("oid", _INTEGERS),
    700: ("real", ("float32", "float64")),
    701: ("double precision", ("float64",)),
    1082: ("date", ("date",)),
    1114: ("timestamp without time zone", ("timestamp",)),
    1184: ("timestamp with time zone", ("timestamp",)),
    1700: ("numeric", ("decimal",)),
}
"""Oid of a type -> its name, and the kinds of declared types that take its values. A string takes every type."""

_WITH_ZONE = 1184
_STRINGS = frozenset({18, 19, 25, 1042, 1043})


class UnfitValue(Exception):
    """A value does not fit the declared type. The message does not quote it."""


def type_problem(type_oid: int, declared: ColumnType) -> str | None:
    """Return why a declared type cannot take the values of a Postgres type, or None: it can."""
    if declared.kind == "string":
        return None
    if type_oid not in _KINDS:
        name = "a text" if type_oid in _STRINGS else f"of a type (oid {type_oid}) that is landed as text"
        return f"is {name}, and is declared as {declared}; expected string"
    name, kinds = _KINDS[type_oid]
    if declared.kind in kinds and not (declared.kind == "timestamp" and declared.utc != (type_oid == _WITH_ZONE)):
        return None
    expected = "timestamp[us, UTC]" if type_oid == _WITH_ZONE else "timestamp[us]" if type_oid == 1114 else kinds[-1]
    return f"is {name}, and is declared as {declared}; expected {expected}, or string"


def column_of(texts: Sequence[bytes | None], type_: ColumnType) -> pa.Array:
    """Return texts as a column of a declared type. Raises UnfitValue."""
    target = to_arrow(type_)
    try:
        if type_.kind == "binary":
            return pa.array([None if text is None else _bytes(text) for text in texts], target)
        column = pa.array(texts, pa.binary()).cast(pa.string())
        return _SPECIAL.get(type_.kind, _cast)(column, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        raise UnfitValue(f"a value does not fit {type_}") from None  # the cause quotes the value


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    return column.cast(target)


def _bool(column: pa.Array, target: pa.DataType) -> pa.Array:
    is_true = pc.equal(column, "t")
    if not pc.all(pc.or_(is_true, pc.equal(column, "f"))).as_py() and column.null_count < len(column):
        raise ValueError("expected t or f")
    return is_true


def _float(column: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.replace_substring(column, "Infinity", "inf").cast(target)


def _decimal(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Return exact decimals: 1.5 fits decimal(3,2), and 1.555 does not."""
    wide = column.cast(pa.decimal256(76, target.scale)) if target.scale <= 38 else column.cast(target)
    return wide.cast(target)


def _bytes(text: bytes) -> bytes:
    if not text.startswith(b"\\x"):
        raise ValueError("expected \\x and hexadecimal digits")
    return bytes.fromhex(text[2:].decode("ascii"))


_SPECIAL: dict[str, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    "bool": _bool,
    "float32": _float,
    "float64": _float,
    "decimal": _decimal,
}
