"""Decide the types of the columns of Parquet files from their schemas."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.language import ColumnType, parse_type, to_arrow
from milepost.protocol.records import ObjectStore
from milepost.sources.contract import SourceObject
from milepost.sources.inference.proposal import ProposedColumn, refused, shown
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.kernel.casts import may_cast
from milepost.sources.kernel.streams import open_object

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Undeclarable(Exception):
    """A spec has no type for it. The message is the reason, as one line."""


def stored_schema(store: ObjectStore, obj: SourceObject) -> pa.Schema:
    """Return the schema of a file. Raises InvalidRequest: it is not a Parquet file."""
    try:
        with open_object(store, obj).file() as file:
            return pq.read_schema(file)
    except (*DATA_ERRORS, OSError, UnicodeDecodeError) as error:
        reason = str(error).rstrip(".")
        raise refused(
            f"{obj.key} is not a readable Parquet file: {reason}.", "Remove it, or write it again."
        ) from error


def parquet_columns(schemas: Sequence[pa.Schema]) -> list[ProposedColumn]:
    """Return the columns of files, in the order in which they occur."""
    names = dict.fromkeys(name for schema in schemas for name in schema.names)
    return [_column(name, schemas) for name in names]


def _column(name: str, schemas: Sequence[pa.Schema]) -> ProposedColumn:
    stored = [schema.field(name).type for schema in schemas if schema.names.count(name) == 1]
    twice = any(schema.names.count(name) > 1 for schema in schemas)
    if twice:
        return ProposedColumn(name, None, "twice in a file")
    shown_types = ", ".join(dict.fromkeys(map(str, stored)))
    try:
        proposed = [_declarable(type_) for type_ in stored]
        type_ = _common(proposed)
    except _Undeclarable as reason:
        return ProposedColumn(name, None, str(reason))
    if not all(may_cast(one, to_arrow(type_)) for one in stored):
        return ProposedColumn(name, None, f"{shown_types} in the files: no type reads all of them")
    absent = len(schemas) - len(stored)
    missing = f", missing from {absent} of {len(schemas)} files" if absent else ""
    return ProposedColumn(name, type_, f"{shown_types} in the files{missing}", is_optional=absent > 0)


def _declarable(stored: pa.DataType) -> ColumnType:
    """Return the type of a spec that holds every value of a stored type. Raises _Undeclarable."""
    t = pa.types
    if t.is_dictionary(stored):
        return _declarable(stored.value_type)
    if t.is_boolean(stored):
        return parse_type("bool")
    if t.is_integer(stored):
        return _integer(stored)
    if t.is_floating(stored):
        return parse_type("float64" if stored.bit_width == 64 else "float32")
    if t.is_string(stored) or t.is_large_string(stored) or t.is_string_view(stored):
        return parse_type("string")
    if t.is_binary(stored) or t.is_large_binary(stored) or t.is_fixed_size_binary(stored):
        return parse_type("binary")
    if t.is_date(stored):
        return parse_type("date")
    if t.is_timestamp(stored):
        return ColumnType("timestamp", unit="us", utc=stored.tz is not None)
    if t.is_decimal(stored) and 0 <= stored.scale <= stored.precision <= 38:
        return ColumnType("decimal", precision=stored.precision, scale=stored.scale)
    if t.is_list(stored) or t.is_large_list(stored):
        return ColumnType("list", element=_declarable(stored.value_type))
    if t.is_struct(stored) and stored.num_fields:
        names = [field.name for field in stored]
        if all(map(_NAME.fullmatch, names)) and len({name.lower() for name in names}) == len(names):
            return ColumnType("struct", fields=tuple((field.name, _declarable(field.type)) for field in stored))
        raise _Undeclarable(f"a field of the struct cannot be named in a spec: {', '.join(map(shown, names[:3]))}")
    raise _Undeclarable(f"{str(stored)[:60]} in the files, which a spec has no type for")


def _integer(stored: pa.DataType) -> ColumnType:
    """Return a signed type. uint8 needs int16, and uint64 more than int64."""
    if pa.types.is_signed_integer(stored):
        return parse_type(f"int{stored.bit_width}")
    if stored.bit_width == 64:
        return parse_type("int64")  # the reader refuses a value beyond it by name
    return parse_type(f"int{stored.bit_width * 2}")


def _common(types: Sequence[ColumnType]) -> ColumnType:
    """Return the type that holds the values of all types. Raises _Undeclarable: there is none."""
    distinct = [*dict.fromkeys(types)]
    if len(distinct) == 1:
        return distinct[0]
    kinds = {type_.kind for type_ in distinct}
    if kinds <= {"int8", "int16", "int32", "int64"}:
        return max(distinct, key=lambda type_: int(type_.kind[3:]))
    if kinds == {"float32", "float64"}:
        return parse_type("float64")
    if kinds == {"decimal"}:
        scale = max(type_.scale for type_ in distinct)
        whole = max(type_.precision - type_.scale for type_ in distinct)
        if scale + whole <= 38:
            return ColumnType("decimal", precision=scale + whole, scale=scale)
    raise _Undeclarable(f"{', '.join(map(str, distinct))} in different files: no type reads all of them")
