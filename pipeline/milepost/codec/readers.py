"""Build the readers that convert JSON values to a record's field types.

Each type's reader is built once. A reader raises Mismatch with the path of the value that does not fit. The supported
types and declarations are described in `records`.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import cache
from itertools import product
from typing import Annotated, Any, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

from milepost.codec.fields import AS_IS, OMIT_NONE, StoredAs, StoredName, TaggedRecord
from milepost.errors import StateCorrupt

TAG_KEY = "type"
"""Key of a tagged record's class name."""

FORMAT_KEY = "format"
SCALARS = {int: "an integer", str: "text", bool: "true or false", float: "a float"}

Reader: TypeAlias = Callable[[object], Any]


class Mismatch(Exception):
    """A value that does not fit. Its path and the expectation become part of a StateCorrupt."""

    def __init__(self, expectation: str) -> None:
        super().__init__(expectation)
        self._expectation, self._path = expectation, ""

    def __str__(self) -> str:
        return f"{self._path or 'it'}: {self._expectation}"

    def within(self, step: str) -> Mismatch:
        """Prepend a step to the path of the value; called from the inside out."""
        self._path = step + self._path
        return self


_OTHER_STORAGE_HINT = "start under another storage or with another sink path, or restore the previous object"


class UnexpectedFormat(Mismatch):
    """A stored object that another version of Milepost, or another program, wrote. Never treat it as absent.

    Attributes:
        remedy: what to do.
    """

    def __init__(self, expected: str, got: object) -> None:
        name, _, number = expected.rpartition("/")
        match = re.fullmatch(re.escape(name) + r"/(\d{1,9})", got) if isinstance(got, str) else None
        newer = match is not None and int(match[1]) > int(number)
        who = "a newer Milepost" if newer else "an earlier Milepost, or by something else"
        super().__init__(f"was written by {who}: expected the format {expected}, got {_short(got)}")
        self.remedy = "use that version" if newer else _OTHER_STORAGE_HINT

    def __str__(self) -> str:
        return str(self.args[0])


def check_format(actual: object, expected: str) -> None:
    """Raise UnexpectedFormat unless a stored object declares this format."""
    if type(actual) is not str or actual != expected:
        raise UnexpectedFormat(expected, actual)


@dataclass(frozen=True, slots=True)
class StoredField:
    """One field of a stored record.

    Attributes:
        name: the record's field name. key: the stored one.
        plain: types of values that need no conversion; empty if `read` must examine each value.
        read: converts from JSON. write: converts to the stored form; None: the value is stored unchanged.
        as_is: its value is JSON already. omit_none: None is omitted.
        required: a stored row must include it.
    """

    name: str
    key: str
    plain: frozenset[type]
    read: Reader
    write: Callable[[Any], object] | None
    as_is: bool
    omit_none: bool
    required: bool


@cache
def reader_of(kind: Any) -> Reader:
    """Return the reader of a type: it converts a JSON value or raises Mismatch. Built once per type."""
    if isinstance(kind, NewType):
        return reader_of(kind.__supertype__)
    if kind is object or kind is Any:
        return lambda value: value
    if kind in SCALARS:
        return _scalar(kind)
    if kind is range:
        return _range
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments) if arguments[-1] is not Ellipsis else _array(arguments[0])
    if origin is Sequence:
        return _array(arguments[0])
    if origin in (dict, Mapping):
        return _mapping(arguments[1])
    if issubclass(kind, Enum):
        return _enum(kind)
    if issubclass(kind, TaggedRecord):
        return _tagged((kind,))
    return _row(kind) if getattr(kind, "stored_as_row", False) else _record(kind)


def _scalar(kind: type) -> Reader:
    def read(value: object) -> object:
        if type(value) is not kind:
            raise _expected(SCALARS[kind], value)
        return value

    return read


def _number(value: object) -> object:
    if type(value) is not int and type(value) is not float:
        raise _expected("a number", value)
    return value


def _range(value: object) -> object:
    """Return a half-open, non-empty range."""
    if not isinstance(value, list) or [type(bound) for bound in value] != [int, int] or not 0 <= value[0] < value[1]:
        raise _expected("a range [start, stop)", value)
    return range(value[0], value[1])


def _annotated(kind: Any, marks: tuple[Any, ...]) -> Reader:
    """Read a value through its stored form, then check it with the validators of its type."""
    stored = next((mark for mark in marks if isinstance(mark, StoredAs)), None)
    reader = reader_of(kind if stored is None else stored.kind)
    validators: list[Callable[[Any], str | None]] = [mark for mark in marks if callable(mark)]

    def read(value: object) -> object:
        item = reader(value)
        if stored is not None:
            try:
                item = stored.read(item)
            except (ValueError, StateCorrupt) as error:
                raise Mismatch(str(error)) from error
        for validate in validators:
            fault = validate(item)
            if fault is not None:
                raise Mismatch(fault)
        return item

    return read


def _union(options: tuple[Any, ...]) -> Reader:
    """Read an optional value, a number, or one of several tagged records."""
    present = tuple(option for option in options if option is not types.NoneType)
    if len(present) == 1:
        reader = reader_of(present[0])
    else:
        reader = _number if set(present) == {int, float} else _tagged(present)
    if len(present) == len(options):
        return reader
    return lambda value: None if value is None else reader(value)


def _tagged(kinds: tuple[type[TaggedRecord], ...]) -> Reader:
    """Read one of these records, selected by its tag."""
    readers = {kind.__name__: _record(kind) for kind in kinds}

    def read(value: object) -> object:
        tag = value.get(TAG_KEY) if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(tag, str) or tag not in readers:
            raise _expected(f"one of {sorted(readers)} as its `{TAG_KEY}`", tag if isinstance(value, dict) else value)
        return readers[tag]({key: item for key, item in value.items() if key != TAG_KEY})

    return read


