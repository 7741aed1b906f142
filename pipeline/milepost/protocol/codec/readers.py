"""Readers make values of JSON what a record's types say, or name the place where one does not fit.

A reader is made once per type. The types that there are, and what a record may declare, are told in `records`.
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

from milepost.protocol.manifest.transaction.events import EVENT_TYPES, Event
from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.stored_fields import AS_IS, OMIT_NONE, StoredAs, StoredName

EVENT_TAG = "type"
"""Key of the name of an event's type."""

FORMAT_KEY = "format"
SCALARS = {int: "an integer", str: "text", bool: "true or false", float: "a float"}

Reader: TypeAlias = Callable[[object], Any]


class Mismatch(Exception):
    """A value that does not fit; the path and the expectation are for the StateCorrupt that it becomes."""

    def __init__(self, expectation: str) -> None:
        super().__init__(expectation)
        self._expectation, self._path = expectation, ""

    def __str__(self) -> str:
        return f"{self._path or 'it'}: {self._expectation}"

    def within(self, step: str) -> Mismatch:
        """Say one step more of the way to the value, from the inside out."""
        self._path = step + self._path
        return self


_ANOTHER_PLACE = "start under another storage, the sink at another path; or put back what lay there"


class UnexpectedFormat(Mismatch):
    """A stored object that another version of Milepost wrote, or nobody; never to be taken for one that is absent.

    Attributes:
        remedy: what to do.
    """

    def __init__(self, expected: str, got: object) -> None:
        name, _, number = expected.rpartition("/")
        later = re.fullmatch(re.escape(name) + r"/(\d{1,9})", got) if isinstance(got, str) else None
        newer = later is not None and int(later[1]) > int(number)
        who = "a newer Milepost" if newer else "an earlier Milepost, or by something else"
        super().__init__(f"was written by {who}: expected the format {expected}, got {_short(got)}")
        self.remedy = "use that version" if newer else _ANOTHER_PLACE

    def __str__(self) -> str:
        return str(self.args[0])


def check_format(found: object, expected: str) -> None:
    """Raise OtherFormat unless what a stored object says of itself is this format."""
    if type(found) is not str or found != expected:
        raise UnexpectedFormat(expected, found)


@dataclass(frozen=True, slots=True)
class StoredField:
    """One field of a stored record.

    Attributes:
        name: the record's. key: the stored one.
        plain: types of values that it has as they are; empty when `read` has to look at each.
        read: makes its value of JSON. write: makes the stored form; None when the value is stored as it is.
        as_is: its value is JSON already. omit_none: None is left out.
        required: a row may not end before it.
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
    """Return what makes a value of JSON one of `kind`, or raises Mismatch; made once per type."""
    if isinstance(kind, NewType):
        return reader_of(kind.__supertype__)
    if kind is object or kind is Any:
        return lambda value: value
    if kind in SCALARS:
        return _scalar(kind)
    if kind is range:
        return _range
    if kind in EVENT_TYPES:
        return _event((kind,))
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
    """Return a half-open range that is not empty."""
    if not isinstance(value, list) or [type(bound) for bound in value] != [int, int] or not 0 <= value[0] < value[1]:
        raise _expected("a range [start, stop)", value)
    return range(value[0], value[1])


def _annotated(kind: Any, marks: tuple[Any, ...]) -> Reader:
    """Return a value that its type's functions look at, or that is made of its stored form."""
    stored = next((mark for mark in marks if isinstance(mark, StoredAs)), None)
    reader = reader_of(kind if stored is None else stored.kind)
    faults: list[Callable[[Any], str | None]] = [mark for mark in marks if callable(mark)]

    def read(value: object) -> object:
        item = reader(value)
        if stored is not None:
            try:
                item = stored.read(item)
            except (ValueError, StateCorrupt) as error:
                raise Mismatch(str(error)) from error
        for fault in faults:
            wrong = fault(item)
            if wrong is not None:
                raise Mismatch(wrong)
        return item

    return read


def _union(options: tuple[Any, ...]) -> Reader:
    """Return an optional value, a number, or one of the events, told apart by their tag."""
    present = tuple(option for option in options if option is not types.NoneType)
    if len(present) == 1:
        reader = reader_of(present[0])
    else:
        reader = _number if set(present) == {int, float} else _event(present)
    if len(present) == len(options):
        return reader
    return lambda value: None if value is None else reader(value)


