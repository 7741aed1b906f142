"""Decode message values by the registry schemas that their object carries."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from milepost.errors import EnvironmentUnusable
from milepost.language import ColumnType
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.landed import HEADER_BYTES, RegistrySchema, decode_schema, schema_id_of, stored_schema
from milepost.sources.messages.avro_encodings import AvroEncodings, without_logical_types
from milepost.sources.messages.exact_values import Convert, Unfit
from milepost.sources.messages.protobuf_values import protobuf_decoder
from milepost.sources.messages.rowwise_values import BadValue, RowwiseValues

_Decode: TypeAlias = Callable[[bytes], Sequence[Any]]
"""Decodes the bytes after the header into the values of the columns. Raises BadValue."""

_MALFORMED = (EOFError, ValueError, LookupError, TypeError, OverflowError, ArithmeticError, RecursionError)
"""What decoders raise because of the bytes."""

_LIBRARIES = {"avro": "fastavro", "protobuf": "google.protobuf.message"}
_MAX_SCHEMAS = 1_000


class WriterSchema(Protocol):
    """Makes the decoder of one schema."""

    def __call__(self, schema: RegistrySchema, types: Mapping[str, ColumnType]) -> _Decode:
        """Raises BadValue: the schema is no schema of the format, or describes no record."""


class RegistryValues:
    """Makes the decoder of values, by the metadata of the object that has them; picklable."""

    def __init__(self, declared: DeclaredColumns, format_: str) -> None:
        """Raises EnvironmentUnusable: the library of the format is not installed."""
        try:
            import_module(_LIBRARIES[format_])
        except ModuleNotFoundError as error:
            raise EnvironmentUnusable(
                f"source {declared.source} (value: {{format: {format_}}}) needs {error.name}, which is not installed.",
                hint='install it: pip install "milepost[registry]"',
                source=declared.source,
            ) from error
        self._declared, self._format = declared, format_
        self._made: dict[tuple[int, bytes], _Decode | BadValue] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_declared": self._declared, "_format": self._format, "_made": {}}

    def decoder(self, metadata: Mapping[bytes, bytes]) -> RowwiseValues:
        """Return the decoder of the values of one object."""

        def read(value: bytes) -> Sequence[Any]:
            schema_id = schema_id_of(value)
            if schema_id is None:
                raise BadValue("was not written with a registry: it does not begin with a zero byte and a schema id")
            if schema_id not in decoders:
                decoders[schema_id] = self._decode_of(schema_id, stored_schema(metadata, schema_id))
            decode = decoders[schema_id]
            if isinstance(decode, BadValue):
                raise decode.with_traceback(None)
            return decode(value)

        decoders: dict[int, _Decode | BadValue] = {}
        return RowwiseValues(self._declared, read)

    def _decode_of(self, schema_id: int, body: bytes | None) -> _Decode | BadValue:
        """Return what decodes the values of a schema, or why they cannot be decoded."""
        if body is None:
            return BadValue(f"was written with schema {schema_id}, which the registry did not have when it was landed")
        key = schema_id, body
        if key not in self._made:
            if len(self._made) >= _MAX_SCHEMAS:
                self._made.clear()
            self._made[key] = self._make(schema_id, body)
        return self._made[key]

    def _make(self, schema_id: int, body: bytes) -> _Decode | BadValue:
        kind, make = FORMATS[self._format]
        try:
            schema = decode_schema(body)
            if schema.kind != kind:
                return BadValue(f"was written with schema {schema_id}, which is {schema.kind[:40]} and not {kind}")
            return make(schema, self._declared.types)
        except BadValue as bad:
            return BadValue(f"was written with schema {schema_id}, which {bad.reason}", detail=bad.detail)
        except _MALFORMED as error:
            return BadValue(f"was written with schema {schema_id}, which cannot be parsed", detail=str(error)[:200])


def avro_decoder(schema: RegistrySchema, types: Mapping[str, ColumnType]) -> _Decode:
    """Return the decoder of an Avro schema: by the schema of the writer, then field by field to the columns.

    A field that the schema lacks is null.
    """
    from fastavro import schemaless_reader
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            parse_schema(without_logical_types(json.loads(text)), named_schemas=named)
        parsed = parse_schema(without_logical_types(json.loads(schema.schema)), named_schemas=named)
    except (SchemaParseException, UnknownType) as error:
        raise BadValue("cannot be parsed", detail=str(error)[:200]) from error
    encodings = AvroEncodings(named)
    fields = encodings.fields(parsed)
    if fields is None:
        raise BadValue("is not of a record")
    plan = [
        (at, name, encodings.converter(type_, fields[name]))
        for at, (name, type_) in enumerate(types.items())
        if name in fields
    ]

    def decode(value: bytes) -> Sequence[Any]:
        content = io.BytesIO(value)
        content.seek(HEADER_BYTES)
        try:
            record = schemaless_reader(content, parsed, None)
        except _MALFORMED as error:
            raise BadValue("does not have the bytes that its schema describes", detail=str(error)[:200]) from None
        if content.tell() != len(value):
            raise BadValue("has more bytes than its schema describes")
        assert isinstance(record, dict)
        return converted(record, plan, len(types))

    return decode


def converted(record: Mapping[str, Any], plan: Sequence[tuple[int, str, Convert]], columns: int) -> Sequence[Any]:
    """Return the values of the columns of a record. Raises BadValue.

    Args:
        plan: index, field and converter of each column that the record has.
    """
    values: list[Any] = [None] * columns
    for at, name, convert in plan:
        item = record[name]
        if item is not None:
            try:
                values[at] = convert(item)
            except Unfit as error:
                raise BadValue(str(error), name, str(item)) from None
    return values


FORMATS: Mapping[str, tuple[str, WriterSchema]] = {
    "avro": ("AVRO", avro_decoder),
    "protobuf": ("PROTOBUF", protobuf_decoder),
}
"""Format of a value -> what the registry calls its schemas, and what makes their decoders."""
