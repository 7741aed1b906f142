"""The manifest as canonical JSON, and back: strict in both directions.

Canonical: keys sorted, no spaces, UTF-8, no NaN. One value has one encoding, so equal bytes mean equal records.
Strict: an unknown or missing key, a value of another type, an unknown format or an unsafe object key is StateCorrupt,
and nothing is guessed. A change of any record here is a new format: it adds a golden file and keeps this decoder.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import cycle
from typing import Any, NewType, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from milepost.protocol.codec.log_entries import LogEntry, Tombstone, TombstoneRow, from_row, to_row
from milepost.protocol.codec.older_formats import NotOfThatFormat, upgraded
from milepost.protocol.codec.packing import packed, restored, shortened, unpacked
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.transaction.events import EVENT_TYPES, Event
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.layout import key_fault
from milepost.protocol.records.manifest_state import Garbage

FORMAT = 4
"""What this module writes; `decode_entry` reads every format that was ever written."""

Record = TypeVar("Record")

_TAG = "type"
_PACKED = ("aborted_sessions", "checkpoints", "completed_sessions", "garbage", "garbage_lists")
"""Fields of a state whose records are alike."""

_EVENT_NAMES: dict[str, type[Event]] = {event.__name__: event for event in EVENT_TYPES}
_KEY_FIELDS: dict[type, str] = {ObjectHandle: "key", Garbage: "prefix"}
_SCALARS = {int: "an integer", str: "text", bool: "true or false", float: "a float"}
_Reader: TypeAlias = Callable[[object], Any]


class _Mismatch(Exception):
    """A value that does not fit; the path and the expectation are for the StateCorrupt that it becomes."""

    def __init__(self, expectation: str) -> None:
        super().__init__(expectation)
        self._expectation, self._path = expectation, ""

    def __str__(self) -> str:
        return f"{self._path or 'it'}: {self._expectation}"

    def within(self, step: str) -> _Mismatch:
        """Say one step more of the way to the value, from the inside out."""
        self._path = step + self._path
        return self


def encode(record: object) -> bytes:
    """Return the canonical JSON of a dataclass made of records, tuples, enums and JSON values."""
    return _dumps(to_json(record))


def decode(kind: type[Record], body: bytes, what: str) -> Record:
    """Return the record that `encode` had written.

    Args:
        kind: the dataclass. body: its JSON. what: names the object in errors, usually its key.
    Raises:
        StateCorrupt: it is not that record.
    """
    return from_json(kind, _loads(body, what), what)


def to_json(record: object) -> Any:
    """Return the JSON value of a record: dicts, lists, strings, numbers, booleans and None only.

    Raises:
        TypeError: it holds something that JSON does not have.
    """
    if record is None or type(record) in _SCALARS:
        return record
    kind: Any = type(record)
    names = _field_names(kind)
    if names is not None:
        value = {name: to_json(getattr(record, name)) for name in names}
        if kind.__name__ in _EVENT_NAMES:
            value[_TAG] = kind.__name__
        return value
    if isinstance(record, Enum):
        return record.value
    if isinstance(record, list | tuple):
        return [to_json(item) for item in record]
    if isinstance(record, dict) and all(isinstance(key, str) for key in record):
        return {key: to_json(item) for key, item in record.items()}
    if isinstance(record, bool | int | float | str):
        return record
    raise TypeError(f"{kind.__name__} has no JSON form")


@cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass; None for another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def from_json(kind: type[Record], value: object, what: str) -> Record:
    """Return the record of a JSON value. Raises StateCorrupt, naming `what` and the place."""
    reads: Any = kind  # a type, and so hashable
    try:
        record: Record = _reader(reads)(value)
    except _Mismatch as mismatch:
        raise StateCorrupt(
            f"{what}: {mismatch}. Nothing was changed. Restore this object, or roll back to an older checkpoint."
        ) from mismatch
    return record


def encode_entry(entry: LogEntry) -> bytes:
    """Return the body of one manifest object: ``{event, format, state, version, write_id}``."""
    value: Any = shortened(to_json(entry))
    value["state"] |= {name: packed(value["state"][name]) for name in _PACKED}
    return _dumps({"format": FORMAT, **value})


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """Return the body of a compacted manifest object: ``{format, tombstone}``."""
    return _dumps({"format": FORMAT, "tombstone": to_json(to_row(tombstone))})


def decode_entry(body: bytes, what: str = "manifest entry") -> LogEntry | Tombstone:
    """Return what one manifest object says, whatever format wrote it.

    Args:
        body: of the object. what: its key, for errors.
    Raises:
        StateCorrupt: not an entry, of an unknown format, or of a state that this protocol cannot have written.
    """
    value = _loads(body, what)
    if not isinstance(value, dict) or "format" not in value:
        raise StateCorrupt(f"{what}: expected a manifest entry with a `format`. Nothing was changed.")
    number = value.pop("format")
    decoder = _DECODERS.get(number) if type(number) is int else None
    if decoder is None:
        raise StateCorrupt(
            f"{what}: format {number!r} is unknown, expected one of {sorted(_DECODERS)}. Nothing was changed.",
            hint="It was written by a newer version of Milepost: use that version.",
        )
    return decoder(value, what)


def _decode(value: dict[str, object], what: str) -> LogEntry | Tombstone:
    if "tombstone" in value:
        return _decode_tombstone(value, what)
    state = value.get("state")
    if isinstance(state, dict):
        try:
            whole = {name: unpacked(state[name]) for name in _PACKED if name in state}
        except ValueError as error:
            raise StateCorrupt(f"{what}: state: {error}. Nothing was changed.") from error
        value = {**value, "state": {**state, **whole}}
    entry = from_json(LogEntry, restored(value), what)
    if entry.version != entry.state.version:
        raise StateCorrupt(
            f"{what}: entry of version {entry.version} carries the state of version {entry.state.version}."
            " Nothing was changed."
        )
    found = faults(entry.state)
    if found:
        raise StateCorrupt(f"{what}: {found[0]}. Nothing was changed.", faults=found)
    return entry


def _decode_tombstone(value: dict[str, object], what: str) -> Tombstone:
    row: Any = TombstoneRow
    try:
        if value.keys() != {"tombstone"}:
            raise ValueError(f"unknown keys {sorted(value.keys() - {'tombstone'})}")
        tombstone = from_row(_reader(row)(value["tombstone"]))
        if tombstone.event not in _EVENT_NAMES:
            raise ValueError(f"no event is a {tombstone.event!r}")
    except (_Mismatch, ValueError) as error:
        raise StateCorrupt(f"{what}: tombstone: {error}. Nothing was changed.") from error
    return tombstone


def _decode_older(number: int) -> Callable[[dict[str, object], str], LogEntry | Tombstone]:
    """The decoder of an older format: the value is brought to the present one, and read as that."""

    def decode_older(value: dict[str, object], what: str) -> LogEntry | Tombstone:
        try:
            if "tombstone" in value:
                raise NotOfThatFormat(f"format {number} has no tombstones")
            for older in range(number, FORMAT):
                value = upgraded(value, older)
        except NotOfThatFormat as error:
            raise StateCorrupt(f"{what}: {error}. Nothing was changed.") from error
        return _decode(value, what)

    return decode_older


_DECODERS: dict[int, Callable[[dict[str, object], str], LogEntry | Tombstone]] = {
    **{number: _decode_older(number) for number in range(1, FORMAT)},
    FORMAT: _decode,
}


def _dumps(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _loads(body: bytes, what: str) -> object:
    try:
        value: object = json.loads(body, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise StateCorrupt(f"{what}: expected JSON, got {len(body)} bytes: {error}. Nothing was changed.") from error
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value


def _refuse_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


@cache
def _reader(kind: Any) -> _Reader:
    """What makes a value of JSON one of `kind`, or raises _Mismatch; made once per type."""
    if isinstance(kind, NewType):
        return _reader(kind.__supertype__)
    if kind is object:
        return lambda value: value
    if kind in _SCALARS:
        return _scalar(kind)
    if kind in EVENT_TYPES:
        return _event((kind,))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is dict:
        return _mapping(arguments[1])
    return _enum(kind) if issubclass(kind, Enum) else _record(kind)


def _scalar(kind: type) -> _Reader:
    def read(value: object) -> object:
        if type(value) is not kind:
            raise _expected(_SCALARS[kind], value)
        return value

    return read


def _union(options: tuple[Any, ...]) -> _Reader:
    """An optional value, or one of the events, told apart by their tag."""
    if types.NoneType not in options:
        return _event(options)
    (option,) = (option for option in options if option is not types.NoneType)
    reader = _reader(option)
    return lambda value: None if value is None else reader(value)


def _event(kinds: tuple[type[Event], ...]) -> _Reader:
    """One of these events, told apart by its tag."""
    known = {kind.__name__: _record(kind) for kind in kinds}

    def read(value: object) -> object:
        tag = value.get(_TAG) if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(tag, str) or tag not in known:
            raise _expected(f"one of {sorted(known)} as its `{_TAG}`", tag if isinstance(value, dict) else value)
        return known[tag]({key: item for key, item in value.items() if key != _TAG})

    return read


def _mapping(kind: Any) -> _Reader:
    reader = _reader(kind)

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _expected("an object", value)
        key, found = "", {}
        try:
            for key, item in value.items():
                found[key] = reader(item)
        except _Mismatch as mismatch:
            mismatch.within(f".{key}")
            raise
        return found

    return read


def _tuple(kinds: tuple[Any, ...]) -> _Reader:
    """An array of any length of one kind, or of a kind each."""
    any_length = kinds[-1] is Ellipsis
    readers = [_reader(kind) for kind in (kinds[:1] if any_length else kinds)]

    def read(value: object) -> object:
        if not isinstance(value, list):
            raise _expected("an array", value)
        if not any_length and len(value) != len(readers):
            raise _expected(f"an array of {len(readers)}", value)
        found: list[object] = []
        try:
            for reader, item in zip(cycle(readers), value, strict=False):
                found.append(reader(item))
        except _Mismatch as mismatch:
            mismatch.within(f"[{len(found)}]")
            raise
        return tuple(found)

    return read


def _enum(kind: type[Enum]) -> _Reader:
    members = {member.value: member for member in kind}

    def read(value: object) -> object:
        if type(value) is not str or value not in members:
            raise _expected(f"one of {[*members]}", value)
        return members[value]

    return read


def _record(kind: type) -> _Reader:
    key_field = _KEY_FIELDS.get(kind)

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _expected(f"an object ({kind.__name__})", value)
        readers = _field_readers(kind)
        if value.keys() != readers.keys():
            unknown, missing = sorted(value.keys() - readers.keys()), sorted(readers.keys() - value.keys())
            raise _Mismatch(f"{kind.__name__} has unknown keys {unknown} and lacks {missing}")
        name, found = "", {}
        try:
            for name, reader in readers.items():
                found[name] = reader(value[name])
        except _Mismatch as mismatch:
            mismatch.within(f".{name}")
            raise
        record = kind(**found)
        if key_field is not None:
            key = getattr(record, key_field)
            fault = key_fault(key)
            if fault is not None:
                raise _Mismatch(f"{key!r} must stay below the job's prefix: {fault}").within(f".{key_field}")
        return record

    return read


@cache
def _field_readers(kind: type) -> dict[str, _Reader]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _expected(expectation: str, value: object) -> _Mismatch:
    text = repr(value)
    return _Mismatch(f"expected {expectation}, got {text if len(text) <= 80 else text[:77] + '...'}")
