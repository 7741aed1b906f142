"""Encode and decode manifest entries and tombstones as canonical JSON.

Decoding raises StateCorrupt for an entry of another format, and for a state that this protocol cannot have written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from milepost.codec import (
    dump,
    expand_handles,
    from_json,
    load_document,
    load_row,
    pack,
    shorten_handles,
    to_json,
    unpack,
)
from milepost.errors import StateCorrupt
from milepost.protocol.log.log_entries import LogEntry, LoggedEvent, Tombstone, TombstoneRow, from_row, to_row
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.transaction.events import EVENT_NAMES

FORMAT = "milepost.entry/3"
TOMBSTONE_FORMAT = "milepost.tombstone/1"

_BEFORE_EVENT, _AFTER_EVENT = '{"event":', f',"format":"{FORMAT}"'

_PACKED = ("aborted_sessions", "checkpoints", "completed_sessions", "garbage", "garbage_lists")
"""State fields whose records are alike, and which are packed for that reason."""

_ABSENT_IF_EMPTY = ("floors", "quarantined")
"""State fields that most jobs do not need. Older entries do not have them."""

_ABSENT_OF_EVENT: Mapping[str, Mapping[str, Any]] = {
    "CheckpointAborted": {"decided_by": None},
    "JobCanceled": {"decided_by": None},
    "JobResumed": {"detail": "", "decided_by": None},
    "JobStarted": {"detail": "", "decided_by": None},
    "RealignmentDecided": {"decided_by": None},
    "TimelineSwitched": {"decided_by": None},
    "SinksConfirmed": {"duration_ms": None},
}
"""Fields of events that are stored only if they differ from this value. Older entries do not have them."""

_SMALL_BYTES = 32 << 10
"""Larger entries are not cached: decoded, they are several times this size."""

EVENT_BYTES = 16 << 10
"""An entry's event ends within this many bytes from its start, except for a few events with hundreds of ids."""


def encode_entry(entry: LogEntry) -> bytes:
    """Return the body of one manifest object: ``{event, format, state, version, write_id}``."""
    value: Any = shorten_handles(to_json(entry))
    value["event"] = _without_absent(value["event"])
    value["state"] |= {name: pack(value["state"][name]) for name in _PACKED}
    for name in _ABSENT_IF_EMPTY:
        if not value["state"][name]:
            del value["state"][name]
    return dump({"format": FORMAT, **value})


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """Return the body of a compacted manifest object: ``[format, …]``, an array to save bytes."""
    return dump([TOMBSTONE_FORMAT, *to_json(to_row(tombstone))])


def decode_entry(body: bytes, what: str = "manifest entry") -> LogEntry | Tombstone:
    """Return the entry or tombstone in one manifest object. Entries are immutable, so small ones are cached.

    Args:
        body: of the object. what: the object's key, for errors.
    Raises:
        StateCorrupt: not an entry, another format, or a state that this protocol cannot have written.
    """
    return (_decode_small if len(body) <= _SMALL_BYTES else _decode)(body, what)


def _decode(body: bytes, what: str) -> LogEntry | Tombstone:
    if body.startswith(b"["):
        return _decode_tombstone(load_row(TOMBSTONE_FORMAT, body, what), what)
    value = load_document(FORMAT, body, what)
    del value["format"]
    state = value.get("state")
    if isinstance(state, dict):
        try:
            whole = {name: unpack(state[name]) for name in _PACKED if name in state}
        except ValueError as error:
            raise StateCorrupt(f"{what}: state: {error}. Nothing was changed.") from error
        value = {**value, "state": {**{name: [] for name in _ABSENT_IF_EMPTY}, **state, **whole}}
    entry = from_json(LogEntry, expand_handles(_with_event(value)), what)
    if entry.version != entry.state.version:
        raise StateCorrupt(
            f"{what}: entry of version {entry.version} carries the state of version {entry.state.version}."
            " Nothing was changed."
        )
    violations = faults(entry.state)
    if violations:
        raise StateCorrupt(f"{what}: {violations[0]}. Nothing was changed.", faults=violations)
    return entry


_decode_small = lru_cache(maxsize=128)(_decode)
"""An act reads the head several times, every transition decodes the entry it has written, and the list of all jobs
reads the head of each job again and again."""


def decode_event(body: bytes, what: str = "manifest entry") -> LoggedEvent | Tombstone:
    """Return the event in one manifest object, without decoding or checking the state.

    Raises:
        StateCorrupt: not an entry, another format, or an invalid event.
    """
    if body.startswith(b"["):
        return _decode_tombstone(load_row(TOMBSTONE_FORMAT, body, what), what)
    value = load_document(FORMAT, body, what)
    beginning: dict[str, Any] = {name: value[name] for name in ("event", "version") if name in value}
    return from_json(LoggedEvent, expand_handles(_with_event(beginning)), what)


def decode_event_from_prefix(prefix: bytes, version: int, what: str = "manifest entry") -> LoggedEvent | None:
    """Return the event from the first bytes of an entry. Keys are sorted, so the event precedes the large state.

    Args:
        prefix: first bytes of the object, cut off anywhere.
        version: from the object's key; the entry's own version comes after these bytes.
    Returns:
        None: the event does not end within the prefix, or the format differs. Read the whole object.
    Raises:
        StateCorrupt: the event is invalid.
    """
    text = prefix.decode(errors="ignore")  # it may end within a character
    if not text.startswith(_BEFORE_EVENT):
        return None
    try:
        event, end = json.JSONDecoder().raw_decode(text, len(_BEFORE_EVENT))
    except ValueError:
        return None
    if not text.startswith(_AFTER_EVENT, end):
        return None
    return from_json(LoggedEvent, expand_handles(_with_event({"event": event, "version": version})), what)


def _with_event(value: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with all fields of its event, also those that are not stored."""
    return {**value, "event": _with_absent(value["event"])} if isinstance(value.get("event"), dict) else value


def _without_absent(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event without the fields that are not stored, in itself and in the events within it."""
    absent = _ABSENT_OF_EVENT.get(event["type"], {})
    whole = {name: item for name, item in event.items() if name not in absent or item != absent[name]}
    return whole | _within(whole, _without_absent)


def _with_absent(event: dict[str, Any]) -> dict[str, Any]:
    """Return what `_without_absent` was given."""
    whole = {**_ABSENT_OF_EVENT.get(str(event.get("type")), {}), **event}
    return whole | _within(whole, _with_absent)


def _within(event: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of an event that are events, or lists of them, changed."""

    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(item) for item in value]
        return change(value) if isinstance(value, dict) else value

    return {name: changed(event[name]) for name in ("confirmed", "aborted") if name in event}


def _decode_tombstone(row: list[Any], what: str) -> Tombstone:
    kind: Any = TombstoneRow
    try:
        tombstone = from_row(from_json(kind, row, f"{what}: tombstone"))
        if tombstone.event not in EVENT_NAMES:
            raise ValueError(f"unknown event {tombstone.event!r}")
    except ValueError as error:
        raise StateCorrupt(f"{what}: tombstone: {error}. Nothing was changed.") from error
    return tombstone
