"""Extending makes a record of another one that has more fields."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def extend_record(kind: type[T], record: DataclassInstance, **more: Any) -> T:
    """Return a record with the fields of another one, and these: its type begins with the other's fields."""
    return kind(**{one.name: getattr(record, one.name) for one in fields(record)} | more)