def _event(kinds: tuple[type[Event], ...]) -> Reader:
    """Return one of these events, told apart by its tag."""
    known = {kind.__name__: _record(kind) for kind in kinds}

    def read(value: object) -> object:
        tag = value.get(EVENT_TAG) if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(tag, str) or tag not in known:
            raise _expected(f"one of {sorted(known)} as its `{EVENT_TAG}`", tag if isinstance(value, dict) else value)
        return known[tag]({key: item for key, item in value.items() if key != EVENT_TAG})

    return read


def _mapping(kind: Any) -> Reader:
    reader = reader_of(kind)

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _expected("an object", value)
        key, found = "", {}
        try:
            for key, item in value.items():
                found[key] = reader(item)
        except Mismatch as mismatch:
            mismatch.within(f".{key}")
            raise
        return found

    return read


def _array(kind: Any) -> Reader:
    """Return an array of any length of one kind."""
    reader = reader_of(kind)
    plain = {kind} if kind in SCALARS else None

    def read(value: object) -> object:
        if not isinstance(value, list):
            raise _expected("an array", value)
        if plain is not None and set(map(type, value)) == plain:
            return tuple(value)
        found: list[object] = []
        try:
            for item in value:
                found.append(reader(item))
        except Mismatch as mismatch:
            mismatch.within(f"[{len(found)}]")
            raise
        return tuple(found)

    return read


def _tuple(kinds: tuple[Any, ...]) -> Reader:
    """Return an array of a kind each."""
    readers = [reader_of(kind) for kind in kinds]

    def read(value: object) -> object:
        if not isinstance(value, list):
            raise _expected("an array", value)
        if len(value) != len(readers):
            raise _expected(f"an array of {len(readers)}", value)
        found: list[object] = []
        try:
            for reader, item in zip(readers, value, strict=True):
                found.append(reader(item))
        except Mismatch as mismatch:
            mismatch.within(f"[{len(found)}]")
            raise
        return tuple(found)

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
        key, found = "", {}
        try:
            for name, key, plain, reader in plan:
                item = value[key]
                found[name] = item if type(item) in plain else reader(item)
        except Mismatch as mismatch:
            mismatch.within(f".{key}")
            raise
        record = kind(**found)
        if checked:
            _check(record)
        return record

    return read


def _row(kind: type) -> Reader:
    """Return a record that is stored as an array of its fields."""
    checked = hasattr(kind, "check")

    def read(value: object) -> object:
        plan, least, shapes = _row_plan(kind)
        if not isinstance(value, list) or not least <= len(value) <= len(plan):
            raise _expected(f"an array ({kind.__name__}: {', '.join(field.key for field in plan)})", value)
        found = value if tuple(map(type, value)) in shapes else _parts(plan, value)
        record = kind(*found)
        if checked:
            _check(record)
        return record

    return read


def _parts(plan: tuple[StoredField, ...], row: list[object]) -> list[object]:
    found: list[object] = []
    try:
        for field, item in zip(plan, row, strict=False):
            found.append(item if type(item) in field.plain else field.read(item))
    except Mismatch as mismatch:
        mismatch.within(f"[{len(found)}]")
        raise
    return found


@cache
def _row_plan(kind: type) -> tuple[tuple[StoredField, ...], int, frozenset[tuple[type, ...]]]:
    """Return the fields of a row, how many it has at least, and the types of those that need no look at each value."""
    plan = fields_of(kind)
    return plan, sum(field.required for field in plan), frozenset(product(*(field.plain for field in plan)))


def _check(record: Any) -> None:
    wrong = record.check()
    if wrong is not None:
        raise Mismatch(wrong)


@cache
def _plan(kind: type) -> tuple[frozenset[str], tuple[tuple[str, str, frozenset[type], Reader], ...]]:
    """Return the stored keys of a record, and per field its name, key, plain types and reader."""
    plan = fields_of(kind)
    return frozenset(field.key for field in plan), tuple((one.name, one.key, one.plain, one.read) for one in plan)


def plan_of(kind: type) -> object:
    """Return what reads the fields of a record, which the first of its type finds out."""
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
