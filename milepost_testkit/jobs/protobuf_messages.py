"""Messages in Protobuf, as a producer with a Confluent-style registry writes them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from milepost.sources.landed import RegistrySchema
from milepost_testkit.jobs.avro_messages import header

OPTIONAL, REPEATED = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED


def proto_file(name: str, *imports: str, package: str = "shop") -> FileDescriptorProto:
    """Return an empty file."""
    return FileDescriptorProto(name=name, package=package, dependency=imports, syntax="proto3")


def add_fields(message: Any, **fields: str) -> None:
    """Add fields to a message: `int64`, `repeated string`, `optional int32`, or the full name of a type."""
    for number, (name, text) in enumerate(fields.items(), len(message.field) + 1):
        label, _, type_ = text.rpartition(" ")
        field = message.field.add(name=name, number=number, label=REPEATED if label == "repeated" else OPTIONAL)
        if type_.startswith("."):
            field.type_name = type_
            field.type = FieldDescriptorProto.TYPE_ENUM if ".Kind" in type_ else FieldDescriptorProto.TYPE_MESSAGE
        else:
            field.type = FieldDescriptorProto.Type.Value(f"TYPE_{type_.upper()}")
        if label == "optional":
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


def stored_file(file: FileDescriptorProto, *references: FileDescriptorProto) -> RegistrySchema:
    """Return a file as a landing stores it."""
    names = tuple((one.name, serialized(one)) for one in references)
    return RegistrySchema("PROTOBUF", serialized(file), names)


def serialized(file: FileDescriptorProto) -> str:
    """Return a file as a registry returns it with `format=serialized`."""
    return base64.b64encode(file.SerializeToString()).decode()


def message_class(files: Sequence[FileDescriptorProto], name: str) -> Any:
    """Return the class of a message of files, the last of which may import those before it."""
    from google.protobuf import timestamp_pb2, wrappers_pb2

    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def protobuf(schema_id: int, message: Any, indexes: bytes = b"\0") -> bytes:
    """Return a value: the header, which message of the schema it is, then the message."""
    content: bytes = message.SerializeToString()
    return header(schema_id) + indexes + content
