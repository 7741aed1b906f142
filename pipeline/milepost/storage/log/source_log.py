"""The log of one landed source, on the job's store: read it, and append to it (L1)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial

from milepost.errors import CommitConflict, CommitOutcomeUnknown, NotFound, StateCorrupt
from milepost.protocol.landed import (
    LogPosition,
    LogRecord,
    StoredRecord,
    decode_record,
    encode_record,
    live_sequences,
    require_follows,
)
from milepost.protocol.records import (
    LANDED_PREFIX,
    ObjectStore,
    landed_record_key,
    landed_records_prefix,
    landed_sequence,
)
from milepost.storage.concurrency.prefetching import prefetched_map
from milepost.storage.log.certain_create import LostRace, create_certainly
from milepost.storage.version_search import latest_version

_RECORD_BYTES = 2_000
"""Typical size of a record."""

_PREFETCHED_BYTES = 200_000


class SourceLog:
    """The records of one source's log.

    Args:
        store: rooted at the job. source: its name, for messages.
        floor: where the retained records begin, by the job's manifest; None: at the log's first record. Records below
            it may be deleted, and are not read.
        stored_as: name under which the log is stored; None: that of the source. Names are safe in a key.
    """

    def __init__(
        self, store: ObjectStore, source: str, floor: LogPosition | None = None, stored_as: str | None = None
    ) -> None:
        self.store, self.source, self.floor, self.stored_as = store, source, floor, stored_as or source

    def newest(self) -> StoredRecord | None:
        """Return the newest record, or None if nothing was ever landed. Raises StateCorrupt."""
        prefix = landed_records_prefix(self.stored_as)
        stat = latest_version(self.store, prefix, partial(landed_record_key, self.stored_as), self._sequence)
        return None if stat is None else self.record(self._sequence(stat.key))

    def record(self, sequence: int) -> StoredRecord:
        """Return one record. Raises NotFound, StateCorrupt."""
        key = landed_record_key(self.stored_as, sequence)
        stored = decode_record(self.store.get(key), key)
        if stored.record.sequence != sequence:
            raise StateCorrupt(f"{key}: expected record {sequence}, got {stored.record.sequence}. Nothing was changed.")
        return stored

    def first(self, newest: StoredRecord) -> int:
        """Return the sequence of the first retained record."""
        return newest.record.first if self.floor is None else self.floor.next

    def since(self, position: LogPosition | None, newest: StoredRecord) -> Iterator[StoredRecord]:
        """Yield the records after a position, oldest first, up to a newest record. Reads ahead of the caller.

        Each record is checked to follow the one before, so a log that was restored from an older copy, or in which
        something else wrote, is never read as if it continued.

        Args:
            position: None is the first retained record.
        Raises:
            StateCorrupt: a record is missing or does not follow; or the log ends before the position.
        """
        position = self.floor if position is None else position
        self.require_continues(position, newest)
        first, last = newest.record.first if position is None else position.next, newest.record.sequence
        return self.records(position, first, last)

    def records(self, position: LogPosition | None, first: int, last: int) -> Iterator[StoredRecord]:
        """Yield the records of a range, which follow a position. Raises: as `since`."""
        sequences = ((sequence, _RECORD_BYTES) for sequence in range(first, last + 1))
        for stored in prefetched_map(self.store, self._existing, sequences, _PREFETCHED_BYTES):
            require_follows(stored, position, landed_record_key(self.stored_as, stored.record.sequence))
            position = stored.position
            yield stored

    def first_reaching(self, rows: int, after: LogPosition | None, newest: StoredRecord) -> StoredRecord | None:
        """Return the first record with this many rows in the log up to it; None: the log has fewer.

        Without void records totals never fall, so few records are read: the second step of 1, 3, 7, … that reaches the
        rows bounds a binary search. The first record after a position mostly has rows, and is then the only one read.

        Args:
            rows: more than before `after`. after: None is the first retained record.
        """
        after = self.floor if after is None else after
        if newest.record.total_rows < rows:
            return None
        first = newest.record.first if after is None else after.next
        sequences = live_sequences(first, newest.record.sequence, newest.record.voids)
        read: dict[int, StoredRecord] = {newest.record.sequence: newest}

        def total_rows(sequence: int) -> int:
            if sequence not in read:
                read[sequence] = self._existing(sequence)
            return read[sequence].record.total_rows

        low = high = 0
        while high < len(sequences) - 1 and total_rows(sequences[high]) < rows:
            low, high = high + 1, min(2 * high + 1, len(sequences) - 1)
        at = sequences[bisect_left(sequences, rows, low, high, key=total_rows)]
        total_rows(at)
        return read[at]

    def require_continues(self, position: LogPosition | None, newest: StoredRecord | None) -> None:
        """Check that the log still has the records up to a position. Raises StateCorrupt.

        Args:
            position: None is the first retained record. newest: the newest record; None: there is none.
        """
        position = self.floor if position is None else position
        if position is None:
            return
        record = None if newest is None else newest.record
        at_least = position.next - 1 if self.floor is None else max(position.next - 1, self.floor.next)
        has_it = record is not None and record.log == position.log and record.sequence >= at_least
        is_end = record is not None and record.sequence == position.next - 1
        if not has_it or (is_end and newest is not None and newest.digest != position.digest):
            raise self._other_log(position, record)

    def begin(self, record: LogRecord) -> StoredRecord:
        """Store the first record of a log. Withdraws it if something else has begun the log at another record.

        A first landing begins at record 1, and a restore at a later one: both creates succeed. Each looks for the other
        one after its own create, so at least one of them finds it, before it lands or acknowledges anything.

        Raises: as `append`.
        """
        begun = self.append(record)
        try:
            self.require_only_begin(begun)
        except CommitConflict:
            if not self._exists(record.sequence + 1):  # else a landing continues from ours
                self.store.delete([landed_record_key(self.stored_as, record.sequence)])
            raise
        return begun

    def require_only_begin(self, begin: StoredRecord) -> None:
        """Check that a log has no other begin than this one. Raises CommitConflict."""
        newest = self.newest()
        is_only = newest is not None and newest.record.log == begin.record.log
        if not is_only or (begin.record.first > 1 and self._exists(1)):
            raise CommitConflict(
                f"source {self.source}: a landing and a restore of a savepoint have begun its log at the same time. "
                "This one has landed and acknowledged nothing.",
                hint="land again if the restore has succeeded. Otherwise restore the savepoint into a new job",
                source=self.source,
            )

    def require_holds(self, position: LogPosition) -> None:
        """Check that a position is on this log. Raises StateCorrupt: it was lost, or restored from an older copy."""
        if not self.holds(position):
            newest = self.newest()
            raise self._other_log(position, None if newest is None else newest.record)

    def holds(self, position: LogPosition) -> bool:
        """Return whether a position is on this log, at or above the floor. Raises StateCorrupt.

        It reads the record before the position. At the floor that record may be deleted, and the floor has its digest.
        """
        if self.floor is not None and position.next <= self.floor.next:
            return position == self.floor
        try:
            return self.record(position.next - 1).position == position
        except NotFound:
            return False

    def _exists(self, sequence: int) -> bool:
        try:
            self.record(sequence)
        except NotFound:
            return False
        return True

    def _existing(self, sequence: int) -> StoredRecord:
        """Return a record that must exist, because a newer one does."""
        try:
            return self.record(sequence)
        except NotFound as error:
            raise self._missing(sequence) from error

    def append(self, record: LogRecord) -> StoredRecord:
        """Store a record.

        Raises:
            CommitConflict: another landing has appended a record with this sequence. Ours did not land.
            CommitOutcomeUnknown: it may have landed. Delete nothing, and read the newest record before landing again.
            CheckpointError: the store refused it. It did not land.
        """
        key, body = landed_record_key(self.stored_as, record.sequence), encode_record(record)
        try:
            create_certainly(
                self.store,
                key,
                body,
                record.write_id,
                lambda: self.record(record.sequence).record.write_id,
                partial(self._unknown, record),
            )
        except LostRace as error:
            raise CommitConflict(
                f"source {self.source}: another landing appended record {record.sequence} first. What this one read "
                "was not appended, and nothing was acknowledged.",
                hint="nothing: the other landing has these rows; the next one continues from there",
                source=self.source,
            ) from error
        return decode_record(body, key)

    def _sequence(self, key: str) -> int:
        sequence = landed_sequence(key)
        if sequence is None:
            raise StateCorrupt(
                f"object {key!r} in the log of source {self.source} is not a record. Nothing was changed.",
                hint="something else wrote there: move the object away, then run again",
                key=key,
            )
        return sequence

    def _other_log(self, position: LogPosition, newest: LogRecord | None) -> StateCorrupt:
        stored = "there is none" if newest is None else f"log {newest.log} ends at record {newest.sequence}"
        return StateCorrupt(
            f"source {self.source}: the checkpoint has read its log {position.log} up to record {position.next - 1}, "
            f"and what is stored is not that log: {stored}. Nothing was changed.",
            hint=f"restore {landed_records_prefix(self.stored_as)} of the job from the newest copy of the store",
            source=self.source,
        )

    def _missing(self, sequence: int) -> StateCorrupt:
        return StateCorrupt(
            f"source {self.source}: record {sequence} of its log is missing although newer records exist: it was "
            "deleted. Nothing was changed.",
            hint="restore the object from a copy of the store",
            key=landed_record_key(self.stored_as, sequence),
        )

    def _unknown(self, record: LogRecord, cause: BaseException | None) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"source {self.source}: it is unknown whether record {record.sequence} of its log (write id "
            f"{record.write_id}) landed: {cause}. Nothing was deleted or acknowledged.",
            hint="land again: it reads the newest record first, and continues from there",
            source=self.source,
        )


def stored_logs(store: ObjectStore) -> Iterator[str]:
    """Yield the names under which logs are stored, and of sources of which only a failure is. One request each.

    Args:
        store: rooted at the job.
    """
    after = ""
    while (stat := next(iter(store.list(LANDED_PREFIX, start_after=after, limit=1)), None)) is not None:
        name = stat.key.split("/")[1]
        after = f"{LANDED_PREFIX}{name}0"  # the character after "/": behind all that is stored of this name
        yield name
