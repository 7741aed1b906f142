"""Decode Protobuf messages by the schemas of a registry."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from milepost.language import ColumnType
from milepost.sources.landed import HEADER_BYTES, RegistrySchema
from milepost.sources.messages.exact_values import (
    Convert,
    Unfit,
    exact_decimal,
    plain_converter,
    time_in_unit,
    unscaled_decimal,
)
from milepost.sources.messages.rowwise_values import BadValue

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_Plan: TypeAlias = "Sequence[tuple[int, FieldDescriptor, Convert]]"

_MAIN = "milepost/written.proto"
_MAX_INDEXES = 64
_WRAPPERS = ["Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes"]
_WRAPPED = frozenset(f"google.protobuf.{name}Value" for name in _WRAPPERS)
_TIMESTAMP, _DECIMAL = "google.protobuf.Timestamp", "confluent.type.Decimal"
_MAX_SCALE = 10_000


def protobuf_decoder(schema: RegistrySchema, types: Mapping[str, ColumnType]) -> Callable[[bytes], Sequence[Any]]:
    """Return the decoder of a schema, which may have several messages: a value says by indexes which one it is.

    Raises: BadValue: the schema cannot be parsed.
    """
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    names, find = _messages(schema)
    made: dict[tuple[int, ...], tuple[Any, _Plan]] = {}

    def decode(value: bytes) -> Sequence[Any]:
        indexes, start = _indexes(value)
        if indexes not in made:
            name = names.get(indexes)
            if name is None:
                raise BadValue("names a message that its schema does not have")
            descriptor = find(name)
            made[indexes] = GetMessageClass(descriptor), _plan(descriptor, types)
        make, plan = made[indexes]
        message = make()
        try:
            message.ParseFromString(value[start:])
        except (DecodeError, RecursionError) as error:
            raise BadValue("does not have the bytes that its schema describes", detail=str(error)[:200]) from None
        return _values(message, plan, len(types))

    return decode


def _values(message: Any, plan: _Plan, columns: int) -> Sequence[Any]:
    values: list[Any] = [None] * columns
    for at, field, convert in plan:
        if field.has_presence and not message.HasField(field.name):
            continue
        item = getattr(message, field.name)
        try:
            values[at] = convert(item)
        except Unfit as error:
            raise BadValue(str(error), field.name, str(item)) from None
    return values


def _indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message of the schema a value is, and where it begins.

    The bytes 00 are the first message, 02 04 the third one, 04 00 02 the second one inside of the first.
    """
    count, at = _number(value, HEADER_BYTES)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MAX_INDEXES:
        raise BadValue("does not name a message of its schema")
    indexes = []
    for _ in range(count):
        index, at = _number(value, at)
        indexes.append(index)
    return tuple(indexes), at


