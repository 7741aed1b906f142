"""How far the floor of a log may rise: below it, no retained checkpoint needs a record (L5).

A log with records 1 to 6, of which records 1 to 4 are older than `retain`::

    lowest `next` of the retained checkpoints   4: records 1 to 3 are not needed
    newest record                               6: it always stays, so that an idle log keeps its `to`
    records older than `retain`                 1 to 4
    floor                                       4, the least of 4, 6 and 5
"""

from __future__ import annotations

from collections.abc import Iterable

from milepost.protocol.landed.records import LogPosition, StoredRecord
from milepost.protocol.records import LogFloor


def floor_at(source: str, position: LogPosition) -> LogFloor:
    """Return the floor of a log at a position."""
    return LogFloor(
        source,
        position.log,
        position.next,
        position.digest,
        position.at,
        position.total_rows,
        position.total_bytes,
        position.total_objects,
    )


def position_at(floor: LogFloor) -> LogPosition:
    """Return the position at which the retained records begin."""
    return LogPosition(
        floor.log,
        floor.next,
        floor.digest,
        floor.at,
        floor.total_rows,
        floor.total_bytes,
        floor.total_objects,
    )


def highest_floor(positions: Iterable[LogPosition | None], newest: StoredRecord) -> int | None:
    """Return the sequence up to which a floor may rise, or None: it must not rise.

    Args:
        positions: of all retained checkpoints. None, or a position in another log, holds every record.
        newest: the newest record of the log, which always stays.
    """
    highest = newest.record.sequence
    for position in positions:
        if position is None or position.log != newest.record.log:
            return None
        highest = min(highest, position.next)
    return highest


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
