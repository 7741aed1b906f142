"""Copy a record into a record type with more fields."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def extend_record(kind: type[T], record: DataclassInstance, **more: Any) -> T:
    """Return a `kind` with the fields of `record` and these. Its type has all fields of the record's type."""
    return kind(**{field.name: getattr(record, field.name) for field in fields(record)} | more)
