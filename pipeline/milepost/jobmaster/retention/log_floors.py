"""Propose how far the floors of landed logs rise (L5).

The proposal is part of a subsumption. Its transition raises the floors and lists the records below them as garbage, so
they are deleted like other garbage: after the grace period, a bounded number per epoch, with recorded progress.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

from milepost.epoch import CheckpointMetadata
from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.job import LandRules
from milepost.language.times import in_ms
from milepost.protocol.landed import LogPosition, StoredRecord, floor_at, floor_of, highest_floor, raised_floor
from milepost.protocol.manifest.transaction import FloorProposal
from milepost.protocol.manifest.upkeep import holds_every_floor
from milepost.protocol.records import CheckpointId, ManifestState, landed_directory, landed_record_key
from milepost.storage.concurrency import parallel_map
from milepost.storage.log import SourceLog

_LOG = logging.getLogger(__name__)

MAX_RECORDS = 1_000
"""Maximum number of records by which one subsumption raises a floor. The next one continues."""


def propose_floors(
    context: JobContext, state: ManifestState, stay: Mapping[CheckpointId, CheckpointMetadata]
) -> tuple[FloorProposal | None, list[str]]:
    """Return the floors to raise, and the keys and directories of the records below them.

    Returns None if no floor rises. Those of a source that the spec no longer has rise to its retained position.

    Args:
        stay: metadata of every checkpoint that stays.
    """
    if holds_every_floor(state):
        return None, []
    logs = sorted({log for metadata in stay.values() for log in metadata.log_positions})
    trims = parallel_map(context.store, partial(_trim, context, state, stay), logs)
    raised = [(log, trim) for log, trim in zip(logs, trims, strict=True) if trim is not None]
    floors = tuple(floor_at(log, trim.end) for log, trim in raised)
    entries = [entry for log, trim in raised for entry in trim.entries(log)]
    return (FloorProposal(floors, tuple(sorted(stay))) if floors else None), entries


@dataclass(frozen=True, slots=True)
class _Trim:
    """Records of one log that nothing needs: from sequence `begin` up to the position `end`."""

    begin: int
    end: LogPosition

    def entries(self, log: str) -> Iterator[str]:
        """Yield the folder of objects and the key of each record. log: its stored name."""
        for sequence in range(self.begin, self.end.next):
            yield landed_directory(log, sequence)
            yield landed_record_key(log, sequence)


def _trim(
    context: JobContext, state: ManifestState, stay: Mapping[CheckpointId, CheckpointMetadata], stored_as: str
) -> _Trim | None:
    """Return what may leave the log that is stored under a name; None: nothing, or the log cannot be read."""
    positions = [metadata.log_position(stored_as) for metadata in stay.values()]
    highest, floor = highest_floor(positions), floor_of(state, stored_as)
    if highest is None or (floor is not None and highest <= floor.next):
        return None
    source = next((name for name, log in context.log_names().items() if log == stored_as), stored_as)
    rules = context.spec.landed[source].land if source in context.spec.landed else LandRules()
    log, retain_ms = SourceLog(context.store, source, floor, stored_as), in_ms(rules.retain)
    try:
        begin = log.record(highest - 1).record.first if floor is None else floor.next
        records = islice(_records(log, begin, highest), MAX_RECORDS)
        end = raised_floor(records, highest, context.store.clock_ms() - retain_ms)
    except CheckpointError as error:
        _LOG.warning("source %s: no landed records are deleted now: %s", source, error.message)
        return None
    return None if end is None else _Trim(begin, end)


def _records(log: SourceLog, begin: int, highest: int) -> Iterator[StoredRecord]:
    """Yield the records from `begin` until before `highest`. The first is usually too young, so it is read alone."""
    for stored in log.records(log.floor, begin, begin):
        yield stored
        yield from log.records(stored.position, begin + 1, highest - 1)
