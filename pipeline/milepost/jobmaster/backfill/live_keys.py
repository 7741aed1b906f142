"""Find the objects and files of a log that a replay reads again: those of records that are not void (L8)."""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.landed import LandedRange, StoredRecord, live_sequences
from milepost.storage.log import SourceLog


class LiveKeys:
    """The keys of the objects and files in the logs of a job that are not void."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._logs: dict[str, tuple[SourceLog, StoredRecord | None]] = {}

    def among(self, source: str, landed: LandedRange) -> frozenset[str] | None:
        """Return the keys of the objects and files of a range that are not void now; None: none is void."""
        if source not in self._logs:
            log = self._context.source_log(source)
            self._logs[source] = log, log.newest()
        log, newest = self._logs[source]
        if newest is None:
            return None
        live = live_sequences(landed.first, landed.end.next - 1, newest.record.voids)
        if len(live) == landed.count:
            return None
        retained = (log.record(sequence).record for sequence in live if sequence >= log.first(newest))
        return frozenset(key for record in retained for key, *_ in record.versions())
