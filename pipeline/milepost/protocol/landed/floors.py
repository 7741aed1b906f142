"""How far the floor of a log may rise: below it, no retained checkpoint needs a record (L5).

A log with records 1 to 6, of which records 1 to 4 are older than `retain`::

    lowest `next` of the retained checkpoints   4: records 1 to 3 are not needed
    highest `next` of the retained checkpoints  7: record 6 exists, and stays, so that an idle log keeps its `end`
    records older than `retain`                 1 to 4
    floor                                       4, the least of 4, 6 and 5
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import fields
from typing import Any

from milepost.protocol.landed.records import LogPosition, StoredRecord
from milepost.protocol.records import LogFloor, ManifestState


def floor_at(source: str, position: LogPosition) -> LogFloor:
    """Return the floor of a log at a position."""
    return LogFloor(**_values(position), source=source)


def floor_of(state: ManifestState, source: str) -> LogPosition | None:
    """Return the position at which the retained records of a source's log begin; None: at its first record."""
    return next((LogPosition(**_values(floor)) for floor in state.floors if floor.source == source), None)


def _values(position: LogPosition) -> dict[str, Any]:
    return {field.name: getattr(position, field.name) for field in fields(LogPosition)}


def highest_floor(positions: Collection[LogPosition | None]) -> int | None:
    """Return the sequence up to which a floor may rise, or None: it must not rise.

    The last record that a checkpoint has read stays, because it may be the newest of the log.

    Args:
        positions: of all retained checkpoints. A checkpoint without one, and positions in several logs, hold every
            record.
    """
    known = [position for position in positions if position is not None]
    if len(known) < len(positions) or len({position.log for position in known}) != 1:
        return None
    ends = [position.next for position in known]
    return min(*ends, max(ends) - 1)


def raised_floor(records: Iterable[StoredRecord], highest: int, landed_until_ms: int) -> LogPosition | None:
    """Return the position to which a floor rises; None: it stays.

    Args:
        records: from the floor on, in order. No record is read after the first that stays.
        highest: from `highest_floor`.
        landed_until_ms: a record that was landed after this time stays, and so does everything after it.
    """
    position = None
    for stored in records:
        if stored.record.sequence >= highest or stored.record.landed_at_ms > landed_until_ms:
            break
        position = stored.position
    return position
