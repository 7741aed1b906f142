"""Encode and decode stored records as canonical JSON, strictly in both directions.

A stored record is a frozen dataclass whose field types define what is stored. Canonical: keys sorted, no spaces, no
NaN. A value has exactly one encoding, so equal bytes mean equal records. Strict: an unknown or missing key, or a value
of another type, raises StateCorrupt; nothing is guessed.

A record may declare, besides its fields:

* ``check(self) -> str | None``: what is wrong with a combination of values that are valid individually, or None.
* ``stored_format: ClassVar[str]``: ``milepost.<kind>/<version>``, stored under the key ``format`` and required when
  read; the error for any other format names both.
* ``stored_as_row: ClassVar[bool] = True``: stored as an array of its fields, in order. Trailing fields with defaults
  may be missing.

Field types: int, float, str, bool, ``int | float``, object, Any, enums of text, records, tagged records and unions
of them, ``range`` as ``[start, stop]``, tuples and Sequence as arrays, dict and Mapping from text, each of these or
None, and the types of `fields`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, TypeVar

from milepost.codec.fields import TaggedRecord
from milepost.codec.readers import (
    FORMAT_KEY,
    SCALARS,
    TAG_KEY,
    Mismatch,
    UnexpectedFormat,
    check_format,
    fields_of,
    plan_of,
    reader_of,
)
from milepost.errors import StateCorrupt

Record = TypeVar("Record")

RESTORE_HINT = "Restore this object, or roll back to an older checkpoint."
_PLAIN = {*SCALARS, NoneType}
"""Types of values that are valid JSON unchanged."""


def encode(record: object) -> bytes:
    """Return the canonical JSON of a dataclass of records, tuples, enums and JSON values."""
    return dump(to_json(record))


def prepare_codec(kind: type) -> None:
    """Build and cache the encoder and decoder of a record type before its first use.

    Raises:
        TypeError, NameError: the type cannot be stored.
    """
    if _form_of(kind) is not None:
        plan_of(kind)


def decode(kind: type[Record], body: bytes | str, what: str, *, hint: str = RESTORE_HINT, **details: object) -> Record:
    """Return the record that `encode` wrote.

    Args:
        kind: the dataclass. body: its JSON. what: names the object in errors, usually by its key.
        hint, details: of the error.
    Raises:
        StateCorrupt: the body is not such a record.
    """
    return from_json(kind, load(body, what, hint=hint, **details), what, hint=hint, **details)


DOCUMENT_SCHEMA = "milepost/v1"
"""`schema` of every document for programs: of `--json`, and of the pages."""


def to_json(record: object) -> Any:
    """Return the JSON value of a record: dicts, lists, strings, numbers, booleans and None only.

    Raises:
        TypeError: it contains a value without a JSON form.
    """
    if type(record) in _PLAIN:
        return record
    kind: Any = type(record)
    form = _form_of(kind)
    if form is not None:
        return _record_to_json(record, form)
    if isinstance(record, Enum):
        return record.value
    if isinstance(record, list | tuple):
        return [*record] if _PLAIN.issuperset(map(type, record)) else [to_json(item) for item in record]
    if isinstance(record, Mapping) and all(isinstance(key, str) for key in record):
        return {key: to_json(item) for key, item in record.items()}
    if isinstance(record, range):
        return [record.start, record.stop]
    if isinstance(record, bool | int | float | str):
        return record
    raise TypeError(f"{kind.__name__} has no JSON form")


def from_json(kind: type[Record], value: object, what: str, *, hint: str = RESTORE_HINT, **details: object) -> Record:
    """Return the record of a JSON value. Raises StateCorrupt with `what` and the path; arguments as in `decode`."""
    reader_type: Any = kind  # a type, and so hashable
    try:
        record: Record = reader_of(reader_type)(value)
    except UnexpectedFormat as other:
        raise _other_format(what, other, details) from other
    except Mismatch as mismatch:
        raise StateCorrupt(f"{what}: {mismatch}. Nothing was changed.", hint=hint, **details) from mismatch
    return record


def dump(value: object) -> bytes:
    """Return the canonical bytes of a JSON value, in ASCII, so that names with surrogates can be encoded too."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def load(body: bytes | str, what: str, *, hint: str = RESTORE_HINT, **details: object) -> object:
    """Return the JSON value of a stored object.

    Raises:
        StateCorrupt: the body is not JSON, or a key appears twice; arguments as in `decode`.
    """
    try:
        value: object = json.loads(body, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        message = f"{what}: expected JSON, got a length of {len(body)}: {error}. Nothing was changed."
        raise StateCorrupt(message, hint=hint, **details) from error
    return value


def load_document(
    stored_format: str, body: bytes | str, what: str, *, hint: str = RESTORE_HINT, **details: object
) -> dict[str, Any]:
    """Return the JSON object of a stored document that is unpacked before its records are read.

    Raises:
        StateCorrupt: it is not an object, or has another format; arguments as in `decode`.
    """
    value = load(body, what, hint=hint, **details)
    if not isinstance(value, dict):
        raise StateCorrupt(f"{what}: expected an object with a `format`. Nothing was changed.", hint=hint, **details)
    _require_format(stored_format, value.get(FORMAT_KEY), what, details)
    return value


def load_row(stored_format: str, body: bytes | str, what: str) -> list[Any]:
    """Return a stored array without its first item, the format. Raises StateCorrupt."""
    value = load(body, what)
    if not isinstance(value, list):
        raise StateCorrupt(f"{what}: expected an array that begins with its format. Nothing was changed.")
    _require_format(stored_format, value[0] if value else None, what, {})
    return value[1:]


def _require_format(expected: str, actual: object, what: str, details: Mapping[str, object]) -> None:
    try:
        check_format(actual, expected)
    except UnexpectedFormat as other:
        raise _other_format(what, other, details) from other


def _other_format(what: str, other: UnexpectedFormat, details: Mapping[str, object]) -> StateCorrupt:
    return StateCorrupt(f"{what}: {other}. Nothing was changed.", hint=other.remedy, **details)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value


def _refuse_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


@dataclass(frozen=True, slots=True)
class _Form:
    """The stored form of a record type.

    Attributes:
        fields: per field its stored key, its name, its converter to the stored form (None: stored unchanged),
            whether it holds JSON already, and whether None is omitted.
        as_row: stored as an array. constants: keys that the object has besides its fields.
    """

    fields: tuple[tuple[str, str, Callable[[Any], object] | None, bool, bool], ...]
    as_row: bool
    constants: dict[str, object]


@cache
def _form_of(kind: type) -> _Form | None:
    """Return the stored form of a dataclass; None for another type."""
    if not is_dataclass(kind):
        return None
    constants: dict[str, object] = {TAG_KEY: kind.__name__} if issubclass(kind, TaggedRecord) else {}
    if hasattr(kind, "stored_format"):
        constants[FORMAT_KEY] = kind.stored_format
    plan = tuple((field.key, field.name, field.write, field.as_is, field.omit_none) for field in fields_of(kind))
    return _Form(plan, getattr(kind, "stored_as_row", False), constants)


def _record_to_json(record: object, form: _Form) -> Any:
    value = {}
    for key, name, write, as_is, omit_none in form.fields:
        item = getattr(record, name)
        if item is None and omit_none:
            continue
        if write is not None:
            item = write(item)
        value[key] = item if as_is or type(item) in _PLAIN else to_json(item)
    return list(value.values()) if form.as_row else value | form.constants
