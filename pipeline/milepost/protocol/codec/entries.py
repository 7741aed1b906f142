"""The manifest's objects as canonical JSON, and back: an entry, or what compaction leaves of one.

An entry of another format, or a state that this protocol cannot have written, is StateCorrupt.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from milepost.protocol.codec.log_entries import LogEntry, LoggedEvent, Tombstone, TombstoneRow, from_row, to_row
from milepost.protocol.codec.packing import packed, restored, shortened, unpacked
from milepost.protocol.codec.records import EVENT_NAMES, dump, from_json, load_document, load_row, to_json
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.records.errors import StateCorrupt

FORMAT = "milepost.entry/3"
TOMBSTONE_FORMAT = "milepost.tombstone/1"

_BEFORE_EVENT, _BEHIND_EVENT = '{"event":', f',"format":"{FORMAT}"'

_PACKED = ("aborted_sessions", "checkpoints", "completed_sessions", "garbage", "garbage_lists")
"""Fields of a state whose records are alike."""

_SMALL_BYTES = 32 << 10
"""Larger entries are not cached: what they decode to is several times as large."""

EVENT_BYTES = 16 << 10
"""In so many bytes from the beginning of an entry on its event ends, but for a few that name hundreds of things."""


def encode_entry(entry: LogEntry) -> bytes:
    """Return the body of one manifest object: ``{event, format, state, version, write_id}``."""
    value: Any = shortened(to_json(entry))
    value["state"] |= {name: packed(value["state"][name]) for name in _PACKED}
    return dump({"format": FORMAT, **value})


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """Return the body of a compacted manifest object: ``[format, …]``, an array, for its size."""
    return dump([TOMBSTONE_FORMAT, *to_json(to_row(tombstone))])


def decode_entry(body: bytes, what: str = "manifest entry") -> LogEntry | Tombstone:
    """Return what one manifest object says. Entries are immutable, so a small one that was decoded lately is reused.

    Args:
        body: of the object. what: its key, for errors.
    Raises:
        StateCorrupt: not an entry, of another format, or of a state that this protocol cannot have written.
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


_decode_small = lru_cache(maxsize=32)(_decode)
"""An act reads the head several times, and every transition decodes what it has written."""


def decode_event(body: bytes, what: str = "manifest entry") -> LoggedEvent | Tombstone:
    """Return what one manifest object says that happened. Its state is neither made nor checked.

    Raises: StateCorrupt: not an entry, of another format, or its event is none.
    """
    if body.startswith(b"["):
        return _decode_tombstone(load_row(TOMBSTONE_FORMAT, body, what), what)
    value = load_document(FORMAT, body, what)
    beginning = {name: value[name] for name in ("event", "version") if name in value}
    return from_json(LoggedEvent, restored(beginning), what)


def decode_event_from_prefix(begin: bytes, version: int, what: str = "manifest entry") -> LoggedEvent | None:
    """Return what the first bytes of an entry say that happened: its event comes first, and its state is most of it.

    Args:
        version: of its key; what the entry says of that is not among these bytes.
    Returns: None: the event does not end in them, or it is another format: the whole says more.
    Raises: StateCorrupt: its event is none.
    """
    text = begin.decode(errors="ignore")  # it may end within a character
    if not text.startswith(_BEFORE_EVENT):
        return None
    try:
        event, end = json.JSONDecoder().raw_decode(text, len(_BEFORE_EVENT))
    except ValueError:
        return None
    if not text.startswith(_BEHIND_EVENT, end):
        return None
    return from_json(LoggedEvent, restored({"event": event, "version": version}), what)


def _decode_tombstone(row: list[Any], what: str) -> Tombstone:
    kind: Any = TombstoneRow
    try:
        tombstone = from_row(from_json(kind, row, f"{what}: tombstone"))
        if tombstone.event not in EVENT_NAMES:
            raise ValueError(f"no event is a {tombstone.event!r}")
    except ValueError as error:
        raise StateCorrupt(f"{what}: tombstone: {error}. Nothing was changed.") from error
    return tombstone