def _mapping(kind: Any) -> Reader:
    reader = reader_of(kind)

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _expected("an object", value)
        key, values = "", {}
        try:
            for key, item in value.items():
                values[key] = reader(item)
        except Mismatch as mismatch:
            mismatch.within(f".{key}")
            raise
        return values

    return read


def _array(kind: Any) -> Reader:
    """Read an array of any length with items of one type."""
    reader = reader_of(kind)
    plain = {kind} if kind in SCALARS else None

    def read(value: object) -> object:
        if not isinstance(value, list):
            raise _expected("an array", value)
        if plain is not None and set(map(type, value)) == plain:
            return tuple(value)
        items: list[object] = []
        try:
            for item in value:
                items.append(reader(item))
        except Mismatch as mismatch:
            mismatch.within(f"[{len(items)}]")
            raise
        return tuple(items)

    return read


def _tuple(kinds: tuple[Any, ...]) -> Reader:
    """Read an array of fixed length with a type for each item."""
    readers = [reader_of(kind) for kind in kinds]

    def read(value: object) -> object:
        if not isinstance(value, list):
            raise _expected("an array", value)
        if len(value) != len(readers):
            raise _expected(f"an array of {len(readers)}", value)
        items: list[object] = []
        try:
            for reader, item in zip(readers, value, strict=True):
                items.append(reader(item))
        except Mismatch as mismatch:
            mismatch.within(f"[{len(items)}]")
            raise
        return tuple(items)

    return read


def _enum(kind: type[Enum]) -> Reader:
    members = {member.value: member for member in kind}

    def read(value: object) -> object:
        if type(value) is not str or value not in members:
            raise _expected(f"one of {[*members]}", value)
        return members[value]

    return read


def _record(kind: type) -> Reader:
    checked, stored_format = hasattr(kind, "check"), getattr(kind, "stored_format", None)

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _expected(f"an object ({kind.__name__})", value)
        if stored_format is not None:
            check_format(value.get(FORMAT_KEY), stored_format)
            value = {key: item for key, item in value.items() if key != FORMAT_KEY}
        keys, plan = _plan(kind)
        if value.keys() != keys:
            unknown, missing = sorted(value.keys() - keys), sorted(keys - value.keys())
            raise Mismatch(f"{kind.__name__} has unknown keys {unknown} and lacks {missing}")
        key, values = "", {}
        try:
            for name, key, plain, reader in plan:
                item = value[key]
                values[name] = item if type(item) in plain else reader(item)
        except Mismatch as mismatch:
            mismatch.within(f".{key}")
            raise
        record = kind(**values)
        if checked:
            _check(record)
        return record

    return read


def _row(kind: type) -> Reader:
    """Read a record that is stored as an array of its fields."""
    checked = hasattr(kind, "check")

    def read(value: object) -> object:
        plan, min_length, plain_shapes = _row_plan(kind)
        if not isinstance(value, list) or not min_length <= len(value) <= len(plan):
            raise _expected(f"an array ({kind.__name__}: {', '.join(field.key for field in plan)})", value)
        items = value if tuple(map(type, value)) in plain_shapes else _read_row_items(plan, value)
        record = kind(*items)
        if checked:
            _check(record)
        return record

    return read


def _read_row_items(plan: tuple[StoredField, ...], row: list[object]) -> list[object]:
    items: list[object] = []
    try:
        for field, item in zip(plan, row, strict=False):
            items.append(item if type(item) in field.plain else field.read(item))
    except Mismatch as mismatch:
        mismatch.within(f"[{len(items)}]")
        raise
    return items


@cache
def _row_plan(kind: type) -> tuple[tuple[StoredField, ...], int, frozenset[tuple[type, ...]]]:
    """Return the fields of a row, its minimal length, and the type tuples of values that need no conversion."""
    plan = fields_of(kind)
    return plan, sum(field.required for field in plan), frozenset(product(*(field.plain for field in plan)))


def _check(record: Any) -> None:
    fault = record.check()
    if fault is not None:
        raise Mismatch(fault)


@cache
def _plan(kind: type) -> tuple[frozenset[str], tuple[tuple[str, str, frozenset[type], Reader], ...]]:
    """Return the stored keys of a record, and per field its name, key, plain types and reader."""
    plan = fields_of(kind)
    return frozenset(field.key for field in plan), tuple(
        (field.name, field.key, field.plain, field.read) for field in plan
    )


def plan_of(kind: type) -> object:
    """Return the cached plan for reading the fields of a record type."""
    return _row_plan(kind) if getattr(kind, "stored_as_row", False) else _plan(kind)


@cache
def fields_of(kind: type) -> tuple[StoredField, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _field(field.name, hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    )


def _field(name: str, hint: Any, required: bool) -> StoredField:
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    marks = getattr(hint, "__metadata__", ())
    key = next((mark.name for mark in marks if isinstance(mark, StoredName)), name)
    write = next((mark.write for mark in marks if isinstance(mark, StoredAs)), None)
    return StoredField(
        name, key, _plain_types(hint), reader_of(hint), write, AS_IS in marks, OMIT_NONE in marks, required
    )


def _plain_types(hint: Any) -> frozenset[type]:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return frozenset(options) if {*SCALARS, types.NoneType}.issuperset(options) else frozenset()


def _expected(expectation: str, value: object) -> Mismatch:
    return Mismatch(f"expected {expectation}, got {_short(value)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
