"""Field types of stored records: a Python type and the validators of its values.

A record declares a field as ``size: Count``. The codec reads the type, then calls each validator in its annotation.
Rules about several fields are in the record's own `check`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StoredAs:
    """The stored form of a field that has no JSON representation. Applies to the whole field, not to parts of it.

    Attributes:
        kind: type of the stored form, as a record would declare it.
        write: converts to the stored form. read: its inverse; raises ValueError or StateCorrupt.
    """

    kind: Any
    write: Callable[[Any], object]
    read: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class StoredName:
    """The key under which a field is stored, if it differs from the field's name."""

    name: str


class TaggedRecord:
    """Base of records that are stored with their class name under ``type``, so that a union of them can be read.

    Never rename such a class: its name is in stored objects.
    """

    __slots__ = ()


T = TypeVar("T")

OMIT_NONE = "if known"
"""Marks a field that is omitted when it is None, in documents that are never read back."""

OmitNone: TypeAlias = Annotated[T | None, OMIT_NONE]

AS_IS = "as is"
"""Marks a field that already holds JSON and is written unchecked."""


def int_keys(kind: Any) -> StoredAs:
    """Return the stored form of a mapping with integer keys; JSON keys are text."""
    return StoredAs(dict[str, kind], _text_keys, _number_keys)


def _text_keys(values: Mapping[int, Any]) -> dict[str, Any]:
    return {str(number): value for number, value in values.items()}


def _number_keys(values: Mapping[str, Any]) -> dict[int, Any]:
    numbers = {int(text): value for text, value in values.items()}
    if _text_keys(numbers).keys() != values.keys():
        raise ValueError(f"expected each number in its canonical form, got {sorted(values)}")
    return numbers


def sha256_fault(digest: str) -> str | None:
    """Return why a text is not a SHA-256 in lower-case hexadecimal, or None."""
    return None if _SHA256.fullmatch(digest) else f"expected 64 hexadecimal digits, got {digest[:80]!r}"


def count_fault(number: float) -> str | None:
    """Return why a number cannot be a count or an amount, or None."""
    return None if number >= 0 else f"expected at least 0, got {number}"


def text_fault(text: str) -> str | None:
    """Return why a text is invalid, which only an empty text is, or None."""
    return None if text else "expected text that is not empty"


Sha256 = Annotated[str, sha256_fault]
Count = Annotated[int, count_fault]
Amount = Annotated[int | float, count_fault]
Text = Annotated[str, text_fault]
