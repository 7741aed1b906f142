"""The manifest's objects as canonical JSON, and back: an entry, or what compaction leaves of one.

A change of any record here is a new format: it adds a golden file and keeps this decoder. An unknown format, or a state
that this protocol cannot have written, is StateCorrupt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milepost.protocol.codec.log_entries import LogEntry, Tombstone, TombstoneRow, from_row, to_row
from milepost.protocol.codec.older_formats import NotOfThatFormat, upgraded
from milepost.protocol.codec.packing import packed, restored, shortened, unpacked
from milepost.protocol.codec.records import dump, from_json, load, to_json
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.transaction.events import EVENT_TYPES
from milepost.protocol.records.errors import StateCorrupt

FORMAT = 4
"""What this module writes; `decode_entry` reads every format that was ever written."""

_PACKED = ("aborted_sessions", "checkpoints", "completed_sessions", "garbage", "garbage_lists")
"""Fields of a state whose records are alike."""

_EVENT_NAMES = {event.__name__ for event in EVENT_TYPES}


def encode_entry(entry: LogEntry) -> bytes:
    """Return the body of one manifest object: ``{event, format, state, version, write_id}``."""
    value: Any = shortened(to_json(entry))
    value["state"] |= {name: packed(value["state"][name]) for name in _PACKED}
    return dump({"format": FORMAT, **value})


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """Return the body of a compacted manifest object: ``{format, tombstone}``."""
    return dump({"format": FORMAT, "tombstone": to_json(to_row(tombstone))})


def decode_entry(body: bytes, what: str = "manifest entry") -> LogEntry | Tombstone:
    """Return what one manifest object says, whatever format wrote it.

    Args:
        body: of the object. what: its key, for errors.
    Raises:
        StateCorrupt: not an entry, of an unknown format, or of a state that this protocol cannot have written.
    """
    value = load(body, what)
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
    if value.keys() != {"tombstone"}:
        unknown = sorted(value.keys() - {"tombstone"})
        raise StateCorrupt(f"{what}: tombstone: unknown keys {unknown}. Nothing was changed.")
    kind: Any = TombstoneRow
    try:
        tombstone = from_row(from_json(kind, value["tombstone"], f"{what}: tombstone"))
        if tombstone.event not in _EVENT_NAMES:
            raise ValueError(f"no event is a {tombstone.event!r}")
    except ValueError as error:
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