def _number(value: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint, and where it ends."""
    number = shift = 0
    while shift < 35:
        if at >= len(value):
            raise BadValue("ends before its message begins")
        byte = value[at]
        number, at, shift = number | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise BadValue("does not name a message of its schema")


def _messages(schema: RegistrySchema) -> tuple[dict[tuple[int, ...], str], Callable[[str], Descriptor]]:
    """Return the full name of each message of a schema by its indexes, and what finds its descriptor by name."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    pool, added = DescriptorPool(), set[str]()

    def add(name: str, text: str) -> Any:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        file.name = name
        for dependency in file.dependency:
            if dependency not in added:
                _add_well_known(pool, dependency, added)
        pool.Add(file)
        added.add(name)
        return file

    try:
        for name, text in schema.references:
            add(name, text)
        main = add(_MAIN, schema.schema)
        pool.FindFileByName(_MAIN)
    except (DecodeError, TypeError, KeyError) as error:
        raise BadValue("cannot be parsed", detail=str(error)[:200]) from error
    names: dict[tuple[int, ...], str] = {}

    def collect(messages: Any, prefix: str, indexes: tuple[int, ...]) -> None:
        for index, message in enumerate(messages):
            names[*indexes, index] = f"{prefix}{message.name}"
            collect(message.nested_type, f"{prefix}{message.name}.", (*indexes, index))

    collect(main.message_type, f"{main.package}." if main.package else "", ())
    return names, pool.FindMessageTypeByName


def _add_well_known(pool: Any, name: str, added: set[str]) -> None:
    """Add a file that comes with the library, such as google/protobuf/timestamp.proto. Raises KeyError: it is none."""
    from google.protobuf import any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
    from google.protobuf.descriptor_pb2 import DESCRIPTOR, FileDescriptorProto

    known = {
        one.name: one
        for one in (
            DESCRIPTOR,
            *(module.DESCRIPTOR for module in (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)),
        )
    }
    file = FileDescriptorProto()
    known[name].CopyToProto(file)
    pool.Add(file)
    added.add(name)


def _plan(descriptor: Descriptor, types: Mapping[str, ColumnType]) -> _Plan:
    """Return how the columns are read from a message. A field that it lacks is null."""
    fields = descriptor.fields_by_name
    return [
        (at, fields[name], _converter(type_, fields[name]))
        for at, (name, type_) in enumerate(types.items())
        if name in fields
    ]


def _converter(type_: ColumnType, field: FieldDescriptor) -> Convert:
    """Return the converter for a field. It raises Unfit."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return partial(_refuse, "is a map, which no type holds")
    if _is_repeated(field):
        if type_.element is None:
            return partial(_refuse, f"is repeated in the schema, which is not read as {type_}")
        element = _single(type_.element, field)
        return lambda values: [element(value) for value in values]
    return _single(type_, field)


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _single(type_: ColumnType, field: FieldDescriptor) -> Convert:
    """Return the converter for one value of a field."""
    if field.message_type is not None:
        return _of_message(type_, field.message_type)
    kind, name = type_.kind, _TYPE_NAMES[field.type]
    if field.enum_type is not None:
        if kind == "string":
            return partial(_enum_name, {number: one.name for number, one in field.enum_type.values_by_number.items()})
        name = "int"
    if kind == "binary" and name == "bytes":
        return bytes
    if kind == "decimal" and name == "int":
        return lambda value: exact_decimal(type_, Decimal(value))
    plain = plain_converter(type_)
    if plain is None or name not in _ACCEPTED.get(kind, ()):
        return partial(_refuse, f"is {name} in the schema, which is not read as {type_}")
    return plain


def _of_message(type_: ColumnType, message: Descriptor) -> Convert:
    if message.full_name in _WRAPPED:
        inner = _single(type_, message.fields_by_name["value"])
        return lambda value: inner(value.value)
    if message.full_name == _TIMESTAMP and type_.kind == "timestamp" and type_.utc:
        return partial(_time, type_)
    if message.full_name == _DECIMAL and type_.kind == "decimal" and {"value", "scale"} <= {*message.fields_by_name}:
        return partial(_decimal, type_)
    if type_.kind != "struct":
        return partial(_refuse, f"is {message.full_name[:100]} in the schema, which is not read as {type_}")
    plan = _plan(message, dict(type_.fields))
    names = [name for name, _ in type_.fields]

    def convert(value: Any) -> dict[str, Any]:
        fields = dict.fromkeys(names)
        for at, field, inner in plan:
            if not field.has_presence or value.HasField(field.name):
                fields[names[at]] = inner(getattr(value, field.name))
        return fields

    return convert


def _refuse(reason: str, _value: Any) -> Any:
    raise Unfit(reason)


def _enum_name(names: Mapping[int, str], number: int) -> str:
    if number not in names:
        raise Unfit("is a number that the enum of the schema does not name")
    return names[number]


def _time(type_: ColumnType, value: Any) -> int:
    if not 0 <= value.nanos < 1_000_000_000:
        raise Unfit(f"is not of type {type_}")
    return time_in_unit(value.seconds * 1_000_000_000 + value.nanos, 1, type_)


def _decimal(type_: ColumnType, value: Any) -> Decimal:
    if abs(value.scale) > _MAX_SCALE:
        raise Unfit(f"is not of type {type_}")
    return unscaled_decimal(type_, value.scale, value.value)


_TYPE_NAMES = {
    **dict.fromkeys((3, 4, 5, 6, 7, 13, 15, 16, 17, 18), "int"),
    **dict.fromkeys((1, 2), "float"),
    8: "bool",
    9: "string",
    12: "bytes",
    14: "enum",
}
"""Number of a field's type in a descriptor -> the type."""

_ACCEPTED = {
    "bool": ("bool",),
    "string": ("string",),
    **dict.fromkeys(("int8", "int16", "int32", "int64"), ("int",)),
    **dict.fromkeys(("float32", "float64"), ("float", "int")),
}
